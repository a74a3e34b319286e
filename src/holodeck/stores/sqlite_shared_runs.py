"""Runs in a SQLite file that the workers of one server share (`holodeck serve --workers`).

The protocol is that of `postgres_runs`. A run's row names the process that may write it. Runs of a session take turns
in the order of their rows. A process whose counter stands still is taken over. A SQLite transaction has the file to
itself, so one statement there may be several here. Other workers notice a change with `SqliteChanges`; the table
`wishes` is their inbox.

Pieces of logs, commands and counters are not flushed to the disk by themselves, since nothing acknowledges them. They
survive the end of a process without a flush, and a power loss ends all processes anyway. A run's row is flushed with
its first commit, before anything of the run is shown.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from holodeck._version import __version__
from holodeck.core.events import Ending, Event
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import HoloDeckError, LostClaim
from holodeck.runs.port import Begun, Pulse, RunExists, RunRecord, RunState, SessionWatch
from holodeck.runs.run import kept_after_end, state_after
from holodeck.stores import records
from holodeck.stores.heartbeats import Heartbeats, OpenRun
from holodeck.stores.log_copier import LogPiece
from holodeck.stores.records import KEY_SECONDS
from holodeck.stores.sqlite_changes import SqliteChanges
from holodeck.stores.sqlite_file import NAMED, OF_OWNER, SqliteFile, check_version, connect, locked, prepare, unusable
from holodeck.stores.sqlite_runs import NEXT_KEY, RUN_COLUMNS, SqliteRunStore, note_new

log = logging.getLogger(__name__)

COPY_SECONDS = 0.1  # between two copies of a log that no other worker follows
WAIT_SECONDS = 1.0  # for a change, before the file is read again anyway
STOP, FOLLOW = "stop", "follow"
_SESSION = f"{OF_OWNER} AND session = ?"
_SAME_SESSION = (
    "other.agent = runs.agent AND other.tenant = runs.tenant AND other.user = runs.user"
    " AND other.session = runs.session AND other.key <> runs.key AND other.ended IS NULL"
)
_FIRST = (
    f"NOT EXISTS (SELECT 1 FROM runs other WHERE {_SAME_SESSION} AND (other.state = 'running' OR other.key < runs.key))"
)
_BEGIN = (
    "INSERT INTO runs (key, agent, tenant, user, id, session, wire, repeat_key, fingerprint, replica, state, accepted, v,"
    f" request, root, without_session) VALUES ({NEXT_KEY}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (agent, tenant, user, id) DO UPDATE SET state = excluded.state, request = excluded.request,"
    " v = excluded.v, root = excluded.root, replica = excluded.replica, stop_wanted = 0, ended = NULL, ending = NULL"
    " WHERE runs.ended IS NOT NULL AND ? RETURNING key"
)
_MINE = "key = ? AND replica = ? AND ended IS NULL"
_ABANDONED = "NOT EXISTS (SELECT 1 FROM replicas WHERE id = runs.replica)"
_LOST = "Another process has taken this run over, or it was deleted; it can no longer store messages."


class SharedSqliteRunStore(SqliteRunStore):
    is_shared = True
    has_others = False  # the workers of a server stop together
    carrier_is_up = None  # they need none

    def __init__(
        self,
        file: SqliteFile,
        agent: str,
        replica: str,
        *,
        replay_window: float = 120.0,
        kept_seconds: float = KEY_SECONDS,
    ) -> None:
        """`replica` names this process among the others. The parent of all knows it."""
        super().__init__(file, agent, replay_window=replay_window, kept_seconds=kept_seconds)
        self.replica = replica
        self.on_pulse: Callable[[Pulse], None] = lambda _pulse: None
        self._keys: dict[OwnedId, int] = {}  # row keys of the runs that this process has
        self._changed: set[OwnedId] = set()  # runs whose request the next commit stores
        self._heartbeats = Heartbeats()
        self._others: frozenset[str] = frozenset()
        self._last_command = 0
        self._changes = SqliteChanges(file, agent, self._look_around, is_busy=lambda: bool(self._keys))
        self._copier.seconds = COPY_SECONDS

    # this process among the others

    @property
    def processes(self) -> int:
        return self._heartbeats.processes

    async def join(self) -> None:
        statement = "INSERT OR IGNORE INTO replicas (id, agent, version) VALUES (?, ?, ?)"
        values = self.replica, self._agent, __version__
        await self._file.execute(statement, values, synced=False)
        self._changes.start()

    async def leave(self) -> None:
        self._changes.close()
        try:
            await self._copier.close()
            await self._file.execute("DELETE FROM replicas WHERE id = ?", (self.replica,))
        except HoloDeckError as error:  # then the parent notes that this process has ended
            log.warning("this process could not be deregistered: %s", error.message)

    async def beat(self) -> Pulse:
        known = dict(self._keys)
        found = await self._file.write(self._beat, synced=False)
        if found is None:
            return Pulse(is_alive=False)
        counters, mine = found
        self._heartbeats.see((replica, beats) for replica, beats in counters if replica != self.replica)
        noted = {*known, *self._keys, *self._registered}
        return self._heartbeats.pulse(mine, known.keys() & self._keys.keys(), noted)

    def _beat(self, connection: sqlite3.Connection) -> tuple[list[tuple[str, int]], list[OpenRun]] | None:
        if not connection.execute("UPDATE replicas SET beats = beats + 1 WHERE id = ?", (self.replica,)).rowcount:
            return None
        connection.execute("DELETE FROM wishes WHERE replica = ? AND key <= ?", (self.replica, self._last_command))
        counters = connection.execute("SELECT id, beats FROM replicas WHERE agent = ?", (self._agent,)).fetchall()
        mine = connection.execute(
            "SELECT key, tenant, user, id, stop_wanted, followed,"
            f" EXISTS (SELECT 1 FROM runs other WHERE {_SAME_SESSION} AND other.key > runs.key)"
            " FROM runs WHERE agent = ? AND replica = ? AND ended IS NULL",
            (self._agent, self.replica),
        )
        rows = [
            OpenRun(key, (Owner(tenant, user), name), bool(stop), followed, bool(awaited))
            for key, tenant, user, name, stop, followed, awaited in mine
        ]
        return counters, rows

    async def take_over(self, seconds: float) -> Sequence[RunRecord]:
        still, strays = self._heartbeats.still(seconds), self._heartbeats.strays
        found = await self._file.write(partial(self._take_over, still=still, strays=strays))
        for key, record in found:
            run = record.owner, record.run_id
            self._keys[run], self._registered[run] = key, record
        return [record for _, record in found]

    def _take_over(
        self, connection: sqlite3.Connection, still: Sequence[tuple[str, int]], strays: Sequence[int]
    ) -> list[tuple[int, RunRecord]]:
        """Takes over runs, and fences them in the same transaction: later writes of their process have no effect.

        A stray row of this process counts as recovered before: its run has ended here and is not continued.
        """
        connection.executemany(
            "UPDATE runs SET recovered = recovered + 1, replica = NULL WHERE key = ? AND replica = ? AND ended IS NULL",
            [(key, self.replica) for key in strays],
        )
        connection.executemany("DELETE FROM replicas WHERE id = ? AND beats = ?", still)
        connection.execute("DELETE FROM wishes WHERE replica NOT IN (SELECT id FROM replicas)")
        left = f"agent = ? AND ended IS NULL AND v <= {records.VERSION} AND (replica IS NULL OR {_ABANDONED})"
        # A run that waits has written nothing: its session may belong to a run of a living process.
        connection.execute(
            "UPDATE sessions SET epoch = epoch + 1 WHERE (agent, tenant, user, id) IN"
            f" (SELECT agent, tenant, user, session FROM runs WHERE {left} AND state = 'running')",
            (self._agent,),
        )
        # A server that was alone in the file marks all of its runs as running. Here only the active one is.
        rows = connection.execute(
            "UPDATE runs SET state = CASE WHEN replica IS NULL THEN 'queued' ELSE state END, replica = ?"
            f" WHERE {left} RETURNING key, {RUN_COLUMNS}",
            (self.replica, self._agent),
        ).fetchall()
        found = records.OpenRuns(sorted(rows, key=lambda row: row[0]))
        self.set_aside(connection, found)
        return found.readable

    async def seal(self, taken: Sequence[RunRecord]) -> None:
        """Does nothing: `_store_pieces` of their processes adds nothing to the runs of this one."""

    def _look_around(self) -> None:
        """Reads what others want of the runs of this process, and whether one of them has left."""
        commands = self._file.glance(
            lambda connection: connection.execute(
                "SELECT key, wish, tenant, user, id FROM wishes WHERE replica = ? AND key > ? ORDER BY key",
                (self.replica, self._last_command),
            ).fetchall()
        )
        present = self._file.glance(
            lambda connection: frozenset(
                name for (name,) in connection.execute("SELECT id FROM replicas WHERE agent = ?", (self._agent,))
            )
        )
        named = [(command, (Owner(tenant, user), run_id)) for _, command, tenant, user, run_id in commands]
        stops, followed = ([run for each, run in named if each == wanted] for wanted in (STOP, FOLLOW))
        for run in followed:
            self._copier.hurry(run)
        left, self._others = bool(self._others - present), present
        self._last_command = commands[-1][0] if commands else self._last_command
        if stops or followed or left:
            self.on_pulse(Pulse(stops=stops, followed=followed, left=left))

    # the port

    def register(self, record: RunRecord) -> None:
        super().register(record)
        self._changed.add((record.owner, record.run_id))

    async def begin(self, record: RunRecord, *, continues: Ending | None = None) -> Begun:
        """Stores a run and whether it is its turn."""
        self.register(record)
        begin = partial(self._begin, record=record, now=self.clock(), continues=continues)
        begun: Begun = await self._file.write(begin, synced=False)
        self._changed.discard((record.owner, record.run_id))
        return begun

    def _begin(
        self, connection: sqlite3.Connection, record: RunRecord, now: float, *, continues: Ending | None = None
    ) -> Begun:
        """Inserts a run. A part that `continues` a run under its own id replaces the part with this ending."""
        name = self._name(record.owner, record.run_id)
        stored = connection.execute(f"SELECT ending, v FROM runs WHERE {NAMED}", name).fetchone()
        replaces = continues is not None and stored is not None and records.is_ending(continues, *stored)
        others = connection.execute(
            f"SELECT id FROM runs WHERE {_SESSION} AND ended IS NULL AND id <> ?",
            (*self._name(record.owner, record.session_id), record.run_id),
        )
        ahead = frozenset(run_id for (run_id,) in others)
        state = RunState.QUEUED if ahead else RunState.RUNNING
        about = record.session_id, record.wire, record.key, record.fingerprint, self.replica, state, now
        without_session = record.request.throw_away or None
        body = records.VERSION, records.encode(record.request), record.root or None, without_session
        try:
            put = self.put(connection, record, now, _BEGIN, (*name, *about, *body, replaces)).fetchone()
        except sqlite3.IntegrityError:  # its idempotency key is taken
            raise RunExists(f"Run {record.run_id!r} was started by another request.") from None
        if put is None:
            raise RunExists(f"Run id {record.run_id!r} is already used by another request; send a new one.")
        self._keys[record.owner, record.run_id] = put[0]
        return Begun(is_first=not ahead, ahead=ahead)

    async def store_request(self, record: RunRecord) -> bool:
        run = record.owner, record.run_id
        if run in self._registered:
            self._registered[run] = record
        values = records.VERSION, records.encode(record.request), record.root or None, self._keys.get(run), self.replica
        return await self._file.execute(f"UPDATE runs SET v = ?, request = ?, root = ? WHERE {_MINE}", values) > 0

    async def turn(self, record: RunRecord) -> None:
        mine = self._keys.get((record.owner, record.run_id)), self.replica

        def may_begin(connection: sqlite3.Connection) -> bool:
            found = connection.execute(f"SELECT {_FIRST} FROM runs WHERE {_MINE}", mine).fetchone()
            return found is None or bool(found[0])  # one that is gone is reported below

        def begin(connection: sqlite3.Connection) -> bool:
            if connection.execute(f"UPDATE runs SET state = 'running' WHERE {_MINE} AND {_FIRST}", mine).rowcount:
                return True
            if connection.execute(f"SELECT 1 FROM runs WHERE {_MINE}", mine).fetchone() is None:
                raise LostClaim("The session of this run was deleted, or another process has taken the run over.")
            return False

        watch = self.watch_session(record.session_id, owner=record.owner)
        try:
            while not (await self._file.look(may_begin) and await self._file.write(begin, synced=False)):
                await watch.wait(WAIT_SECONDS)
        finally:
            watch.close()

    async def withdraw(self, record: RunRecord) -> None:
        key = self._keys.get((record.owner, record.run_id))
        self.release(record)
        await self._file.execute("DELETE FROM runs WHERE key = ?", (key,))

    def release(self, record: RunRecord) -> None:
        super().release(record)
        run = record.owner, record.run_id
        self._keys.pop(run, None)
        self._changed.discard(run)
        self._changes.sessions.changed((record.owner, record.session_id))

    async def take_up(self, record: RunRecord) -> None:
        statement = f"UPDATE runs SET recovered = recovered + 1, state = '{RunState.RUNNING}' WHERE {_MINE}"
        mine = self._keys.get((record.owner, record.run_id)), self.replica
        if not await self._file.execute(statement, mine):
            raise LostClaim(_LOST)

    async def end(self, record: RunRecord, ending: Ending) -> bool:
        return bool(await self._file.write(partial(self._end, record=record, ending=ending, now=self.clock())))

    def _end(self, connection: sqlite3.Connection, record: RunRecord, ending: Ending, now: float) -> int:
        """Stores an ending, and returns in how many rows.

        An open row of another process belongs to that process, and does not change.
        """
        key = self._keys.get((record.owner, record.run_id))
        if key is not None:
            return self._store_ending(connection, (_MINE, (key, self.replica)), record, ending, now)
        name = self._name(record.owner, record.run_id)
        if connection.execute(f"SELECT 1 FROM runs WHERE {NAMED}", name).fetchone() is None:
            self._begin(connection, record, now)  # it ended before anything of it was stored
            self._keys.pop((record.owner, record.run_id))
            return self._store_ending(connection, (NAMED, name), record, ending, now)
        # It had ended with an open interrupt, which is now withdrawn, or was released since its session was to be deleted.
        which = f"{NAMED} AND (ended IS NOT NULL OR replica = ?)", (*name, self.replica)
        return self._store_ending(connection, which, record, ending, now)

    def _store_ending(
        self,
        connection: sqlite3.Connection,
        which: tuple[str, Sequence[object]],
        record: RunRecord,
        ending: Ending,
        now: float,
    ) -> int:
        """Stores an ending in the row that matches `which`, a condition and its values.

        Returns how many rows have changed.
        """
        request = records.encode(kept_after_end(record.request))
        changes = state_after(ending), records.encode(ending), now, records.VERSION, request, record.root or None
        return connection.execute(
            f"UPDATE runs SET state = ?, ending = ?, ended = ?, v = ?, request = ?, root = ? WHERE {which[0]}",
            (*changes, *which[1]),
        ).rowcount

    async def open_runs(self, *, owner: Owner, session_id: str | None = None) -> Sequence[RunRecord]:
        where, values = "tenant = ? AND user = ? AND ended IS NULL", [owner.tenant, owner.user]
        if session_id is not None:
            where, values = f"{where} AND session = ?", [*values, session_id]
        return await self._file.look(self._selected(where, values))

    def watch_session(self, session_id: str, *, owner: Owner) -> SessionWatch:
        return self._changes.sessions.open((owner, session_id))

    async def want_stop(self, record: RunRecord) -> bool:
        name = self._name(record.owner, record.run_id)

        def job(connection: sqlite3.Connection) -> bool:
            found = connection.execute(
                f"UPDATE runs SET stop_wanted = 1 WHERE {NAMED} AND ended IS NULL RETURNING key", name
            ).fetchall()
            self._send_command(connection, STOP, "key = ?", [key for (key,) in found])
            return bool(found)

        return await self._file.write(job, synced=False)

    async def note_followed(self, runs: Sequence[OwnedId]) -> None:
        names = [self._name(*run) for run in runs]

        def job(connection: sqlite3.Connection) -> None:
            for name in names:
                where = f"{NAMED} AND ended IS NULL"
                connection.execute(f"UPDATE runs SET followed = followed + 1 WHERE {where}", name)
                self._send_command(connection, FOLLOW, where, name)

        await self._file.write(job, synced=False)

    async def events(self, record: RunRecord, first: int = 0) -> list[tuple[int, list[Event]]]:
        return records.pieces_of(await self._file.look(partial(self._pieces, record=record, first=first)), first)

    async def wait_for_more(self, record: RunRecord, first: int) -> None:
        key = await self._file.look(lambda connection: self._key(connection, record.owner, record.run_id))
        await self._changes.wait_for_copy(-1 if key is None else key, first, WAIT_SECONDS)

    def stop_waiting(self, record: RunRecord) -> None:
        """Does nothing: a wait leaves nothing behind."""

    # in the file's thread

    def store_with_commit(
        self,
        connection: sqlite3.Connection,
        run: OwnedId,
        ending: Ending | None,
        now: float,
        session: int | None = None,  # noqa: ARG002  every run is stored when it comes
    ) -> bool:
        """Raises LostClaim if this process no longer has the run: then nothing of the commit is stored."""
        record = self._registered.get(run)
        if record is None:  # no run is stored, or it has ended and its open interrupt is withdrawn
            if ending is not None:
                values = state_after(ending), records.encode(ending), now, *self._name(*run)
                connection.execute(
                    f"UPDATE runs SET state = ?, ending = ?, ended = ? WHERE {NAMED} AND ended IS NOT NULL", values
                )
            return True
        if run not in self._keys:
            self._begin(connection, record, now)
        mine = self._keys[run], self.replica
        if ending is not None:
            changed = self._store_ending(connection, (_MINE, mine), record, ending, now)
        elif run in self._changed:
            self._changed.discard(run)
            body = records.VERSION, records.encode(record.request), record.root or None
            changed = connection.execute(
                f"UPDATE runs SET v = ?, request = ?, root = ? WHERE {_MINE}", (*body, *mine)
            ).rowcount
        else:
            changed = len(connection.execute(f"SELECT 1 FROM runs WHERE {_MINE}", mine).fetchall())
        if changed:
            return True
        if connection.execute("SELECT 1 FROM runs WHERE key = ?", mine[:1]).fetchone() is None:
            return False
        raise LostClaim(_LOST)

    def stop_elsewhere(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> None:
        self._send_command(connection, STOP, f"{_SESSION} AND ended IS NULL", self._name(owner, session_id))

    def runs_elsewhere(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> bool:
        found = connection.execute(
            f"SELECT 1 FROM runs WHERE {_SESSION} AND ended IS NULL AND replica <> ?",
            (*self._name(owner, session_id), self.replica),
        )
        return found.fetchone() is not None

    def _send_command(self, connection: sqlite3.Connection, command: str, where: str, values: Sequence[object]) -> None:
        """Inserts a command (a row in `wishes`) for the process that has each of these runs."""
        if values:
            connection.execute(
                "INSERT INTO wishes (replica, wish, tenant, user, id)"
                f" SELECT replica, ?, tenant, user, id FROM runs WHERE {where} AND replica IS NOT NULL",
                (command, *values),
            )

    async def _store_pieces(self, pieces: list[LogPiece]) -> tuple[()]:
        """Stores pieces only of runs that this process has: after a takeover it adds nothing to the log."""
        rows = [(piece.first, piece.body, *self._name(*piece.run), self.replica) for piece in pieces]
        statement = (
            f"INSERT OR REPLACE INTO pieces (run, first, body) SELECT key, ?, ? FROM runs WHERE {NAMED} AND replica = ?"
        )

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany(statement, rows)
            note_new(connection)

        await self._file.write(job, synced=False)
        return ()


class WorkersFile:
    """The file as the parent of the workers uses it: it locks out other servers, and notes which workers have ended."""

    def __init__(self, path: Path, lock: int) -> None:
        self._path = path
        self.descriptors = (lock,)  # workers inherit it: the file stays locked until the last of them has ended

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["WorkersFile"]:
        """Opens the file. Raises StartError if it cannot be used, or if another server uses it."""
        with ExitStack() as stack:
            try:
                check_version()
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock = stack.enter_context(locked(path))
                with closing(connect(path)) as connection:
                    prepare(connection, path, durable=False)
                    connection.execute("DELETE FROM replicas")
            except (sqlite3.Error, OSError) as error:
                raise unusable(path, error) from error
            yield cls(path, lock)

    def ended(self, replica: str) -> None:
        """Notes that a worker has ended, so that another one may take its runs over immediately."""
        with suppress(sqlite3.Error), closing(connect(self._path)) as connection:  # otherwise its counter stands still
            connection.execute("DELETE FROM replicas WHERE id = ?", (replica,))
