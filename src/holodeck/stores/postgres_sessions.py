"""Sessions in PostgreSQL, shared by any number of processes.

A commit is one statement, so one round trip and no open transaction. It adds the steps, replaces the parts of the
session, and stores the run's ending, but only if this process still has the run and no other has claimed the session.
That condition also makes it safe to repeat a commit whose connection was lost: see `_without_effect`.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Unpack

import msgspec
from psycopg.errors import UniqueViolation

from holodeck.core.events import Ending
from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message
from holodeck.core.owner import Owner
from holodeck.errors import (
    HoloDeckError,
    InvalidRequest,
    LostClaim,
    RateLimited,
    SessionBroken,
    SessionBusy,
    SessionDeleted,
    SessionNotFound,
)
from holodeck.runs.run import cancel_all
from holodeck.sessions.port import Conversation, ServerSession, StoredSession
from holodeck.sessions.transcript import cut_before, wanted_messages
from holodeck.stores import records
from holodeck.stores.batches import BATCH, BATCH_BYTES, in_batches
from holodeck.stores.postgres_commit import RAISED_BY_OTHERS, RAISED_BY_RUN, Commit, fill
from holodeck.stores.postgres_database import NAMED, OF_OWNER, PostgresConnection, PostgresDatabase
from holodeck.stores.postgres_run_statements import FoundSession
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_values import PostgresValues
from holodeck.stores.stored_conversation import (
    COLUMNS,
    FIRST_STEP,
    LAST_TIME,
    LOST,
    TTL_SECONDS,
    SessionRow,
    SessionWrite,
    SqlSessionStore,
    StoreClock,
    StoredConversation,
    StoreSettings,
    described,
    microseconds_of,
    new_row,
    seconds_of,
    stored_session,
)

log = logging.getLogger(__name__)

MAX_UNCHECKED = 10_000  # owners; the total of any other is read with its next commit
CHECKED_SHARE = 16  # an owner's total is read again after it has grown by this part of the limit
_MICROSECONDS = f"floor(least(greatest(used, 0), {LAST_TIME}) * 1000000)::bigint"
_TITLE = FIRST_STEP.format(steps="holodeck.steps", sessions="s")
LEAVE_SECONDS = 5.0
_OPEN_RUN = (
    "EXISTS (SELECT 1 FROM holodeck.runs r WHERE r.agent = s.agent AND r.tenant = s.tenant"
    " AND r.user_name = s.user_name AND r.session = s.id AND r.ended IS NULL)"
)

# The values of sessions that expired or make room, which a statement has deleted in `gone`.
_NAME = "agent, tenant, user_name, id"
_FORGET = (
    "DELETE FROM holodeck.kept_values v USING gone WHERE v.agent = gone.agent AND v.tenant = gone.tenant"
    " AND v.user_name = gone.user_name AND v.session = gone.id"
)
_FORGOTTEN = f"forgotten AS ({_FORGET})"


class PostgresSessionStore(SqlSessionStore[PostgresRunStore, PostgresValues]):
    def __init__(
        self,
        database: PostgresDatabase,
        agent: str,
        ttl_seconds: float = TTL_SECONDS,
        *,
        runs: PostgresRunStore | None = None,
        **settings: Unpack[StoreSettings],
    ) -> None:
        super().__init__(agent, ttl_seconds, runs=runs, **settings)
        self.database = database
        self.values = PostgresValues(database, agent, self.now)
        self._unchecked: dict[Owner, int] = {}  # bytes that an owner has added since the total was read
        self._evicting: dict[Owner, asyncio.Task[None]] = {}
        self._warning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.database.open()
        if isinstance(self.now, StoreClock):
            found = await self.database.row(
                "SELECT coalesce(max(used), 0), extract(epoch FROM now())::float8 FROM holodeck.sessions"
                " WHERE agent = %(agent)s",
                {"agent": self.agent},
            )
            self.now.begin(*(found or (0.0,)))
        if self.runs is not None:
            self.runs.clock = self.now
            await self.runs.join()
            self._warning = asyncio.create_task(self.database.warn_of_losses(), name="durability of the database")
        self._start_cleaning()

    async def close(self) -> None:
        """Stores what is left. A database that does not answer is given up after `LEAVE_SECONDS`."""
        leaving = asyncio.create_task(self._leave(), name="leave the database")
        await asyncio.wait({leaving}, timeout=LEAVE_SECONDS)
        await self.database.close()
        await leaving

    async def _leave(self) -> None:
        await cancel_all([self._warning])
        if self._cleaner is not None:
            self._cleaner.cancel()
            await asyncio.wait({self._cleaner, *self._evicting.values()})
            self._cleaner = None
        if self.runs is not None:
            await self.runs.leave()

    async def create(self, session_id: str | None = None, *, owner: Owner) -> ServerSession:
        session_id, now = session_id or new_ulid(), self.now()
        row = await self._find(owner, session_id, now)
        if row is None:
            await self.evict_by_count(owner, session_id, now)
            await self.database.rows(
                "INSERT INTO holodeck.sessions (agent, tenant, user_name, id, created, used, v)"
                " VALUES (%(agent)s, %(tenant)s, %(user)s, %(id)s, %(now)s, %(now)s, %(v)s) ON CONFLICT DO NOTHING",
                {**self.name(owner, session_id), "now": now, "v": records.VERSION},
                again=True,
            )
            row = await self._existing(owner, session_id, now)
        return described(owner, session_id, row)

    async def get(self, session_id: str, *, owner: Owner) -> ServerSession | None:
        row = await self._find(owner, session_id, self.now())
        return None if row is None else described(owner, session_id, row)

    async def read(self, session_id: str, *, owner: Owner, last: int | None = None) -> StoredSession | None:
        while (row := await self._find(owner, session_id, self.now())) is not None:
            try:
                found = stored_session(owner, session_id, row, await self._end_of(row, last, FoundSession(row, None)))
            except SessionBroken as error:
                await self._set_aside(owner, session_id, error)
                raise
            if await self._is_at(row.epoch, row.key):  # else its steps may be those after a rewind
                return found
        return None

    async def open(
        self, session_id: str, *, owner: Owner, run_id: str = "", last: int | None = None, create: bool = False
    ) -> Conversation:
        now = self.now()
        self.take(owner, session_id)
        try:
            found = None if self.runs is None else self.runs.found_session(owner, run_id)
            if found is None or owner in self._evicting:
                found = FoundSession(await self._find(owner, session_id, now, own_use=1), None)
            if found.row is None and not create:
                raise _not_found(session_id)  # noqa: TRY301  gives the use back
            row = found.row or new_row(now)
            _refuse_broken(row)
            messages = [] if row.key is None else await self._end_of(row, last, found)
            return _PostgresConversation(self, (owner, session_id), run_id, row, messages)
        except BaseException as error:
            self.give_back(owner, session_id)
            if isinstance(error, SessionBroken):
                await self._set_aside(owner, session_id, error)
            raise

    async def delete(self, session_id: str, *, owner: Owner) -> bool:
        there = await self.named(session_id, owner=owner)
        await self._delete(session_id, owner)
        return bool(there)

    async def delete_all(self, *, owner: Owner) -> int:
        """Deletes everything that is stored of an owner, including expired and unreadable sessions.

        Returns their number.
        """
        values = {**self.name(owner, ""), "batch": BATCH}
        counted = await self.database.row(
            f"SELECT count(*) FROM holodeck.sessions WHERE {OF_OWNER}", values, again=True
        )
        some = (
            f"SELECT id FROM holodeck.sessions WHERE {OF_OWNER} UNION"
            f" SELECT session FROM holodeck.runs WHERE {OF_OWNER} LIMIT %(batch)s"
        )
        while found := await self.database.rows(some, values, again=True):
            for (name,) in found:  # one by one, so that no run waits long
                await self._delete(name, owner)
        await self.database.rows(f"DELETE FROM holodeck.kept_values WHERE {OF_OWNER} RETURNING 1", values, again=True)
        return 0 if counted is None else int(counted[0])

    async def _delete(self, session_id: str, owner: Owner) -> None:
        """Deletes a session with its runs and the copies of their logs.

        A run in another process finds itself deleted. The runs go first, in a statement of their own: it waits for a
        commit in progress, which has locked its run and may be adding the session. Only the next statement sees that.
        """
        name = self.name(owner, session_id)
        runs = await self.database.rows(
            f"DELETE FROM holodeck.runs WHERE {OF_OWNER} AND session = %(id)s"
            " RETURNING replica, tenant, user_name, id, ended IS NULL",
            name,
            again=True,
        )
        await self.database.rows(
            f"WITH gone AS (DELETE FROM holodeck.sessions WHERE {NAMED})"
            f" DELETE FROM holodeck.kept_values WHERE {OF_OWNER} AND session = %(id)s RETURNING 1",
            name,
            again=True,
        )
        self.histories.forget(owner, session_id)
        if self.runs is not None:
            await self.runs.stop_deleted([each[:4] for each in runs if each[4]])

    async def rewind(self, session_id: str, before: str, *, owner: Owner) -> None:
        now = self.now()
        row = await self._existing(owner, session_id, now)
        if self._in_use[owner, session_id] or (
            self.runs is not None and await self.runs.runs_elsewhere(owner, session_id)
        ):
            raise SessionBusy(f"Session {session_id!r} has a run in progress; stop it first.")
        content = cut_before(stored_session(owner, session_id, row, await self.messages_of(row)), before)
        await self.database.transaction(lambda connection: fill(connection, row, content, now))
        if self.runs is not None:
            self.runs.forget_found((owner, session_id))

    async def fork(self, session_id: str, at: str | None = None, *, owner: Owner) -> str:
        now, new_id = self.now(), new_ulid()
        stored = await self.read(session_id, owner=owner)
        if stored is None:
            raise _not_found(session_id)
        content = stored if at is None else cut_before(stored, at)
        await self._store_new(owner, new_id, content, now, now)
        return new_id

    async def restore(self, stored: StoredSession) -> None:
        session, now = stored.session, self.now()
        exists = InvalidRequest(f"There is a session {session.session_id!r} already.", field="session_id")
        if await self._find(session.owner, session.session_id, now) is not None:
            raise exists
        times = seconds_of(session.created_at, now), seconds_of(session.last_activity, now)
        try:
            await self._store_new(session.owner, session.session_id, stored, *times)
        except UniqueViolation:  # another process has begun it meanwhile
            raise exists from None

    async def cleanup_expired(self) -> int:
        return await in_batches(self._remove_batch)

    async def _remove_batch(self) -> tuple[int, bool]:
        """Removes one batch. A statement has a time limit, and PostgreSQL deletes long messages in pieces of 2 kB."""
        limits = {"before": self.now() - self._ttl, "batch": BATCH, "bytes": BATCH_BYTES}
        found, gone = await self.database.row(
            "WITH found AS MATERIALIZED (SELECT key, size, used FROM holodeck.sessions s"
            f" WHERE agent = %(agent)s AND used <= %(before)s AND NOT {_OPEN_RUN} AND NOT {_USED_HERE}"
            " ORDER BY used LIMIT %(batch)s FOR UPDATE SKIP LOCKED),"
            " summed AS (SELECT key, sum(size) OVER (ORDER BY used, key) - size AS before FROM found),"
            " gone AS (DELETE FROM holodeck.sessions WHERE key IN (SELECT key FROM summed WHERE before < %(bytes)s)"
            f" RETURNING {_NAME}), {_FORGOTTEN}"
            " SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM gone)",
            {"agent": self.agent, **limits, **self._used_here()},
        ) or (0, 0)
        return gone, found >= BATCH or gone < found

    async def count(self) -> int:
        found = await self.database.row(
            "SELECT count(*) FROM holodeck.sessions s"
            f" WHERE agent = %(agent)s AND (used > %(before)s OR {_OPEN_RUN} OR {_USED_HERE})",
            {"agent": self.agent, "before": self.now() - self._ttl, **self._used_here()},
        )
        return 0 if found is None else int(found[0])

    async def tenant_bytes(self, tenant: str) -> int:
        found = await self.database.row(
            "SELECT coalesce(sum(size), 0) FROM holodeck.sessions WHERE agent = %(agent)s AND tenant = %(tenant)s",
            {"agent": self.agent, "tenant": tenant},
            again=True,
        )
        return 0 if found is None else int(found[0])

    # for conversations

    async def messages_of(self, row: SessionRow) -> list[Message]:
        steps = await self.database.rows(
            "SELECT v, body FROM holodeck.steps WHERE session = %(key)s AND seq < %(steps)s ORDER BY seq",
            {"key": row.key, "steps": row.steps},  # those that belong to the row: more may have been added since
            again=True,
        )
        return [message for version, body in steps for message in records.messages_of(body, version)]

    async def current(self, key: int | None) -> SessionRow | None:
        found = await self.database.row(
            f"SELECT {COLUMNS} FROM holodeck.sessions WHERE key = %(key)s", {"key": key}, again=True
        )
        return None if found is None else SessionRow(*found)

    async def evict_by_count(self, owner: Owner, session_id: str, now: float) -> None:
        """Deletes the row of an expired session. At `max_per_user`, also deletes the least recently used one.

        Values with a time limit stay: they may be of the run that uses the id of the expired session again.
        """
        most = self.most_sessions(owner)
        counted = "0" if most is None else f"(SELECT count(*) FROM holodeck.sessions WHERE {OF_OWNER})"
        left = await self.database.row(
            f"WITH gone AS (DELETE FROM holodeck.sessions s WHERE {NAMED} AND used <= %(before)s AND NOT {_OPEN_RUN}"
            f" RETURNING {_NAME}), forgotten AS ({_FORGET} AND v.expires IS NULL) SELECT {counted} - count(*) FROM gone",
            {**self.name(owner, session_id), "before": now - self._ttl},
            again=True,
        )
        if most is None or left is None or left[0] < most:
            return
        theirs = await self._by_last_use(owner)
        idle = [key for key, _, used in theirs if not used]
        surplus = len(theirs) + 1 - most
        if surplus > len(idle):
            raise RateLimited(f"Session limit reached: {len(theirs)} active (sessions.max_per_user).")
        await self._delete_keys(idle[: max(0, surplus)])

    def grew(self, owner: Owner, added: int) -> None:
        if self.max_owner_bytes is None:
            return
        unchecked = self._unchecked.get(owner)
        self._unchecked[owner] = total = (unchecked or 0) + added
        if len(self._unchecked) > MAX_UNCHECKED:
            del self._unchecked[next(iter(self._unchecked))]
        if owner not in self._evicting and (unchecked is None or total * CHECKED_SHARE >= self.max_owner_bytes):
            self._unchecked[owner] = 0
            self._evicting[owner] = task = asyncio.create_task(self._evict_by_size(owner, self.max_owner_bytes))
            task.add_done_callback(lambda _: self._evicting.pop(owner))

    async def _evict_by_size(self, owner: Owner, limit: int) -> None:
        """Deletes the owner's least recently used sessions."""
        try:
            theirs = await self._by_last_use(owner)
            surplus, freed, going = sum(size for _, size, _ in theirs) - limit, 0, list[int]()
            for key, size, used in theirs:
                if freed < surplus and not used:
                    going.append(key)
                    freed += size
            await self._delete_keys(going)
        except HoloDeckError as error:
            log.warning("old sessions could not be removed: %s", error.message)

    async def _delete_keys(self, keys: Sequence[int]) -> None:
        """Deletes these sessions, except one on which a run has begun since they were chosen."""
        if keys:
            statement = (
                f"WITH gone AS (DELETE FROM holodeck.sessions s WHERE key = ANY(%(keys)s) AND NOT {_OPEN_RUN}"
                f" RETURNING {_NAME}), {_FORGOTTEN} SELECT count(*) FROM gone"
            )
            await self.database.rows(statement, {"keys": list(keys)}, again=True)

    async def _by_last_use(self, owner: Owner) -> Sequence[tuple[int, int, bool]]:
        """Key, size and whether it is in use, the least recently used first."""
        statement = (
            f"SELECT key, size, {_OPEN_RUN} OR {_USED_HERE} FROM holodeck.sessions s WHERE {OF_OWNER} ORDER BY used"
        )
        found = await self.database.rows(statement, {**self.name(owner, ""), **self._used_here()}, again=True)
        return [(int(key), int(size), bool(used)) for key, size, used in found]

    def name(self, owner: Owner, session_id: str) -> dict[str, Any]:
        return {"agent": self.agent, "tenant": owner.tenant, "user": owner.user, "id": session_id}

    def _used_here(self) -> dict[str, list[str]]:
        used = [(owner.tenant, owner.user, name) for (owner, name), users in self._in_use.items() if users]
        tenants, users, names = ([each[i] for each in used] for i in range(3))
        return {"used_tenants": tenants, "used_users": users, "used_names": names}

    async def _find(self, owner: Owner, session_id: str, now: float, *, own_use: int = 0) -> SessionRow | None:
        if owner in self._evicting:  # the session may be deleted in a moment
            await asyncio.wait({self._evicting[owner]})
        found = await self.database.row(
            f"SELECT {COLUMNS}, {_OPEN_RUN} FROM holodeck.sessions s WHERE {NAMED}",
            self.name(owner, session_id),
            again=True,
        )
        if found is None:
            return None
        row, runs = SessionRow(*found[:-1]), bool(found[-1])
        if row.used + self._ttl <= now and not runs and self._in_use[owner, session_id] <= own_use:
            return None
        _refuse_broken(row)
        return row

    async def _existing(self, owner: Owner, session_id: str, now: float) -> SessionRow:
        row = await self._find(owner, session_id, now)
        if row is None:
            raise _not_found(session_id)
        return row

    async def _is_at(self, epoch: int, key: int | None) -> bool:
        """Whether a session has this epoch: what was read of it in several statements then belongs together."""
        statement = "SELECT 1 FROM holodeck.sessions WHERE key = %(key)s AND epoch = %(epoch)s"
        return bool(await self.database.rows(statement, {"key": key, "epoch": epoch}, again=True))

    async def _end_of(self, row: SessionRow, last: int | None, found: FoundSession) -> list[Message]:
        """The last messages, starting at a user's message.

        Each step has at least one, so it reads no more steps than that.
        """
        summary = records.summary_of(row.summary, row.v) if last is not None else None
        wanted = wanted_messages(last, row.messages, summary)
        if (known := found.end(wanted)) is not None:
            return known
        if wanted >= row.messages:
            return await self.messages_of(row)
        steps = await self.database.rows(
            "WITH counted AS (SELECT seq, sum(messages) OVER (ORDER BY seq DESC) AS count"
            "   FROM holodeck.steps WHERE session = %(key)s AND seq < %(steps)s AND seq >= %(first)s)"
            " SELECT v, body FROM holodeck.steps WHERE session = %(key)s AND seq < %(steps)s AND seq >= coalesce("
            "   (SELECT seq FROM holodeck.steps WHERE session = %(key)s AND by_user AND seq <="
            "     (SELECT max(seq) FROM counted WHERE count >= %(wanted)s) ORDER BY seq DESC LIMIT 1), 0) ORDER BY seq",
            {"key": row.key, "steps": row.steps, "wanted": wanted, "first": row.steps - wanted},
            again=True,
        )
        return [message for version, body in steps for message in records.messages_of(body, version)]

    async def _store_new(
        self, owner: Owner, session_id: str, content: StoredSession, created: float, used: float
    ) -> None:
        await self.evict_by_count(owner, session_id, self.now())

        async def job(connection: PostgresConnection) -> None:
            cursor = await connection.execute(
                "INSERT INTO holodeck.sessions (agent, tenant, user_name, id, created, used, v)"
                " VALUES (%(agent)s, %(tenant)s, %(user)s, %(id)s, %(now)s, %(now)s, %(v)s) RETURNING key",
                {**self.name(owner, session_id), "now": created, "v": records.VERSION},
            )
            (key,) = await cursor.fetchone() or (None,)
            await fill(connection, new_row(created, key), content, used)

        await self.database.transaction(job)

    async def _listed(
        self, owner: Owner | None, limit: int, after: ServerSession | None = None, *, session_id: str | None = None
    ) -> list[ServerSession]:
        whose = "agent = %(agent)s" if owner is None else OF_OWNER
        values = {"agent": self.agent} if owner is None else self.name(owner, "")
        if after is not None:
            whose += f' AND ({_MICROSECONDS}, id COLLATE "C") < (%(place)s, %(last)s)'
            values |= {"place": microseconds_of(after.last_activity), "last": after.session_id}
        if session_id is not None:
            whose += " AND id = %(named)s"
            values |= {"named": session_id}
        found = await self.database.rows(
            f"SELECT tenant, user_name, id, {_TITLE}, {COLUMNS} FROM holodeck.sessions s WHERE {whose}"
            f" AND (used > %(before)s OR {_OPEN_RUN} OR {_USED_HERE})"
            f' ORDER BY {_MICROSECONDS} DESC, id COLLATE "C" DESC LIMIT %(limit)s',
            {**values, "before": self.now() - self._ttl, "limit": None if limit < 0 else limit, **self._used_here()},
            again=True,
        )
        return [
            described(Owner(tenant, user), name, SessionRow(*row), step) for tenant, user, name, step, *row in found
        ]

    async def _set_aside(self, owner: Owner, session_id: str, error: SessionBroken) -> None:
        """Marks an unreadable session, so that it is reported once and its bytes are kept."""
        cause = repr(error.__cause__)
        marked = await self.database.rows(
            f"UPDATE holodeck.sessions SET broken = %(cause)s WHERE {NAMED} AND broken IS NULL RETURNING 1",
            {**self.name(owner, session_id), "cause": cause},
        )
        if marked:
            log.warning("session %r cannot be read and is set aside: %s", session_id, cause)


