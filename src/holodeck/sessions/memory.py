"""Sessions in memory: gone with the process, forgotten after their time to live.

Messages are kept as compressed JSON: a session of ten messages takes two or three KiB instead of dozens, nothing live can
hide in it, and the store shows the same behaviour as one behind a socket. It does not know who runs on a session.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.errors import SessionNotFound
from holodeck.sessions.port import Conversation, ServerSession

TTL_SECONDS = 1800
MAX_SESSIONS = 100_000

_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[Message])
_pending = msgspec.json.Decoder(PendingStep)
_summary = msgspec.json.Decoder(Summary)


# What every message has in common: with it even a short one becomes half as long.
_FRAME = (
    b'[{"role":"tool","call_id":"call_","name":"","content":"","failed":true,"id":"01","timestamp":"2026-'
    b'[{"role":"assistant","content":"","tool_calls":[{"id":"call_","name":"","arguments":"{\\"","extra":{}}],"reasoning":"",'
    b'"tokens_used":{"prompt_tokens":,"completion_tokens":},"id":"01","timestamp":"202'
    b'[{"role":"user","content":" the and to of in is you that for","id":"01","timestamp":"202-1T:.Z"}]'
)


def _pack(data: bytes) -> bytes:
    packer = zlib.compressobj(level=6, wbits=-15, zdict=_FRAME)
    return packer.compress(data) + packer.flush()


def _unpack(packed: bytes) -> bytes:
    return zlib.decompressobj(wbits=-15, zdict=_FRAME).decompress(packed)


@dataclass(slots=True)
class _Kept:
    user_id: str | None
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl = ttl_seconds
        self._max = max_sessions
        self._clock = clock
        self._kept: dict[str, _Kept] = {}  # least recently used first
        self._cleaner: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._cleaner is None:
            self._cleaner = asyncio.create_task(self._clean_regularly(), name="session clean-up")

    async def close(self) -> None:
        if self._cleaner is not None:
            self._cleaner.cancel()
            await asyncio.wait({self._cleaner})
            self._cleaner = None

    async def create(self, session_id: str | None = None, *, user_id: str | None = None) -> ServerSession:
        session_id = session_id or new_ulid()
        kept = self._find(session_id, user_id)
        if kept is None:
            if session_id in self._kept and not self._expired(self._kept[session_id]):
                raise SessionNotFound(f"There is no session {session_id!r}.")  # it is somebody else's
            present = time.time()
            kept = _Kept(user_id, present, present, self._clock() + self._ttl)
            self._make_room()
            self._kept[session_id] = kept
        return _described(session_id, kept)

    async def get(self, session_id: str, *, user_id: str | None = None) -> ServerSession | None:
        kept = self._find(session_id, user_id)
        return None if kept is None else _described(session_id, kept)

    async def touch(self, session_id: str, *, user_id: str | None = None) -> None:
        kept = self._find(session_id, user_id)
        if kept is not None:
            self._touch(session_id, kept)

    async def delete(self, session_id: str, *, user_id: str | None = None) -> bool:
        if self._find(session_id, user_id) is None:
            return False
        del self._kept[session_id]
        return True

    async def cleanup_expired(self) -> int:
        expired = [session_id for session_id, kept in self._kept.items() if self._expired(kept)]
        for session_id in expired:
            del self._kept[session_id]
        return len(expired)

    async def count(self) -> int:
        return sum(not self._expired(kept) for kept in self._kept.values())

    async def open(self, session_id: str, *, user_id: str | None = None) -> Conversation:
        kept = self._find(session_id, user_id)
        if kept is None:
            raise SessionNotFound(f"There is no session {session_id!r}.")
        self._touch(session_id, kept)
        return _MemoryConversation(kept, lambda: self._touch(session_id, kept))

    def _find(self, session_id: str, user_id: str | None) -> _Kept | None:
        kept = self._kept.get(session_id)
        if kept is None or kept.user_id != user_id or self._expired(kept):
            return None
        return kept

    def _expired(self, kept: _Kept) -> bool:
        return self._clock() >= kept.expires

    def _touch(self, session_id: str, kept: _Kept) -> None:
        kept.last_activity = time.time()
        kept.expires = self._clock() + self._ttl
        if self._kept.get(session_id) is kept:  # it may have been deleted while a run went on
            self._kept[session_id] = self._kept.pop(session_id)

    def _make_room(self) -> None:
        while len(self._kept) >= self._max:
            del self._kept[next(iter(self._kept))]

    async def _clean_regularly(self) -> None:
        while True:
            await asyncio.sleep(min(self._ttl, 60))
            await self.cleanup_expired()


class _MemoryConversation:
    """Decoded once when a run opens it; every commit goes to the store at once."""

    def __init__(self, kept: _Kept, touch: Callable[[], None]) -> None:
        self._kept = kept
        self._touch = touch
        self._messages: list[Message] = [message for step in kept.steps for message in _messages.decode(_unpack(step))]

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    @property
    def pending(self) -> PendingStep | None:
        return None if self._kept.pending is None else _pending.decode(self._kept.pending)

    @property
    def state(self) -> Any:
        return None if self._kept.state is None else msgspec.json.decode(self._kept.state)

    @property
    def summary(self) -> Summary | None:
        return None if self._kept.summary is None else _summary.decode(_unpack(self._kept.summary))

    async def commit(self, messages: Sequence[Message], pending: PendingStep | None = None) -> None:
        self._messages.extend(messages)
        if messages:
            self._kept.steps.append(_pack(_encode(list(messages))))
            self._kept.message_count += len(messages)
        self._kept.pending = None if pending is None else _encode(pending)
        self._touch()

    async def put_state(self, state: Any) -> None:
        self._kept.state = None if state is None else _encode(state)

    async def put_summary(self, summary: Summary | None) -> None:
        self._kept.summary = None if summary is None else _pack(_encode(summary))


def _described(session_id: str, kept: _Kept) -> ServerSession:
    return ServerSession(
        session_id=session_id,
        user_id=kept.user_id,
        created_at=datetime.fromtimestamp(kept.created_at, UTC),
        last_activity=datetime.fromtimestamp(kept.last_activity, UTC),
        message_count=kept.message_count,
    )
