"""How large and how slow a body may be, counted while it arrives (T15, T17).

A body that declares too large a size is refused before a byte of it is read. One that declares no size is read up to a
small limit. One that arrives too slowly is given up. One that is compressed is refused: its size means nothing.
"""

import asyncio

from starlette.types import Message, Receive, Scope

from holodeck.config.limit_schema import RequestLimits
from holodeck.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from holodeck.server.connection import connection_of

REQUEST_TIMEOUT = 408


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
