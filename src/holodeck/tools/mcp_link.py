"""The common part of the transports: `send` sends messages, `receive` gets them, and `end` ends the link.

A message that arrives is a plain call from the transport into the session: nothing is queued and no task is woken.
"""

import asyncio
from collections.abc import Callable
from enum import IntEnum

from holodeck.tools.mcp_wire import McpMessage


class CannotConnect(Exception):
    """A connection is not possible. `advice` says what a person can do about it."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


class LinkClosed(Exception):
    """The message was not sent: the other side has closed the connection."""


class McpRefusal(IntEnum):
    """JSON-RPC error codes that a transport answers with on behalf of the server. Their messages are our own."""

    UNAUTHORIZED = 401
    UNKNOWN_SESSION = 404  # the server lost the session before it read the request, which may be repeated
    UNREACHABLE = 502  # the request was not sent
    UNUSABLE = 520  # an answer that is too large or cannot be read


NOT_SENT = frozenset({McpRefusal.UNKNOWN_SESSION, McpRefusal.UNREACHABLE})


def _dropped(_message: McpMessage) -> None:
    return None


class Link:
    """One connection, made by a transport. It is over once `end` is called, and never reopens.

    The session sets `receive` and `on_end`; a transport implements `send` and `send_now`.
    """

    def __init__(self, server: str, advice: str = "") -> None:
        self.server = server
        self.advice = advice
        self.receive: Callable[[McpMessage], None] = _dropped
        self.on_end: Callable[[], None] = lambda: None
        self.ended = asyncio.Event()
        self.credentials_advice = "Check its `headers`."  # shown if the server refuses the credentials
        self.protocol_version: str | None = None  # set after the handshake; some transports send it with each request
        self._reason = ""

    async def send(self, message: McpMessage) -> None:
        """Waits until the transport has taken the message. Raises LinkClosed if it was not sent."""
        raise NotImplementedError

    def send_now(self, message: McpMessage) -> None:
        """Sends without waiting. The message is dropped if the server no longer reads."""
        raise NotImplementedError

    def end(self, reason: str = "") -> None:
        """Ends the link. Idempotent: the first reason counts."""
        if not self.ended.is_set():
            self._reason = reason
            self.ended.set()
            self.on_end()

    def how_it_ended(self) -> str:
        return self._reason or "closed the connection"
