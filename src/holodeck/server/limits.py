"""How large and how slow a body may be, counted while it arrives (T15, T17).

A body that says it is too large is refused before a byte of it is read. One that does not say its size is read up to a
small limit. One that drips in too slowly is given up. One that is compressed is refused: its size would say nothing.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holodeck.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from holodeck.server.connection import connection_of
from holodeck.server.options import RequestLimits

REQUEST_TIMEOUT = 408
UPLOADS = "/agent/"  # the REST wire: the only one that takes files as they are


class BodyLimits:
    def __init__(self, app: ASGIApp, limits: RequestLimits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            receive = self._metered(scope, receive)
        await self._app(scope, receive, send)

    def _metered(self, scope: Scope, receive: Receive) -> Receive:
        headers = dict(scope["headers"])
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMediaType("Compressed bodies are not read; send it without Content-Encoding.")
        if b"transfer-encoding" in headers:
            return MeteredBody(receive, self._limits, self._limits.max_unmeasured_body)
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit():  # the parser refuses these; other servers may not
            raise InvalidRequest("Content-Length is not a number.", status=400, field="Content-Length")
        limit = self._limits.max_upload if scope["path"].startswith(UPLOADS) else self._limits.max_body
        if int(declared) > limit:
            raise too_large(limit)
        connection = connection_of(scope)
        if not int(declared) or (connection is not None and connection.has_whole_body):
            return receive
        return MeteredBody(receive, self._limits, limit)


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
