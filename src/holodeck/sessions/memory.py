"""Sessions in memory: lost with the process, deleted after their time to live.

Messages are kept as compressed JSON. A session of ten messages takes two or three KiB instead of dozens, it cannot hold
a live object, and the store behaves like one behind a socket. A conversation is in use from the moment a run opens it
until the run closes it: meanwhile it neither expires nor makes room for another (C10).
"""

import asyncio
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message, PendingStep, Summary, UserMessage
from holodeck.core.owner import Owner
from holodeck.core.sizes import MB
from holodeck.errors import InvalidRequest, RateLimited, SessionBusy, SessionDeleted, SessionNotFound
from holodeck.sessions.port import KEEP, Conversation, ServerSession, StoredSession
from holodeck.sessions.recent_histories import RecentHistories
from holodeck.sessions.transcript import (
    AddedAtOnce,
    SessionChange,
    check_room,
    index_of_message,
    size_of,
    summary_after_cut,
    title_of,
    wanted_messages,
    whole_turns,
)
from holodeck.sessions.values import MemoryValues

TTL_SECONDS = 1800
MAX_SESSIONS = 100_000

_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Message])
_pending = msgspec.json.Decoder(PendingStep)
_summary = msgspec.json.Decoder(Summary)


# The text that every message has in common: with it, even a short message compresses well.
_FRAME = (
    b'[{"role":"tool","call_id":"call_","name":"","content":"","failed":true,"id":"01","timestamp":"2026-'
    b'[{"role":"assistant","content":"","tool_calls":[{"id":"call_","name":"","arguments":"{\\"","extra":{}}],"reasoning":"",'
    b'"tokens_used":{"prompt_tokens":,"completion_tokens":},"id":"01","timestamp":"202","run_id":"01'
    b'[{"role":"user","content":" the and to of in is you that for","id":"01","timestamp":"202-1T:.Z","run_id":"01"}]'
)


_SHORT = 4096  # bytes; zlib's usual tables are 256 kB, and clearing them costs more than compressing so little


def _pack(data: bytes) -> bytes:
    """Compresses data. For a short turn, level 1 takes half the time of level 6, for 2 to 5 % more bytes."""
    level, window, memory = (1, -12, 5) if len(data) <= _SHORT else (6, -15, 8)
    packer = zlib.compressobj(level=level, wbits=window, memLevel=memory, zdict=_FRAME)
    return packer.compress(data) + packer.flush()


def _unpack(packed: bytes) -> bytes:
    return zlib.decompressobj(wbits=-15, zdict=_FRAME).decompress(packed)


_HEAD = 4  # bytes
_SHORTEST = 512  # bytes to pack; packing one short turn saves 200 bytes and takes 3 % of the CPU of its request


def _head(messages: int, *, is_user: bool, is_packed: bool) -> bytes:
    return messages.to_bytes(2, "big") + bytes((is_user, is_packed))


def _count(step: bytes) -> int:
    return int.from_bytes(step[:2], "big")


class _Steps:
    """The steps of a history as bytes.

    Each has a head of four bytes (the message count, whether a user's message comes first, whether it is packed), then
    JSON. `pack` compresses what runs have added: one turn takes half the time of its two steps.
    """

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[bytes] = []

    def add(self, messages: Sequence[Message], encoded: bytes) -> None:
        """Adds a step, not packed yet. `encoded` is the JSON list of its messages."""
        is_user = isinstance(messages[0], UserMessage)
        self._steps.append(_head(len(messages), is_user=is_user, is_packed=False) + encoded)

    def pack(self) -> None:
        """Packs the steps that are not packed yet, those of a turn as one. Waits for more if they are short."""
        first = len(self._steps)
        while first and not self._steps[first - 1][3]:
            first -= 1
        added = self._steps[first:]
        if sum(map(len, added)) < _SHORTEST:
            return
        turns: list[tuple[int, bool, list[bytes]]] = []
        for step in reversed(added):
            after, _, pieces = (0, False, []) if not turns or turns[-1][1] else turns.pop()
            turns.append((_count(step) + after, bool(step[2]), [step[_HEAD + 1 : -1], *pieces]))
        self._steps[first:] = [
            _head(count, is_user=is_user, is_packed=True) + _pack(b"[%b]" % b",".join(pieces))
            for count, is_user, pieces in reversed(turns)
        ]

    def messages(self, first: int = 0) -> list[Message]:
        steps = self._steps[first:]
        encoded = (_unpack(step[_HEAD:]) if step[3] else step[_HEAD:] for step in steps)
        return [message for step in encoded for message in _messages.decode(step)]

    def start_of_last(self, wanted: int) -> int:
        """The step to begin with, so that at least `wanted` messages follow, the first of them a user's."""
        found, first = 0, len(self._steps)
        while first and not (found >= wanted and first < len(self._steps) and self._steps[first][2]):
            first -= 1
            found += _count(self._steps[first])
        return first


