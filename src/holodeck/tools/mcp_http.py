"""MCP over streamable HTTP: the SDK's client behind a guard that turns network errors into JSON-RPC errors.

The SDK ends the whole session when a request fails on the network, and buffers a JSON answer of any size. The guard
sits below it, between requests and the network: an error there becomes a JSON-RPC error with a sentence, for that one
request. It limits the size of answers and accepts no compressed ones, since a bomb is small on the wire.

Credentials come only from the agent file and go only to its URL: no proxy or netrc of the environment, no redirect to
another origin (the SDK ensures that), and nothing of the client that the agent serves.
"""

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import anyio
import httpx2
import msgspec

from holodeck.tools import mcp_wire as wire
from holodeck.tools.mcp_link import CannotConnect, Link, McpRefusal
from holodeck.tools.mcp_sdk import (
    ClientMessageMetadata,
    ReadStream,
    SessionMessage,
    WriteStream,
    jsonrpc_message_adapter,
    streamable_http_client,
)
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_wire import McpMessage, RequestId

CONNECT_TIMEOUT = 5.0
GOODBYE_TIMEOUT = 2.0
LISTEN_PAUSE = 1.0  # at least between two GETs: the server chooses when we reconnect
MAX_WAITING = 64  # messages queued for a server that reads slowly
VERSION_HEADER = "mcp-protocol-version"
READ_SLACK = 5.0  # added to a call's own timeout, which ends first; this one frees the request

T = TypeVar("T")

_log = logging.getLogger(__name__)
# The SDK's warnings go to a configured log; without one Python would print them between the lines of a chat.
logging.getLogger("mcp").addHandler(logging.NullHandler())


