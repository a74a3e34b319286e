"""Binds the port before the banner names it (SRV-02), and finds out whether other machines can reach it (T09)."""

import errno
import ipaddress
import os
import socket
import stat
import sys
from contextlib import closing

from holodeck.errors import StartError

MAX_IN_KERNEL = 128 * 1024  # bytes that the kernel buffers per client; by default, megabytes for a stalled one
ACCEPTED_AT_ONCE = 16  # connections that one loop iteration accepts; each of these costs every new connection 4 µs
_TRIES = 50
_NOTSENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None)


class PortBusy(StartError):
    code, title = "port-busy", "The port is taken"
    exit_code = 3


def bind(host: str, port: int) -> socket.socket:
    """Returns a bound socket that does not listen yet. Raises StartError with a one-line reason."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise StartError(f"--host: {host!r} is not an address of this machine.") from error
    taken = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio asks for it before TCP_NODELAY
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if _NOTSENT_LOWAT is not None:
        taken.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, MAX_IN_KERNEL)  # accepted sockets inherit it
    try:
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise _explained(error, host, port) from error
    return taken


def bind_unix(path: str) -> socket.socket:
    """Binds a unix socket that only this user may connect to. Replaces a socket that a killed server left behind."""
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    earlier = os.umask(0o177)
    try:
        if _is_abandoned(path):
            os.unlink(path)  # noqa: PTH108  a path of bytes works too
        taken.bind(path)
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            raise PortBusy(f"--uds: {path} is in use by another program, or is not a socket.") from error
        raise StartError(f"--uds: cannot listen on {path}: {error.strerror or error}.") from error
    finally:
        os.umask(earlier)
    return taken


def acceptors(listener: socket.socket, *, is_shared: bool = False) -> list[socket.socket]:
    """Returns the listener and copies of it: an event loop accepts one connection per socket and iteration.

    libuv accepts one connection per iteration. With a single socket, the last of fifty simultaneous connections waits
    for fifty iterations, which also serve the requests before it.

    A socket that other processes listen on gets no copies: a worker would take sixteen simultaneous connections from
    the others.
    """
    copies = 0 if is_shared else ACCEPTED_AT_ONCE - 1
    return [listener, *(listener.dup() for _ in range(copies))]


def _is_abandoned(path: str) -> bool:
    """Returns whether the path is a socket that no process listens on."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116
        except OSError:
            return False
    return False


def only_on_loopback(host: str) -> bool:
    """Returns whether every address of `host` belongs to this machine. False if that cannot be found out."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
    except (OSError, ValueError):
        return False


def network_address() -> str | None:
    """Returns the address at which other machines reach this one, or None without a network.

    Connecting a datagram socket sends nothing: the kernel only chooses the interface. The address is reserved for
    documentation.
    """
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


def _explained(error: OSError, host: str, port: int) -> StartError:
    if error.errno == errno.EADDRINUSE:
        free = _free_port(host, port)
        advice = f"; {free} is free: --port {free}" if free else ""
        return PortBusy(f"Port {port} is taken by another program{advice}")
    if error.errno == errno.EACCES:
        return StartError(f"Port {port} may not be used by this user; use a port from 1024 on.")
    return StartError(f"Cannot listen on {host} port {port}: {error.strerror}.")


def _free_port(host: str, port: int) -> int | None:
    for candidate in range(port + 1, min(port + 1 + _TRIES, 65536)):
        with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError:
                continue
            return candidate
    return None