def _not_found(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {session_id!r}.")


def _refuse_broken(row: SessionRow) -> None:
    if row.broken is not None:
        raise SessionBroken("This session cannot be read; its data is kept as it is.")


_USED_HERE = (
    "(s.tenant, s.user_name, s.id) IN"
    " (SELECT * FROM unnest(%(used_tenants)s::text[], %(used_users)s::text[], %(used_names)s::text[]))"
)


class _PostgresConversation(StoredConversation[PostgresSessionStore]):
    """The end of a history, decoded once; every commit is one statement."""

    async def _older(self) -> list[Message]:
        return await self._store.messages_of(self._row)

    def _begin_write(self, write: SessionWrite) -> "asyncio.Future[SessionRow]":
        return asyncio.get_running_loop().create_task(self._store_all(write))

    async def _store_all(self, write: SessionWrite) -> SessionRow:
        store, runs, row, ending, cut = self._store, self._store.runs, self._row, write.ending, write.cut
        run = None if runs is None or not self._run_id else await runs.with_commit(self._owner, self._run_id, ending)
        has_run = run is not None and not run.has_ended
        if row.key is None and not write.steps:  # nothing to keep, so no session
            if run is not None and has_run:
                await store.database.rows(f"WITH {run.lock}, {run.change('TRUE')} SELECT 1", run.values, again=True)
            return row
        if row.key is None and runs is not None and self._run_id and not has_run:
            raise SessionDeleted  # the run was deleted before its first commit
        now = store.now()
        # Without a limit, a run has nothing to evict: its own row keeps an expired session.
        if row.key is None and (run is None or store.most_sessions(self._owner) is not None):
            await store.evict_by_count(self._owner, self._session_id, now)
        raised = RAISED_BY_RUN if has_run else RAISED_BY_OTHERS
        commit = Commit(
            name=store.name(self._owner, self._session_id),
            row=row,
            epoch=row.epoch + raised if write.claims else row.epoch,
            steps=write.steps,
            parts=write.parts,
            run=run,
            now=now,
        )
        if cut is not None:
            whole = stored_session(self._owner, self._session_id, row, await store.messages_of(row))
            kept = cut_before(whole, cut)
            try:
                return await store.database.transaction(lambda c: commit.store_cut(c, kept), again=has_run)
            except LostClaim:
                return await self._without_effect(commit.behind(kept), ending)
        found = await store.database.row(commit.statement, commit.values, again=has_run)
        if found is None:
            return await self._without_effect(commit, ending)
        return msgspec.structs.replace(commit.row_after, key=found[0])

    async def _without_effect(self, commit: Commit, ending: Ending | None) -> SessionRow:
        """Handles a commit that wrote nothing.

        The session was deleted, another writer changed it, or the commit succeeded before its connection broke. It
        succeeded if the run has its ending, which is stored with the steps. Without an ending, only this run raises the
        epoch by `RAISED_BY_RUN`: the cases differ in the epoch or in the number of steps.
        """
        key, store = commit.row.key, self._store
        is_ours = (
            store.runs is not None
            and commit.run is not None
            and not commit.run.has_ended
            and await store.runs.is_ours(self._owner, self._run_id, ending)
        )
        if is_ours and ending is not None:  # others may have written since
            return commit.row_after
        current = await (store.current(key) if key is not None else self._created())
        if current is None and key is not None:
            raise SessionDeleted
        wanted = commit.row_after
        if is_ours and current is not None and (current.epoch, current.steps) == (wanted.epoch, wanted.steps):
            return current
        raise LostClaim(LOST)

    async def _created(self) -> SessionRow | None:
        found = await self._store.database.row(
            f"SELECT {COLUMNS} FROM holodeck.sessions WHERE {NAMED}",
            self._store.name(self._owner, self._session_id),
            again=True,
        )
        return None if found is None else SessionRow(*found)
