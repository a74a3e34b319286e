"""The HTTP side of a model: one session, made when it is first needed, with nothing that could leak a key.

Redirects are not followed, cookies not kept, compression not asked for (a compressed stream is held back in blocks).
"""

from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.client_proto import ResponseHandler

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = MappingProxyType({"Accept-Encoding": "identity", "User-Agent": "holodeck"})


class Connection:
    def __init__(self, headers: dict[str, str], connect_timeout: float) -> None:
        self._headers = {**_HEADERS, **headers}
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}  # the environment is read once for each address, not for each request

    def post(self, url: str, body: bytes) -> "aiohttp.client._RequestContextManager":
        data = aiohttp.BytesPayload(body, content_type="application/json")
        headers = {"Accept": "text/event-stream"}
        return self._open().post(url, data=data, headers=headers, allow_redirects=False, proxy=self._proxy_for(url))

    def get(self, url: str) -> "aiohttp.client._RequestContextManager":
        return self._open().get(url, allow_redirects=False, proxy=self._proxy_for(url))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _proxy_for(self, url: str) -> str | None:
        if url not in self._proxies:
            self._proxies[url] = proxy_for(url)
        return self._proxies[url]

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class Connector(aiohttp.TCPConnector):
    """Connections that cost less per token; where a later aiohttp has another way to make them, they work as usual."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        handler: type[ResponseHandler] = Unhurried
        self._factory = partial(handler, loop=self._loop)


class Unhurried(ResponseHandler):
    """After each piece that is read, aiohttp lets parser and transport go on, as if they always had been stopped.

    Once they were, it is right to: the parser may hold something back, and says so to nobody.
    """

    ever_paused = False

    def pause_reading(self) -> None:
        self.ever_paused = True
        super().pause_reading()

    def resume_reading(self, *args: Any, **options: Any) -> None:
        if self.ever_paused:
            super().resume_reading(*args, **options)


def proxy_for(url: str) -> str | None:
    """The environment's proxy for a URL. aiohttp's own `trust_env` would read ~/.netrc too and clash with our key."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in _LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
