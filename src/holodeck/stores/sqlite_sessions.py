"""Sessions in a SQLite file.

The file's own thread does the work. This module queues it, and keeps what only a process knows: which sessions are in
use, and how much each owner stores.
"""

import asyncio
import logging
import math
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, TypeVar, Unpack
from weakref import WeakValueDictionary

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import (
    InvalidRequest,
    LostClaim,
    RateLimited,
    SessionBroken,
    SessionBusy,
    SessionDeleted,
    SessionNotFound,
)
from holodeck.sessions.port import Conversation, ServerSession, StoredSession
from holodeck.sessions.transcript import cut_before, summary_after_cut, wanted_messages
from holodeck.stores import records
from holodeck.stores.batches import BATCH, BATCH_BYTES, in_batches
from holodeck.stores.migrations import next_key
from holodeck.stores.sqlite_file import NAMED, OF_OWNER, Job, SqliteFile
from holodeck.stores.sqlite_runs import NEW_SESSION, OLD_SESSION, RUN_OF_SESSION, SqliteRunStore, has_session, note_all
from holodeck.stores.sqlite_values import SqliteValues
from holodeck.stores.stored_conversation import (
    COLUMNS,
    FIRST_STEP,
    LOST,
    TTL_SECONDS,
    SessionRow,
    SessionWrite,
    SqlSessionStore,
    Step,
    StoreClock,
    StoredConversation,
    StoreSettings,
    described,
    microseconds_of,
    new_row,
    seconds_of,
    steps_of,
    stored_session,
)

log = logging.getLogger(__name__)

LOOKED_AT = 64 * 1024  # bytes: sessions up to this size are read in the loop, longer ones by the file's thread
_MICROSECONDS = "CAST(used * 1e6 AS INTEGER)"  # as in `described`: a page ends exactly where the next begins
_TITLE = FIRST_STEP.format(steps="steps", sessions="sessions")
_NEXT_KEY = next_key("sessions")
_SESSION = f"SELECT {COLUMNS} FROM sessions WHERE {NAMED}"
_OVERDUE = (
    "SELECT tenant, user, id FROM sessions WHERE agent = ?1 AND noted <= ?2 AND used <= ?2"
    f" UNION ALL SELECT tenant, user, id FROM sessions WHERE {NEW_SESSION} AND +agent = ?1 AND used <= ?2"
    f" UNION ALL SELECT tenant, user, id FROM sessions WHERE {OLD_SESSION} AND +agent = ?1 AND used <= ?2"
)
T = TypeVar("T")


