"""MCP over the older HTTP+SSE transport (2024-11-05): one stream for the server's messages, a POST for each of ours.

The SDK's client behind a guard, as for streamable HTTP. The SDK only logs a POST that fails, and the call would wait for its
timeout: the guard ends the link instead. It also bounds one event, which the SDK does not.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from httpx2 import SSEError

from holodeck.tools.mcp_http import CONNECT_TIMEOUT, HttpLink, auth_of, check_scheme, credentials_advice
from holodeck.tools.mcp_link import CannotConnect, Link
from holodeck.tools.mcp_sdk import sse_client
from holodeck.tools.mcp_settings import McpSettings

ENDPOINT_TIMEOUT = 15.0  # seconds for the server to send its endpoint event
SILENCE = 86_400.0  # seconds without data after which the stream counts as dead
UNAUTHORIZED = {401, 403}
_ENDS_OF_EVENTS = (b"\n\n", b"\r\n\r\n")


@asynccontextmanager
async def open_sse(settings: McpSettings) -> AsyncGenerator[Link]:
    """Opens a link. Raises CannotConnect if the server does not open the stream."""
    url = settings.url or ""
    check_scheme(url)
    link = HttpLink(settings.name, "Check its `url`; a newer server needs no `transport`.")

    def client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        guard = _SseGuard(httpx2.AsyncHTTPTransport(), settings.max_line_bytes, link)
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, transport=guard, trust_env=False)

    headers = {**settings.headers, "accept-encoding": "identity"}
    auth = auth_of(settings)
    opened = False
    try:
        async with (
            sse_client(url, headers, CONNECT_TIMEOUT, SILENCE, httpx_client_factory=client, auth=auth) as (read, write),
            anyio.create_task_group() as tasks,
        ):
            opened = True
            tasks.start_soon(link.pass_on, write)
            tasks.start_soon(link.listen, read)
            yield link
            tasks.cancel_scope.cancel()
    except (httpx2.HTTPError, httpx2.StreamError, SSEError, RuntimeError, ValueError, ExceptionGroup) as error:
        if opened:
            raise
        raise _not_opened(error, settings) from error


def _not_opened(error: Exception, settings: McpSettings) -> CannotConnect:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return CannotConnect("cannot be reached", "Is it running? Check its `url`.")
        case httpx2.HTTPStatusError() if error.response.status_code in UNAUTHORIZED:
            return CannotConnect(
                f"does not accept our credentials (HTTP {error.response.status_code})", credentials_advice(settings)
            )
        case httpx2.HTTPStatusError():
            return CannotConnect(f"answered with HTTP {error.response.status_code}", "Check its `url`.")
        case httpx2.ReadTimeout():
            return CannotConnect("sent no endpoint for messages", "Is it a server of the older SSE transport?")
    return CannotConnect("does not speak MCP's SSE transport", "Check its `url` and `transport`.")


class _SseGuard(httpx2.AsyncBaseTransport):
    """A transport between the SDK and the network."""

    def __init__(self, network: httpx2.AsyncBaseTransport, limit: int, link: HttpLink) -> None:
        self._network = network
        self._limit = limit
        self._link = link

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "POST":
            response = await self._network.handle_async_request(request)
            return httpx2.Response(
                response.status_code,
                headers=response.headers,
                stream=_Events(response.stream, self._limit),
                extensions=response.extensions,
            )
        try:
            response = await self._network.handle_async_request(request)
        except httpx2.TransportError as error:
            self._link.end(f"could not be sent a message ({type(error).__name__})")
            raise
        if response.status_code >= 400:  # noqa: PLR2004  HTTP's errors
            self._link.end(f"refused a message with HTTP {response.status_code}")
        return response

    async def aclose(self) -> None:
        await self._network.aclose()


class _Events(httpx2.AsyncByteStream):
    """The stream, unchanged; an event over the limit ends it."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._with_deadline():
            end = max(chunk.rfind(mark) for mark in _ENDS_OF_EVENTS)
            size = size + len(chunk) if end < 0 else len(chunk) - end
            if size > self._limit:
                raise httpx2.StreamError(f"an event is over {self._limit / 1_000_000:g} MB (too_large)")
            yield chunk

    async def _with_deadline(self) -> AsyncIterator[bytes]:
        """The chunks of the stream. Only the first one, the endpoint event, has a deadline."""
        chunks = aiter(self._stream)
        try:
            async with asyncio.timeout(ENDPOINT_TIMEOUT):
                first = await anext(chunks)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no endpoint event") from error
        except StopAsyncIteration:
            return
        yield first
        async for chunk in chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
