"""Moving windows: how much of something was used in the last minute or day.

Uses are summed in buckets of one grain, so a window's size does not depend on how much is used. A window never admits
more than its limit; it may refuse for one grain too long.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

MINUTE, DAY = 60.0, 86_400.0
_GRAINS = {MINUTE: 1.0, DAY: 900.0}
MAX_WINDOWS = 100_000  # in memory; above it, windows without uses are dropped
MOST_WINDOWS = 1_000_000  # all in use: above it, requests of new subjects are refused


class StoreDown(Exception):
    """The store is unreachable, and the agent's file requires that requests are then refused."""


class Window(msgspec.Struct, frozen=True):
    """A limit for one subject. `name` is the limit's, such as `user-requests`; `subject` is hashable text."""

    name: str
    subject: str
    limit: int
    seconds: float

    @property
    def grain(self) -> float:
        return _GRAINS[self.seconds]


class Use(msgspec.Struct, frozen=True):
    """An amount to take from a window.

    With `partly`, less is taken if less is left, but not nothing: for reservations whose true size is known later.
    """

    window: Window
    amount: int
    partly: bool = False


class Full(msgspec.Struct, frozen=True):
    """A window without room, and the seconds until it has some."""

    window: Window
    wait: float


class Level(msgspec.Struct, frozen=True):
    """How much of a window is left, and the seconds until it is entirely free again."""

    window: Window
    left: int
    reset: float


class Taken(msgspec.Struct, frozen=True):
    """How much was taken from each window, and how much is left in it."""

    amounts: list[int]
    levels: list[Level]


class WindowStore(Protocol):
    """Counts uses.

    Both methods handle all windows of a request together: a refused request costs nothing in any of them.
    """

    async def take(self, uses: Sequence[Use]) -> Taken | Full:
        """Counts every use and returns the amounts. Counts none if any window has no room for its use."""

    def settle(self, uses: Sequence[Use]) -> None:
        """Counts without asking for room: usage beyond a reservation. A negative amount gives back."""

    async def levels(self, windows: Sequence[Window]) -> list[Level]: ...

    async def close(self) -> None: ...


class Buckets:
    __slots__ = ("_buckets", "_grain", "_length", "used")

    def __init__(self, window: Window) -> None:
        self._grain = window.grain
        self._length = math.ceil(window.seconds / window.grain)
        self._buckets: dict[int, int] = {}  # oldest first
        self.used = 0

    def forget(self, now: float) -> None:
        """Drops buckets older than the window. The bucket at the window's edge still counts."""
        oldest = math.floor(now / self._grain) - self._length
        while self._buckets:
            first = next(iter(self._buckets))
            if first >= oldest:
                break
            self.used -= self._buckets.pop(first)

    def add(self, now: float, amount: int) -> None:
        bucket = math.floor(now / self._grain)
        if amount < 0:
            self._give_back(-amount)
        else:
            self._buckets[bucket] = self._buckets.get(bucket, 0) + amount
            self.used += amount

    def wait(self, now: float, wanted: int, limit: int) -> float:
        """Seconds until `wanted` fits. The whole window if it never does."""
        over = self.used + wanted - limit
        if over <= 0:
            return 0.0
        for bucket, amount in self._buckets.items():
            over -= amount
            if over <= 0:
                return max(0.0, (bucket + self._length + 1) * self._grain - now)
        return self._length * self._grain

    def reset(self, now: float) -> float:
        last = next(reversed(self._buckets), None)
        return 0.0 if last is None else max(0.0, (last + self._length + 1) * self._grain - now)

    def _give_back(self, amount: int) -> None:
        """Subtracts from the newest buckets: the reservation was counted there."""
        for bucket in reversed(list(self._buckets)):
            part = min(amount, self._buckets[bucket])
            self._buckets[bucket] -= part
            self.used -= part
            amount -= part
            if not self._buckets[bucket]:
                del self._buckets[bucket]
            if not amount:
                return


class MemoryWindows:
    """Windows of this process, on the monotonic clock: a change of the wall clock has no effect."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[tuple[str, str], Buckets] = {}
        self._sweep_at = MAX_WINDOWS

    async def take(self, uses: Sequence[Use]) -> Taken | Full:
        now = self._clock()
        if len(self._windows) >= MOST_WINDOWS:
            self._drop_unused(now)
        fresh = next((use for use in uses if (use.window.name, use.window.subject) not in self._windows), None)
        if fresh is not None and len(self._windows) >= MOST_WINDOWS:
            return Full(fresh.window, fresh.window.seconds)
        found = [(use, self._of(use.window, now)) for use in uses]
        for use, buckets in found:
            wanted = min(1, use.amount) if use.partly else use.amount
            if buckets.used + wanted > use.window.limit:
                return Full(use.window, buckets.wait(now, wanted, use.window.limit))
        taken = []
        for use, buckets in found:
            taken.append(min(use.amount, use.window.limit - buckets.used) if use.partly else use.amount)
            buckets.add(now, taken[-1])
        return Taken(taken, [_level(use.window, buckets, now) for use, buckets in found])

    def settle(self, uses: Sequence[Use]) -> None:
        now = self._clock()
        for use in uses:
            self._of(use.window, now).add(now, use.amount)

    def give_back(self, uses: Sequence[Use]) -> list[Use]:
        """Subtracts what is given back, but no more than is counted here. Returns the rest of the uses."""
        now, left = self._clock(), list[Use]()
        for use in uses:
            buckets = self._windows.get((use.window.name, use.window.subject))
            amount = use.amount
            if amount < 0 and buckets is not None:
                buckets.forget(now)
                part = min(-amount, buckets.used)
                buckets.add(now, -part)
                amount += part
            if amount:
                left.append(Use(use.window, amount, use.partly))
        return left

    async def levels(self, windows: Sequence[Window]) -> list[Level]:
        now = self._clock()
        found = [(window, self._of(window, now)) for window in windows]
        return [_level(window, buckets, now) for window, buckets in found]

    async def close(self) -> None:
        pass

    def _of(self, window: Window, now: float) -> Buckets:
        key = window.name, window.subject
        buckets = self._windows.get(key)
        if buckets is None:
            buckets = Buckets(window)
            if len(self._windows) >= self._sweep_at:
                self._drop_unused(now)
            self._windows[key] = buckets
        buckets.forget(now)
        return buckets

    def _drop_unused(self, now: float) -> None:
        """Drops windows without uses. A user's usage is not forgotten because of other names (F5)."""
        for key, buckets in list(self._windows.items()):
            buckets.forget(now)
            if not buckets.used:
                del self._windows[key]
        self._sweep_at = max(MAX_WINDOWS, 2 * len(self._windows))


def _level(window: Window, buckets: Buckets, now: float) -> Level:
    return Level(window, max(0, window.limit - buckets.used), buckets.reset(now))
