"""Sessions in memory: gone with the process, forgotten after their time to live.

Messages are kept as compressed JSON: a session of ten messages takes two or three KiB instead of dozens, nothing live can
hide in it, and the store behaves like one behind a socket. It does not know about runs, but a conversation that is still
referenced is in use: it neither expires nor makes room for another (C10).
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any
from weakref import WeakSet

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message, PendingStep, Summary, UserMessage
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import InvalidRequest, RateLimited, SessionNotFound
from holodeck.sessions.port import Conversation, ServerSession

TTL_SECONDS = 1800
MAX_SESSIONS = 100_000

_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Message])
_pending = msgspec.json.Decoder(PendingStep)
_summary = msgspec.json.Decoder(Summary)


# What every message has in common: with it even a short one can be packed.
_FRAME = (
    b'[{"role":"tool","call_id":"call_","name":"","content":"","failed":true,"id":"01","timestamp":"2026-'
    b'[{"role":"assistant","content":"","tool_calls":[{"id":"call_","name":"","arguments":"{\\"","extra":{}}],"reasoning":"",'
    b'"tokens_used":{"prompt_tokens":,"completion_tokens":},"id":"01","timestamp":"202'
    b'[{"role":"user","content":" the and to of in is you that for","id":"01","timestamp":"202-1T:.Z"}]'
)


_SHORT = 4096  # bytes; zlib's usual tables are 256 kB, and clearing them costs more than to pack so little


def _pack(data: bytes) -> bytes:
    window, memory = (-12, 5) if len(data) <= _SHORT else (-15, 8)
    packer = zlib.compressobj(level=6, wbits=window, memLevel=memory, zdict=_FRAME)
    return packer.compress(data) + packer.flush()


def _unpack(packed: bytes) -> bytes:
    return zlib.decompressobj(wbits=-15, zdict=_FRAME).decompress(packed)


@dataclass(slots=True)
class _Kept:
    created_at: float
    last_activity: float
    expires: float  # on the monotonic clock: a clock that is set must not end sessions
    steps: list[bytes] = field(default_factory=list)
    message_count: int = 0
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl = ttl_seconds
        self._max, self._max_per_user = max_sessions, max_per_user
        self._clock = clock
        self._kept: dict[OwnedId, _Kept] = {}  # least recently used first
        self._by_owner: dict[
            Owner, dict[OwnedId, _Kept]
        ] = {}  # in the same order; filled only if `max_per_user` is set
        self._open: WeakSet[_MemoryConversation] = WeakSet()
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
        key = (owner, session_id or new_ulid())
        kept = self._find(key)
        if kept is None:
            self._drop(key)  # it may be there, expired
            self._make_room(owner)
            present = time.time()
            kept = _Kept(present, present, self._clock() + self._ttl)
            self._put_last(key, kept)
        return _described(key, kept)

    async def get(self, session_id: str, *, owner: Owner) -> ServerSession | None:
        key = (owner, session_id)
        kept = self._find(key)
        return None if kept is None else _described(key, kept)

    async def touch(self, session_id: str, *, owner: Owner) -> None:
        key = (owner, session_id)
        kept = self._find(key)
        if kept is not None:
            self._touch(key, kept)

    async def delete(self, session_id: str, *, owner: Owner) -> bool:
        key = (owner, session_id)
        if self._find(key) is None:
            return False
        self._drop(key)
        return True

    async def rewind(self, session_id: str, before: str, *, owner: Owner) -> None:
        key = (owner, session_id)
        kept = self._find(key)
        if kept is None:
            raise SessionNotFound(f"There is no session {session_id!r}.")
        messages = _MemoryConversation(kept, lambda: None).messages
        cut = next((i for i, each in enumerate(messages) if each.id == before and isinstance(each, UserMessage)), None)
        if cut is None:
            raise InvalidRequest(f"There is no user's message {before!r} in this session.", field="from")
        summary = None if kept.summary is None else _summary.decode(_unpack(kept.summary))
        kept.steps = [_pack(_encode(list(messages[:cut])))] if cut else []
        kept.message_count, kept.pending = cut, None
        if summary is not None and summary.rest_of(messages[:cut]) is None:
            kept.summary = None  # it covers messages that were cut off
        self._touch(key, kept)

    async def cleanup_expired(self) -> int:
        expired = self._all_expired()
        for key in expired:
            self._drop(key)
        return len(expired)

    async def count(self) -> int:
        return len(self._kept) - len(self._all_expired())

    async def open(self, session_id: str, *, owner: Owner) -> Conversation:
        key = (owner, session_id)
        kept = self._find(key)
        if kept is None:
            raise SessionNotFound(f"There is no session {session_id!r}.")
        self._touch(key, kept)
        conversation = _MemoryConversation(kept, lambda: self._touch(key, kept))
        self._open.add(conversation)
        return conversation

    def _find(self, key: OwnedId) -> _Kept | None:
        kept = self._kept.get(key)
        return None if kept is None or self._expired(kept) else kept

    def _expired(self, kept: _Kept) -> bool:
        return self._clock() >= kept.expires and not self._in_use(kept)

    def _all_expired(self) -> list[OwnedId]:
        """Those at the front: the sessions are in the order of their expiry, so that most need no look."""
        now, in_use = self._clock(), self._all_in_use()
        front = takewhile(lambda each: now >= each[1].expires, self._kept.items())
        return [key for key, kept in front if id(kept) not in in_use]

    def _in_use(self, kept: _Kept) -> bool:
        return any(each.kept is kept for each in self._open)

    def _all_in_use(self) -> set[int]:
        return {id(each.kept) for each in self._open}

    def _touch(self, key: OwnedId, kept: _Kept) -> None:
        kept.last_activity = time.time()
        kept.expires = self._clock() + self._ttl
        if self._kept.get(key) is kept:  # it may have been deleted while a run was in progress
            self._put_last(key, kept)

    def _put_last(self, key: OwnedId, kept: _Kept) -> None:
        self._kept.pop(key, None)
        self._kept[key] = kept
        if self._max_per_user is not None:
            of_owner = self._by_owner.setdefault(key[0], {})
            of_owner.pop(key, None)
            of_owner[key] = kept

    def _drop(self, key: OwnedId) -> None:
        self._kept.pop(key, None)
        of_owner = self._by_owner.get(key[0])
        if of_owner is not None:
            of_owner.pop(key, None)
            if not of_owner:
                del self._by_owner[key[0]]

    def _make_room(self, owner: Owner) -> None:
        """Drops the sessions that were idle for the longest time: the owner's own first, then anyone's."""
        of_owner = self._by_owner.get(owner, {})
        while self._max_per_user is not None and len(of_owner) >= self._max_per_user:
            idle = self._longest_idle(of_owner)
            if idle is None:
                raise RateLimited(f"Session limit reached: {len(of_owner)} active (sessions.max_per_user).")
            self._drop(idle)
        while len(self._kept) >= self._max and (idle := self._longest_idle(self._kept)) is not None:
            self._drop(idle)

    def _longest_idle(self, among: dict[OwnedId, _Kept]) -> OwnedId | None:
        in_use = self._all_in_use()
        return next((key for key, kept in among.items() if id(kept) not in in_use), None)

    async def _clean_regularly(self) -> None:
        while True:
            await asyncio.sleep(min(self._ttl, 60))
            await self.cleanup_expired()


class _MemoryConversation:
    """Decoded once when a run opens it; every commit goes to the store at once."""

    def __init__(self, kept: _Kept, touch: Callable[[], None]) -> None:
        self.kept = kept
        self._touch = touch
        self._messages: list[Message] = [message for step in kept.steps for message in _messages.decode(_unpack(step))]

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    @property
    def pending(self) -> PendingStep | None:
        return None if self.kept.pending is None else _pending.decode(self.kept.pending)

    @property
    def state(self) -> Any:
        return None if self.kept.state is None else msgspec.json.decode(self.kept.state)

    @property
    def summary(self) -> Summary | None:
        return None if self.kept.summary is None else _summary.decode(_unpack(self.kept.summary))

    async def commit(self, messages: Sequence[Message], pending: PendingStep | None = None) -> None:
        self._messages.extend(messages)
        if messages:
            self.kept.steps.append(_pack(_encode(list(messages))))
            self.kept.message_count += len(messages)
        self.kept.pending = None if pending is None else _encode(pending)
        self._touch()

    async def put_state(self, state: Any) -> None:
        self.kept.state = None if state is None else _encode(state)

    async def put_summary(self, summary: Summary | None) -> None:
        self.kept.summary = None if summary is None else _pack(_encode(summary))


def _described(key: OwnedId, kept: _Kept) -> ServerSession:
    owner, session_id = key
    return ServerSession(
        session_id=session_id,
        owner=owner,
        created_at=datetime.fromtimestamp(kept.created_at, UTC),
        last_activity=datetime.fromtimestamp(kept.last_activity, UTC),
        message_count=kept.message_count,
    )