class SqliteSessionStore(SqlSessionStore[SqliteRunStore, SqliteValues]):
    def __init__(
        self,
        file: SqliteFile,
        agent: str,
        ttl_seconds: float = TTL_SECONDS,
        *,
        runs: SqliteRunStore | None = None,
        **settings: Unpack[StoreSettings],
    ) -> None:
        super().__init__(agent, ttl_seconds, runs=runs, **settings)
        self.file = file
        self.values = SqliteValues(file, agent, self.now)
        if runs is not None:
            self.awaited = runs.awaited
        # The last job that was queued for each session: jobs are done in order. The queue keeps it alive until then.
        self._changing: WeakValueDictionary[OwnedId, asyncio.Future[Any]] = WeakValueDictionary()
        self._stored: Counter[Owner] = Counter()  # stored bytes by owner

    async def start(self) -> None:
        await self.file.open()
        latest, stored = await self.file.read(self._at_start)
        self._stored.update(stored)
        if isinstance(self.now, StoreClock):
            self.now.begin(latest)
        if self.runs is not None:
            self.runs.clock = self.now
            await self.runs.join()
        self._start_cleaning()

    async def close(self) -> None:
        if self._cleaner is not None:
            self._cleaner.cancel()
            await asyncio.wait({self._cleaner})
            self._cleaner = None
            if self.runs is not None:
                await self.runs.leave()
        for write in list(self.accepted.values()):
            write()
        await self.file.close()

    async def create(self, session_id: str | None = None, *, owner: Owner) -> ServerSession:
        session_id, now = session_id or new_ulid(), self.now()

        def job(connection: sqlite3.Connection) -> SessionRow:
            return self._find(connection, owner, session_id, now) or self.insert(connection, owner, session_id, now)

        return described(owner, session_id, await asyncio.shield(self.change((owner, session_id), job)))

    async def get(self, session_id: str, *, owner: Owner) -> ServerSession | None:
        now = self.now()
        row = await self.file.read(lambda connection: self._find(connection, owner, session_id, now))
        return None if row is None else described(owner, session_id, row)

    async def read(self, session_id: str, *, owner: Owner, last: int | None = None) -> StoredSession | None:
        now = self.now()

        def job(connection: sqlite3.Connection) -> StoredSession | None:
            row = self._find(connection, owner, session_id, now)
            return None if row is None else stored_session(owner, session_id, row, _end_of(connection, row, last))

        return await self._reading(self.file.read(job), owner, session_id)

    async def open(
        self, session_id: str, *, owner: Owner, run_id: str = "", last: int | None = None, create: bool = False
    ) -> Conversation:
        self.take(owner, session_id)
        try:
            row, messages = await self._end_of_session(owner, session_id, last, create=create)
            return _SqliteConversation(self, (owner, session_id), run_id, row, messages)
        except BaseException:
            self.give_back(owner, session_id)
            raise

    async def _end_of_session(
        self, owner: Owner, session_id: str, last: int | None, *, create: bool
    ) -> tuple[SessionRow, list[Message]]:
        """Reads the end of a session: in the file's thread if it is long, or if something of it is still being written.

        If another process writes while it is read here, its epoch has moved on, and the first commit is refused.
        """
        now = self.now()

        def read(connection: sqlite3.Connection, longest: float = math.inf) -> tuple[SessionRow, list[Message] | None]:
            row = self._find(connection, owner, session_id, now, own_use=1)
            if row is None and not create:
                raise SessionNotFound(f"There is no session {session_id!r}.")
            row = row or new_row(now)
            return row, _end_of(connection, row, last) if row.size <= longest else None

        queued = self._changing.get((owner, session_id))
        if queued is None or queued.done():
            row, messages = await self._reading(self.file.look(partial(read, longest=LOOKED_AT)), owner, session_id)
            if messages is not None:
                return row, messages
        row, messages = await self._reading(self.file.read(read), owner, session_id)
        return row, messages or []

    async def delete(self, session_id: str, *, owner: Owner) -> bool:
        now = self.now()

        def job(connection: sqlite3.Connection) -> tuple[bool, int]:
            row = self._unexpired(connection, owner, session_id, now)
            return row is not None, self._delete(connection, owner, session_id)

        self.write_accepted(owner, session_id)
        was_there, size = await asyncio.shield(self.change((owner, session_id), job))
        self.histories.forget(owner, session_id)
        self._count(owner, -size)
        return was_there

    async def delete_all(self, *, owner: Owner) -> int:
        """Deletes everything that is stored of an owner, including expired and unreadable sessions.

        Returns their number.
        """
        names = self.agent, owner.tenant, owner.user
        self.write_accepted(owner)
        count = f"SELECT count(*) FROM sessions WHERE {OF_OWNER}"
        (number,) = await self.file.read(lambda connection: connection.execute(count, names).fetchone())
        some = f"SELECT id FROM sessions WHERE {OF_OWNER} UNION SELECT session FROM runs WHERE {OF_OWNER} LIMIT ?"
        values = (*names, *names, BATCH)
        while found := await self.file.read(lambda connection: connection.execute(some, values).fetchall()):
            for (name,) in found:  # one by one, so that no run waits long
                job = partial(self._delete, owner=owner, session_id=name)
                self._count(owner, -await asyncio.shield(self.change((owner, name), job)))
        await self.file.write(partial(self.values.forget_owner, owner=owner))
        self.histories.forget(owner)
        return int(number)

    def _delete(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> int:
        """Deletes a session with its runs and the copies of their logs. Returns its size."""
        row, name = self._row(connection, owner, session_id), self._name(owner, session_id)
        connection.execute(f"DELETE FROM sessions WHERE {NAMED}", name)
        if self.runs is not None:
            self.runs.stop_elsewhere(connection, owner, session_id)
        connection.execute(f"DELETE FROM runs WHERE {RUN_OF_SESSION}", name)
        self.values.forget_session(connection, owner, session_id)
        return 0 if row is None else row.size

    async def rewind(self, session_id: str, before: str, *, owner: Owner) -> None:
        now = self.now()

        def job(connection: sqlite3.Connection) -> int:
            row = self._existing(connection, owner, session_id, now)
            if self._is_used(connection, owner, session_id):
                raise SessionBusy(f"Session {session_id!r} has a run in progress; stop it first.")
            stored = _stored(connection, owner, session_id, row)
            return _fill(connection, row, cut_before(stored, before), now).size - row.size

        self._count(owner, await asyncio.shield(self.change((owner, session_id), job)))

    async def fork(self, session_id: str, at: str | None = None, *, owner: Owner) -> str:
        now, new_id = self.now(), new_ulid()

        def job(connection: sqlite3.Connection) -> int:
            stored = _stored(connection, owner, session_id, self._existing(connection, owner, session_id, now))
            content = stored if at is None else cut_before(stored, at)
            return _fill(connection, self.insert(connection, owner, new_id, now), content, now).size

        self._count(owner, await self.file.write(job))
        return new_id

    async def restore(self, stored: StoredSession) -> None:
        session, now = stored.session, self.now()

        def job(connection: sqlite3.Connection) -> int:
            if self._find(connection, session.owner, session.session_id, now) is not None:
                raise InvalidRequest(f"There is a session {session.session_id!r} already.", field="session_id")
            row = self.insert(connection, session.owner, session.session_id, seconds_of(session.created_at, now))
            return _fill(connection, row, stored, seconds_of(session.last_activity, now)).size

        self._count(session.owner, await asyncio.shield(self.change((session.owner, session.session_id), job)))

    async def cleanup_expired(self) -> int:
        return await in_batches(self._remove_batch)

    async def _remove_batch(self) -> tuple[int, bool]:
        gone, are_more = await self.file.write(partial(self._remove_expired, before=self.now() - self._ttl))
        for owner, size in gone:
            self._count(owner, -size)
        if gone:
            await self.file.free_some()
        return len(gone), are_more

    async def count(self) -> int:
        used, kept = self.now() - self._ttl, set(+self._in_use)

        def job(connection: sqlite3.Connection) -> int:
            (stored,) = connection.execute("SELECT count(*) FROM sessions WHERE agent = ?", (self.agent,)).fetchone()
            overdue = connection.execute(_OVERDUE, (self.agent, used))
            return int(stored) - sum((Owner(tenant, user), name) not in kept for tenant, user, name in overdue)

        return await self.file.read(job)

    async def tenant_bytes(self, tenant: str) -> int:
        statement, names = "SELECT size FROM tenant_sizes WHERE agent = ? AND tenant = ?", (self.agent, tenant)
        found = await self.file.look(lambda connection: connection.execute(statement, names).fetchone())
        if found is not None:
            return int(found[0])
        return await self.file.write(partial(self._begin_sum, tenant=tenant), synced=False)

    def stored_bytes(self, owner: Owner) -> int:
        """The approximate total size of the owner's sessions in bytes."""
        return self._stored[owner]

    # for conversations

    def change(self, session: OwnedId, job: Job[T]) -> "asyncio.Future[T]":
        """Queues a job that changes a session.

        Until it is done, the session is read behind it: callers shield the future.
        """
        future = self.file.write(job)
        self._changing[session] = future
        return future

    def insert(
        self,
        connection: sqlite3.Connection,
        owner: Owner,
        session_id: str,
        now: float,
        *,
        steps: Sequence[Step] = (),
        parts: Mapping[str, bytes | None] = MappingProxyType({}),
    ) -> SessionRow:
        """Inserts a new session. Replaces an expired one, and at `max_per_user` the least recently used one.

        Raises LostClaim if one exists that has not expired: another process began it meanwhile.
        """
        self._evict_by_count(connection, owner)
        row = new_row(now).grown(steps, epoch=0, used=now)
        columns = "".join([f", {name}" for name in parts])
        statement = (
            f"INSERT INTO sessions (key, agent, tenant, user, id, created, used, messages, steps, size, v{columns})"
            f" VALUES ({_NEXT_KEY}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?{', ?' * len(parts)})"
        )
        name, counts = self._name(owner, session_id), (row.messages, row.steps, row.size)
        values = (*name, now, now, *counts, records.VERSION, *parts.values())
        try:
            cursor = connection.execute(statement, values)
        except sqlite3.IntegrityError:
            if self._find(connection, owner, session_id, now, own_use=1) is not None:
                raise LostClaim("Another process has begun this conversation; this run may not store it.") from None
            connection.execute(f"DELETE FROM sessions WHERE {NAMED}", name)
            self.values.forget_expired_session(connection, owner, session_id)
            cursor = connection.execute(statement, values)
        row = msgspec.structs.replace(row, key=cursor.lastrowid)
        _add_steps(connection, row.key, 0, steps)
        return row

    def _count(self, owner: Owner, added: int) -> None:
        self._stored[owner] += added
        if not self._stored[owner]:  # drops the owner's entry, or the counter would grow with every owner
            del self._stored[owner]

    def grew(self, owner: Owner, added: int) -> None:
        self._count(owner, added)
        limit = self.max_owner_bytes
        if added > 0 and limit is not None and (counted := self._stored[owner]) > limit:
            future = self.file.write(lambda connection: self._evict_by_size(connection, owner, limit))
            future.add_done_callback(lambda done: self._evicted(owner, counted, done))

    # in the file's thread

    def _at_start(self, connection: sqlite3.Connection) -> tuple[float, dict[Owner, int]]:
        (latest,) = connection.execute("SELECT coalesce(max(used), 0) FROM sessions").fetchone()
        sums = connection.execute(
            "SELECT tenant, user, sum(size) FROM sessions WHERE agent = ? GROUP BY tenant, user", (self.agent,)
        )
        return latest, {Owner(tenant, user): size for tenant, user, size in sums}

    def _name(self, owner: Owner, session_id: str) -> tuple[str, str, str, str]:
        return self.agent, owner.tenant, owner.user, session_id

    def _row(self, connection: sqlite3.Connection, owner: Owner, session_id: str) -> SessionRow | None:
        found = connection.execute(_SESSION, self._name(owner, session_id)).fetchone()
        return None if found is None else SessionRow(*found)

    def _find(
        self, connection: sqlite3.Connection, owner: Owner, session_id: str, now: float, *, own_use: int = 0
    ) -> SessionRow | None:
        row = self._unexpired(connection, owner, session_id, now, own_use=own_use)
        if row is not None and row.broken is not None:
            raise SessionBroken("This session cannot be read; its data is kept as it is.")
        return row

    def _unexpired(
        self, connection: sqlite3.Connection, owner: Owner, session_id: str, now: float, *, own_use: int = 0
    ) -> SessionRow | None:
        """The row, even of a session that cannot be read."""
        row = self._row(connection, owner, session_id)
        if row is None or (
            row.used + self._ttl <= now and not self._is_used(connection, owner, session_id, own_use=own_use)
        ):
            return None
        return row

    def _is_used(self, connection: sqlite3.Connection, owner: Owner, session_id: str, *, own_use: int = 0) -> bool:
        """Whether a run has the session open, here or in another process."""
        if self._in_use.get((owner, session_id), 0) > own_use:
            return True
        return self.runs is not None and self.runs.runs_elsewhere(connection, owner, session_id)

    def _existing(self, connection: sqlite3.Connection, owner: Owner, session_id: str, now: float) -> SessionRow:
        row = self._find(connection, owner, session_id, now)
        if row is None:
            raise SessionNotFound(f"There is no session {session_id!r}.")
        return row

    def _evict_by_count(self, connection: sqlite3.Connection, owner: Owner) -> None:
        most = self.most_sessions(owner)
        if most is None:
            return
        counted = f"SELECT count(*) FROM sessions WHERE {OF_OWNER}"
        if connection.execute(counted, (self.agent, owner.tenant, owner.user)).fetchone()[0] < most:
            return
        theirs = self._by_last_use(connection, owner)
        surplus = len(theirs) + 1 - most
        idle = [(key, name) for key, name, _ in theirs if surplus > 0 and not self._is_used(connection, owner, name)]
        if surplus > len(idle):
            raise RateLimited(f"Session limit reached: {len(theirs)} active (sessions.max_per_user).")
        for key, name in idle[: max(0, surplus)]:
            self._drop(connection, key, owner, name)

    def _evict_by_size(self, connection: sqlite3.Connection, owner: Owner, limit: int) -> int:
        """Deletes the owner's least recently used sessions. Returns the total size of the others in bytes."""
        theirs = self._by_last_use(connection, owner)
        stored = sum(size for _, _, size in theirs)
        surplus, freed = stored - limit, 0
        for key, name, size in theirs:
            if freed >= surplus:
                break
            if not self._is_used(connection, owner, name):
                self._drop(connection, key, owner, name)
                freed += size
        return stored - freed

    def _drop(self, connection: sqlite3.Connection, key: int, owner: Owner, session_id: str) -> None:
        """Deletes a session that expired or makes room, with its values. The records of its runs have a time of their own."""
        connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
        self.values.forget_session(connection, owner, session_id)

    def _evicted(self, owner: Owner, counted: int, done: "asyncio.Future[int]") -> None:
        """Adopts the sum from the file. Ours lacks deletions that made room, and those of other processes."""
        if not done.cancelled() and done.exception() is None:
            self._count(owner, done.result() - counted)

    def _begin_sum(self, connection: sqlite3.Connection, tenant: str) -> int:
        """Sums the bytes that a tenant stores. From then on, triggers update the sum."""
        ((size,),) = connection.execute(
            "INSERT OR REPLACE INTO tenant_sizes SELECT ?1, ?2, coalesce(sum(size), 0) FROM sessions"
            " WHERE agent = ?1 AND tenant = ?2 RETURNING size",
            (self.agent, tenant),
        ).fetchall()
        return int(size)

    def _by_last_use(self, connection: sqlite3.Connection, owner: Owner) -> list[tuple[int, str, int]]:
        statement = f"SELECT key, id, size FROM sessions WHERE {OF_OWNER} ORDER BY used"
        return connection.execute(statement, (self.agent, owner.tenant, owner.user)).fetchall()

    def _remove_expired(self, connection: sqlite3.Connection, before: float) -> tuple[list[tuple[Owner, int]], bool]:
        """Removes one batch at most. Each agent removes only its own sessions from the file.

        Returns the owners and sizes of those, and whether there may be more.
        """
        are_new = note_all(connection)
        noted = connection.execute(
            "SELECT key, tenant, user, id, size, used FROM sessions WHERE agent = ? AND noted <= ? ORDER BY noted LIMIT ?",
            (self.agent, before, BATCH + sum(self._in_use.values())),
        ).fetchall()
        later = [(used, key) for key, *_, used in noted if used > before]  # it was used after it was noted
        connection.executemany("UPDATE sessions SET noted = ? WHERE key = ?", later)
        overdue = [each for each in noted if each[5] <= before]
        idle = [each for each in overdue if not self._is_used(connection, Owner(each[1], each[2]), each[3])][:BATCH]
        before_each = accumulate((each[4] for each in idle), initial=0)
        unused = [each for each, size in zip(idle, before_each, strict=False) if size < BATCH_BYTES]
        for key, tenant, user, name, *_ in unused:
            self._drop(connection, key, Owner(tenant, user), name)
        gone = [(Owner(tenant, user), size) for _, tenant, user, _, size, _ in unused]
        return gone, are_new or len(later) + len(unused) >= BATCH or len(unused) < len(idle)

    async def _listed(
        self, owner: Owner | None, limit: int, after: ServerSession | None = None, *, session_id: str | None = None
    ) -> list[ServerSession]:
        now = self.now()
        place = () if after is None else (microseconds_of(after.last_activity), after.session_id)
        id_ = () if session_id is None else (session_id,)

        def job(connection: sqlite3.Connection) -> list[ServerSession]:
            whose, names = ("", ()) if owner is None else ("AND tenant = ? AND user = ?", (owner.tenant, owner.user))
            later = f"AND ({_MICROSECONDS}, id) < (?, ?)" if place else ""
            named = "AND id = ?" if id_ else ""
            found = connection.execute(
                f"SELECT tenant, user, id, {_TITLE}, {COLUMNS} FROM sessions WHERE agent = ? {whose} {later} {named}"
                f" ORDER BY {_MICROSECONDS} DESC, id DESC LIMIT ?",
                (self.agent, *names, *place, *id_, limit),
            )
            rows = [(Owner(tenant, user), name, SessionRow(*row), step) for tenant, user, name, step, *row in found]
            alive = (each for each in rows if each[2].used + self._ttl > now or self._is_used(connection, *each[:2]))
            return [described(*each) for each in alive]

        return await self.file.read(job)

    async def _reading(self, result: Awaitable[T], owner: Owner, session_id: str) -> T:
        """Marks an unreadable session, so that it is reported once and its bytes are kept."""
        try:
            return await result
        except SessionBroken as error:
            cause = repr(error.__cause__)
            mark = f"UPDATE sessions SET broken = ? WHERE {NAMED} AND broken IS NULL"
            if await self.file.execute(mark, (cause, *self._name(owner, session_id))):
                log.warning("session %r cannot be read and is set aside: %s", session_id, cause)
            raise

    async def clean(self) -> None:
        await super().clean()
        if self.runs is not None and self.runs.is_shared:  # others store, too
            _, stored = await self.file.read(self._at_start)
            self._stored = Counter(stored)


class _SqliteConversation(StoredConversation[SqliteSessionStore]):
    """The end of a history, decoded once; every commit is one transaction of the file."""

    async def _older(self) -> list[Message]:
        row = self._row
        return await self._store.file.read(lambda connection: _messages_of(connection, row))

    def _begin_write(self, write: SessionWrite) -> "asyncio.Future[SessionRow]":
        store, row, now = self._store, self._row, self._store.now()
        run, steps, parts = (self._owner, self._run_id), write.steps, write.parts

        def job(connection: sqlite3.Connection) -> SessionRow:
            if store.runs is not None and self._run_id:
                is_there = store.runs.store_with_commit(connection, run, write.ending, now, row.key)
                if not is_there:
                    raise SessionDeleted
            if row.key is None:  # without steps there is nothing to keep, so no session
                new = (connection, self._owner, self._session_id, now)
                return store.insert(*new, steps=steps, parts=parts) if steps else row
            current = row
            if write.cut is not None:
                whole = _stored(connection, self._owner, self._session_id, current)
                current = _fill(connection, current, cut_before(whole, write.cut), now)
            return _add(connection, current, steps, parts, now, claim=write.claims)

        future = store.change((self._owner, self._session_id), job)
        if store.runs is not None:
            future.add_done_callback(partial(store.runs.committed, run))
        return future


def _add(
    connection: sqlite3.Connection,
    row: SessionRow,
    steps: Sequence[Step],
    parts: Mapping[str, bytes | None],
    now: float,
    *,
    claim: bool,
) -> SessionRow:
    """Adds to a session that nothing else has claimed since it was read, nor extended under an earlier claim."""
    grown = row.grown(steps, epoch=row.epoch + claim, used=now)
    columns = "".join([f", {name} = ?" for name in parts])
    counts = (grown.messages, grown.steps, grown.size)
    cursor = connection.execute(
        "UPDATE sessions SET epoch = ?, used = ?, messages = ?, steps = ?, size = ?, v = ?"
        f"{columns} WHERE key = ? AND epoch = ? AND steps = ?",
        (grown.epoch, now, *counts, records.VERSION, *parts.values(), row.key, row.epoch, row.steps),
    )
    if cursor.rowcount == 0:
        if row.key is not None and has_session(connection, row.key):
            raise LostClaim(LOST)
        raise SessionDeleted
    if steps:
        _add_steps(connection, row.key, row.steps, steps)
    return grown


def _add_steps(connection: sqlite3.Connection, session: int | None, first: int, steps: Sequence[Step]) -> None:
    for number, (count, by_user, body) in enumerate(steps, first):
        connection.execute(
            "INSERT INTO steps (session, seq, messages, by_user, v, body) VALUES (?, ?, ?, ?, ?, ?)",
            (session, number, count, by_user, records.VERSION, body),
        )


def _fill(connection: sqlite3.Connection, row: SessionRow, content: StoredSession, used: float) -> SessionRow:
    """Replaces the whole content of a session. A run that has it open loses its claim."""
    connection.execute("DELETE FROM steps WHERE session = ?", (row.key,))
    connection.execute("UPDATE sessions SET messages = 0, steps = 0, size = 0 WHERE key = ?", (row.key,))
    parts = {
        "pending": records.optional(content.pending),
        "state": records.optional(content.state),
        "summary": records.optional(summary_after_cut(content.summary, content.messages)),
    }
    empty = msgspec.structs.replace(row, messages=0, steps=0, size=0)
    return _add(connection, empty, steps_of(content.messages), parts, used, claim=True)


def _end_of(connection: sqlite3.Connection, row: SessionRow, last: int | None) -> list[Message]:
    """The last messages, starting at a user's message; read step by step, newest first."""
    if not row.messages:
        return []
    wanted = wanted_messages(last, row.messages, records.summary_of(row.summary, row.v) if last is not None else None)
    if wanted >= row.messages:
        return _messages_of(connection, row)
    found: list[tuple[int, bytes]] = []
    count = 0
    newest_first = "SELECT messages, by_user, v, body FROM steps WHERE session = ? ORDER BY seq DESC"
    for messages, by_user, version, body in connection.execute(newest_first, (row.key,)):
        found.append((version, body))
        count += messages
        if count >= wanted and by_user:
            break
    return [message for version, body in reversed(found) for message in records.messages_of(body, version)]


def _messages_of(connection: sqlite3.Connection, row: SessionRow) -> list[Message]:
    steps = connection.execute("SELECT v, body FROM steps WHERE session = ? ORDER BY seq", (row.key,))
    return [message for version, body in steps for message in records.messages_of(body, version)]


def _stored(connection: sqlite3.Connection, owner: Owner, session_id: str, row: SessionRow) -> StoredSession:
    return stored_session(owner, session_id, row, _messages_of(connection, row))
