"""How many answers one client may be getting at the same time (T17), and how many there are.

A request takes its place before it starts a run or reads one, and has it until its answer has ended. Requests that are
answered at once need none: a client whose slots are all taken can still stop a run. A client is an address, whatever
the request's headers say (T31).
"""

from collections import Counter
from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from holodeck.errors import RateLimited
from holodeck.server.quota import network_of

RETRY_SECONDS = 5.0


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

    def leave(self, client: str) -> None:
        self.taken -= 1
        if self._limit is not None:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def client_of(self, scope: Scope) -> str:
        address = scope.get("client")
        return network_of(address[0]) if address and self._limit is not None else ""


class Slot:
    """One request's. Taken at most once, however often it is asked for."""

    def __init__(self, slots: StreamSlots, client: str) -> None:
        self._places, self._client = slots, client
        self._taken = False

    def take(self) -> None:
        if not self._taken:
            self._places.take(self._client)
            self._taken = True

    def leave(self) -> None:
        if self._taken:
            self._places.leave(self._client)


_here: ContextVar[Slot | None] = ContextVar("holodeck place", default=None)


def acquire_slot() -> None:
    """For the request that is being served; RateLimited if its client has all it may have. Nothing outside of requests."""
    place = _here.get()
    if place is not None:
        place.take()


class SlotMiddleware:
    """Gives each request the chance of a place, and takes it back."""

    def __init__(self, app: ASGIApp, slots: StreamSlots) -> None:
        self._app, self._places = app, slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        place = Slot(self._places, self._places.client_of(scope))
        _here.set(place)
        try:
            await self._app(scope, receive, send)
        finally:
            place.leave()


def _full(limit: int) -> RateLimited:
    error = RateLimited(f"This client is getting {limit:,} answers already, as many as it may at a time.")
    error.retry_after = RETRY_SECONDS
    return error
