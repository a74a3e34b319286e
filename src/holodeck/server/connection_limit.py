"""How many connections there may be at a time (C13), and what becomes of those beyond.

A few more than are allowed are heard: monitors get their answer, everybody else a 503 that says when to come back. Those
beyond these, too, are closed without a word, since a word would take a place that nobody has. Nothing here knows runs.
"""

import logging
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto

from starlette.types import Receive, Scope, Send

from holodeck.errors import Overloaded
from holodeck.wires.problem import problem

log = logging.getLogger(__name__)

ANSWERED_OVER_LIMIT = 64  # connections over the limit that are answered at all
FOR_MONITORS = frozenset({b"/health", b"/health/agent", b"/ready", b"/metrics"})
OWN_FILES = 64  # descriptors for the log, the loop, tool servers, the resolver
FILES_EACH = 2  # a client's connection, and the one to the model on its behalf
_SMALLEST = 4
_BETWEEN_LINES = 10.0  # seconds: a connection_limit must not fill the log as well


class TooManyConnections(Overloaded):
    title = "Too many connections at a time"
    reason = "connections"


class ConnectionVerdict(Enum):
    """What a new connection is."""

    SERVED = auto()
    OVER_LIMIT = auto()  # may ask how the server is
    CLOSED = auto()


class ConnectionLimit:
    def __init__(self, limit: int, count: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`count` is told for each connection what it is."""
        self.limit, self.present = limit, 0
        self._count, self._clock = count, clock
        self._refused, self._told_at = 0, -_BETWEEN_LINES

    def enter(self) -> ConnectionVerdict:
        """For a connection that was accepted. Whatever the answer, `leave` is called when it is gone."""
        self.present += 1
        entry = self._verdict(self.present - self.limit)
        self._count(entry.name.lower())
        if entry is not ConnectionVerdict.SERVED:
            self._tell()
        return entry

    def leave(self) -> None:
        self.present -= 1

    def _verdict(self, over: int) -> ConnectionVerdict:
        if over <= 0:
            return ConnectionVerdict.SERVED
        return ConnectionVerdict.OVER_LIMIT if over <= ANSWERED_OVER_LIMIT else ConnectionVerdict.CLOSED

    def _tell(self) -> None:
        self._refused += 1
        now = self._clock()
        if now - self._told_at < _BETWEEN_LINES:
            return
        details = {"limit": self.limit, "present": self.present, "beyond": self._refused}
        log.warning("too_many_connections", extra={"details": details})
        self._refused, self._told_at = 0, now


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001  an ASGI app
    """The app of a connection that is only heard."""
    told = problem(TooManyConnections("The server has as many connections as it can take; try again in a moment."))
    body = told.to_json()
    headers = {**told.headers, "Content-Length": str(len(body)), "Connection": "close"}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": told.status, "headers": pairs})
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
