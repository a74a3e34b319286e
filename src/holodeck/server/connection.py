"""What layers and streams may know of the socket beneath a request.

`holodeck.server.protocol` puts itself into each request's scope as an ASGI extension. Behind a server of another kind
there is none, and whoever asks has to do without.
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
        """Whether all of the request is here already."""

    @property
    def takes_more(self) -> bool:
        """Whether a piece of the answer that is under way can be written at once; else `send` has to wait for it."""

    def write(self, body: bytes) -> None:
        """The same as `send` of a piece, for which nobody has to wait."""


def connection_of(scope: Scope) -> Connection | None:
    found: Connection | None = scope.get("extensions", {}).get(CONNECTION)
    return found


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the client has not taken: here, and in the kernel as far as it tells."""
    waiting = bytearray(4)
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
    except (OSError, ValueError):  # a system that cannot tell; closed
        return transport.get_write_buffer_size()
    return transport.get_write_buffer_size() + int.from_bytes(waiting, sys.byteorder)
