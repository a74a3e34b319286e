"""Requests, and the connections that are kept between them.

The client cannot leak a key: it follows no redirects and keeps no cookies. It does not ask for compression, because a
compressed stream is held back in blocks.
"""

import asyncio
import re
from collections.abc import Mapping
from contextvars import Context
from types import TracebackType

from holodeck.http.address import Address, Route, address_of, proxy_for
from holodeck.http.client_connection import ClientConnection, Response
from holodeck.http.dial import Resolve, credentials, dial, remember_session, system_resolve
from holodeck.http.failures import ConnectionBroken, NoProxy, Unsendable

KEEPALIVE_SECONDS = 60.0  # how long an idle connection is kept, unless the server's Keep-Alive header names a time
MAX_KEEPALIVE_SECONDS = 300.0
_MARGIN = 1.0  # seconds; avoids sending on a connection that is closing
_KEEPALIVE_TIMEOUT = re.compile(r"timeout\s*=\s*\"?(\d{1,9})")
_OURS = {"Accept-Encoding": "identity", "User-Agent": "holodeck"}
_OF_A_BODY = {"Content-Type": "application/json", "Accept": "text/event-stream"}
NO_HEADERS: Mapping[str, str] = {}
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")  # sent in UTF-8


class Client:
    """Usage: `async with client.post(url, body) as response:`.

    Leaving the block before the body ends closes the connection. Entering the block may raise an HttpError; calling
    `post` never does.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        connect_timeout: float,
        *,
        resolve: Resolve = system_resolve,
        proxied: bool = True,
    ) -> None:
        """`proxied`: the environment may name a proxy."""
        self._headers = headers
        self._connect_timeout = connect_timeout
        self._resolve = resolve
        self._proxied = proxied
        self._idle: dict[Route, list[ClientConnection]] = {}  # most recently used last, and taken first
        self._busy: set[ClientConnection] = set()
        self._prepared: dict[tuple[str, str], tuple[Route, bytes]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0  # when it rings. uvloop's handle of a timer that is due at once has no `when`
        self._closed = 0  # number of calls of `close`
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self, url: str, headers: Mapping[str, str] = NO_HEADERS) -> "Exchange":
        return Exchange(self, "GET", url, None, headers)

    def post(self, url: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> "Exchange":
        """Posts a JSON body. The answer may be a stream of events. `headers` are added for this request only."""
        return Exchange(self, "POST", url, body, headers)

    async def acquire(self, route: Route) -> ClientConnection:
        """Returns a connection for one exchange: an idle one, or a new one. `release` gives it back."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        waiting = self._idle.get(route)
        now = loop.time()
        while waiting:
            connection = waiting.pop()
            if connection.reusable and connection.idle_until > now and not connection.transport.is_closing():
                break
            connection.drop()
        else:
            connection = await self._connect(route)
        self._busy.add(connection)
        return connection

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Discards the connections of an earlier event loop: they can neither be used nor closed."""
        self._loop, self._sweeper = loop, None
        self._idle.clear()
        self._busy.clear()

    async def _connect(self, route: Route) -> ClientConnection:
        closed = self._closed
        connection = await dial(route, self._connect_timeout, self._resolve)
        if closed != self._closed:
            connection.drop()
            raise ConnectionBroken("the client was closed in the meantime")
        return connection

    def release(self, route: Route, connection: ClientConnection) -> None:
        self._busy.discard(connection)
        unsent = connection.transport.get_write_buffer_size()  # the answer came before the server read all of it
        if unsent or not connection.reusable or connection.transport.is_closing():
            return connection.drop()
        if route.scheme == "https":
            remember_session(connection.transport)
        connection.idle_since = asyncio.get_running_loop().time()
        connection.keepalive = keepalive_of(connection.keep_alive_header)
        self._idle.setdefault(route, []).append(connection)
        self._sweep_by(connection.idle_until)
        return None

    def _sweep_by(self, when: float) -> None:
        if self._sweeper is None or self._sweep_at > when:
            if self._sweeper is not None:
                self._sweeper.cancel()
            self._sweep_at = when
            # An empty context: the timer must not keep the request's alive.
            self._sweeper = asyncio.get_running_loop().call_at(when, self._sweep, context=Context())

    async def close(self) -> None:
        """Closes all connections, including those that are being made."""
        self._closed += 1
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in [*self._busy, *(connection for idle in self._idle.values() for connection in idle)]:
            connection.drop()
        self._busy.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop closes an ended connection in its next iteration

    def _sweep(self) -> None:
        now, self._sweeper = asyncio.get_running_loop().time(), None
        for route, idle in list(self._idle.items()):
            for connection in [each for each in idle if each.lost or each.idle_until <= now]:
                idle.remove(connection)
                connection.drop()
            if not idle:
                del self._idle[route]
        waiting = [connection.idle_until for idle in self._idle.values() for connection in idle]
        if waiting:
            self._sweep_by(min(waiting))

    def prepared(self, method: str, url: str) -> tuple[Route, bytes]:
        """Returns the route, and the request head up to its Content-Length: the same for all requests to one URL."""
        prepared = self._prepared.get((method, url))
        if prepared is None:
            prepared = self._prepared[method, url] = self._prepare(method, url)
        return prepared

    def _prepare(self, method: str, url: str) -> tuple[Route, bytes]:
        address = address_of(url)
        proxy = _address_of_proxy(proxy_for(url)) if self._proxied else None
        ours = {"Host": address.authority, **_OURS, **(_OF_A_BODY if method == "POST" else {})}
        lines = _lines(ours, self._headers)
        target = address.target
        if proxy is not None and not address.secure:
            target = f"http://{address.authority}{target}"
            lines += credentials(proxy)
        head = "\r\n".join([f"{method} {target} HTTP/1.1", *lines, ""])
        return Route(address.scheme, address.host, address.port, proxy), head.encode()


def keepalive_of(header: str) -> float:
    """Returns how many seconds an idle connection is kept: the server's `Keep-Alive` header, else the default."""
    stated = _KEEPALIVE_TIMEOUT.search(header.lower())
    if stated is None:
        return KEEPALIVE_SECONDS
    return min(max(int(stated[1]) - _MARGIN, 0.0), MAX_KEEPALIVE_SECONDS)


class Exchange:
    def __init__(self, client: Client, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        self._client = client
        self._method, self._url = method, url
        self._body = body
        self._headers = headers

    async def __aenter__(self) -> Response:
        self._route, head = self._client.prepared(self._method, self._url)
        body = self._body or b""
        length = b"" if self._body is None else b"Content-Length: %d\r\n" % len(body)
        if self._headers:
            head += "".join(f"{line}\r\n" for line in _lines({}, self._headers)).encode()
        self._connection = connection = await self._client.acquire(self._route)
        try:
            return await connection.ask(b"%b%b\r\n" % (head, length), body)
        except BaseException:
            self._client.release(self._route, connection)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.release(self._route, self._connection)


def _lines(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Merges our headers with the user's, which win. Framing headers are always ours."""
    merged = {name.lower(): (name, value) for name, value in (*ours.items(), *theirs.items())}
    for name, value in merged.values():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Unsendable(f"the header {name!a} contains characters that are not allowed in a header")
    return [f"{name}: {value}" for key, (name, value) in merged.items() if key not in _FRAMING]


def _address_of_proxy(url: str | None) -> Address | None:
    if not url:
        return None
    try:
        return address_of(url if "://" in url else f"http://{url}")
    except Unsendable as error:
        raise NoProxy("the proxy's URL must begin with http:// or https:// and a host") from error
