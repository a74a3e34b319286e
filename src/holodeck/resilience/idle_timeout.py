"""Ends a block of work when nothing useful arrived for too long.

`asyncio.timeout` around every read would cost a timer per token. Here one timer serves the whole block: it checks the
clock when it fires and, if something arrived meanwhile, sleeps again.

A timer that fires late shows that this process stood still: a busy machine, a paused process. Then the timeout is
raised only after the data that waits in the socket has been read (D08).
"""

import asyncio
import math
from types import TracebackType
from typing import Self

LATE = 0.1  # seconds: the event loop is never this late by itself
TO_READ = 0.05  # seconds for the loop to read what arrived while it stood still


class IdleTimeout:
    """`async with IdleTimeout(60, within=600) as silence:` raises TimeoutError after 60 s without a call of `reset`.

    And after 600 s in any case: another timer for that would only cost.
    """

    def __init__(self, seconds: float, *, within: float = math.inf) -> None:
        self._seconds = seconds
        self._within = within
        self._since = 0.0
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._ends = self._time() + self._within
        self.allow(self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def reset(self) -> None:
        self._since = self._time()

    def allow(self, seconds: float) -> None:
        """Sets how many seconds of silence are allowed from now on."""
        self._seconds = seconds
        self._since = self._time()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._over(), self._look)

    def _look(self) -> None:
        late = self._time() - self._over()
        if late > LATE:
            self._timer = self._loop.call_later(TO_READ, self._decide)
        else:
            self._decide()

    def _decide(self) -> None:
        if self._time() >= self._over():
            self._timeout.reschedule(self._time())
        else:
            self._arm()

    def _over(self) -> float:
        return min(self._since + self._seconds, self._ends)