class _Shelf:
    """The sessions of one owner, least recently used first, and their total size."""

    __slots__ = ("kept", "size")

    def __init__(self) -> None:
        self.kept: dict[str, _MemorySession] = {}
        self.size = 0


@dataclass(slots=True, eq=False)
class _MemorySession:
    session_id: str
    owner: Owner
    shelf: _Shelf
    created_at: float
    last_activity: float
    expires: float  # on the monotonic clock: a change of the wall clock must not end sessions
    steps: _Steps = field(default_factory=_Steps)
    message_count: int = 0
    size: int = 0
    title: str = ""
    users: int = 0  # runs that have it open
    pending: bytes | None = None
    state: bytes | None = None
    summary: bytes | None = None


class MemorySessionStore:
    def __init__(
        self,
        ttl_seconds: float = TTL_SECONDS,
        *,
        max_sessions: int = MAX_SESSIONS,
        max_per_user: int | None = None,
        spares_anonymous: bool = False,
        max_bytes: int = 4 * MB,
        max_owner_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_drop: Callable[[Owner, str], None] | None = None,
    ) -> None:
        """`on_drop` is called with every session that is deleted, expires or makes room for another.

        `spares_anonymous`: `max_per_user` does not apply to clients without a credential, since they share one owner.
        """
        self._ttl = ttl_seconds
        self._max, self._max_per_user, self._spares_anonymous = max_sessions, max_per_user, spares_anonymous
        self.max_bytes, self._max_owner_bytes = max_bytes, max_owner_bytes
        self._clock, self._on_drop = clock, on_drop
        self.values = MemoryValues(clock)
        self.histories = RecentHistories()
        self._shelves: dict[Owner, _Shelf] = {}
        self._all: dict[_MemorySession, None] = {}  # the sessions of all owners, least recently used first
        self._of_tenants: Counter[str] = Counter()  # bytes
        self._cleaner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._cleaner is None:
            self._cleaner = asyncio.create_task(self._clean_regularly(), name="session clean-up")

    async def close(self) -> None:
        if self._cleaner is not None:
            self._cleaner.cancel()
            await asyncio.wait({self._cleaner})
            self._cleaner = None

    async def create(self, session_id: str | None = None, *, owner: Owner) -> ServerSession:
        return _described(self._created(session_id or new_ulid(), owner))

    async def get(self, session_id: str, *, owner: Owner) -> ServerSession | None:
        kept = self._find(session_id, owner)
        return None if kept is None else _described(kept)

    async def read(self, session_id: str, *, owner: Owner, last: int | None = None) -> StoredSession | None:
        kept = self._find(session_id, owner)
        return None if kept is None else _stored(kept, last)

    async def open(
        self,
        session_id: str,
        *,
        owner: Owner,
        run_id: str = "",  # noqa: ARG002  for stores that outlive the process
        last: int | None = None,
        create: bool = False,
    ) -> Conversation:
        kept = self._find(session_id, owner)
        if kept is not None:
            self.touch(kept)
        elif create:
            kept = self._new(session_id, owner)
        else:
            raise _unknown(session_id)
        kept.users += 1
        return _MemoryConversation(self, kept, last)

    async def delete(self, session_id: str, *, owner: Owner) -> bool:
        kept = self._find(session_id, owner)
        if kept is None:
            return False
        self._drop(kept)
        return True

    async def rewind(self, session_id: str, before: str, *, owner: Owner) -> None:
        kept = self._existing(session_id, owner)
        if kept.users:
            raise SessionBusy(f"Session {session_id!r} has a run in progress; stop it first.")
        self.cut(kept, before)

    async def fork(self, session_id: str, at: str | None = None, *, owner: Owner) -> str:
        kept = self._existing(session_id, owner)
        if at is not None:
            index_of_message(at, kept.steps.messages())
        copy = self._created(new_ulid(), owner)
        self._replace(kept, copy, at)
        return copy.session_id

    async def restore(self, stored: StoredSession) -> None:
        session = stored.session
        if self._find(session.session_id, session.owner) is not None:
            raise InvalidRequest(f"There is a session {session.session_id!r} already.", field="session_id")
        kept = self._created(session.session_id, session.owner)
        kept.pending = None if stored.pending is None else _encode(stored.pending)
        kept.state = None if stored.state is None else _encode(stored.state)
        self._fill(kept, stored.messages, stored.summary)
        kept.created_at, kept.last_activity = session.created_at.timestamp(), session.last_activity.timestamp()

    async def sessions_of(
        self, *, owner: Owner, limit: int = 100, after: ServerSession | None = None
    ) -> Sequence[ServerSession]:
        shelf = self._shelves.get(owner)
        if shelf is None:
            return ()
        living = (_described(kept) for kept in reversed(shelf.kept.values()) if not self._expired(kept))
        return list(islice((each for each in living if after is None or _sort_key(each) < _sort_key(after)), limit))

    async def cleanup_expired(self) -> int:
        expired = self._all_expired()
        for kept in expired:
            self._drop(kept)
        return len(expired)

    async def count(self) -> int:
        return len(self._all) - len(self._all_expired())

    async def tenant_bytes(self, tenant: str) -> int:
        return self._of_tenants.get(tenant, 0)

    def cut(self, kept: _MemorySession, before: str) -> None:
        self._replace(kept, kept, before)

    def refuse_deleted(self, kept: _MemorySession) -> None:
        if kept not in self._all:
            raise SessionDeleted

    def touch(self, kept: _MemorySession) -> None:
        kept.last_activity = time.time()
        kept.expires = self._clock() + self._ttl
        if kept in self._all:  # it may have been deleted during the run
            del self._all[kept]
            self._all[kept] = None
            theirs = kept.shelf.kept
            del theirs[kept.session_id]
            theirs[kept.session_id] = kept

    def grew(self, kept: _MemorySession, added: int) -> None:
        kept.size += added
        if kept not in self._all:
            return
        shelf = kept.shelf
        shelf.size += added
        self._of_tenants[kept.owner.tenant] += added
        if self._max_owner_bytes is not None and shelf.size > self._max_owner_bytes:
            self._evict_by_size(shelf, self._max_owner_bytes)

    def _created(self, session_id: str, owner: Owner) -> _MemorySession:
        kept = self._find(session_id, owner)
        return self._new(session_id, owner) if kept is None else kept

    def _new(self, session_id: str, owner: Owner) -> _MemorySession:
        expired = self._shelf(owner).kept.get(session_id)
        if expired is not None:
            self._drop(expired)
        self._evict_by_count(owner)
        present, shelf = time.time(), self._shelf(owner)
        kept = _MemorySession(session_id, owner, shelf, present, present, self._clock() + self._ttl)
        self._all[kept] = None
        shelf.kept[session_id] = kept
        return kept

    def _existing(self, session_id: str, owner: Owner) -> _MemorySession:
        kept = self._find(session_id, owner)
        if kept is None:
            raise _unknown(session_id)
        return kept

    def _find(self, session_id: str, owner: Owner) -> _MemorySession | None:
        shelf = self._shelves.get(owner)
        kept = None if shelf is None else shelf.kept.get(session_id)
        return None if kept is None or self._expired(kept) else kept

    def _shelf(self, owner: Owner) -> _Shelf:
        shelf = self._shelves.get(owner)
        if shelf is None:
            shelf = self._shelves[owner] = _Shelf()
        return shelf

    def _expired(self, kept: _MemorySession) -> bool:
        return self._clock() >= kept.expires and not kept.users

    def _all_expired(self) -> list[_MemorySession]:
        """The expired sessions.

        Sessions are in order of use, so it reads only the front of the list, however long it is.
        """
        now = self._clock()
        return [kept for kept in takewhile(lambda each: now >= each.expires, self._all) if not kept.users]

    def _drop(self, kept: _MemorySession) -> None:
        if kept not in self._all:
            return
        del self._all[kept]
        shelf = kept.shelf
        del shelf.kept[kept.session_id]
        shelf.size -= kept.size
        self._of_tenants[kept.owner.tenant] -= kept.size
        if not self._of_tenants[kept.owner.tenant]:
            del self._of_tenants[kept.owner.tenant]
        if not shelf.kept:
            del self._shelves[kept.owner]
        self.values.forget_session(kept.owner, kept.session_id)
        self.histories.forget(kept.owner, kept.session_id)
        if self._on_drop is not None:
            self._on_drop(kept.owner, kept.session_id)

    def _evict_by_count(self, owner: Owner) -> None:
        """Drops the least recently used sessions: the owner's own first, then those of other owners."""
        theirs = self._shelf(owner).kept
        is_spared = self._spares_anonymous and owner.is_anonymous
        while self._max_per_user is not None and not is_spared and len(theirs) >= self._max_per_user:
            idle = _longest_idle(theirs.values())
            if idle is None:
                raise RateLimited(f"Session limit reached: {len(theirs)} active (sessions.max_per_user).")
            self._drop(idle)
        while len(self._all) >= self._max and (idle := _longest_idle(self._all)) is not None:
            self._drop(idle)

    def _evict_by_size(self, shelf: _Shelf, limit: int) -> None:
        while shelf.size > limit and (idle := _longest_idle(shelf.kept.values())) is not None:
            self._drop(idle)

    def _replace(self, source: _MemorySession, target: _MemorySession, before: str | None) -> None:
        """Gives `target` the history of `source` before a message. It never awaits, so no reader sees half of it."""
        messages = source.steps.messages()
        kept = messages if before is None else messages[: index_of_message(before, messages)]
        target.pending = source.pending if before is None else None
        target.state = source.state
        self._fill(target, kept, None if source.summary is None else _decoded_summary(source.summary))

    def _fill(self, target: _MemorySession, messages: Sequence[Message], summary: Summary | None) -> None:
        target.steps, target.message_count, target.title = _Steps(), len(messages), title_of(messages)
        size = 0
        for turn in whole_turns(messages):
            encoded = _encode(turn)
            target.steps.add(turn, encoded)
            size += size_of(encoded, len(turn))
        target.steps.pack()
        summary = summary_after_cut(summary, messages)
        target.summary = None if summary is None else _pack(_encode(summary))
        self.touch(target)
        self.grew(target, size - target.size)

    async def _clean_regularly(self) -> None:
        while True:
            await asyncio.sleep(min(self._ttl, 60))
            await self.cleanup_expired()
            await self.values.remove_expired()


