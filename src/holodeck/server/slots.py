"""How many answers one client may be getting at the same time (T17), and how many there are.

A request takes a slot before it starts a run or reads one, and keeps it until its answer has ended. Requests that are
answered at once need none: a client whose slots are all taken can still stop a run. A client is the network of the
socket's address, whatever the request's headers claim (T31); users who share an address share its slots, also where the
server asks for credentials.
"""

from collections import Counter

from starlette.requests import HTTPConnection
from starlette.types import Scope

from holodeck.access.attempts import network_of
from holodeck.errors import RateLimited

RETRY_SECONDS = 5.0
SLOT = "holodeck.slot"  # the key in the scope


class StreamSlots:
    def __init__(self, per_client: int | None = None) -> None:
        self.taken = 0
        self._limit = per_client
        self._by_client: Counter[str] = Counter()

    def take(self, client: str) -> None:
        if self._limit is not None:
            if self._by_client[client] >= self._limit:
                raise _full(self._limit)
            self._by_client[client] += 1
        self.taken += 1

    def release(self, client: str) -> None:
        self.taken -= 1
        if self._limit is not None:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def client_of(self, scope: Scope) -> str:
        address = scope.get("client")
        return network_of(address[0]) if address and self._limit is not None else ""


class Slot:
    """The slot of one request."""

    __slots__ = ("_client", "_slots", "_taken")

    def __init__(self, slots: StreamSlots, client: str) -> None:
        self._slots, self._client = slots, client
        self._taken = False

    def take(self) -> None:
        """RateLimited if the client has all the slots it may have. Idempotent."""
        if not self._taken:
            self._slots.take(self._client)
            self._taken = True

    def release(self) -> None:
        if self._taken:
            self._slots.release(self._client)
            self._taken = False


def slot_of(request: HTTPConnection) -> Slot:
    slot: Slot = request.scope[SLOT]
    return slot


def _full(limit: int) -> RateLimited:
    error = RateLimited(f"This client is getting {limit:,} answers already, the most it may at a time.")
    error.retry_after = RETRY_SECONDS
    return error
