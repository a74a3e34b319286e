"""Runs in PostgreSQL: their records and keys, the process that has each of them, and a copy of their logs.

A run's row names the process that may write it. `postgres_replicas` knows which processes are alive.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from psycopg.errors import UniqueViolation

from holodeck.core.events import ENDINGS, Ending, Event
from holodeck.core.ids import new_ulid
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import HoloDeckError, LostClaim
from holodeck.runs.log import RunLog
from holodeck.runs.port import Begun, Pulse, RunExists, RunRecord, RunState, SessionWatch
from holodeck.runs.run import kept_after_end, state_after
from holodeck.stores import records
from holodeck.stores.batches import BATCH, in_batches
from holodeck.stores.log_copier import LogCopier, LogPiece
from holodeck.stores.postgres_database import NAMED, OF_OWNER, Lane, PostgresDatabase
from holodeck.stores.postgres_replicas import RUN_COLUMNS, PostgresReplicas
from holodeck.stores.postgres_run_statements import (
    BEGIN,
    END,
    END_RELEASED,
    TURN,
    FoundSession,
    RunClause,
)
from holodeck.stores.records import KEY_SECONDS, run_of
from holodeck.stores.session_watches import SessionWatches

if TYPE_CHECKING:
    from holodeck.stores.valkey_link import ValkeyLink

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 0.1  # between two reads of a log that another process writes
LINKED_NEWS_SECONDS = 0.1  # with Valkey: until runs are announced
LINKED_HURRIED_SECONDS = 0.15  # with Valkey: between copies of a run that is read elsewhere; each takes two wake-ups
LINKED_FOLLOW_SECONDS = 1.0  # with Valkey: between two reads of a log that is quiet
LOOK_SECONDS = (0.05, 1.0)  # between two checks whether it is a run's turn: the first pause, and the longest
NEWS_SECONDS, NEWS_OVERLAP = 1.0, 50  # between two queries for new runs; how many are read again at first
TAKEN = "The session of this run was deleted, or another process has taken the run over."
_WHERE = "replica, tenant, user_name, id"


class PostgresRunStore:
    outlives_process = True

    def __init__(
        self,
        database: PostgresDatabase,
        agent: str,
        replica: str | None = None,
        *,
        replay_window: float = 120.0,
        kept_seconds: float = KEY_SECONDS,
    ) -> None:
        """`replica` names this process among the others, if its parent has a name for it.

        `kept_seconds`: how long a record is kept after its run's end. The same as for sessions, so that every run of a
        stored session can be found.
        """
        self._database, self._agent = database, agent
        self._replay_window, self._kept_seconds = replay_window, kept_seconds
        self._records: dict[OwnedId, RunRecord] = {}  # records of the runs that this process has, or is about to begin
        self._keys: dict[OwnedId, int] = {}  # row keys of the stored runs
        self._found: dict[OwnedId, FoundSession] = {}  # sessions that BEGIN has read and no run has opened yet
        self._changed: set[OwnedId] = set()  # runs whose request the next commit stores
        self._sessions = SessionWatches()
        self._sessions.on_first, self._sessions.on_last = self._watched, self._not_watched
        self._looking: asyncio.Task[None] | None = None  # for runs that begin, while a session is watched
        self._replicas = PostgresReplicas(database, agent, replica or new_ulid())
        self._copier = LogCopier(self._store_pieces, self._store_at_once)
        self._link: ValkeyLink | None = None
        self._logs: dict[OwnedId, int] = {}  # runs whose logs are copied or followed here, by the numbers of their rows
        self._asked: dict[OwnedId, str] = {}  # followed runs, by the processes that were asked through Valkey to hurry
        self.on_pulse: Callable[[Pulse], None] = lambda _pulse: None
        self.clock: Callable[[], float] = time.time

    @property
    def replica(self) -> str:
        return self._replicas.replica

    @property
    def has_others(self) -> bool:
        return self._replicas.has_others

    @property
    def carrier_is_up(self) -> bool | None:
        return None if self._link is None else not self._link.is_away

    @property
    def processes(self) -> int:
        return self._replicas.processes

    def connect(self, link: "ValkeyLink") -> None:
        """Lets a Valkey carry logs and commands. Called before `join`."""
        self._link = link
        self._copier.news_seconds, self._copier.hurried_seconds = LINKED_NEWS_SECONDS, LINKED_HURRIED_SECONDS
        link.on_command, link.on_session = self._on_command, self._sessions.changed

    def _watched(self, session: OwnedId) -> None:
        if self._link is not None:
            self._link.watch_session(session)
        if self._looking is None:
            self._looking = asyncio.create_task(
                self._look_for_runs(), name="runs of other processes", context=Context()
            )

    def _not_watched(self, session: OwnedId) -> None:
        if self._link is not None:
            self._link.stop_watching(session)
        if self._looking is not None and not self._sessions:
            self._looking.cancel()
            self._looking = None

    async def _look_for_runs(self) -> None:
        """Announces new runs of all processes if no Valkey does. One query serves all watched sessions."""
        last: int | None = None
        while True:
            try:
                if self._link is None or not self._link.is_up:
                    found = await self._database.rows(
                        "SELECT key, tenant, user_name, session FROM holodeck.runs WHERE agent = %(agent)s AND key > coalesce("
                        " %(last)s::bigint, (SELECT max(key) FROM holodeck.runs) - %(overlap)s) ORDER BY key DESC LIMIT 1000",
                        {"agent": self._agent, "last": last, "overlap": NEWS_OVERLAP},
                        again=True,
                    )
                    last = found[0][0] if found else last
                    for _, tenant, user, session_id in found:
                        self._sessions.changed((Owner(tenant, user), session_id))
            except HoloDeckError:  # the database logs it
                pass
            await asyncio.sleep(NEWS_SECONDS)

    def _on_command(self, command: str, run: OwnedId) -> None:
        if command == "stop":
            self.on_pulse(Pulse(stops=[run]))
        elif command == "follow":
            self._copier.hurry(run)
            self.on_pulse(Pulse(followed=[run]))

    async def _send(self, command: str, found: Iterable[Sequence[Any]]) -> None:
        """Sends a stored command also through Valkey, to the processes that have the runs."""
        if self._link is not None:
            for replica, tenant, user, run_id in found:
                await self._link.send(replica, command, (Owner(tenant, user), run_id))

    # this process among the others

    async def join(self) -> None:
        """Adds this process to those that share the database."""
        if self._link is not None:
            await self._link.start()
        await self._replicas.enter()

    async def leave(self) -> None:
        """Lets another process take over the runs that this one left."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            self._looking = None
        try:
            await self._copier.close()
            if self._database.is_open:  # not after a start that failed
                await self._replicas.leave()
        except HoloDeckError as error:  # then the counter stands still, which has the same effect a little later
            log.warning("this process could not be deregistered: %s", error.message)
        finally:
            if self._link is not None:
                await self._link.close()

    async def beat(self) -> Pulse:
        """Raises the counter of this process. Reads those of the others, and what they want of its runs."""
        if not await self._replicas.beat():
            return Pulse(is_alive=False)
        known = dict(self._keys)
        mine = await self._replicas.open_runs()
        noted = {*known, *self._keys, *self._records}
        pulse = self._replicas.pulse(mine, known.keys() & self._keys.keys(), noted)
        if self._link is not None:
            for run in pulse.followed:  # the message through Valkey may have been lost
                self._copier.hurry(run)
        return pulse

    async def take_over(self, seconds: float) -> Sequence[RunRecord]:
        """Takes the runs of processes that have left, or whose counter has stood still for `seconds`."""
        taken = await self._replicas.take_over(seconds, self.clock())
        for key, record in taken:
            run = record.owner, record.run_id
            self._keys[run], self._records[run], self._logs[run] = key, record, key
        return [record for _, record in taken]

    async def seal(self, taken: Sequence[RunRecord]) -> None:
        if self._link is not None:
            runs = [((each.owner, each.run_id), each.recovered) for each in taken]
            await self._link.seal([((run, self._logs[run]), block) for run, block in runs if run in self._logs])

    # the port

    def register(self, record: RunRecord) -> None:
        self._records[record.owner, record.run_id] = record
        self._changed.add((record.owner, record.run_id))

    async def begin(self, record: RunRecord, *, continues: Ending | None = None) -> Begun:
        """Stores a run and whether it is its turn. If two come at the same time, one waits."""
        seen = None if continues is None else await self._stored_ending(record, continues)
        values = {**self._values(record), "me": self.replica, "accepted": self.clock(), "continues": seen}
        if self._replicas.is_overdue:
            await self._replicas.enter()
        while True:
            try:
                found = await self._database.row(BEGIN, values, again=True, lane=Lane.REQUEST)
            except UniqueViolation as error:
                if error.diag.constraint_name == "one_at_a_time":
                    continue  # another one began just now: this one waits behind it
                raise RunExists(f"Run {record.run_id!r} was started by another request.") from None
            if found is None or found[0] is None:
                raise RunExists(f"Run id {record.run_id!r} is already used by another request; send a new one.")
            key, state, ahead, is_unchanged, *session = found
            run = record.owner, record.run_id
            self._keys[run], self._records[run], self._logs[run] = key, record, key
            self._changed.discard(run)
            is_first = state == RunState.RUNNING
            if is_first and is_unchanged:  # else `open` reads the session again
                self._found[run] = FoundSession.of(session)
            return Begun(is_first=is_first, ahead=frozenset(ahead))

    async def _stored_ending(self, record: RunRecord, seen: Ending) -> bytes | None:
        """The stored ending of a run; None if it has no row. Raises RunExists if it is not the one that was `seen`."""
        name = self._name(record.owner, record.run_id)
        statement = f"SELECT ending, v FROM holodeck.runs WHERE {NAMED}"
        found = await self._database.row(statement, name, again=True, lane=Lane.REQUEST)
        if found is not None and not records.is_ending(seen, *found):
            raise RunExists(f"Run {record.run_id!r} was continued by another request.")
        return None if found is None else found[0]

    async def stored(self, record: RunRecord) -> None:
        """Does nothing: `begin` has stored it."""

    async def store_request(self, record: RunRecord) -> bool:
        run = record.owner, record.run_id
        if run in self._records:
            self._records[run] = record
        stored = await self._database.rows(
            "UPDATE holodeck.runs SET request = %(request)s, v = %(v)s, root = %(root)s"
            " WHERE key = %(key)s AND replica = %(me)s AND ended IS NULL RETURNING 1",
            {**self._values(record), "key": self._keys.get(run), "me": self.replica},
            again=True,
        )
        return bool(stored)

    async def turn(self, record: RunRecord) -> None:
        seconds, watch = LOOK_SECONDS[0], self.watch_session(record.session_id, owner=record.owner)
        try:
            await self._turn(record, watch, seconds)
        finally:
            watch.close()

    async def _turn(self, record: RunRecord, watch: SessionWatch, seconds: float) -> None:
        values = {"key": self._keys.get((record.owner, record.run_id)), "me": self.replica}
        while True:
            try:
                found = await self._database.row(TURN, values, again=True)
            except UniqueViolation:  # another one began just now
                found = (True, False)
            if found is None:
                raise LostClaim(TAKEN)
            if found[1]:
                return
            await watch.wait(seconds)
            seconds = min(LOOK_SECONDS[1], 2 * seconds)

    async def withdraw(self, record: RunRecord) -> None:
        key = self._keys.get((record.owner, record.run_id))
        self._logs.pop((record.owner, record.run_id), None)  # its log stays empty, so no copy of it ends
        self.release(record)
        await self._database.rows("DELETE FROM holodeck.runs WHERE key = %(key)s", {"key": key}, again=True)

    def release(self, record: RunRecord) -> None:
        run = record.owner, record.run_id
        self._records.pop(run, None)
        self._keys.pop(run, None)
        self._found.pop(run, None)
        self._changed.discard(run)
        if not self._copier.follows(run):  # else its ending is copied later
            self._logs.pop(run, None)
        if self._link is not None:
            self._copier.has_ended()
        self._sessions.changed((record.owner, record.session_id))

    async def take_up(self, record: RunRecord) -> None:
        found = await self._database.rows(
            f"UPDATE holodeck.runs SET recovered = recovered + 1, state = '{RunState.RUNNING}' WHERE {NAMED}"
            " AND replica = %(me)s AND ended IS NULL RETURNING 1",
            {**self._name(record.owner, record.run_id), "me": self.replica},
        )
        if not found:
            raise LostClaim(TAKEN)

    async def end(self, record: RunRecord, ending: Ending) -> bool:
        key = self._keys.get((record.owner, record.run_id))
        values = {**self._values(record), **_ending_values(ending, self.clock()), "me": self.replica, "key": key}
        values["request"] = records.encode(kept_after_end(record.request))
        return bool(await self._database.rows(END_RELEASED if key is None else END, values, again=True))

    async def find(self, run_id: str, *, owner: Owner) -> RunRecord | None:
        return await self._one(NAMED, self._name(owner, run_id))

    async def by_key(self, wire: str, key: str, *, owner: Owner) -> RunRecord | None:
        where = f"{OF_OWNER} AND wire = %(wire)s AND repeat_key = %(repeat_key)s"
        values = {**self._name(owner, ""), "wire": wire, "repeat_key": key}
        return await self._one(where, values)

    async def runs_of(
        self, *, owner: Owner, session_id: str | None = None, root: str | None = None, limit: int = 100
    ) -> Sequence[RunRecord]:
        where, values = OF_OWNER, {**self._name(owner, ""), "session": session_id, "root": root}
        where += "" if session_id is None else " AND session = %(session)s"
        where += "" if root is None else " AND (id = %(root)s OR root = %(root)s)"
        return await self._select(where, values, f"ORDER BY key DESC LIMIT {int(limit)}")

    async def equal_runs(self, fingerprint: bytes, *, owner: Owner, seconds: float) -> Sequence[RunRecord]:
        equal = f"SELECT key FROM holodeck.runs WHERE {OF_OWNER} AND fingerprint = %(fingerprint)s AND ended"
        where = f"key IN ({equal} IS NULL UNION ALL {equal} > %(after)s)"  # there is an index for each
        values = {**self._name(owner, ""), "fingerprint": fingerprint, "after": self.clock() - seconds}
        return await self._select(where, values)

    async def remove(self, run_id: str, *, owner: Owner) -> bool:
        statement = f"DELETE FROM holodeck.runs WHERE {NAMED} RETURNING 1"
        return bool(await self._database.rows(statement, self._name(owner, run_id)))

    async def unfinished(self) -> Sequence[RunRecord]:
        return await self._select("agent = %(agent)s AND ended IS NULL", {"agent": self._agent})

    async def open_runs(self, *, owner: Owner, session_id: str | None = None) -> Sequence[RunRecord]:
        where = f"{OF_OWNER} AND ended IS NULL" + ("" if session_id is None else " AND session = %(id)s")
        return await self._select(where, self._name(owner, session_id or ""))

    def watch_session(self, session_id: str, *, owner: Owner) -> SessionWatch:
        """Watches a session.

        With Valkey, it sees all copied changes; without it, those of this process and new runs.
        """
        return self._sessions.open((owner, session_id))

    async def want_stop(self, record: RunRecord) -> bool:
        found = await self._database.rows(
            f"UPDATE holodeck.runs SET stop_wanted = true WHERE {NAMED} AND ended IS NULL RETURNING {_WHERE}",
            self._name(record.owner, record.run_id),
            again=True,
        )
        await self._send("stop", found)
        return bool(found)

    async def stop_deleted(self, found: Sequence[Sequence[Any]]) -> None:
        """Notifies the processes that have these runs that they were deleted."""
        await self._send("stop", found)

    async def note_followed(self, runs: Sequence[OwnedId]) -> None:
        found = await self._database.rows(
            "UPDATE holodeck.runs SET followed = followed + 1 FROM"
            " unnest(%(tenants)s::text[], %(users)s::text[], %(ids)s::text[]) AS wanted (tenant, user_name, id)"
            " WHERE agent = %(agent)s AND runs.tenant = wanted.tenant AND runs.user_name = wanted.user_name"
            " AND runs.id = wanted.id AND ended IS NULL RETURNING runs.replica, runs.tenant, runs.user_name, runs.id",
            {
                "agent": self._agent,
                "tenants": [owner.tenant for owner, _ in runs],
                "users": [owner.user for owner, _ in runs],
                "ids": [name for _, name in runs],
            },
        )
        await self._send("follow", [each for each in found if self._is_new_owner(*each)])

    def _is_new_owner(self, replica: str, tenant: str, user: str, run_id: str) -> bool:
        """Whether the process that has this run was not asked to hurry yet.

        It finds each further note in the row, which its heartbeat reads anyway. A message through Valkey wakes it.
        """
        run = Owner(tenant, user), run_id
        before, self._asked[run] = self._asked.get(run), replica
        return before != replica

    async def events(self, record: RunRecord, first: int = 0) -> list[tuple[int, list[Event]]]:
        run = record.owner, record.run_id
        found = await self._database.rows(
            f"WITH run AS (SELECT key FROM holodeck.runs WHERE {NAMED})"
            " SELECT run.key, first, body FROM run LEFT JOIN holodeck.pieces ON pieces.run = run.key"
            " AND first >= coalesce((SELECT max(first) FROM holodeck.pieces earlier"
            " WHERE earlier.run = run.key AND earlier.first <= %(first)s), 0) ORDER BY first",
            {**self._name(*run), "first": first},
            again=True,
        )
        pieces = [(number, body) for _, number, body in found if number is not None]
        if self._link is not None and found:
            if record.ending is None:  # only a run in progress is followed, and `stop_waiting` forgets it
                self._logs[run] = found[0][0]
            pieces = sorted([*pieces, *await self._link.read((run, found[0][0]), first)])
        return records.pieces_of(pieces, first)

    async def wait_for_more(self, record: RunRecord, first: int) -> None:
        run = record.owner, record.run_id
        if self._link is None or not self._link.is_up or run not in self._logs:
            await asyncio.sleep(FOLLOW_SECONDS)
        else:
            await self._link.wait((run, self._logs[run]), first, LINKED_FOLLOW_SECONDS)

    def stop_waiting(self, record: RunRecord) -> None:
        run = record.owner, record.run_id
        if self._link is not None:
            self._link.stop_waiting(run)
        self._asked.pop(run, None)
        if run not in self._keys:
            self._logs.pop(run, None)

    def follow(self, record: RunRecord, log: RunLog, first_number: int = 0) -> None:
        self._copier.follow((record.owner, record.run_id), log, first_number, session=record.session_id)

    # for the sessions

    def found_session(self, owner: Owner, run_id: str) -> FoundSession | None:
        """The session of a run as found at its begin, returned once. Any change since then has raised its epoch."""
        return self._found.pop((owner, run_id), None)

    def forget_found(self, session: OwnedId) -> None:
        """Drops what was found of a session that has changed: runs that begin read it again."""
        for run in [run for run in self._found if (run[0], self._records[run].session_id) == session]:
            del self._found[run]

    async def with_commit(self, owner: Owner, run_id: str, ending: Ending | None) -> RunClause | None:
        """The part that a commit of this run has to contain. None for a run that this process does not have."""
        run = owner, run_id
        record = self._records.get(run)
        if record is None:
            withdrawn = None if ending is None else {"run": run_id, **_ending_values(ending, self.clock())}
            return None if withdrawn is None else RunClause(withdrawn, has_ended=True)
        if run not in self._keys:
            await self.begin(record)
            self._found.pop(run, None)  # its conversation is open already
        request = records.encode(record.request) if run in self._changed and ending is None else None
        self._changed.discard(run)
        values = {"run": self._keys[run], "replica": self.replica, "v": records.VERSION, "request": request}
        values["root"] = record.root or None
        if ending is None:
            return RunClause({**values, "state_after": None, "ending": None, "ended": None})
        values["request"] = records.encode(kept_after_end(record.request))
        return RunClause({**values, **_ending_values(ending, self.clock())})

    async def is_ours(self, owner: Owner, run_id: str, ending: Ending | None) -> bool:
        """Whether this process still has the run, and exactly this ending is stored, or none."""
        found = await self._database.row(
            f"SELECT 1 FROM holodeck.runs WHERE {NAMED} AND replica = %(me)s AND (ended IS NULL) = %(open)s"
            " AND ending IS NOT DISTINCT FROM %(ending)s::bytea",
            {
                **self._name(owner, run_id),
                "me": self.replica,
                "open": ending is None,
                "ending": records.optional(ending),
            },
            again=True,
        )
        return found is not None

    async def runs_elsewhere(self, owner: Owner, session_id: str) -> bool:
        found = await self._database.row(
            f"SELECT 1 FROM holodeck.runs WHERE {OF_OWNER} AND session = %(id)s AND ended IS NULL"
            f" AND state = '{RunState.RUNNING}' AND replica <> %(me)s",
            {**self._name(owner, session_id), "me": self.replica},
            again=True,
        )
        return found is not None

    async def remove_old(self) -> int:
        """Deletes old records, keys a day after their run's end, and copies of logs past their replay window.

        Returns the number of records.
        """
        return await in_batches(self._remove_batch)

    async def _remove_batch(self) -> tuple[int, bool]:
        """Removes one batch. Returns the number of records, and whether there may be more of anything."""
        now = self.clock()
        values = {"agent": self._agent, "batch": BATCH, "unread": now - self._replay_window}
        values |= {"old": now - max(self._kept_seconds, KEY_SECONDS), "keys": now - KEY_SECONDS}
        copies = await self._database.rows(
            "DELETE FROM holodeck.pieces WHERE (run, first) IN (SELECT run, first FROM holodeck.pieces"
            " JOIN holodeck.runs ON runs.key = pieces.run WHERE agent = %(agent)s AND ended <= %(unread)s LIMIT %(batch)s)"
            " RETURNING 1",
            values,
        )
        keys = await self._database.rows(
            "UPDATE holodeck.runs SET repeat_key = NULL WHERE key IN (SELECT key FROM holodeck.runs"
            " WHERE agent = %(agent)s AND repeat_key IS NOT NULL AND ended <= %(keys)s"
            " ORDER BY ended LIMIT %(batch)s FOR UPDATE SKIP LOCKED) RETURNING 1",
            values,
        )
        gone = await self._database.rows(
            "DELETE FROM holodeck.runs WHERE key IN (SELECT key FROM holodeck.runs WHERE agent = %(agent)s"
            " AND ended <= %(old)s ORDER BY ended LIMIT %(batch)s FOR UPDATE SKIP LOCKED) RETURNING 1",
            values,
        )
        without_session = await self._database.rows(
            "DELETE FROM holodeck.runs WHERE key IN (SELECT key FROM holodeck.runs WHERE agent = %(agent)s AND without_session"
            " AND ended <= %(keys)s ORDER BY ended LIMIT %(batch)s FOR UPDATE SKIP LOCKED) RETURNING 1",
            values,
        )
        return len(gone) + len(without_session), max(len(gone), len(without_session), len(keys), len(copies)) >= BATCH

    async def _one(self, where: str, values: dict[str, Any]) -> RunRecord | None:
        """One run. Raises if it cannot be read."""
        statement = f"SELECT {RUN_COLUMNS} FROM holodeck.runs WHERE {where}"
        found = await self._database.row(statement, values, again=True, lane=Lane.REQUEST)
        return None if found is None else run_of(found)

    async def _select(self, where: str, values: dict[str, Any], order: str = "ORDER BY key") -> list[RunRecord]:
        statement = f"SELECT {RUN_COLUMNS} FROM holodeck.runs WHERE {where} {order}"
        found = await self._database.rows(statement, values, again=True, lane=Lane.REQUEST)
        return records.readable_runs(found)

    def _store_at_once(self, pieces: list[LogPiece], done: Callable[[bool], None]) -> bool:
        if self._link is None:
            return False
        named = [((piece.run, self._logs[piece.run]), piece) for piece in pieces if piece.run in self._logs]
        return len(named) == len(pieces) and self._link.append_at_once(
            named, partial(self._stored_at_once, pieces, done)
        )

    def _stored_at_once(self, pieces: list[LogPiece], done: Callable[[bool], None], is_stored: bool) -> None:  # noqa: FBT001  a callback
        if is_stored:
            self._forget_ended(pieces)
        done(is_stored)

    async def _store_pieces(self, pieces: list[LogPiece]) -> Collection[OwnedId]:
        """Stores pieces only of runs that this process has: after a takeover it adds nothing to the log."""
        if self._link is not None:
            named = [((piece.run, self._logs[piece.run]), piece) for piece in pieces if piece.run in self._logs]
            gone = await self._link.append(named)
            if gone is not None:
                self._forget_ended([piece for piece in pieces if piece.run not in gone])
                return gone
        given = {(n, f"{name}{n}"): value for n, piece in enumerate(pieces) for name, value in self._piece(piece)}
        if not given:
            return ()
        rows = ", ".join(
            f"(%(tenant{n})s, %(user{n})s, %(id{n})s, %(first{n})s::bigint, %(body{n})s::bytea)"
            for n in range(len(pieces))
        )
        await self._database.rows(
            "INSERT INTO holodeck.pieces (run, first, body) SELECT key, added.first, added.body FROM holodeck.runs"
            f" JOIN (VALUES {rows}) AS added (tenant, user_name, id, first, body)"
            " ON runs.tenant = added.tenant AND runs.user_name = added.user_name AND runs.id = added.id"
            " WHERE runs.agent = %(agent)s AND runs.replica = %(me)s"
            " ON CONFLICT (run, first) DO UPDATE SET body = excluded.body",
            {**{name: value for (_, name), value in given.items()}, "agent": self._agent, "me": self.replica},
        )
        self._forget_ended(pieces)
        return ()

    def _forget_ended(self, pieces: Sequence[LogPiece]) -> None:
        for piece in pieces:  # a run that this process has continues under its own id, or `release` drops its log
            if piece.run not in self._keys and piece.events and type(piece.events[-1]) in ENDINGS:
                self._logs.pop(piece.run, None)

    def _piece(self, piece: LogPiece) -> list[tuple[str, Any]]:
        owner, run_id = piece.run
        names = [("tenant", owner.tenant), ("user", owner.user), ("id", run_id)]
        return [*names, ("first", piece.first), ("body", piece.body)]

    def _name(self, owner: Owner, name: str) -> dict[str, Any]:
        return {"agent": self._agent, "tenant": owner.tenant, "user": owner.user, "id": name}

    def _values(self, record: RunRecord) -> dict[str, Any]:
        return {
            **self._name(record.owner, record.run_id),
            "session": record.session_id,
            "wire": record.wire,
            "repeat_key": record.key,
            "fingerprint": record.fingerprint,
            "v": records.VERSION,
            "request": records.encode(record.request),
            "root": record.root or None,
            "without_session": record.request.throw_away or None,
        }


def _ending_values(ending: Ending, now: float) -> dict[str, Any]:
    return {"state_after": state_after(ending).value, "ending": records.encode(ending), "ended": now}
