"""Connections: how many may be open, and a request's socket and body as checks and streams see them (C13, T15, T17).

The server answers a few connections over a limit: monitors get their answer, other requests a 503 with `Retry-After`.
It closes the rest immediately, since answering would need file descriptors that it does not have. A client is an
address, or the network of an IPv6 address.

`holodeck.server.protocol` puts a `Connection` into each request's scope as an ASGI extension. Other ASGI servers have no
such extension, and `connection_of` returns None.

The server refuses a body that declares too large a size before it reads a byte. It reads a body without a declared size
up to a small limit. It gives up on a body that arrives too slowly. It refuses a compressed body, because its size says
nothing about its content. Above a total of all bodies that are read at the same time, it gives up on
the slowest of the large ones.
"""

import asyncio
import fcntl
import ipaddress
import logging
import resource
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from typing import Protocol

from starlette.types import Message, Receive, Scope, Send

from holodeck.access.attempts import network_of
from holodeck.config.limit_schema import RequestLimits
from holodeck.errors import InvalidRequest, Overloaded, PayloadTooLarge, UnsupportedMediaType
from holodeck.server.problems import problem_response

log = logging.getLogger(__name__)

ANSWERED_OVER_LIMIT = 64  # connections over the limit that still get an answer
ANSWERED_OVER_CLIENT_LIMIT = 4
PER_CLIENT = 1_000  # the default, which exempts loopback: a proxy may connect from there
FOR_MONITORS = frozenset({b"/health", b"/health/agent", b"/ready", b"/metrics"})
OWN_FILES = 64  # descriptors for the log, the loop, tool servers, the resolver
FILES_EACH = 2  # a client's connection, and the one to the model for it
NOT_COPIED = 32 * 1024  # bytes: framing a longer chunk costs more than handing the socket three pieces
_SMALLEST = 4
_BETWEEN_LINES = 10.0  # seconds: clients over the limit must not fill the log

CONNECTION = "holodeck.connection"  # the extension's name
REQUEST_TIMEOUT = 408
SMALL_BODY = 1_000_000  # bytes


class TooManyConnections(Overloaded):
    title = "Too many concurrent connections"
    reason = "connections"


class TooManyBodies(Overloaded):
    title = "Too many large bodies at the same time"
    reason = "bodies"


class ConnectionVerdict(Enum):
    SERVED = auto()
    OVER_LIMIT = auto()  # may only ask for the server's health
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
        """`count` is called with each verdict. `per_client=None` means PER_CLIENT, except for loopback."""
        self.limit, self.present = limit, 0
        self._per_client = per_client
        self._by_client: Counter[str] = Counter()
        self._count, self._clock = count, clock
        self._refused, self._logged_at = 0, -_BETWEEN_LINES

    def enter(self, client: str) -> ConnectionVerdict:
        """Counts an accepted connection. Whatever the verdict, the caller has to call `leave` when it closes."""
        self.present += 1
        key = network_of(client)
        self._by_client[key] += 1
        is_exempt = self._per_client is None and is_loopback(key)
        over = self.present - self.limit
        over_client = 0 if is_exempt else self._by_client[key] - (self._per_client or PER_CLIENT)
        verdict = ConnectionVerdict.SERVED
        if over > 0 or over_client > 0:
            is_answered = over <= ANSWERED_OVER_LIMIT and over_client <= ANSWERED_OVER_CLIENT_LIMIT
            verdict = ConnectionVerdict.OVER_LIMIT if is_answered else ConnectionVerdict.CLOSED
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


@lru_cache(maxsize=4096)  # as in `network_of`
def is_loopback(address: str) -> bool:
    """Returns whether an address or a network belongs to this machine. A unix socket, without address, does."""
    try:
        return not address or ipaddress.ip_network(address, strict=False).is_loopback
    except ValueError:
        return False


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of a connection over the limit."""
    error = TooManyConnections(
        "Too many connections: the server's limit or this client's is reached; try again in a moment."
    )
    answer = problem_response(error)
    answer.headers["Connection"] = "close"
    await answer(scope, receive, send)


def room_for(wanted: int) -> int:
    """Returns how many connections are possible, at most `wanted`. Raises the descriptor limit for them.

    The soft limit is usually 1,024, whatever the machine can do. The hard limit is the administrator's decision.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN_FILES + ANSWERED_OVER_LIMIT + FILES_EACH * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        higher = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):  # without a hard limit, the kernel may still enforce one (macOS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (higher, hard))
            soft = higher
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    return max(_SMALLEST, (soft - OWN_FILES - ANSWERED_OVER_LIMIT) // FILES_EACH)


class Connection(Protocol):
    transport: asyncio.Transport
    when_lost: Callable[[], None] | None

    @property
    def has_whole_body(self) -> bool:
        """Whether the whole request has arrived."""

    def write_at_once(self, take: Callable[[], bytes]) -> int | None:
        """Writes what `take` returns as a chunk of the current response, and returns its size.

        Returns None, and does not call `take`, if writing a chunk would have to wait.
        """


def connection_of(scope: Scope) -> Connection | None:
    found: Connection | None = scope.get("extensions", {}).get(CONNECTION)
    return found


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the client has not acknowledged, in our buffer and, where the kernel reports it, in the kernel's."""
    waiting = bytearray(4)
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, waiting)
    except (OSError, ValueError):  # not supported here, or the socket is closed
        return transport.get_write_buffer_size()
    return transport.get_write_buffer_size() + int.from_bytes(waiting, sys.byteorder)


