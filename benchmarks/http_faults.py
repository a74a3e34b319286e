"""What clients do wrong, or on purpose, on one HTTP connection. Each case asks a running server, and returns whether it held.

The agent behind the server must have the limits of LIMITS and STALL. A server has PATIENCE seconds for what has a limit of one second.
"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from benchmarks.processes import Server, rss_mib
from benchmarks.systems import agui_body

LIMITS = "limits: {request: {head_seconds: 1, body_seconds: 1, idle_seconds: 1, flush_seconds: 1, max_body_mb: 1}}"
STALL = "stall_timeout: 2"  # in the block `runs`
PATIENCE = 10.0
MB = 1_000_000
HOST = b"Host: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
FLOOD, FLOODS, MAX_FLOOD_MIB = 8_000, 20, 20
UNREAD_TOKENS = 100_000
_TERMINATOR = b"0\r\n\r\n"


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


def post(body: bytes, *, version: str = "1.1", framing: bytes | None = None, more: bytes = b"") -> bytes:
    framing = b"Content-Length: %d\r\n" % len(body) if framing is None else framing
    head = f"POST /awp HTTP/{version}\r\nContent-Type: application/json\r\n".encode()
    return head + HOST + framing + more + b"\r\n" + body


def run_of(mode: str) -> bytes:
    """The body of a new run."""
    return agui_body(mode).replace("{{id}}", f"r{time.monotonic_ns()}").replace("{{session}}", "t").encode()


def rest_of(client: socket.socket) -> bytes | None:
    """All that arrives until the server closes the connection. None if it stays open."""
    received = b""
    try:
        while piece := client.recv(65536):
            received += piece
    except TimeoutError:
        return None
    except ConnectionError:
        pass
    return received


def status_of(received: bytes | None) -> int:
    return int(received.split()[1]) if received and received.startswith(b"HTTP/1.1 ") else 0


def asked(server: Server, sent: bytes) -> bytes | None:
    with connect(server) as client:
        with suppress(ConnectionError):
            client.sendall(sent)
        return rest_of(client)


def is_closed(sent: bytes) -> Callable[[Server], bool]:
    return lambda server: asked(server, sent) is not None


def is_refused(sent: bytes, *statuses: int) -> Callable[[Server], bool]:
    """Whether the first answer has one of these statuses, and is whole."""

    def held(server: Server) -> bool:
        with connect(server) as client:
            with suppress(ConnectionError):
                client.sendall(sent)
            try:
                return status_of(client.recv(65536)) in statuses
            except (TimeoutError, ConnectionError):
                return False

    return held


def large_body(server: Server) -> bool:
    """A client that reads only after it has sent everything, as most do, gets its 413."""
    return is_refused(post(b" " * 20 * MB), 413)(server)


def slow_body(server: Server) -> bool:
    return status_of(asked(server, post(b"{", framing=b"Content-Length: 1000\r\n"))) == 408


def http10(server: Server) -> bool:
    """No chunks: HTTP/1.0 does not have them, and nginx uses it by default."""
    received = asked(server, post(run_of("fake-3"), version="1.0")) or b""
    head, _, body = received.partition(b"\r\n\r\n")
    return b"chunked" not in head.lower() and body.startswith(b"id: ") and b"RUN_FINISHED" in body


def upgrade(server: Server) -> bool:
    """Java's client asks for HTTP/2 in its first request."""
    more = b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    return b"RUN_FINISHED" in (asked(server, post(run_of("fake-3"), more=more)) or b"")


def endless_framing(server: Server) -> bool:
    """A chunk extension without end."""
    taken = 0
    with connect(server) as client, suppress(ConnectionError, TimeoutError):
        client.sendall(post(b"", framing=b"Transfer-Encoding: chunked\r\n") + b"2;")
        while taken < 100 * MB:
            client.sendall(b"y" * MB)
            taken += MB
    return taken < 50 * MB


def unread(server: Server) -> bool:
    """A client that takes nothing of its answer is cut off, and the rest of the answer freed."""
    with connect(server) as client:
        client.sendall(post(run_of(f"fake-{UNREAD_TOKENS}")))
        time.sleep(PATIENCE)  # how long it takes nothing
        received = rest_of(client)
    return received is not None and not received.endswith(_TERMINATOR)


def flood(server: Server) -> bool:
    """Thousands of requests behind one that is being answered take no memory."""
    sent = GET * FLOOD
    before, clients = rss_mib(server.pid), []
    for _ in range(FLOODS):
        client = connect(server)
        client.settimeout(0.5)
        with suppress(OSError):
            client.sendall(post(run_of("fake-100-5tps")))
            client.recv(1000)
            client.sendall(sent)
        clients.append(client)
    grown = rss_mib(server.pid) - before
    for client in clients:
        client.close()
    return grown < MAX_FLOOD_MIB


HALF_HEAD = b"GET /health HTTP/1.1\r\n" + HOST[:-3]
CASES: dict[str, Callable[[Server], bool]] = {
    "a silent connection is closed": is_closed(b""),
    "half a head is given up": is_closed(HALF_HEAD),
    "an idle connection is closed": is_closed(GET),
    "a slow body gets 408": slow_body,
    "a head of 1 MB is refused": is_refused(GET[:-2] + b"X: " + b"y" * MB + b"\r\n\r\n", 400, 414, 431),
    "24,000 header lines are refused": is_refused(GET[:-2] + b"X: 12345\r\n" * 24_000 + b"\r\n", 400, 414, 431),
    "a sender of 20 MB gets its 413": large_body,
    "a chunk extension without end is cut off": endless_framing,
    "gzip, chunked is refused": is_refused(post(b"", framing=b"Transfer-Encoding: gzip, chunked\r\n"), 400, 501),
    "another host in the target is refused": is_refused(
        b"GET http://evil.example/health HTTP/1.1\r\n" + HOST + b"\r\n", 400, 421
    ),
    "a stream over HTTP/1.0 has no chunks": http10,
    "a request for h2c with a body is answered": upgrade,
    "an answer that is not read is cut off": unread,
    "8,000 pipelined requests take no memory": flood,
}
