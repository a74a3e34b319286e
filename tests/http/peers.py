"""A server that is only a socket: a script of the test answers each connection, in valid HTTP or not.

async with Peers(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nHi")) as peers:
    async with client.post(peers.url, b"{}") as response: ...
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Self, cast

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nHi"


class Peer(asyncio.StreamReaderProtocol):
    """One connection, seen from the server."""

    def __init__(self, script: "Script", peers: "Peers") -> None:
        self.reader = asyncio.StreamReader(limit=2**26)
        super().__init__(self.reader, self._run)
        self.gone = asyncio.Event()
        self.number = 0
        self._script, self._peers = script, peers

    async def request(self) -> bytes:
        """The next request, head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lengths = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        request = head + await self.reader.readexactly(int(lengths[0]) if lengths else 0)
        await self._peers.note(request)
        return request

    async def say(self, *pieces: bytes) -> None:
        """Each piece in a packet of its own, as far as a program can decide that."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """RST instead of FIN."""
        linger_zero = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
        self.writer.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._peers.came(self)
        super().connection_made(transport)

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)
        self._peers.went(self)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        try:
            await self._script(self)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client left, which is its right
        finally:
            writer.close()


Script = Callable[[Peer], Awaitable[None]]


class Peers:
    """`came` connections so far, `open` ones, and every request that `Peer.request` read."""

    def __init__(self, script: Script, *, ssl: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._script, self._ssl, self._host = script, ssl, host
        self.requests: list[bytes] = []
        self.connections = 0
        self.open: set[Peer] = set()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Peer(self._script, self),
            self._host,
            0,
            ssl=self._ssl,
            ssl_shutdown_timeout=0.5 if self._ssl else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{'https' if self._ssl else 'http'}://{host}:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for peer in list(self.open):
            peer.transport.abort()
        await self.all_gone()
        await self._server.wait_closed()

    async def all_gone(self) -> None:
        await self.until(lambda: not self.open)

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits for something to be true of what came and went."""
        while not true():
            self._changed.clear()
            await self._changed.wait()

    async def note(self, request: bytes) -> None:
        self.requests.append(request)
        self._changed.set()

    def came(self, peer: Peer) -> None:
        self.connections += 1
        peer.number = self.connections
        self.open.add(peer)
        self._changed.set()

    def went(self, peer: Peer) -> None:
        self.open.discard(peer)
        self._changed.set()


def answers(*answers: bytes, then_close: bool = False) -> Script:
    """To each request of a connection the next answer; the last one repeats."""

    async def script(peer: Peer) -> None:
        count = 0
        while True:
            await peer.request()
            await peer.say(answers[min(count, len(answers) - 1)])
            count += 1
            if then_close:
                return peer.close()

    return script
