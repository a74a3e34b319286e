"""The log of one run: written by the run, read by any number of readers, each from where it likes.

Writing is a plain call that never waits: a slow reader finds more events per wake-up, a dead one costs nothing. The log
is bounded; what falls out at the front cannot be replayed. It does not know what the events say, only which is the last.
"""

import asyncio
from collections.abc import Sequence

from holodeck.core.events import ENDINGS, Event
from holodeck.errors import RequestError

MAX_EVENTS = 100_000


class ReplayGone(RequestError):
    code, status, title = "replay-gone", 410, "These events are not kept any more"


class RunLog:
    """Events of one run, numbered from 0. The last one is the run's ending."""

    __slots__ = ("_dropped", "_events", "_limit", "_waiters", "ended")

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self.ended = False
        self._events: list[Event] = []
        self._dropped = 0
        self._limit = limit
        self._waiters: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        """How many events were written, those that fell out included."""
        return self._dropped + len(self._events)

    @property
    def kept(self) -> Sequence[Event]:
        """All events that did not fall out yet."""
        return self.since(self._dropped)

    def append(self, event: Event) -> None:
        """The run's `emit`."""
        self._events.append(event)
        if type(event) in ENDINGS:
            self.ended = True
        if len(self._events) > self._limit:
            self._shorten()
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def since(self, number: int, limit: int | None = None) -> Sequence[Event]:
        """The events from `number` on that are there now, at most `limit` of them."""
        if number < self._dropped:
            raise ReplayGone(f"Only events from {self._dropped} on are kept.")
        start = number - self._dropped
        return self._events[start : None if limit is None else start + limit]

    async def more(self, number: int) -> bool:
        """Waits until there is an event `number`; False if there will never be one."""
        while number >= len(self):
            if self.ended:
                return False
            waiter = self.waiter()
            try:
                await waiter
            finally:
                if waiter in self._waiters:  # cancelled before the wake-up came
                    self._waiters.remove(waiter)
        return True

    def waiter(self) -> asyncio.Future[None]:
        """Done with the next event. For readers that also wait for other things: they may set it themselves."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def _shorten(self) -> None:
        half = self._limit // 2  # in halves, so that the cost per event stays constant
        del self._events[:half]
        self._dropped += half
