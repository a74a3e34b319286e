"""Fetches a file from an address that a client named, without being turned against our own network (T14).

Off unless the operator names hosts. Names are resolved here, every address of a name has to be public, and the
connection goes to the very address that was checked; each redirect starts from the beginning. No proxy, no cookies, no
compression. What went wrong inside the network is not told to the client.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holodeck.errors import ConfigError, InvalidRequest, PayloadTooLarge
from holodeck.files.addresses import is_public
from holodeck.files.source import Fetched

MAX_REDIRECTS = 3
SECONDS = 10.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK = 200
_PIECE = 65_536

Resolve: TypeAlias = Callable[[str], Awaitable[list[str]]]


class AllowedHost(NamedTuple):
    """`files.example.com`, with a port, or with `http://` for who knows what that means; `*.` for all names below."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "AllowedHost":
        try:
            url = URL(text if "://" in text else f"https://{text}")
            allowed = cls(url.scheme, (url.raw_host or "").lower(), url.port or 0)
        except ValueError:
            allowed = cls("", "", 0)
        if allowed.scheme not in {"https", "http"} or not allowed.host.removeprefix("*."):
            raise ConfigError(f"files.allow_hosts: {text!r} is no host name")
        return allowed

    def covers(self, url: URL) -> bool:
        host = (url.raw_host or "").lower()
        named = host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host
        return named and url.scheme == self.scheme and url.port == self.port


async def system_resolve(host: str) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class Fetcher:
    def __init__(
        self,
        allow_hosts: Iterable[str],
        *,
        max_bytes: int,
        seconds: float = SECONDS,
        resolve: Resolve = system_resolve,
        permit: Callable[[str], bool] = is_public,
    ) -> None:
        self._allowed = [AllowedHost.of(text) for text in allow_hosts]
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._resolve = resolve
        self._permit = permit

    async def fetch(self, address: str, *, field: str) -> Fetched:
        url = self._checked(address, field)
        try:
            async with asyncio.timeout(self._seconds), self._session() as session:
                for _ in range(MAX_REDIRECTS + 1):
                    async with session.get(url, allow_redirects=False) as response:
                        if response.status not in _REDIRECTS:
                            return await self._body(response, url, field)
                        url = self._checked(response.headers.get("Location", ""), field, base=url)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise InvalidRequest(f"The file at {url.raw_host} could not be fetched", field=field) from error
        raise InvalidRequest(f"The file at {url.raw_host} is redirected too often", field=field)

    def _checked(self, address: str, field: str, base: URL | None = None) -> URL:
        try:
            url = URL(address) if base is None else base.join(URL(address))
            known = any(allowed.covers(url) for allowed in self._allowed)
        except ValueError as error:
            raise InvalidRequest("The address of a file is not valid", status=400, field=field) from error
        if not known or url.raw_user is not None or url.raw_password is not None:
            raise InvalidRequest(
                "The file is at an address that this server does not fetch from (files.allow_hosts); send its bytes",
                status=400,
                field=field,
            )
        if _is_literal(url) and not self._permit(url.raw_host or ""):  # aiohttp asks no resolver for these
            raise InvalidRequest(f"The file at {url.raw_host} could not be fetched", field=field)
        return url.with_fragment(None)

    def _session(self) -> aiohttp.ClientSession:
        resolver = _CheckedAddresses(self._resolve, self._permit)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True),
            timeout=aiohttp.ClientTimeout(total=self._seconds),
            headers={"Accept-Encoding": "identity", "User-Agent": "holodeck"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def _body(self, response: aiohttp.ClientResponse, url: URL, field: str) -> Fetched:
        if response.status != _OK:
            raise InvalidRequest(
                f"The file at {url.raw_host} could not be fetched: HTTP {response.status}", field=field
            )
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise InvalidRequest(f"The file at {url.raw_host} came compressed, though it was not asked to", field=field)
        data = bytearray()
        if (response.content_length or 0) <= self._max_bytes:
            async for piece in response.content.iter_chunked(_PIECE):
                data += piece
                if len(data) > self._max_bytes:
                    break
            else:
                return Fetched(bytes(data), response.headers.get("Content-Type"))
        raise PayloadTooLarge(f"The file at {url.raw_host} has more than {self._max_bytes:,} bytes")


def _is_literal(url: URL) -> bool:
    host = url.raw_host or ""
    return ":" in host or host.replace(".", "").isdecimal()


class _CheckedAddresses(AbstractResolver):
    """All addresses of a name, or none if one of them is not public: a name with two faces is an attack."""

    def __init__(self, resolve: Resolve, permit: Callable[[str], bool]) -> None:
        self._resolve = resolve
        self._permit = permit

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002  aiohttp's signature; it asks for both
    ) -> list[ResolveResult]:
        addresses = await self._resolve(host)
        if not addresses or not all(self._permit(address) for address in addresses):
            raise OSError(f"{host} has no address that may be asked")
        return [_result(host, address, port) for address in dict.fromkeys(addresses)]

    async def close(self) -> None:
        """Nothing is open."""


def _result(name: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=name, host=address, port=port, family=family, proto=0, flags=flags)
