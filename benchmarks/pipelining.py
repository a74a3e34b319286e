"""Requests that a client sends behind one that is not answered yet: what they may cost (F1 of the security findings).

Each connection sends a request whose model never ends and, in the same write, thousands more. The same connections without
the others are measured first, on a server of their own: what a run needs is not the price of pipelining.
"""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection

from benchmarks.measures import SETTLE, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.processes import rss_mib
from benchmarks.report import Row, Target
from benchmarks.systems import HOLODECK, agui_body

CONNECTIONS, QUICK_CONNECTIONS, REQUESTS = 1000, 100, 8000
NEVER_ENDS = "fake-9999-1tps"
WAITING = b"GET / HTTP/1.1\r\nHost:localhost\r\n\r\n"
SOCKETS = 8192  # open files that this process may need


def run(options: Options) -> list[Row]:
    connections = QUICK_CONNECTIONS if options.quick else CONNECTIONS
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(SOCKETS, most), most))
    with fake_model() as port:
        alone, _ = measured(port, connections, 0, options)
        added, slowest = measured(port, connections, REQUESTS, options)
    of = {"system": f"{connections:,} connections x {REQUESTS:,}"}
    return [
        Row(measure="memory of the first requests alone", unit="MiB", samples=[alone], **of),
        Row(
            measure="memory that the waiting ones add",
            unit="MiB",
            samples=[added - alone],
            target=Target(limit=8),
            **of,
        ),
        Row(measure="/health meanwhile, slowest", unit="ms", samples=[slowest * 1e3], target=Target(limit=50), **of),
    ]


def measured(model_port: int, connections: int, requests: int, options: Options) -> tuple[float, float]:
    """How much memory grew, and the longest time of a /health."""
    with subject(HOLODECK, model_port, options.scratch) as started, contextlib.ExitStack() as stack:
        port, before, slowest = started.server.port, rss_mib(started.server.pid), 0.0
        for number, client in enumerate(clients(port, connections, stack)):
            send(client, first_request(port, number) + WAITING * requests)
            if number % 50 == 0:
                slowest = max(slowest, health_seconds(port))
        slowest = max(slowest, health_seconds(port))
        time.sleep(SETTLE)
        return rss_mib(started.server.pid) - before, slowest


def clients(port: int, count: int, stack: contextlib.ExitStack) -> Iterator[socket.socket]:
    for _ in range(count):
        yield stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))


def send(client: socket.socket, data: bytes) -> None:
    """The server closes a connection on which too many requests wait: the rest cannot be sent."""
    with contextlib.suppress(ConnectionError):
        client.sendall(data)


def first_request(port: int, number: int) -> bytes:
    body = agui_body(NEVER_ENDS).replace("{{id}}", f"p{number}").replace("{{session}}", f"t{number}").encode()
    head = f"POST {HOLODECK.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def health_seconds(port: int) -> float:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    begun = time.monotonic()
    connection.request("GET", "/health")
    connection.getresponse().read()
    connection.close()
    return time.monotonic() - begun
