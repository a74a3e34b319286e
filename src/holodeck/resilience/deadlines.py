"""Ends a block of work when nothing useful was heard for too long.

`asyncio.timeout` around every read would cost a timer per token. Here one timer serves the whole block: it looks at
the clock when it fires and, if something was heard meanwhile, goes back to sleep.
"""

import asyncio
from types import TracebackType
from typing import Self


class SilenceLimit:
    """`async with SilenceLimit(60) as silence:` raises TimeoutError after 60 s without a call of `heard`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since = 0.0
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._time = asyncio.get_running_loop().time
        self.allow(self._seconds)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def heard(self) -> None:
        self._since = self._time()

    def allow(self, seconds: float) -> None:
        """From now on, so much silence is allowed."""
        self._seconds = seconds
        self._since = self._time()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._since + self._seconds, self._look)

    def _look(self) -> None:
        if self._time() >= self._since + self._seconds:
            self._timeout.reschedule(self._time())
        else:
            self._arm()