@asynccontextmanager
async def open_http(settings: McpSettings) -> AsyncGenerator[Link]:
    """Opens a link. Raises CannotConnect for a URL that we do not connect to."""
    url = settings.url or ""
    check_scheme(url)
    guard = _Guard(httpx2.AsyncHTTPTransport(), settings)
    async with (
        httpx2.AsyncClient(
            headers={**settings.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(settings.timeout + READ_SLACK, connect=CONNECT_TIMEOUT),
            transport=guard,
            trust_env=False,
            auth=auth_of(settings),
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=settings.max_line_bytes) as (read, write),
        anyio.create_task_group() as tasks,
    ):
        link = HttpLink(settings.name, "Check its `url`; an older server needs `transport: sse`.", guard.abandon)
        link.credentials_advice = credentials_advice(settings)
        tasks.start_soon(link.pass_on, write)
        tasks.start_soon(link.listen, read)
        yield link
        tasks.cancel_scope.cancel()


class HttpLink(Link):
    """The SDK's pair of streams as a link. `abandon` ends the exchange of a request that was cancelled."""

    def __init__(self, server: str, advice: str, abandon: Callable[[RequestId], None] = lambda _: None) -> None:
        super().__init__(server, advice)
        self._abandon = abandon
        self._outbox: asyncio.Queue[McpMessage] = asyncio.Queue(MAX_WAITING)

    async def send(self, message: McpMessage) -> None:
        await self._outbox.put(message)  # not to the SDK directly: a cancelled send may still have been sent

    def send_now(self, message: McpMessage) -> None:
        if message.method == wire.CANCELLED and message.params is not None:
            self._abandon(message.params["requestId"])
        with contextlib.suppress(asyncio.QueueFull):
            self._outbox.put_nowait(message)

    async def pass_on(self, write: WriteStream[SessionMessage]) -> None:
        while True:
            message, version = await self._outbox.get(), self.protocol_version
            metadata = ClientMessageMetadata(headers={VERSION_HEADER: version}) if version else None
            try:
                await write.send(SessionMessage(jsonrpc_message_adapter.validate_json(wire.encode(message)), metadata))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self.end()
                return

    async def listen(self, read: ReadStream[SessionMessage | Exception]) -> None:
        """Receives messages.

        The SDK's exceptions are ignored: they are about streams that it reopens, or it has answered the call with them.
        """
        try:
            async for item in read:
                if isinstance(item, SessionMessage):
                    self._take(item)
        finally:
            self.end()

    def _take(self, item: SessionMessage) -> None:
        try:
            message = wire.read(item.message.model_dump(by_alias=True, exclude_none=True), McpMessage)
        except msgspec.ValidationError as error:
            _log.warning("mcp_unreadable_message", extra={"details": {"reason": str(error)}})
        else:
            self.receive(message)


def auth_of(settings: McpSettings) -> httpx2.Auth | None:
    if settings.oauth is None:
        return None
    from holodeck.tools.mcp_oauth import stored_auth  # noqa: PLC0415  most servers do without

    return stored_auth(settings)


def credentials_advice(settings: McpSettings) -> str:
    if settings.oauth is not None:
        return f"Run `holodeck login {settings.name}`."
    return "Check its `headers`; if it requires OAuth, set `oauth: true`."


def check_scheme(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not parts.hostname:
        raise CannotConnect(f"'{url}' is not an http address", "Give a `url` that begins with https://.")
    if not _is_loopback(parts.hostname):
        raise CannotConnect("plain http is for this machine only", "Give a `url` that begins with https://.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Sent(msgspec.Struct):
    id: RequestId | None = None
    method: str | None = None


class _PostTime:
    """The time that one POST has, up to the end of its answer. A server may send comments for ever instead of one."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = asyncio.get_running_loop().time() + seconds
        self._limit: asyncio.Timeout | None = None

    async def within(self, work: Awaitable[T]) -> T:
        """Awaits the work. Raises TimeoutError when the time is over."""
        try:
            async with asyncio.timeout_at(self._ends_at) as self._limit:
                return await work
        finally:
            self._limit = None

    def end(self) -> None:
        self._ends_at = asyncio.get_running_loop().time()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(self._ends_at)


class _Guard(httpx2.AsyncBaseTransport):
    """A transport between the SDK and the network.

    The SDK reads the answer to a request even after the request was cancelled. The guard ends such an exchange: it would
    hold one of the hundred connections that all calls of this server share.
    """

    def __init__(self, network: httpx2.AsyncBaseTransport, settings: McpSettings) -> None:
        self._network = network
        self._limit = settings.max_line_bytes
        self._seconds = max(settings.timeout, settings.start_timeout) + READ_SLACK
        self._posts: WeakValueDictionary[RequestId, _PostTime] = WeakValueDictionary()  # those in progress
        self._last_listen = float("-inf")

    def abandon(self, request: RequestId) -> None:
        if (post := self._posts.get(request)) is not None:
            post.end()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return await self._post(request)
        if request.method == "GET":
            await self._wait_to_listen()
            return await self._network.handle_async_request(request)
        try:
            async with asyncio.timeout(GOODBYE_TIMEOUT):
                return await self._network.handle_async_request(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout("no answer to the end of the session") from error

    async def aclose(self) -> None:
        await self._network.aclose()

    async def _post(self, request: httpx2.Request) -> httpx2.Response:
        time = _PostTime(self._seconds)
        if (number := _id_of(request)) is not None:
            self._posts[number] = time
        try:
            response = await time.within(self._network.handle_async_request(request))
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return _error(McpRefusal.UNREACHABLE, "cannot be reached")
        except TimeoutError:
            return _error(McpRefusal.UNUSABLE, "did not answer in time")
        except httpx2.TransportError as error:
            return _error(McpRefusal.UNUSABLE, f"broke the connection ({type(error).__name__})")
        if refusal := _refusal(request, response):
            await response.aclose()
            return refusal
        is_stream = "text/event-stream" in response.headers.get("content-type", "").lower()
        return httpx2.Response(
            response.status_code,
            headers=[(name, value) for name, value in response.headers.items() if name != "content-length"],
            stream=_Body(response.stream, self._limit, time, is_stream=is_stream),
            extensions=response.extensions,
        )

    async def _wait_to_listen(self) -> None:
        now = asyncio.get_running_loop().time()
        due = max(now, self._last_listen + LISTEN_PAUSE)
        self._last_listen = due
        await asyncio.sleep(due - now)


def _id_of(request: httpx2.Request) -> RequestId | None:
    """The id of the request that is posted. None for a notification, a form of OAuth, and an answer: the server chose its id."""
    try:
        sent = msgspec.json.decode(request.content, type=_Sent)
    except msgspec.DecodeError:
        return None
    return sent.id if sent.method is not None else None


def _refusal(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response | None:
    if response.headers.get("content-encoding", "identity") != "identity":
        return _error(McpRefusal.UNUSABLE, "sent a compressed answer, which was not requested")
    is_json = response.headers.get("content-type", "").lower().startswith("application/json")
    match response.status_code:
        case 401 | 403 as status:
            return _error(McpRefusal.UNAUTHORIZED, f"does not accept our credentials (HTTP {status})")
        case 404 if "mcp-session-id" in request.headers:
            return _error(McpRefusal.UNKNOWN_SESSION, "forgot our session (HTTP 404)")
        case status if status >= 400 and not is_json:  # noqa: PLR2004  HTTP's errors
            return _error(McpRefusal.UNUSABLE, f"answered with HTTP {status}")
    return None


def _error(code: McpRefusal, message: str) -> httpx2.Response:
    """A response that the SDK treats as the server's own error for the current request."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": int(code), "message": message}}
    headers = {"content-type": "application/json"}
    return httpx2.Response(502, headers=headers, content=msgspec.json.encode(body))


class _Body(httpx2.AsyncByteStream):
    """A body, passed on line by line, in which half surrogate pairs are replaced.

    If the connection breaks, the time is over or the body exceeds the limit, it raises the one kind of exception with which the SDK
    answers a call. In an event stream the SDK limits each event; a line over the limit is passed on as it arrives.
    """

    def __init__(
        self, stream: httpx2.AsyncByteStream | httpx2.SyncByteStream, limit: int, time: _PostTime, *, is_stream: bool
    ) -> None:
        if not isinstance(stream, httpx2.AsyncByteStream):
            raise TypeError("an asynchronous transport gives asynchronous bodies")
        self._stream = stream
        self._limit = limit
        self._time = time
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, line = 0, bytearray()
        try:
            async for chunk in self._in_time():
                size += len(chunk)
                if size > self._limit and not self._is_stream:
                    raise httpx2.StreamError(f"the answer is over {self._limit / 1_000_000:g} MB (too_large)")
                line += chunk
                end = len(line) if len(line) > self._limit else line.rfind(b"\n") + 1
                if end:
                    yield wire.mended(bytes(line[:end]))
                    del line[:end]
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"the connection broke ({type(error).__name__})") from error
        except TimeoutError as error:
            kind = httpx2.SSEError if self._is_stream else httpx2.StreamError  # the SDK resumes streams after others
            raise kind("the answer did not end in time") from error
        if line:
            yield wire.mended(bytes(line))

    async def _in_time(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._stream)
        try:
            while True:
                yield await self._time.within(anext(chunks))
        except StopAsyncIteration:
            return

    async def aclose(self) -> None:
        await self._stream.aclose()