class BodyRoom:
    """How many bytes of bodies the server holds: few clients could fill its memory by large ones at the same time.

    Without room, the slowest of the large bodies that are arriving is refused: a client that stops in the middle of a few
    must not keep out those of all others.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self.taken = limit, 0
        self._arriving: set[MeteredBody] = set()  # the large ones

    def take(self, size: int, body: "MeteredBody") -> None:
        """Counts `size` further bytes of a body."""
        self.taken += size
        if body.size > SMALL_BODY:
            self._arriving.add(body)
        while self.taken > self._limit and self._arriving:
            min(self._arriving, key=MeteredBody.rate).refuse()

    def has_arrived(self, body: "MeteredBody") -> None:
        self._arriving.discard(body)

    def give_back(self, size: int, body: "MeteredBody") -> None:
        self.taken -= size
        self._arriving.discard(body)


def metered(
    scope: Scope, receive: Receive, limits: RequestLimits, max_body: int, room: BodyRoom
) -> "Receive | MeteredBody":
    """Limits the size and the slowness of the body that `receive` returns. A body that has arrived needs no limits."""
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UnsupportedMediaType("Compressed bodies are not accepted; send the body without Content-Encoding.")
    if b"transfer-encoding" in headers:
        return MeteredBody(receive, limits, limits.max_unmeasured_body, room)
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit():  # our parser refuses these; other servers may not
        raise InvalidRequest("Content-Length is not a number.", status=400, field="Content-Length")
    if int(declared) > max_body:
        raise too_large(max_body)
    connection = connection_of(scope)
    if not int(declared) or (connection is not None and connection.has_whole_body):
        return receive
    return MeteredBody(receive, limits, max_body, room)


class MeteredBody:
    """Replaces `receive` until the body is complete. Call `release` when nothing needs the body any more."""

    def __init__(self, receive: Receive, limits: RequestLimits, max_bytes: int, room: BodyRoom) -> None:
        self._receive, self._limits, self._max, self._room = receive, limits, max_bytes, room
        self.size = self._counted = 0
        self._begun: float | None = None
        self._deadline: asyncio.Timeout | None = None  # while it waits for a piece
        self._complete = self._is_refused = False

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        self._check_room()
        try:
            async with asyncio.timeout(self._seconds_left()) as self._deadline:
                message = await self._receive()
        except TimeoutError:
            self._check_room()
            raise InvalidRequest("The body arrived too slowly.", status=REQUEST_TIMEOUT) from None
        finally:
            self._deadline = None
        size = len(message.get("body", b""))
        self.size += size
        self._counted += size
        self._room.take(size, self)
        self._check_room()
        if self.size > self._max:
            raise too_large(self._max)
        self._complete = not message.get("more_body", False)
        if self._complete:
            self._room.has_arrived(self)
        return message

    def rate(self) -> float:
        """Bytes per second, so far."""
        now = asyncio.get_running_loop().time()
        begun = now if self._begun is None else self._begun
        return self.size / max(now - begun, sys.float_info.epsilon)

    def refuse(self) -> None:
        """Gives the bytes back. The request is answered when it reads on."""
        self._is_refused = True
        self.release()
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    def release(self) -> None:
        """Idempotent."""
        self._room.give_back(self._counted, self)
        self._counted = 0

    def _check_room(self) -> None:
        if self._is_refused:
            raise TooManyBodies("The server is reading too many large bodies at the moment; try again in a moment.")

    def _seconds_left(self) -> float:
        """Returns the time left for the next piece: a fixed number of seconds, and more for every byte received."""
        now = asyncio.get_running_loop().time()
        self._begun = now if self._begun is None else self._begun
        return max(0.0, self._begun + self._limits.body_seconds + self.size / self._limits.body_rate - now)


def too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit:,} bytes, the most that is accepted in this form.")
