"""Runs in the SQLite file of the sessions: their records, their idempotency keys, and a copy of their logs.

A crash loses at most the last quarter of a second of tokens from a copy. The conversation stores the messages.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from holodeck.core.events import Ending, Event
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import SessionBroken, StoreUnavailable
from holodeck.runs.log import RunLog
from holodeck.runs.port import Begun, RunExists, RunRecord, RunState
from holodeck.runs.run import kept_after_end, state_after
from holodeck.stores import records
from holodeck.stores.batches import BATCH, in_batches
from holodeck.stores.log_copier import LogCopier, LogPiece
from holodeck.stores.migrations import next_key
from holodeck.stores.records import COLUMNS, KEY_SECONDS, run_of
from holodeck.stores.sqlite_file import NAMED, OF_AGENT, Job, SqliteFile

T = TypeVar("T")

FIRST_COMMIT_SECONDS = 0.05  # for the first commit of a run whose client is about to be answered
RECENT_RUNS = 20_000  # runs that `equal_runs` looks at: 10 ms
SHORT_REQUEST = 1024  # bytes; a request that is no longer stays as it is when its run has ended
RUN_COLUMNS = COLUMNS.format(user="user")
# A key is the id of its run, or the client's own. The values are agent, tenant, user, wire, key, and for own keys the end of
# runs whose key is free again. An id is not free while its run is stored: a new run would get the row, and its session.
_OF_KEY = "agent = ?1 AND tenant = ?2 AND user = ?3 AND wire = ?4"
_IS_ID, _IS_OWN = f"{_OF_KEY} AND id = ?5 AND repeat_key = id", f"{_OF_KEY} AND repeat_key = ?5 AND repeat_key <> id"
_HOLDS_KEY = "(ended IS NULL OR ended > ?6)"
_BY_ID_AS_KEY = f"SELECT {RUN_COLUMNS} FROM runs WHERE {_IS_ID}"
_BY_OWN_KEY = f"SELECT {RUN_COLUMNS} FROM runs WHERE {_IS_OWN} AND {_HOLDS_KEY}"
_BY_KEY = f"{_BY_ID_AS_KEY} UNION ALL {_BY_OWN_KEY}"
_FREE_KEY = f"UPDATE runs SET repeat_key = NULL WHERE {_IS_OWN} AND NOT {_HOLDS_KEY}"
NEXT_KEY = next_key("runs")
_INSERT = (
    "INSERT INTO runs (key, agent, tenant, user, id, session, wire, repeat_key, fingerprint, state, accepted, ended,"
    f" ending, v, request, root, without_session) VALUES ({NEXT_KEY}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (agent, tenant, user, id) DO UPDATE SET state = excluded.state, request = excluded.request,"
    " root = excluded.root, v = excluded.v, replica = NULL, ended = excluded.ended, ending = excluded.ending"
)
_INSERT_UNENDED = f"{_INSERT} WHERE runs.ended IS NULL"

_REMOVE_WITHOUT_SESSION = (
    "DELETE FROM runs WHERE key IN (SELECT key FROM (SELECT key, ended FROM runs WHERE agent = ? AND without_session"
    " ORDER BY key LIMIT ?) WHERE ended <= ?)"
)

# Indexes that a run's commit does not change: rows are added to them afterwards. A commit writes one page for each index
# that it changes, and a client waits for it. Only the clean-up and rare reads need these indexes, so a new row is not in
# them. The thread adds it a moment later, in a transaction that nothing waits for: `noted` is then the time that the
# index has. New rows have the highest keys, so they are found without an index. So are those of a file that an older
# version wrote, up to the key in `not_noted`: the clean-up adds them from the highest key down.
_OLD = "(key <= (SELECT {0} FROM not_noted) AND noted IS NULL)"
_NEW = (
    "key > coalesce((SELECT key FROM {0} NOT INDEXED WHERE noted IS NOT NULL AND key > (SELECT {0} FROM not_noted)"
    " ORDER BY key DESC LIMIT 1), (SELECT {0} FROM not_noted))"
)
OLD_SESSION, NEW_SESSION = _OLD.format("sessions"), _NEW.format("sessions")
_OLD_RUN, _NEW_RUN = _OLD.format("runs"), _NEW.format("runs")

# The values are agent, tenant, user and session. The plus signs keep SQLite from an index of all runs.
_PLAIN = "+agent = ?1 AND +tenant = ?2 AND +user = ?3 AND session = ?4"
RUN_OF_SESSION = (
    "key IN (SELECT key FROM runs WHERE agent = ?1 AND tenant = ?2 AND user = ?3 AND session = ?4 AND noted IS NOT NULL"
    f" UNION ALL SELECT key FROM runs WHERE {_NEW_RUN} AND {_PLAIN}"
    f" UNION ALL SELECT key FROM runs WHERE {_OLD_RUN} AND {_PLAIN})"
)

_TIMES = {"sessions": "used", "runs": "coalesce(ended, accepted)"}
_NOTE_NEW = [
    f"UPDATE {table} SET noted = {time} WHERE key IN"
    f" (SELECT key FROM {table} WHERE {_NEW.format(table)} ORDER BY key LIMIT ?)"
    for table, time in _TIMES.items()
]


class SqliteRunStore:
    outlives_process = True
    is_shared = False  # whether other processes use the file at the same time

    def __init__(
        self, file: SqliteFile, agent: str, *, replay_window: float = 120.0, kept_seconds: float = KEY_SECONDS
    ) -> None:
        """`kept_seconds`: how long a record is kept after its run's end.

        The same as for sessions, so that every run of a stored session can be found.
        """
        self._file, self._agent = file, agent
        self._replay_window, self._kept_seconds = replay_window, kept_seconds
        self._registered: dict[OwnedId, RunRecord] = {}
        # By a transaction that is not known to be on the disk yet, and whether it has ended them.
        self._inserted: dict[OwnedId, tuple[RunRecord, bool]] = {}
        self._stored: set[OwnedId] = set()  # runs in progress: one of them that has no row was deleted
        # Runs whose client is answered when they are on the disk.
        self.awaited: dict[OwnedId, asyncio.Future[None]] = {}
        self._copier = LogCopier(self._store_pieces)
        self.clock: Callable[[], float] = time.time

    async def join(self) -> None:
        """Adds this process to those that share the file. Does nothing here: it is alone."""

    async def leave(self) -> None:
        """Stores what is left to copy of the logs. No other process takes over runs of this one."""
        await self._copier.close()

    # the port

    def register(self, record: RunRecord) -> None:
        self._registered[record.owner, record.run_id] = record

    async def begin(self, record: RunRecord) -> Begun:
        self.register(record)
        run, now = (record.owner, record.run_id), self.clock()
        await self._written(run, lambda connection: self.store_with_commit(connection, run, None, now))
        return Begun()

    async def stored(self, record: RunRecord) -> None:
        """Waits for the run's first commit, which stores the run too: that saves a transaction and its flush."""
        run = record.owner, record.run_id
        self.awaited[run] = waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(FIRST_COMMIT_SECONDS):
                await waiter
        except TimeoutError:
            current = self._registered.get(run)
            if current is not None:
                await self.store_request(current)
            elif await self.find(record.run_id, owner=record.owner) is None:
                raise StoreUnavailable("This run has ended and could not be stored.") from None
        finally:
            del self.awaited[run]

    async def store_request(self, record: RunRecord) -> bool:
        run, now = (record.owner, record.run_id), self.clock()
        is_stored = run in self._stored
        if run in self._registered:
            self._registered[run] = record

        def job(connection: sqlite3.Connection) -> bool:
            if is_stored:
                return self._update_request(connection, record)
            return self._insert(connection, record, now, reopens=False)

        return await self._written(run, job)

    async def _written(self, run: OwnedId, job: Job[T]) -> T:
        future = self._file.write(job)
        future.add_done_callback(partial(self.committed, run))
        return await future

    def committed(self, run: OwnedId, done: "asyncio.Future[Any]") -> None:
        """Learns from a transaction that called `store_with_commit` whether it has stored the run."""
        record, has_ended = self._inserted.pop(run, (None, False))
        if done.cancelled() or done.exception() is not None or (record is None and not self.is_shared):
            return
        waiter = self.awaited.get(run)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if record is None or run not in self._registered:
            return
        if has_ended:
            del self._registered[run]
            return
        self._stored.add(run)
        if self._registered[run] is record:
            del self._registered[run]

    def release(self, record: RunRecord) -> None:
        self._registered.pop((record.owner, record.run_id), None)
        self._stored.discard((record.owner, record.run_id))

    async def take_up(self, record: RunRecord) -> None:
        self._stored.add((record.owner, record.run_id))
        statement = f"UPDATE runs SET recovered = recovered + 1 WHERE {NAMED}"
        await self._file.execute(statement, self._name(record.owner, record.run_id))

    async def end(self, record: RunRecord, ending: Ending) -> bool:
        run, now = (record.owner, record.run_id), self.clock()
        is_released = run not in self._stored and run not in self._registered

        def job(connection: sqlite3.Connection) -> bool:
            if not is_released:
                return self.store_with_commit(connection, run, ending, now)
            if not self._update_ending(connection, run, ending, now, is_over=True):
                self._insert(connection, record, now, ending)
            return True

        return await self._written(run, job)

    async def find(self, run_id: str, *, owner: Owner) -> RunRecord | None:
        statement, name = f"SELECT {RUN_COLUMNS} FROM runs WHERE {NAMED}", self._name(owner, run_id)
        found = await self._file.read(lambda connection: connection.execute(statement, name).fetchone())
        return None if found is None else run_of(found)

    async def by_key(self, wire: str, key: str, *, owner: Owner) -> RunRecord | None:
        """Reads without waiting for queued jobs: `Idempotency` knows the runs that this process is storing."""
        values = self._of_key(wire, key, owner, self.clock())
        found = await self._file.look(lambda connection: connection.execute(_BY_KEY, values).fetchone())
        return None if found is None else run_of(found)

    def _of_key(self, wire: str, key: str | None, owner: Owner, now: float) -> tuple[object, ...]:
        return self._agent, owner.tenant, owner.user, wire, key, now - KEY_SECONDS

    async def runs_of(
        self, *, owner: Owner, session_id: str | None = None, root: str | None = None, limit: int = 100
    ) -> Sequence[RunRecord]:
        where, values, agent = "tenant = ? AND user = ?", [owner.tenant, owner.user], "agent = ?"
        if session_id is not None:
            where, values = RUN_OF_SESSION, [*values, session_id]
            agent = OF_AGENT
        if root is not None:
            where, values = f"{where} AND (id = ? OR root = ?)", [*values, root, root]
        order = f"ORDER BY key DESC LIMIT {int(limit)}"
        return await self._file.read(self._selected(where, values, order, agent=agent))

    async def equal_runs(self, fingerprint: bytes, *, owner: Owner, seconds: float) -> Sequence[RunRecord]:
        """Looks at the newest `RECENT_RUNS` of the file only: no index has fingerprints."""
        where = (
            "tenant = ? AND user = ? AND fingerprint = ? AND (ended IS NULL OR ended > ?)"
            f" AND key > (SELECT max(key) FROM runs) - {RECENT_RUNS}"
        )
        values = owner.tenant, owner.user, fingerprint, self.clock() - seconds
        return await self._file.read(self._selected(where, values, agent="+agent = ?"))

    async def remove(self, run_id: str, *, owner: Owner) -> bool:
        removed = await self._file.execute(f"DELETE FROM runs WHERE {NAMED}", self._name(owner, run_id))
        return removed > 0

    async def unfinished(self) -> Sequence[RunRecord]:
        """Runs without an ending, oldest first. Sets aside those that cannot be read."""
        found = await self._file.write(self._unfinished)
        self._stored |= {(record.owner, record.run_id) for record in found}
        return found

    async def events(self, record: RunRecord, first: int = 0) -> list[tuple[int, list[Event]]]:
        return records.pieces_of(await self._file.read(partial(self._pieces, record=record, first=first)), first)

    def follow(self, record: RunRecord, log: RunLog, first_number: int = 0) -> None:
        self._copier.follow((record.owner, record.run_id), log, first_number)

    # in the file's thread

    def stop_elsewhere(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> None:
        """Makes other processes stop the runs of a session that is about to be deleted.

        Does nothing here: there are none.
        """

    def runs_elsewhere(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> bool:
        """Whether another process has a run of this session that has not ended: a server, if this is a terminal."""
        if self._file.exclusive:
            return False
        statement = f"SELECT id FROM runs WHERE {RUN_OF_SESSION} AND ended IS NULL"
        found = connection.execute(statement, self._name(owner, session_id)).fetchall()
        return any((owner, run_id) not in {*self._stored, *self._registered} for (run_id,) in found)

    def _pieces(self, connection: sqlite3.Connection, record: RunRecord, first: int) -> list[tuple[int, bytes]]:
        key = self._key(connection, record.owner, record.run_id)
        statement = (
            "SELECT first, body FROM pieces WHERE run = ?1 AND first >= coalesce((SELECT max(first) FROM pieces"
            " WHERE run = ?1 AND first <= ?2), 0) ORDER BY first"
        )
        return connection.execute(statement, (key, first)).fetchall()

    def store_with_commit(
        self,
        connection: sqlite3.Connection,
        run: OwnedId,
        ending: Ending | None,
        now: float,
        session: int | None = None,
    ) -> bool:
        """Stores a registered run together with the first thing that its conversation stores, and later its ending.

        `session` is the key of a session that was stored before the run. False if the run was deleted with its session,
        or the session before anything of the run was stored: then its conversation stores nothing more.
        """
        if session is not None and run not in self._stored and not has_session(connection, session):
            if self._registered.pop(run, None) is not None:
                self._stored.add(run)  # until it is released: its ending is not stored either
            return False
        record, is_stored = self._registered.get(run), run in self._stored
        if record is not None and not is_stored:
            self._insert(connection, record, now, ending)
        else:
            if record is not None:
                self._update_request(connection, record)
            is_over = record is None and not is_stored  # it had ended with an open interrupt, which is now withdrawn
            is_found = ending is not None and self._update_ending(connection, run, ending, now, is_over=is_over)
            if is_stored and not is_found and self._key(connection, *run) is None:
                return False
            if record is not None:
                self._inserted[run] = record, ending is not None
        return True

    def _update_ending(
        self, connection: sqlite3.Connection, run: OwnedId, ending: Ending, now: float, *, is_over: bool
    ) -> bool:
        """Stores an ending, and returns whether the run exists. It must be in progress unless it `is_over`."""
        ended = state_after(ending), records.encode(ending), now, records.VERSION
        long_requests = connection.execute(
            f"UPDATE runs SET state = ?, ending = ?, ended = ?, v = ? WHERE {NAMED}"
            + ("" if is_over else " AND ended IS NULL")
            + " RETURNING key, CASE WHEN length(request) > ? THEN request END",
            (*ended, *self._name(*run), SHORT_REQUEST),
        ).fetchall()
        for key, request in long_requests:
            if request is not None:
                self._shorten_request(connection, key, request)
        return bool(long_requests)

    def _shorten_request(self, connection: sqlite3.Connection, key: int, request: bytes) -> None:
        """Drops what only a run in progress needs. Otherwise each run would store its messages twice, uncounted."""
        with suppress(SessionBroken):  # one that cannot be read is kept as it is
            body = records.encode(kept_after_end(records.request_of(request, records.VERSION)))
            connection.execute("UPDATE runs SET request = ? WHERE key = ?", (body, key))

    def _update_request(self, connection: sqlite3.Connection, record: RunRecord) -> bool:
        """Returns whether the run is in progress."""
        values = records.encode(record.request), record.root or None, records.VERSION
        changed = connection.execute(
            f"UPDATE runs SET request = ?, root = ?, v = ? WHERE {NAMED} AND ended IS NULL",
            (*values, *self._name(record.owner, record.run_id)),
        )
        return changed.rowcount > 0

    def _insert(
        self,
        connection: sqlite3.Connection,
        record: RunRecord,
        now: float,
        ending: Ending | None = None,
        *,
        reopens: bool = True,
    ) -> bool:
        """Inserts a run, and returns whether it did.

        A part that continues a run under its own id replaces the earlier part, which it `reopens`. Raises RunExists if
        another run has the id: one of another wire, which the key of this one does not find.
        """
        name = self._name(record.owner, record.run_id)
        about = record.session_id, record.wire, record.key, record.fingerprint
        state, ended = (RunState.RUNNING, None) if ending is None else (state_after(ending), now)
        request = records.encode(record.request)
        if ending is not None and len(request) > SHORT_REQUEST:
            request = records.encode(kept_after_end(record.request))
        body = None if ending is None else records.encode(ending)
        last = record.root or None, record.request.throw_away or None
        values = (*name, *about, state, now, ended, body, records.VERSION, request, *last)
        statement = _INSERT if reopens and record.request.answered else _INSERT_UNENDED
        if self.put(connection, record, now, statement, values).rowcount:
            self._inserted[record.owner, record.run_id] = record, ending is not None
            return True
        if reopens:
            raise RunExists(f"Run id {record.run_id!r} is already used by another request.")
        return False

    def put(
        self, connection: sqlite3.Connection, record: RunRecord, now: float, statement: str, values: Sequence[object]
    ) -> sqlite3.Cursor:
        """Executes a statement that inserts a run. A key that is free again is taken from the run that had it.

        Raises sqlite3.IntegrityError if the key is taken.
        """
        of_key = self._of_key(record.wire, record.key, record.owner, now)
        # no index has both kinds of keys
        other = (_BY_OWN_KEY, of_key) if record.key == record.run_id else (_BY_ID_AS_KEY, of_key[:5])
        if record.key is not None and connection.execute(*other).fetchone() is not None:
            raise sqlite3.IntegrityError("another run has the key")
        try:
            return connection.execute(statement, values)
        except sqlite3.IntegrityError:
            if not connection.execute(_FREE_KEY, of_key).rowcount:
                raise
            return connection.execute(statement, values)

    def _name(self, owner: Owner, run_id: str) -> tuple[str, str, str, str]:
        return self._agent, owner.tenant, owner.user, run_id

    def _key(self, connection: sqlite3.Connection, owner: Owner, run_id: str) -> int | None:
        found = connection.execute(f"SELECT key FROM runs WHERE {NAMED}", self._name(owner, run_id)).fetchone()
        return None if found is None else int(found[0])

    def _selected(
        self,
        where: str,
        values: Sequence[str | bytes | float],
        order: str = "ORDER BY key",
        *,
        agent: str = "agent = ?",
    ) -> Job[list[RunRecord]]:
        statement = f"SELECT {RUN_COLUMNS} FROM runs WHERE {agent} AND {where} {order}"
        return lambda connection: records.readable_runs(connection.execute(statement, (self._agent, *values)))

    def _unfinished(self, connection: sqlite3.Connection) -> list[RunRecord]:
        statement = f"SELECT key, {RUN_COLUMNS} FROM runs WHERE agent = ? AND ended IS NULL ORDER BY key"
        found = records.OpenRuns(connection.execute(statement, (self._agent,)).fetchall())
        self.set_aside(connection, found)
        return [record for _, record in found.readable]

    def set_aside(self, connection: sqlite3.Connection, found: records.OpenRuns) -> None:
        connection.executemany(
            f"UPDATE runs SET state = '{RunState.INTERRUPTED}', ended = ?, ending = coalesce(ending, ?) WHERE key = ?",
            [(self.clock(), ending, key) for key, ending in found.broken],
        )

    async def remove_old(self) -> int:
        """Deletes old records, and copies of logs past their replay window. Returns the number of records."""
        return await in_batches(self._remove_batch)

    async def _remove_batch(self) -> tuple[int, bool]:
        """Removes one batch. Returns the number of records, and whether there may be more of anything."""
        now = self.clock()

        def job(connection: sqlite3.Connection) -> tuple[int, bool]:
            are_new = note_all(connection)
            until = now - max(self._kept_seconds, KEY_SECONDS)
            noted = connection.execute(
                "SELECT key, coalesce(ended, ?1), ended <= ?2 FROM runs WHERE agent = ?3 AND noted <= ?2 LIMIT ?4",
                (now, until, self._agent, BATCH),
            ).fetchall()
            old = [(key,) for key, _, is_old in noted if is_old]
            connection.executemany("DELETE FROM runs WHERE key = ?", old)
            without_session = connection.execute(
                _REMOVE_WITHOUT_SESSION, (self._agent, BATCH, now - KEY_SECONDS)
            ).rowcount
            later = [(time, key) for key, time, is_old in noted if not is_old]  # it ended after it was noted
            connection.executemany("UPDATE runs SET noted = ? WHERE key = ?", later)
            copies = connection.execute(
                "DELETE FROM pieces WHERE rowid IN (SELECT pieces.rowid FROM pieces CROSS JOIN runs ON runs.key = pieces.run"
                f" WHERE {OF_AGENT} AND runs.ended <= ? LIMIT ?)",
                (self._agent, now - self._replay_window, BATCH),
            )
            return len(old) + without_session, are_new or max(len(noted), without_session, copies.rowcount) >= BATCH

        return await self._file.write(job)

    def _store_pieces(self, pieces: list[LogPiece]) -> Awaitable[tuple[()]]:
        """Stores pieces, but none of a run whose session was deleted: it has no row.

        A copy need not survive a power loss.
        """

        def job(connection: sqlite3.Connection) -> tuple[()]:
            statement = f"INSERT OR REPLACE INTO pieces (run, first, body) SELECT key, ?, ? FROM runs WHERE {NAMED}"
            rows = [(piece.first, piece.body, *self._name(*piece.run)) for piece in pieces]
            connection.executemany(statement, rows)
            note_new(connection)
            return ()

        return self._file.write(job, synced=False)


def note_new(connection: sqlite3.Connection) -> bool:
    """Adds new sessions and runs to the indexes, at most `BATCH` of each. Returns whether there may be more."""
    return max([connection.execute(statement, (BATCH,)).rowcount for statement in _NOTE_NEW]) >= BATCH


def note_all(connection: sqlite3.Connection) -> bool:
    """Does the same as `note_new`, and as much again for the rows that an older version left."""
    are_more = [_note_old(connection, table, time) for table, time in _TIMES.items()]
    return note_new(connection) or any(are_more)


def _note_old(connection: sqlite3.Connection, table: str, time: str) -> bool:
    """Adds old rows to the indexes, at most `BATCH`. Returns whether there may be more."""
    if connection.execute(f"SELECT {table} FROM not_noted").fetchone() == (0,):
        return False
    highest = f"SELECT key FROM {table} WHERE {_OLD.format(table)} ORDER BY key DESC LIMIT ?"
    keys = connection.execute(highest, (BATCH,)).fetchall()
    connection.executemany(f"UPDATE {table} SET noted = {time} WHERE key = ?", keys)
    are_more = len(keys) >= BATCH
    connection.execute(f"UPDATE not_noted SET {table} = ?", (keys[-1][0] - 1 if are_more else 0,))
    return are_more


def interrupt_all(connection: sqlite3.Connection) -> None:
    """Makes the server that starts on a backup end the runs in progress: the original continues them.

    A run that was continued once after a crash is not continued again. So each run here gets one crash more than the
    stops that its request counts.
    """
    request = "CAST(request AS TEXT)"
    stops = f"CASE WHEN json_valid({request}) THEN json_extract({request}, '$.handovers') END"
    connection.execute(f"UPDATE runs SET recovered = max(recovered, coalesce({stops}, 0) + 1) WHERE ended IS NULL")


def has_session(connection: sqlite3.Connection, key: int) -> bool:
    return connection.execute("SELECT 1 FROM sessions WHERE key = ?", (key,)).fetchone() is not None
