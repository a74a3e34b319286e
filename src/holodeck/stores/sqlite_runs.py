"""Runs in the SQLite file of the sessions: their records, their idempotency keys, and a copy of their logs.

The copy is one more reader of a log: it looks at what is new four times a second, never per token, and a run does not wait
for it. What a crash cuts off is at most the last quarter of a second of tokens; messages are stored by the conversation.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from holodeck.core.events import ENDINGS, Ending, Event, MessagesReplaced
from holodeck.core.owner import Owner
from holodeck.errors import HoloDeckError
from holodeck.runs.log import ReplayGone, RunLog
from holodeck.runs.port import RunRecord, RunState, state_after
from holodeck.runs.recovery import kept_after_end
from holodeck.stores import records
from holodeck.stores.sqlite_file import Job, SqliteFile

COPY_SECONDS = 0.25
KEY_SECONDS = 24 * 3600.0  # how long an idempotency key is kept after its run's end, and a record at least
REMOVED_BATCH = 500
SHORT_REQUEST = 1024  # bytes; a request that is no longer stays as it is when its run has ended
_COLUMNS = (
    "tenant, user, id, session, wire, repeat_key, fingerprint, state, accepted, ended, v, request, ending, recovered,"
    " root"
)


class SqliteRunStore:
    def __init__(
        self, file: SqliteFile, agent: str, *, replay_window: float = 120.0, kept_seconds: float = KEY_SECONDS
    ) -> None:
        """`kept_seconds`: how long a record is kept after its run's end; as long as sessions are, so that all are found."""
        self._file, self._agent = file, agent
        self._replay_window, self._kept_seconds = replay_window, kept_seconds
        self._registered: dict[tuple[Owner, str], RunRecord] = {}
        self._copies: set[_Copy] = set()
        self._due: set[_Copy] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.clock: Callable[[], float] = time.time

    # the port

    def register(self, record: RunRecord) -> None:
        self._registered[record.owner, record.run_id] = record

    async def begin(self, record: RunRecord) -> None:
        self.register(record)
        now = self.clock()
        await self._file.write(
            lambda connection: self.store_with_commit(connection, record.owner, record.run_id, None, now)
        )

    def release(self, record: RunRecord) -> None:
        self._registered.pop((record.owner, record.run_id), None)

    async def take_up(self, record: RunRecord) -> None:
        statement = "UPDATE runs SET recovered = recovered + 1 WHERE agent = ? AND tenant = ? AND user = ? AND id = ?"
        name = self._name(record.owner, record.run_id)
        await self._file.write(lambda connection: connection.execute(statement, name).rowcount)

    async def end(self, record: RunRecord, ending: Ending) -> None:
        self._registered.setdefault((record.owner, record.run_id), record)
        now = self.clock()
        await self._file.write(
            lambda connection: self.store_with_commit(connection, record.owner, record.run_id, ending, now)
        )

    async def find(self, run_id: str, *, owner: Owner) -> RunRecord | None:
        where = "tenant = ? AND user = ? AND id = ?"
        return next(iter(await self._file.read(self._selected(where, (owner.tenant, owner.user, run_id)))), None)

    async def by_key(self, wire: str, key: str, *, owner: Owner) -> RunRecord | None:
        """Looks without waiting for what is queued: `Idempotency` knows the runs that this process is storing."""
        where = "tenant = ? AND user = ? AND wire = ? AND repeat_key = ?"
        return next(iter(await self._file.look(self._selected(where, (owner.tenant, owner.user, wire, key)))), None)

    async def runs_of(
        self,
        *,
        owner: Owner,
        session_id: str | None = None,
        root: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[RunRecord]:
        where, values = "tenant = ? AND user = ?", [owner.tenant, owner.user]
        if session_id is not None:
            where, values = f"{where} AND session = ?", [*values, session_id]
        if root is not None:
            where, values = f"{where} AND (id = ? OR root = ?)", [*values, root, root]
        if before is not None:
            older = "key < (SELECT key FROM runs WHERE agent = ? AND tenant = ? AND user = ? AND id = ?)"
            where, values = f"{where} AND {older}", [*values, *self._name(owner, before)]
        return await self._file.read(self._selected(where, values, f"ORDER BY key DESC LIMIT {int(limit)}"))

    async def remove(self, run_id: str, *, owner: Owner) -> bool:
        statement = "DELETE FROM runs WHERE agent = ? AND tenant = ? AND user = ? AND id = ?"
        name = self._name(owner, run_id)
        return await self._file.write(lambda connection: connection.execute(statement, name).rowcount) > 0

    async def unfinished(self) -> Sequence[RunRecord]:
        return await self._file.read(self._selected("ended IS NULL", ()))

    async def events(self, record: RunRecord) -> list[Event]:
        def job(connection: sqlite3.Connection) -> list[bytes]:
            key = self._key(connection, record.owner, record.run_id)
            found = connection.execute("SELECT first, body FROM pieces WHERE run = ? ORDER BY first", (key,))
            return [body for _, body in found]

        return records.events_of(await self._file.read(job))

    def follow(self, record: RunRecord, log: RunLog) -> None:
        copy = _Copy(record.owner, record.run_id, log, len(log))
        self._copies.add(copy)
        self._wait_for_more(copy)

    # in the file's thread

    def store_with_commit(
        self, connection: sqlite3.Connection, owner: Owner, run_id: str, ending: Ending | None, now: float
    ) -> None:
        """Stores a registered run with whatever its conversation stores first, and the ending when it comes."""
        record = self._registered.get((owner, run_id))
        if record is not None:
            self._insert(connection, record, now)
        if ending is not None:
            self._registered.pop((owner, run_id), None)
            long_requests = connection.execute(
                "UPDATE runs SET state = ?, ending = ?, ended = ?, v = ?"
                " WHERE agent = ? AND tenant = ? AND user = ? AND id = ? AND ended IS NULL"
                " RETURNING key, CASE WHEN length(request) > ? THEN request END",
                (
                    state_after(ending),
                    records.encode(ending),
                    now,
                    records.VERSION,
                    *self._name(owner, run_id),
                    SHORT_REQUEST,
                ),
            ).fetchall()
            for key, request in long_requests:
                if request is not None:
                    self._shorten_request(connection, key, request)

    def _shorten_request(self, connection: sqlite3.Connection, key: int, request: bytes) -> None:
        """Drops what only a run in progress needs. Else each run would store its messages a second time, uncounted."""
        body = records.encode(kept_after_end(records.request_of(request, records.VERSION)))
        connection.execute("UPDATE runs SET request = ? WHERE key = ?", (body, key))

    def _insert(self, connection: sqlite3.Connection, record: RunRecord, now: float) -> None:
        """A part that continues a run under its own id takes the place of the part before."""
        name = self._name(record.owner, record.run_id)
        request = records.encode(record.request)
        connection.execute(
            "INSERT INTO runs (agent, tenant, user, id, session, wire, repeat_key, fingerprint, state, accepted, v, request,"
            " root) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (agent, tenant, user, id) DO UPDATE SET state = excluded.state, request = excluded.request,"
            " root = excluded.root, v = excluded.v, ended = NULL, ending = NULL",
            (
                *name,
                record.session_id,
                record.wire,
                record.key,
                record.fingerprint,
                RunState.RUNNING,
                now,
                records.VERSION,
                request,
                record.root or None,
            ),
        )
        self._registered.pop((record.owner, record.run_id), None)

    def _name(self, owner: Owner, run_id: str) -> tuple[str, str, str, str]:
        return self._agent, owner.tenant, owner.user, run_id

    def _key(self, connection: sqlite3.Connection, owner: Owner, run_id: str) -> int | None:
        statement = "SELECT key FROM runs WHERE agent = ? AND tenant = ? AND user = ? AND id = ?"
        found = connection.execute(statement, self._name(owner, run_id)).fetchone()
        return None if found is None else int(found[0])

    def _selected(self, where: str, values: Sequence[str], order: str = "ORDER BY key") -> Job[list[RunRecord]]:
        statement = f"SELECT {_COLUMNS} FROM runs WHERE agent = ? AND {where} {order}"
        return lambda connection: [_record(row) for row in connection.execute(statement, (self._agent, *values))]

    async def remove_old(self) -> int:
        """Deletes old records, keys a day after their run's end, and copies of logs that cannot be read; a batch of each."""
        now = self.clock()

        def job(connection: sqlite3.Connection) -> int:
            old = connection.execute(
                "SELECT key FROM runs WHERE ended <= ? AND agent = ? ORDER BY ended LIMIT ?",
                (now - max(self._kept_seconds, KEY_SECONDS), self._agent, REMOVED_BATCH),
            ).fetchall()
            connection.executemany("DELETE FROM runs WHERE key = ?", old)
            connection.execute(
                "UPDATE runs SET repeat_key = NULL WHERE key IN (SELECT key FROM runs WHERE repeat_key IS NOT NULL"
                " AND ended <= ? AND agent = ? ORDER BY ended LIMIT ?)",
                (now - KEY_SECONDS, self._agent, REMOVED_BATCH),
            )
            connection.execute(
                "DELETE FROM pieces WHERE run IN (SELECT DISTINCT run FROM pieces JOIN runs ON runs.key = pieces.run"
                " WHERE runs.agent = ? AND runs.ended <= ? LIMIT ?)",
                (self._agent, now - self._replay_window, REMOVED_BATCH),
            )
            return len(old)

        return await self._file.write(job)

    # the copy of logs

    def _wait_for_more(self, copy: "_Copy") -> None:
        if len(copy.log) > copy.place:
            self._is_due(copy)
        else:
            copy.log.call_at_next(partial(self._is_due, copy))

    def _is_due(self, copy: "_Copy") -> None:
        self._due.add(copy)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COPY_SECONDS, self._copy_now)

    def _copy_now(self) -> None:
        """All copies that are due, in one job."""
        self._timer, due, self._due = None, self._due, set()
        pieces = [piece for copy in due if (piece := self._piece_of(copy)) is not None]
        try:
            self._file.write(lambda connection: self._store_pieces(connection, pieces)).add_done_callback(_ignore)
        except HoloDeckError:  # the store is closed
            self._copies.difference_update(due)

    def _piece_of(self, copy: "_Copy") -> "_Piece | None":
        try:
            events = copy.log.since(copy.place)
        except ReplayGone:  # it writes faster than it can be copied: the beginning is enough
            self._copies.discard(copy)
            return None
        first, copy.place = copy.place, copy.place + len(events)
        if events and type(events[-1]) in ENDINGS:
            self._copies.discard(copy)
        else:
            self._wait_for_more(copy)
        return copy, first, events

    def _store_pieces(self, connection: sqlite3.Connection, pieces: "Sequence[_Piece]") -> None:
        """Nothing of a run whose session was deleted: it has no row any more."""
        connection.executemany(
            "INSERT OR REPLACE INTO pieces (run, first, body)"
            " SELECT key, ?, ? FROM runs WHERE agent = ? AND tenant = ? AND user = ? AND id = ?",
            (
                (first, records.encode(_without_histories(events)), *self._name(copy.owner, copy.run_id))
                for copy, first, events in pieces
            ),
        )


