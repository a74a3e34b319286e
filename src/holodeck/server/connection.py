"""The view that middleware and streams have of a request's socket.

`holodeck.server.protocol` puts itself into each request's scope as an ASGI extension. Other ASGI servers
have no such extension, and `connection_of` returns None.
"""

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

CONNECTION = "holodeck.connection"  # the extension's name


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
