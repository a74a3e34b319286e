"""A request's socket and body, as middleware and streams see them (T15, T17).

`holodeck.server.protocol` puts itself into each request's scope as an ASGI extension. Other ASGI servers
have no such extension, and `connection_of` returns None.

A body that declares too large a size is refused before a byte of it is read. One that declares no size is read up to a
small limit. One that arrives too slowly is given up. One that is compressed is refused: its size means nothing.
"""

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from typing import Protocol

from starlette.types import Message, Receive, Scope

from holodeck.config.limit_schema import RequestLimits
from holodeck.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType

CONNECTION = "holodeck.connection"  # the extension's name
REQUEST_TIMEOUT = 408


class Connection(Protocol):
    transport: asyncio.Transport
    when_lost: Callable[[], None] | None

    @property
    def has_whole_body(self) -> bool:
        """Whether the whole request has arrived."""

    @property
    def takes_more(self) -> bool:
        """Whether a chunk of the current response can be written at once; else `send` has to wait."""

    def write(self, body: bytes) -> None:
        """Writes a chunk of the response without waiting."""


def connection_of(scope: Scope) -> Connection | None:
    found: Connection | None = scope.get("extensions", {}).get(CONNECTION)
    return found


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the client has not acknowledged, in our buffer and, where the kernel reports them, in its own."""
    waiting = bytearray(4)
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
    except (OSError, ValueError):  # not supported here, or the socket is closed
        return transport.get_write_buffer_size()
    return transport.get_write_buffer_size() + int.from_bytes(waiting, sys.byteorder)


def metered(scope: Scope, receive: Receive, limits: RequestLimits, max_body: int) -> Receive:
    """`receive`, with a limit to the size and the slowness of the body; itself if the body is here already."""
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UnsupportedMediaType("Compressed bodies are not read; send it without Content-Encoding.")
    if b"transfer-encoding" in headers:
        return MeteredBody(receive, limits, limits.max_unmeasured_body)
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit():  # the parser refuses these; other servers may not
        raise InvalidRequest("Content-Length is not a number.", status=400, field="Content-Length")
    if int(declared) > max_body:
        raise too_large(max_body)
    connection = connection_of(scope)
    if not int(declared) or (connection is not None and connection.has_whole_body):
        return receive
    return MeteredBody(receive, limits, max_body)


class MeteredBody:
    """`receive`, until the body is complete; after that the original does as well."""

    def __init__(self, receive: Receive, limits: RequestLimits, max_bytes: int) -> None:
        self._receive, self._limits, self._max = receive, limits, max_bytes
        self._size = 0
        self._begun: float | None = None
        self._complete = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._seconds_left()):
                message = await self._receive()
        except TimeoutError:
            raise InvalidRequest("The body came too slowly.", status=REQUEST_TIMEOUT) from None
        self._size += len(message.get("body", b""))
        if self._size > self._max:
            raise too_large(self._max)
        self._complete = not message.get("more_body", False)
        return message

    def _seconds_left(self) -> float:
        """Time for the next piece: the first seconds are free, the others have to be earned with bytes."""
        now = asyncio.get_running_loop().time()
        self._begun = now if self._begun is None else self._begun
        return max(0.0, self._begun + self._limits.body_seconds + self._size / self._limits.body_rate - now)


def too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit:,} bytes, the most that is accepted in this form.")
