"""What the transports have in common: a pair of message streams that one day ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from enum import IntEnum

from anyio.streams.memory import MemoryObjectSendStream

from holodeck.tools.mcp_wire import Message

OUTBOX = 64  # messages to a server that is slow to read, so that a timeout's notice need not wait for it


class CannotConnect(Exception):
    """There is no connection to be had. `advice` says what a person can do about it."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


class McpRefusal(IntEnum):
    """JSON-RPC error codes that a transport answers with in the server's name. Its messages are sentences of ours."""

    UNAUTHORIZED = 401
    UNKNOWN_SESSION = 404  # the server forgot us before it looked at the request, which may be repeated
    UNREACHABLE = 502
    UNUSABLE = 520  # an answer that is too large or cannot be read


class Link:
    """One connection. It is over when its messages end or when `end` is called, and never comes back."""

    def __init__(
        self,
        inbox: AsyncIterator[Message],
        outbox: MemoryObjectSendStream[Message],
        how_it_ended: Callable[[], str],
        advice: str = "",
    ) -> None:
        self.inbox = inbox
        self.outbox = outbox
        self.ended = asyncio.Event()
        self.advice = advice
        self.protocol_version: str | None = None  # once it is agreed on; some transports have to repeat it
        self._how_it_ended = how_it_ended
        self._reason = ""

    def end(self, reason: str = "") -> None:
        if not self.ended.is_set():
            self._reason = reason
            self.ended.set()

    def how_it_ended(self) -> str:
        return self._reason or self._how_it_ended()
