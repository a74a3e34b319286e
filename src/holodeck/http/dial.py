"""Making a connection: names, both kinds of addresses, TLS, a proxy in between."""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, TypeAlias

from aiohappyeyeballs import start_connection

from holodeck.http.address import Address, Route
from holodeck.http.failures import HttpError, NoConnection, NoHost, NoProxy, NoTrust
from holodeck.http.line import Line

SECOND_TRY = 0.25  # seconds until another address is tried beside one that says nothing (RFC 8305)


AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]  # as getaddrinfo has it
Found: TypeAlias = Sequence[AddressInfo]
Resolve: TypeAlias = Callable[[str, int], Awaitable[Found]]


async def system_resolve(host: str, port: int) -> Found:
    """The addresses of a name, as the system knows them. Raises OSError or UnicodeError."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def dial(route: Route, seconds: float, resolve: Resolve = system_resolve) -> Line:
    """A new connection. Raises an HttpError."""
    try:
        async with asyncio.timeout(seconds):
            return await _dial(route, resolve)
    except TimeoutError as error:
        raise NoConnection(f"no connection within {seconds:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NoTrust(f"its certificate was not accepted ({error.verify_message})") from error
    except ssl.SSLError as error:
        raise NoTrust("it does not answer in TLS; is http:// meant?") from error
    except HttpError:
        raise
    except OSError as error:
        raise NoConnection("no connection") from error


async def _dial(route: Route, resolve: Resolve) -> Line:
    target = Address(route.scheme, route.host, route.port)
    if route.proxy is None:
        return await _connect(target, resolve)
    try:
        line = await _connect(route.proxy, resolve)
    except (NoHost, OSError) as error:
        raise NoProxy(f"the proxy {route.proxy.place} cannot be reached") from error
    if not target.secure:
        return line
    try:
        return await _tunnel(line, route.proxy, target)
    except BaseException:
        line.drop()
        raise


async def _connect(address: Address, resolve: Resolve) -> Line:
    loop = asyncio.get_running_loop()
    try:
        found = await resolve(address.host, address.port)
    except (socket.gaierror, UnicodeError) as error:
        raise NoHost(f"no host {address.host}") from error
    connected = await start_connection(found, happy_eyeballs_delay=SECOND_TRY, interleave=1, loop=loop)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # notices a peer that is gone while nothing is said
    try:
        _, line = await loop.create_connection(
            Line,
            sock=connected,
            ssl=_trust() if address.secure else None,
            server_hostname=_name_of(address) if address.secure else None,
        )
    except BaseException:
        connected.close()
        raise
    return line


async def _tunnel(line: Line, proxy: Address, target: Address) -> Line:
    """Through a proxy that only passes bytes on: it does not see what is said inside."""
    lines = [f"CONNECT {target.place} HTTP/1.1", f"Host: {target.place}", *credentials(proxy), "", ""]
    answer = await line.ask("\r\n".join(lines).encode())
    if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise NoProxy(f"the proxy {proxy.place} does not let us through ({answer.status})")
    if line.transport.is_closing():
        raise NoProxy(f"the proxy {proxy.place} closed the connection")
    inner = Line()
    inner.connection_made(line.transport)  # what comes with the end of the handshake may end it
    transport = await asyncio.get_running_loop().start_tls(
        line.transport, inner, _trust(), server_hostname=_name_of(target)
    )
    if transport is None:
        raise NoProxy(f"the proxy {proxy.place} closed the connection")
    inner.connection_made(transport)
    return inner


def credentials(proxy: Address) -> list[str]:
    """The header for a proxy that wants to know who we are."""
    return (
        []
        if proxy.user is None
        else [f"Proxy-Authorization: Basic {b64encode(proxy.user.encode(errors='surrogateescape')).decode()}"]
    )


def _name_of(address: Address) -> str:
    """As a certificate says it: without the dot that ends a full name."""
    return address.host.rstrip(".")


@cache
def _trust() -> ssl.SSLContext:
    """The system's certificates; SSL_CERT_FILE and SSL_CERT_DIR name others."""
    trust = ssl.create_default_context()
    trust.set_alpn_protocols(["http/1.1"])
    return trust
