"""Opens connections: name resolution, IPv4 and IPv6, TLS, an optional proxy."""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from functools import cache
from http import HTTPStatus
from typing import Any, TypeAlias, cast

from aiohappyeyeballs import start_connection

from holodeck.http.address import Address, Route
from holodeck.http.client_connection import ClientConnection
from holodeck.http.failures import HttpError, NoConnection, NoHost, NoProxy, NoTrust

MAX_SESSIONS = 100  # hosts whose TLS session is kept
SECOND_TRY = 0.25  # seconds until another address is tried in parallel with one that does not answer (RFC 8305)


AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]  # as getaddrinfo returns it
Found: TypeAlias = Sequence[AddressInfo]
Resolve: TypeAlias = Callable[[str, int], Awaitable[Found]]


async def system_resolve(host: str, port: int) -> Found:
    """Resolves a name with the system's resolver. Raises OSError or UnicodeError."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def dial(route: Route, seconds: float, resolve: Resolve = system_resolve) -> ClientConnection:
    """Opens a new connection. Raises an HttpError.

    The connection is made in an empty context: a transport keeps the context in which it was made, and a connection
    that is kept for the next request must not keep alive the run that opened it.
    """
    dialling = asyncio.get_running_loop().create_task(_dial_in_time(route, seconds, resolve), context=Context())
    try:
        return await dialling
    except asyncio.CancelledError:
        dialling.add_done_callback(_drop)  # the connection may have been made in the meantime
        raise


def _drop(dialling: asyncio.Task[ClientConnection]) -> None:
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().drop()


async def _dial_in_time(route: Route, seconds: float, resolve: Resolve) -> ClientConnection:
    try:
        async with asyncio.timeout(seconds):
            return await _dial(route, resolve)
    except TimeoutError as error:
        if route.proxy is not None:
            raise NoProxy(f"nothing came through the proxy {route.proxy.place} within {seconds:g} s") from error
        raise NoConnection(f"no connection within {seconds:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NoTrust(f"its certificate was not accepted ({error.verify_message})") from error
    except ssl.SSLError as error:
        raise NoTrust("it does not speak TLS; did you mean http://?") from error
    except HttpError:
        raise
    except OSError as error:
        raise NoConnection("no connection") from error


async def _dial(route: Route, resolve: Resolve) -> ClientConnection:
    target = Address(route.scheme, route.host, route.port)
    if route.proxy is None:
        return await _connect(target, resolve)
    try:
        connection = await _connect(route.proxy, resolve)
    except (HttpError, OSError) as error:
        raise NoProxy(f"the proxy {route.proxy.place} cannot be reached") from error
    if not target.secure:
        return connection
    try:
        await _pass(connection, route.proxy, target)
        return await _secure(connection, target)
    except BaseException:
        connection.drop()
        raise


async def _connect(address: Address, resolve: Resolve) -> ClientConnection:
    try:
        found = await resolve(address.host, address.port)
    except (socket.gaierror, UnicodeError) as error:
        raise NoHost(f"no host {address.host}") from error
    loop = asyncio.get_running_loop()
    try:
        connected = await start_connection(found, happy_eyeballs_delay=SECOND_TRY, interleave=1, loop=loop)
    except RuntimeError as error:  # uvloop raises it, according to aiohappyeyeballs
        raise NoConnection("no connection") from error
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # detects a dead peer on an idle connection
    connection = await _connection_on(connected)
    return await _secure(connection, address) if address.secure else connection


async def _connection_on(connected: socket.socket) -> ClientConnection:
    """Shielded: on cancellation the connect finishes and its callback closes the socket."""
    making = asyncio.ensure_future(asyncio.get_running_loop().create_connection(ClientConnection, sock=connected))
    try:
        _, connection = await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(_end)
        raise
    return connection


def _end(making: asyncio.Future[tuple[asyncio.Transport, ClientConnection]]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result()[1].drop()


async def _secure(connection: ClientConnection, address: Address) -> ClientConnection:
    inner = ClientConnection()
    inner.connection_made(connection.transport)  # data at the end of the handshake may end the connection
    loop, name = asyncio.get_running_loop(), address.host.rstrip(".")  # certificates omit the final dot of a name
    transport = None
    try:
        if not connection.transport.is_closing():
            transport = await loop.start_tls(connection.transport, inner, _trust(), server_hostname=name)
    except BaseException:
        connection.drop()
        raise
    if transport is None:
        connection.drop()
        raise ConnectionResetError
    inner.connection_made(transport)
    return inner


async def _pass(connection: ClientConnection, proxy: Address, target: Address) -> None:
    """Asks a proxy for a tunnel (CONNECT). From then on the proxy only forwards bytes, and cannot read the traffic."""
    lines = [f"CONNECT {target.place} HTTP/1.1", f"Host: {target.place}", *credentials(proxy), "", ""]
    try:
        answer = await connection.ask("\r\n".join(lines).encode())
    except HttpError as error:
        raise NoProxy(f"the proxy {proxy.place} does not respond as a proxy") from error
    if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise NoProxy(f"the proxy {proxy.place} refuses the connection ({answer.status})")
    if connection.lost:
        raise NoProxy(f"the proxy {proxy.place} closed the connection")


def credentials(proxy: Address) -> list[str]:
    """Returns the header for a proxy that requires authentication."""
    if proxy.user is None:
        return []
    return [f"Proxy-Authorization: Basic {b64encode(proxy.user.encode(errors='surrogateescape')).decode()}"]


class ResumingContext(ssl.SSLContext):
    """TLS settings of a client that resume the last session with each host: certificates are not checked again.

    Event loops make their connections with `wrap_bio` and do not support sessions.
    """

    sessions: dict[str, ssl.SSLSession]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002  as the class has it
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        known = self.sessions.get(server_hostname) if isinstance(server_hostname, str) else None
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session or known)


def remember_session(transport: asyncio.BaseTransport) -> None:
    """Stores the TLS session of a connection for the next one to its host. A ticket arrives after the handshake."""
    secured = transport.get_extra_info("ssl_object")
    context = None if secured is None else secured.context
    session = None if secured is None else secured.session
    if isinstance(context, ResumingContext) and session is not None and secured.server_hostname:
        if len(context.sessions) >= MAX_SESSIONS:
            context.sessions.clear()
        context.sessions[secured.server_hostname] = session


@cache
def _trust() -> ssl.SSLContext:
    """Loads the system's certificates. SSL_CERT_FILE and SSL_CERT_DIR replace them."""
    trust = ssl.create_default_context()
    trust.__class__ = ResumingContext  # keeps all that the default sets; there is no other way to make a subclass of it
    cast("ResumingContext", trust).sessions = {}
    trust.set_alpn_protocols(["http/1.1"])
    return trust
