"""The port, taken before the banner names it (SRV-02), and whether other machines can reach it (T09)."""

import errno
import ipaddress
import os
import socket
import stat
import sys
from contextlib import closing

from holodeck.errors import StartError

MAX_IN_KERNEL = 128 * 1024  # bytes that wait in the kernel for one client; it would take megabytes for one that is deaf
ACCEPTED_AT_ONCE = 16  # connections in one turn of the event loop; each of these costs every new connection 4 µs
_TRIES = 50
_NOTSENT_LOWAT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None)


class PortBusy(StartError):
    code, title = "port-busy", "The port is taken"
    exit_code = 3


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; raises StartError with a one-line reason."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise StartError(f"--host: {host!r} is no address of this machine.") from error
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
    """A unix socket that only this user may connect to. A socket that a killed server left behind is replaced."""
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    earlier = os.umask(0o177)
    try:
        if _is_abandoned(path):
            os.unlink(path)  # noqa: PTH108  a path of bytes works too
        taken.bind(path)
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            raise PortBusy(f"--uds: {path} is in use by another program, or is no socket.") from error
        raise StartError(f"--uds: cannot listen on {path}: {error.strerror or error}.") from error
    finally:
        os.umask(earlier)
    return taken


def acceptors(listener: socket.socket, *, is_shared: bool = False) -> list[socket.socket]:
    """The listener and copies of it, for a loop that accepts one connection for each in a turn.

    One that other processes listen on has no copies: a worker would take sixteen that come together from the others.

    libuv accepts one connection in a turn: with a single socket, the last of fifty that come together waits for fifty turns,
    in which the requests before it are served.
    """
    copies = 0 if is_shared else ACCEPTED_AT_ONCE - 1
    return [listener, *(listener.dup() for _ in range(copies))]


def _is_abandoned(path: str) -> bool:
    """Whether there is a socket that no process listens on."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116
        except OSError:
            return False
    return False


def only_on_loopback(host: str) -> bool:
    """Whether every address that `host` stands for is this machine's own; False if that cannot be found out."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
    except (OSError, ValueError):
        return False


def network_address() -> str | None:
    """The address under which other machines of the network reach this one; None without a network.

    Connecting a datagram socket sends nothing: the kernel only chooses the interface. The address is one for documentation.
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
        return StartError(f"Port {port} may not be used by this user; ports from 1024 on may.")
    return StartError(f"Cannot listen on {host} port {port}: {error.strerror}.")


def _free_port(host: str, port: int) -> int | None:
    """The next free port."""
    for candidate in range(port + 1, min(port + 1 + _TRIES, 65536)):
        with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError:
                continue
            return candidate
    return None