class _MemoryConversation(AddedAtOnce):
    """Decodes the end of the history when a run opens it. Every commit goes to the store immediately."""

    def __init__(self, store: MemorySessionStore, kept: _MemorySession, last: int | None) -> None:
        self._store, self._kept, self._closed = store, kept, False
        self._cut: str | None = None  # the message before which the next commit cuts the history
        self.messages: list[Message] = _end_of(kept, last)
        self.earlier = kept.message_count - len(self.messages)

    @property
    def pending(self) -> PendingStep | None:
        return None if self._kept.pending is None or self._cut is not None else _pending.decode(self._kept.pending)

    @property
    def state(self) -> Any:
        return None if self._kept.state is None else msgspec.json.decode(self._kept.state)

    @property
    def summary(self) -> Summary | None:
        summary = None if self._kept.summary is None else _decoded_summary(self._kept.summary)
        return summary if self._cut is None else summary_after_cut(summary, self.messages)

    async def history(self) -> Sequence[Message]:
        if not self.earlier:
            return tuple(self.messages)
        session = self._kept.owner, self._kept.session_id
        return await self._store.histories.whole(session, self.earlier, self.messages, self._earlier_ones)

    async def stored(self) -> Sequence[Message]:
        return self._kept.steps.messages()

    async def _earlier_ones(self) -> Sequence[Message]:
        return self._kept.steps.messages()[: self.earlier]

    async def rewind(self, before: str) -> None:
        messages = self._kept.steps.messages()
        self.messages, self.earlier, self._cut = messages[: index_of_message(before, messages)], 0, before

    def _add(self, change: SessionChange) -> None:
        messages = change.messages
        kept, encoded = self._kept, _encode(messages) if messages else b""
        self._store.refuse_deleted(kept)
        added = size_of(encoded, len(messages))
        size = (
            kept.size
            if self._cut is None
            else sum(size_of(_encode(turn), len(turn)) for turn in whole_turns(self.messages))
        )
        check_room(messages, added, size, self._store.max_bytes)
        if messages or isinstance(change.pending, PendingStep):
            self._cut_now()
        if messages:
            for turn in whole_turns(messages):
                kept.steps.add(turn, encoded if len(turn) == len(messages) else _encode(turn))
            kept.message_count += len(messages)
            kept.title = kept.title or title_of(messages)
            self.messages.extend(messages)
        if change.pending is not KEEP:
            kept.pending = None if change.pending is None else _encode(change.pending)
        if change.state is not KEEP:
            kept.state = None if change.state is None else _encode(change.state)
        if change.summary is not KEEP:
            kept.summary = None if change.summary is None else _pack(_encode(change.summary))
        self._store.touch(kept)
        if messages:
            self._store.grew(kept, added)

    async def begin_calls(self, step: PendingStep, *, state: Any = KEEP) -> None:
        self._store.refuse_deleted(self._kept)
        self._cut_now()
        self._kept.pending = _encode(step)
        if state is not KEEP:
            self._kept.state = _encode(state)

    def _cut_now(self) -> None:
        if self._cut is not None:
            self._store.cut(self._kept, self._cut)
            self._cut = None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._kept.users -= 1
            self._kept.steps.pack()


