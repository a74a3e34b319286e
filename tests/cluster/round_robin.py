"""A proxy that gives each request to the next server, whatever came before it, and can cut answers after so many bytes.

It knows as much of HTTP as it needs: it reads the head of a request, asks for the connection to be closed after the answer, and
passes bytes on. So no client sticks to a server by a connection that it keeps.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress

END_OF_HEAD = b"\r\n\r\n"
Cut = Callable[[str], int | None]
"""The path of a request → after how many bytes of its answer's body the connection breaks; None for never."""


class RoundRobin:
    """The requests to one address go to the servers in turn. `served` are (server, path) of each request, in their order."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.cycle(range(len(ports))))
        self._connections: set[asyncio.Task[None]] = set()
        self.url = ""
        self.served: list[tuple[int, str]] = []
        self.cut: Cut = lambda _path: None
        self.when_cut: Callable[[], None] = lambda: None

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def close(self) -> None:
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            head = await reader.readuntil(END_OF_HEAD)
            path = head.split(b" ", 2)[1].decode()
            number = next(self._turns[path])
            self.served.append((number, path))
            answer, request = await asyncio.open_connection("127.0.0.1", self._ports[number])
            with closing(request):
                request.write(_closing(head))
                upward = asyncio.create_task(_pass(reader, request))
                try:
                    await self._answer(answer, writer, path)
                finally:
                    upward.cancel()

    async def _answer(self, answer: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        left = self.cut(path)
        writer.write(await answer.readuntil(END_OF_HEAD))
        while data := await answer.read(65536):
            if left is not None and len(data) >= left:
                writer.write(data[:left])
                await writer.drain()
                self.when_cut()
                return
            left = None if left is None else left - len(data)
            writer.write(data)
            await writer.drain()


def _closing(head: bytes) -> bytes:
    lines = [line for line in head[: -len(END_OF_HEAD)].split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close"]) + END_OF_HEAD


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes bytes on; the end of the client's bytes is the end of the client, as servers behind proxies see it."""
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def round_robin(ports: Sequence[int]) -> AsyncIterator[RoundRobin]:
    proxy = RoundRobin(ports)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
