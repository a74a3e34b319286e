"""The head of an answer and what follows it at once, in one system call.

uvicorn writes them one after the other, and each write to a socket costs more than all that we do for a token. The head
waits for the next write, but not long: the first event of a run comes when its message is stored, which a disk does in a
millisecond, and an answer that has nothing to say yet is announced all the same.
"""

import asyncio
from collections.abc import Callable

HELD_SECONDS = 0.01


class JoinedHead:
    """As much of a transport as uvicorn's response uses, for one answer."""

    __slots__ = ("_end", "_held", "_loop", "_transport", "_wrote")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, end: Callable[[], None] | None = None
    ) -> None:
        """`end` closes the connection instead of the transport's own `close`."""
        self._transport, self._loop = transport, loop
        self._end = end or transport.close
        self._held = b""
        self._wrote = False

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
            self._transport.write(data)
        elif self._wrote:
            self._transport.write(data)
        else:
            self._wrote, self._held = True, data
            self._loop.call_later(HELD_SECONDS, self._flush)

    def close(self) -> None:
        self._flush()
        self._end()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._held:
            data, self._held = self._held, b""
            self._transport.write(data)