def _unknown(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {session_id!r}.")


def _longest_idle(among: Any) -> _MemorySession | None:
    return next((kept for kept in among if not kept.users), None)


def _decoded_summary(packed: bytes) -> Summary:
    return _summary.decode(_unpack(packed))


def _described(kept: _MemorySession) -> ServerSession:
    return ServerSession(
        session_id=kept.session_id,
        owner=kept.owner,
        created_at=datetime.fromtimestamp(kept.created_at, UTC),
        last_activity=datetime.fromtimestamp(kept.last_activity, UTC),
        message_count=kept.message_count,
        size=kept.size,
        title=kept.title,
    )


def _sort_key(session: ServerSession) -> tuple[datetime, str]:
    """The sort key of a session in the list of its owner. The highest comes first."""
    return session.last_activity, session.session_id


def _end_of(kept: _MemorySession, last: int | None) -> list[Message]:
    summary = None if kept.summary is None or last is None else _decoded_summary(kept.summary)
    wanted = wanted_messages(last, kept.message_count, summary)
    return kept.steps.messages(0 if wanted >= kept.message_count else kept.steps.start_of_last(wanted))


def _stored(kept: _MemorySession, last: int | None = None) -> StoredSession:
    return StoredSession(
        session=_described(kept),
        messages=tuple(_end_of(kept, last)),
        pending=None if kept.pending is None else _pending.decode(kept.pending),
        state=None if kept.state is None else msgspec.json.decode(kept.state),
        summary=None if kept.summary is None else _decoded_summary(kept.summary),
    )
