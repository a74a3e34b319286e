"""Fetches a file from an address that a client named, without giving access to our own network (T14).

Off unless the operator names hosts. Names are resolved here, every address of a name must be public, and the
connection goes to the very address that was checked. Each redirect starts from the beginning. There is no proxy, no
cookie, no compression. The client does not learn what went wrong inside the network.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple, TypeAlias
from urllib.parse import urljoin

from holodeck.errors import ConfigError, InvalidRequest, PayloadTooLarge
from holodeck.http.address import Address, address_of
from holodeck.http.client import Client
from holodeck.http.client_connection import Response
from holodeck.http.dial import AddressInfo, Found, Resolve, system_resolve
from holodeck.http.failures import HttpError, Unsendable

_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_UNICAST = IPv6Network("2000::/3")  # all of IPv6 that is assigned
_LAST_32_BITS = 0xFFFFFFFF


def is_public(text: str) -> bool:
    """Returns False for text that is not an address, for every special range, and for IPv6 that embeds such an IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast
    carried = list(_carried(address))
    if carried:
        return all(is_public(str(inner)) for inner in carried)
    return address.scope_id is None and address in _UNICAST and address.is_global


def _carried(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yields the IPv4 addresses that a gateway or the kernel would use for this one."""
    if address.ipv4_mapped:
        yield address.ipv4_mapped
    if address.sixtofour:
        yield address.sixtofour
    if address.teredo:
        yield from address.teredo
    if address in _NAT64 or address in _COMPATIBLE:
        yield IPv4Address(int(address) & _LAST_32_BITS)


MAX_REDIRECTS = 3
SECONDS = 10.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK = 200

AddressesOf: TypeAlias = Callable[[str], Awaitable[list[str]]]


class AllowedHost(NamedTuple):
    """`files.example.com`, optionally with a port, or with `http://` to allow plain HTTP; `*.` for all subdomains."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "AllowedHost":
        try:
            address = address_of(text if "://" in text else f"https://{text}")
        except Unsendable:
            address = None
        if address is None or not address.host.removeprefix("*."):
            raise ConfigError(f"files.allow_hosts: {text!r} is not a host name")
        return cls(address.scheme, address.host, address.port)

    def covers(self, address: Address) -> bool:
        host = address.host
        named = host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host
        return named and address.scheme == self.scheme and address.port == self.port


async def known_addresses(host: str) -> list[str]:
    return [str(sockaddr[0]) for *_, sockaddr in await system_resolve(host, 0)]


class Fetched(NamedTuple):
    data: bytes
    declared_type: str | None


class Fetcher:
    def __init__(
        self,
        allow_hosts: Iterable[str],
        *,
        max_bytes: int,
        seconds: float = SECONDS,
        resolve: AddressesOf = known_addresses,
        permit: Callable[[str], bool] = is_public,
    ) -> None:
        self._allowed = [AllowedHost.of(text) for text in allow_hosts]
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._resolve = resolve
        self._permit = permit

    async def fetch(self, address: str, *, field: str) -> Fetched:
        url, host = address, self._checked(address, field)
        try:
            async with asyncio.timeout(self._seconds):
                for _ in range(MAX_REDIRECTS + 1):
                    found = await self._ask(url, host, field)
                    if isinstance(found, Fetched):
                        return found
                    url = urljoin(url, found)
                    host = self._checked(url, field)
        except (HttpError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise InvalidRequest(f"The file at {host} could not be fetched", field=field) from error
        raise InvalidRequest(f"The file at {host} has too many redirects", field=field)

    def _checked(self, url: str, field: str) -> str:
        try:
            address = address_of(url)
        except Unsendable as error:
            raise InvalidRequest("The address of a file is not valid", status=400, field=field) from error
        if address.user is not None or not any(allowed.covers(address) for allowed in self._allowed):
            raise InvalidRequest(
                "The file is at an address that this server does not fetch from (files.allow_hosts); send its bytes",
                status=400,
                field=field,
            )
        return address.host

    async def _ask(self, url: str, host: str, field: str) -> Fetched | str:
        """Returns the file, or the URL of a redirect. Each request has its own connection, to an address that was just checked."""
        resolve = public_addresses(self._permit, self._resolve)
        client = Client({}, self._seconds, resolve=resolve, proxied=False)
        try:
            async with client.get(url) as response:
                if response.status in _REDIRECTS:
                    return response.headers.get("location", "")
                return await self._body(response, host, field)
        finally:
            await client.close()

    async def _body(self, response: Response, host: str, field: str) -> Fetched:
        if response.status != _OK:
            raise InvalidRequest(f"The file at {host} could not be fetched: HTTP {response.status}", field=field)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise InvalidRequest(f"The file at {host} was sent compressed, which was not requested", field=field)
        if int(response.headers.get("content-length", 0)) <= self._max_bytes:
            data = await response.read(self._max_bytes)
            if len(data) <= self._max_bytes:
                return Fetched(data, response.headers.get("content-type"))
        raise PayloadTooLarge(f"The file at {host} has more than {self._max_bytes:,} bytes")


def public_addresses(permit: Callable[[str], bool] = is_public, resolve: AddressesOf = known_addresses) -> Resolve:
    """Returns a resolver for a client that may connect only to addresses that `permit` allows.

    If one address of a name is forbidden, the whole name fails: a name with public and private addresses is an attack.
    """

    async def found(host: str, port: int) -> Found:
        addresses = await resolve(host)
        if not addresses or not all(permit(address) for address in addresses):
            raise OSError(f"{host} has no address that may be fetched from")
        return [_found(address, port) for address in dict.fromkeys(addresses)]

    return found


def _found(address: str, port: int) -> AddressInfo:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
