"""The slot of a request: one answer of those that its address, key, user and tenant may be getting at a time (T17).

A request takes its slot before it starts a run or reads one, and keeps it until its answer has ended. Requests that are
answered at once need none: a client whose slots are all taken can still stop a run. Whose slot it is follows from the
credential; users who share an address share only `server.limits.address.streams`.
"""

from starlette.requests import HTTPConnection

from holodeck.core.owner import Owner
from holodeck.limits.leases import Lease
from holodeck.server.quota import Quotas, spender_of

SLOT = "holodeck.slot"  # the key in the scope


class StreamSlots:
    """Counts the answers in progress. `quotas` knows how many of them each may have."""

    def __init__(self, quotas: Quotas) -> None:
        self.taken = 0
        self.quotas = quotas


class Slot:
    """The slot of one request."""

    __slots__ = ("_lease", "_slots", "_taken")

    def __init__(self, slots: StreamSlots) -> None:
        self._slots = slots
        self._taken = False
        self._lease: Lease | None = None

    async def take(self, owner: Owner) -> None:
        """RateLimited if one of the limits is reached. Idempotent."""
        if not self._taken:
            self._taken = True
            self._slots.taken += 1
            self._lease = await self._slots.quotas.stream(spender_of(owner))

    def release(self) -> None:
        if self._taken:
            self._taken = False
            self._slots.taken -= 1
        if self._lease is not None:
            self._slots.quotas.release(self._lease)
            self._lease = None


def slot_of(request: HTTPConnection) -> Slot:
    slot: Slot = request.scope[SLOT]
    return slot
