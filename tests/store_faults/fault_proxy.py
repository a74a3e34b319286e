"""A TCP link that a test can break: cut it, swallow what passes (a black hole), or delay it.

The link ends at a TCP address or at a unix socket, so a server that listens on no port can be reached through one.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeAlias

Target: TypeAlias = Path | tuple[str, int]
CHUNK = 65_536


class FaultProxy:
    """`async with FaultProxy(target) as link:`; clients connect to 127.0.0.1, port `link.port`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.port = 0
        self.delay = 0.0  # seconds before each piece is passed on
        self._is_cut = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._words = b""
        self.is_held, self._released = asyncio.Event(), asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        if self._connections:
            await asyncio.wait(set(self._connections))

    def cut(self) -> None:
        """Closes all connections, and each new one at once."""
        self._is_cut = True
        for task in self._connections:
            task.cancel()

    def black_hole(self) -> None:
        """Connections stay open and new ones are accepted; no byte passes."""
        self._passes.clear()

    def hold_at(self, words: bytes) -> None:
        """Holds the next piece with these words back, and all that follows on its connection; then `is_held` is set."""
        self._words = words
        self.is_held.clear()
        self._released.clear()

    def let_go(self) -> None:
        """Passes on what is held back."""
        self._released.set()

    def heal(self) -> None:
        """Passes everything on again, also what a black hole has held back."""
        self._is_cut, self.delay = False, 0.0
        self._passes.set()

    def lead_to(self, target: Target) -> None:
        """From now on connections end elsewhere; those that exist are closed."""
        self.target = target
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if not self._is_cut:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the link is broken, as it should be
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passes.wait()
        there, back = await (
            asyncio.open_unix_connection(self.target)
            if isinstance(self.target, Path)
            else asyncio.open_connection(*self.target)
        )
        pumps = [asyncio.create_task(self._pump(reader, back)), asyncio.create_task(self._pump(there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            back.transport.abort()  # first: a second cancellation may end the wait
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._passes.wait()
                if self._words and self._words in data:
                    self._words = b""
                    self.is_held.set()
                    await self._released.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
