"""Requests, and the connections that are kept between them.

Nothing here could leak a key: redirects are not followed, cookies not kept. Compression is not asked for, because a
compressed stream is held back in blocks.
"""

import asyncio
import re
from collections.abc import Mapping
from types import TracebackType

from holodeck.http.address import Route, address_of, proxy_for
from holodeck.http.dial import credentials, dial
from holodeck.http.failures import Unsendable
from holodeck.http.line import Line, Response

KEPT = 15.0  # seconds that a connection waits for the next request; most servers wait a little longer
_OURS = {"Accept-Encoding": "identity", "User-Agent": "holodeck"}
_OF_A_BODY = {"Content-Type": "application/json", "Accept": "text/event-stream"}
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Client:
    """`async with client.post(url, body) as response:`; leaving the block before the body is over ends the connection."""

    def __init__(self, headers: Mapping[str, str], connect_timeout: float) -> None:
        self._headers = headers
        self._connect_timeout = connect_timeout
        self._idle: dict[Route, list[Line]] = {}  # the one used last is used first
        self._busy: set[Line] = set()
        self._ways: dict[tuple[str, str], tuple[Route, bytes]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def get(self, url: str) -> "Exchange":
        route, head = self._way("GET", url)
        return Exchange(self, route, head + b"\r\n", b"")

    def post(self, url: str, body: bytes) -> "Exchange":
        """A JSON body; the answer may be a stream of events."""
        route, head = self._way("POST", url)
        return Exchange(self, route, b"%bContent-Length: %d\r\n\r\n" % (head, len(body)), body)

    async def line(self, route: Route) -> Line:
        """A connection of one's own, until it is given back."""
        waiting = self._idle.get(route)
        while waiting:
            line = waiting.pop()
            if line.reusable and not line.transport.is_closing():
                break
        else:
            line = await dial(route, self._connect_timeout)
        self._busy.add(line)
        return line

    def give_back(self, route: Route, line: Line) -> None:
        self._busy.discard(line)
        if not line.reusable or line.transport.is_closing():
            return line.drop()
        loop = asyncio.get_running_loop()
        line.idle_since = loop.time()
        self._idle.setdefault(route, []).append(line)
        if self._sweeper is None:
            self._sweeper = loop.call_later(KEPT, self._sweep)
        return None

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for line in [*self._busy, *(line for lines in self._idle.values() for line in lines)]:
            line.drop()
        self._busy.clear()
        self._idle.clear()
        await asyncio.sleep(0)  # a connection that was ended is closed in the loop's next round

    def _sweep(self) -> None:
        """Ends the connections that waited too long."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEPT
        for route, lines in list(self._idle.items()):
            for line in [line for line in lines if line.lost or line.idle_since <= oldest]:
                lines.remove(line)
                line.drop()
            if not lines:
                del self._idle[route]
        self._sweeper = loop.call_later(KEPT, self._sweep) if self._idle else None

    def _way(self, method: str, url: str) -> tuple[Route, bytes]:
        """How to get there, and the head of a request up to where its length is said: the same for all of one URL."""
        way = self._ways.get((method, url))
        if way is None:
            way = self._ways[method, url] = self._find_way(method, url)
        return way

    def _find_way(self, method: str, url: str) -> tuple[Route, bytes]:
        address = address_of(url)
        by = proxy_for(url)
        proxy = address_of(by if "://" in by else f"http://{by}") if by else None
        ours = {"Host": address.authority, **_OURS, **(_OF_A_BODY if method == "POST" else {})}
        lines = _lines(ours, self._headers)
        target = address.target
        if proxy is not None and not address.secure:
            target = f"http://{address.authority}{target}"
            lines += credentials(proxy)
        head = "\r\n".join([f"{method} {target} HTTP/1.1", *lines, ""])
        return Route(address.scheme, address.host, address.port, proxy), head.encode("latin-1")


class Exchange:
    """One request and its answer."""

    def __init__(self, client: Client, route: Route, head: bytes, body: bytes) -> None:
        self._client = client
        self._route = route
        self._request = head, body

    async def __aenter__(self) -> Response:
        self._line = line = await self._client.line(self._route)
        try:
            return await line.ask(*self._request)
        except BaseException:
            line.drop()
            self._client.give_back(self._route, line)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.give_back(self._route, self._line)


def _lines(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Headers, ours unless the user says otherwise; what says where a body ends is never theirs to say."""
    merged = {name.lower(): (name, value) for name, value in (*ours.items(), *theirs.items())}
    lines = [f"{name}: {value}" for key, (name, value) in merged.items() if key not in _FRAMING]
    for line in lines:
        if _CONTROLS.search(line) or max(line) > "\xff":
            raise Unsendable("a header holds characters that none can carry")
    return lines
