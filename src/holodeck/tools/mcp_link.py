"""What the transports have in common: a pair of message streams that one day ends."""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType
from typing import Self

from holodeck.tools.mcp_sdk import ReadStream, SessionMessage, WriteStream


class CannotConnect(Exception):
    """There is no connection to be had. `advice` says what a person can do about it."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


class Refusal(IntEnum):
    """JSON-RPC error codes that a transport answers with in the server's name. Its messages are sentences of ours."""

    UNAUTHORIZED = 401
    UNKNOWN_SESSION = 404  # the server forgot us before it looked at the request, which may be repeated
    UNREACHABLE = 502
    UNUSABLE = 520  # an answer that is too large or cannot be read


class Link:
    """One connection. It is over when its read stream ends or when `end` is called, and never comes back."""

    def __init__(
        self,
        read: ReadStream[SessionMessage | Exception],
        write: WriteStream[SessionMessage],
        how_it_ended: Callable[[], str],
        advice: str = "",
    ) -> None:
        self.read: ReadStream[SessionMessage | Exception] = _Watched(read, self.end)
        self.write = write
        self.ended = asyncio.Event()
        self.advice = advice
        self._how_it_ended = how_it_ended
        self._reason = ""

    def end(self, reason: str = "") -> None:
        if not self.ended.is_set():
            self._reason = reason
            self.ended.set()

    def how_it_ended(self) -> str:
        return self._reason or self._how_it_ended()


class _Watched:
    """A read stream that tells at once when it is over, which the SDK's session keeps to itself."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], over: Callable[[], None]) -> None:
        self._stream = stream
        self._over = over

    async def receive(self) -> SessionMessage | Exception:
        return await self._stream.receive()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._over()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
