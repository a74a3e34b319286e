"""How many connections there may be at a time, of all clients and of each (C13, T17), and what becomes of the others.

The server answers a few connections over a limit: monitors get what they ask for, other requests a 503 with
`Retry-After`. It closes the rest at once, since an answer would need descriptors that are not there. A client is an
address, or the network of an IPv6 address. Nothing here knows runs.
"""

import ipaddress
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto

from starlette.types import Receive, Scope, Send

from holodeck.access.attempts import network_of
from holodeck.errors import Overloaded
from holodeck.wires.problem import problem

log = logging.getLogger(__name__)

ANSWERED_OVER_LIMIT = 64  # connections over the limit that are answered at all
ANSWERED_OVER_CLIENT_LIMIT = 4
PER_CLIENT = 1_000  # unless the agent file says otherwise; loopback is exempt then, where a proxy may stand
FOR_MONITORS = frozenset({b"/health", b"/health/agent", b"/ready", b"/metrics"})
OWN_FILES = 64  # descriptors for the log, the loop, tool servers, the resolver
FILES_EACH = 2  # a client's connection, and the one to the model on its behalf
_SMALLEST = 4
_BETWEEN_LINES = 10.0  # seconds: clients over the limit must not fill the log


class TooManyConnections(Overloaded):
    title = "Too many connections at a time"
    reason = "connections"


class ConnectionVerdict(Enum):
    """What a new connection is."""

    SERVED = auto()
    OVER_LIMIT = auto()  # may ask how the server is
    CLOSED = auto()


class ConnectionLimit:
    def __init__(
        self,
        limit: int,
        count: Callable[[str], None],
        *,
        per_client: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`count` gets the verdict on each connection. A `per_client` of None is PER_CLIENT, and none for loopback."""
        self.limit, self.present = limit, 0
        self._per_client = per_client
        self._by_client: Counter[str] = Counter()
        self._count, self._clock = count, clock
        self._refused, self._logged_at = 0, -_BETWEEN_LINES

    def enter(self, client: str) -> ConnectionVerdict:
        """Counts a connection that was accepted. Whatever the verdict, `leave` has to be called when it is closed."""
        self.present += 1
        key = network_of(client)
        self._by_client[key] += 1
        verdict = self._verdict(self.present - self.limit, self._over_client_limit(key))
        self._count(verdict.name.lower())
        if verdict is not ConnectionVerdict.SERVED:
            self._warn(client)
        return verdict

    def leave(self, client: str) -> None:
        self.present -= 1
        key = network_of(client)
        self._by_client[key] -= 1
        if not self._by_client[key]:
            del self._by_client[key]

    def _over_client_limit(self, key: str) -> int:
        """How many connections more than it may a client has."""
        if self._per_client is None and is_loopback(key):
            return 0
        return self._by_client[key] - (self._per_client or PER_CLIENT)

    def _verdict(self, over: int, over_client: int) -> ConnectionVerdict:
        if over <= 0 and over_client <= 0:
            return ConnectionVerdict.SERVED
        answered = over <= ANSWERED_OVER_LIMIT and over_client <= ANSWERED_OVER_CLIENT_LIMIT
        return ConnectionVerdict.OVER_LIMIT if answered else ConnectionVerdict.CLOSED

    def _warn(self, client: str) -> None:
        self._refused += 1
        now = self._clock()
        if now - self._logged_at < _BETWEEN_LINES:
            return
        details = {
            "limit": self.limit,
            "present": self.present,
            "beyond": self._refused,
            "client": client,
            "of_client": self._by_client[network_of(client)],
        }
        log.warning("too_many_connections", extra={"details": details})
        self._refused, self._logged_at = 0, now


def is_loopback(address: str) -> bool:
    """Whether an address, or a network, is this machine's own. A socket file, which has none, is too."""
    try:
        return not address or ipaddress.ip_network(address, strict=False).is_loopback
    except ValueError:
        return False


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001  an ASGI app
    """The ASGI application of a connection over the limit."""
    refusal = problem(
        TooManyConnections(
            "Too many connections: the server's limit or this client's is reached; try again in a moment."
        )
    )
    body = refusal.to_json()
    headers = {**refusal.headers, "Content-Length": str(len(body)), "Connection": "close"}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def room_for(wanted: int) -> int:
    """How many connections there can be, `wanted` at most. Asks the system for the descriptors that they need.

    The soft limit is usually 1,024, whatever the machine could do; the hard one is what an administrator decided.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN_FILES + ANSWERED_OVER_LIMIT + FILES_EACH * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        higher = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):  # where there is no hard limit, the kernel may have one of its own (macOS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (higher, hard))
            soft = higher
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    return max(_SMALLEST, (soft - OWN_FILES - ANSWERED_OVER_LIMIT) // FILES_EACH)