@dataclass(eq=False, slots=True)
class _Copy:
    owner: Owner
    run_id: str
    log: RunLog
    place: int


_Piece: TypeAlias = tuple[_Copy, int, Sequence[Event]]
"""What is new in a log, and the number of its first event."""


def _without_histories(events: Sequence[Event]) -> Sequence[Event]:
    """Copies snapshots without their messages: a reader of the copy fills in the session's messages."""
    if MessagesReplaced not in map(type, events):
        return events
    return [MessagesReplaced(()) if isinstance(event, MessagesReplaced) else event for event in events]


def _ignore(done: "asyncio.Future[None]") -> None:
    """A copy that fails is logged by the file; a run does not depend on it."""
    if not done.cancelled():
        done.exception()


def _record(row: tuple[object, ...]) -> RunRecord:
    (
        tenant,
        user,
        run_id,
        session,
        wire,
        key,
        fingerprint,
        state,
        accepted,
        ended,
        v,
        request,
        ending,
        recovered,
        root,
    ) = row
    return RunRecord(
        run_id=str(run_id),
        owner=Owner(str(tenant), str(user)),
        session_id=str(session),
        wire=str(wire),
        key=None if key is None else str(key),
        fingerprint=fingerprint if isinstance(fingerprint, bytes) else b"",
        state=RunState(str(state)),
        created_at=_time(accepted),
        finished_at=None if ended is None else _time(ended),
        request=records.request_of(request if isinstance(request, bytes) else b"", int(str(v))),
        ending=records.ending_of(ending if isinstance(ending, bytes) else None, int(str(v))),
        recovered=int(str(recovered)),
        root="" if root is None else str(root),
    )


def _time(seconds: object) -> datetime:
    return datetime.fromtimestamp(float(str(seconds)), UTC)
