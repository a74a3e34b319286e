"""A pooler between clients and PostgreSQL, as pgbouncer in transaction mode: a server connection belongs to a client for one
transaction.

It finds what a store keeps in a session: statements that are prepared there, settings, locks, LISTEN. The next transaction
runs on another server connection, on purpose: they are taken in turns. Before a client gets one, nothing is reset, as in
pgbouncer's default.
"""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from tests.ports import free_port

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
AUTHENTICATION, PARAMETER, READY, ERROR = b"R", b"S", b"Z", b"E"
IDLE = b"I"
SYNC, QUERY, TERMINATE = b"S", b"Q", b"X"
READY_IDLE = READY + struct.pack("!I", 5) + IDLE


class PoolingProxy:
    """`async with PoolingProxy(socket, user, database) as pooler:`; clients connect to `pooler.url`."""

    def __init__(
        self, target: Path, *, user: str = "postgres", database: str = "postgres", connections: int = 2
    ) -> None:
        self._target, self._user, self._database, self._count = target, user, database, connections
        self._free: deque[_ServerConnection] = deque()
        self._all: list[_ServerConnection] = []
        self._available = asyncio.Condition()
        self._clients: set[asyncio.Task[None]] = set()
        self.transactions = 0
        self.used: set[int] = set()  # numbers of the server connections that carried a transaction

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self._port}/{self._database}"

    async def __aenter__(self) -> Self:
        for number in range(self._count):
            connection = await _ServerConnection.open(number, self._target, self._user, self._database)
            self._all.append(connection)
            self._free.append(connection)
        self._port = free_port()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(set(self._clients))
        for connection in self._all:
            connection.writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            if await self._greet(reader, writer):
                while await self._transaction(reader, writer):
                    pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client left
        finally:
            writer.transport.abort()
            self._clients.discard(task)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers the start of a client as the server had answered ours; False for a request to cancel."""
        while True:
            (size,) = struct.unpack("!I", await reader.readexactly(4))
            body = await reader.readexactly(size - 4)
            (code,) = struct.unpack("!I", body[:4])
            if code == CANCEL_REQUEST:
                return False
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            writer.write(b"N")
        writer.write(self._all[0].greeting + READY_IDLE)
        return True

    async def _transaction(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Lends a server connection from a client's first message until the server is idle again; False at the end."""
        kind, message = await _message(reader)
        if kind == TERMINATE:
            return False
        async with self._lent() as server:
            self.transactions += 1
            self.used.add(server.number)
            try:
                server.writer.write(message)
                waits = kind in (SYNC, QUERY)
                while True:
                    while not waits:  # a pipeline is sent up to its Sync
                        kind, message = await _message(reader)
                        server.writer.write(message)
                        waits = kind in (SYNC, QUERY)
                    if await self._answer(server, writer) == IDLE:
                        return True
                    waits = False
            except BaseException:
                await server.settle()
                raise

    async def _answer(self, server: "_ServerConnection", writer: asyncio.StreamWriter) -> bytes:
        """Passes on what the server says up to ReadyForQuery; returns the state of the transaction."""
        while True:
            kind, message = await _message(server.reader)
            writer.write(message)
            if kind == READY:
                await writer.drain()
                return message[5:6]

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator["_ServerConnection"]:
        async with self._available:
            await self._available.wait_for(lambda: bool(self._free))
            connection = self._free.popleft()  # not the one that was used last
        try:
            yield connection
        finally:
            async with self._available:
                self._free.append(connection)
                self._available.notify()


class _ServerConnection:
    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number, self.reader, self.writer = number, reader, writer
        self.greeting = b""  # what a client must be shown of the server's parameters

    @classmethod
    async def open(cls, number: int, target: Path, user: str, database: str) -> Self:
        self = cls(number, *await asyncio.open_unix_connection(target))
        words = b"".join(each.encode() + b"\0" for each in ("user", user, "database", database)) + b"\0"
        self.writer.write(struct.pack("!II", len(words) + 8, 196608) + words)
        while True:
            kind, message = await _message(self.reader)
            assert kind != ERROR, message
            if kind in (AUTHENTICATION, PARAMETER):
                self.greeting += message
            if kind == READY:
                return self

    async def settle(self) -> None:
        """Rolls back what a client that left has begun."""
        with suppress(OSError, EOFError):
            self.writer.write(SYNC + struct.pack("!I", 4))
            rollback = b"ROLLBACK\0"
            self.writer.write(QUERY + struct.pack("!I", len(rollback) + 4) + rollback)
            left = 2  # a ReadyForQuery for each of the two, and those of what the client had sent before
            while True:
                kind, message = await _message(self.reader)
                left -= kind == READY
                if left <= 0 and message[5:6] == IDLE:
                    return


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    (size,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(size - 4)
