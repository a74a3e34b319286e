"""A connection to Valkey for one command at a time whose answer is known in advance.

redis-py connects it: it signs in, speaks TLS and asks the Sentinels. Commands are then written to the socket directly,
without a task, a stream or a parser. Any unexpected reply closes the connection, and the caller retries through redis-py.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool
    from redis.asyncio.connection import AbstractConnection


class ValkeyLine(asyncio.Protocol):
    def __init__(self, pool: "BlockingConnectionPool", *, seconds: float) -> None:
        """Takes no connection from the pool: the pool only knows how to make one. `seconds` for an answer."""
        self._pool, self._seconds = pool, seconds
        self._connection: AbstractConnection | None = None
        self._transport: asyncio.Transport | None = None  # while connected
        self._done: Callable[[bool], None] | None = None  # while an answer is awaited
        self._expected = self._received = b""
        self._timer: asyncio.TimerHandle | None = None
        self._asked = 0.0  # when, by the clock of the loop

    @property
    def is_free(self) -> bool:
        return self._transport is not None and self._done is None

    async def connect(self) -> None:
        """Idempotent. Raises RedisError, OSError, TimeoutError."""
        if self._transport is None:
            await self.close()
            self._connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
            await self._connection.connect()
            writer = self._connection._writer  # noqa: SLF001  the library has no other way to it; a test notices a change
            self._transport = cast("asyncio.Transport", cast("asyncio.StreamWriter", writer).transport)
            self._transport.set_protocol(self)

    async def close(self) -> None:
        """Idempotent."""
        self.drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)
            self._connection = None

    def ask(self, words: Sequence[str | bytes | int], expected: bytes, done: Callable[[bool], None]) -> None:
        """Sends a command, only while the line is free. Calls `done` with whether the answer was the expected one."""
        loop = asyncio.get_running_loop()
        self._expected, self._received, self._done, self._asked = expected, b"", done, loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check)
        cast("asyncio.Transport", self._transport).write(packed(words))

    def _check(self) -> None:
        """Closes a silent connection. Called when `seconds` are over, not for each command."""
        loop, self._timer = asyncio.get_running_loop(), None
        if self._done is not None:
            left = self._asked + self._seconds - loop.time()
            if left <= 0:
                self.drop()
            else:
                self._timer = loop.call_later(left, self._check)

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received == self._expected:
            self._answer(is_expected=True)
        elif not self._expected.startswith(self._received):
            self.drop()

    def connection_lost(self, _error: Exception | None) -> None:
        self.drop()

    def _answer(self, *, is_expected: bool) -> None:
        done, self._done, self._expected = self._done, None, b""
        if done is not None:
            done(is_expected)

    def drop(self) -> None:
        """Closes the connection: the primary may have changed. Idempotent."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.set_protocol(asyncio.Protocol())  # its end must not close the next connection
            transport.abort()
        self._answer(is_expected=False)


def packed(words: Sequence[str | bytes | int]) -> bytes:
    """A command as bytes."""
    texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])
