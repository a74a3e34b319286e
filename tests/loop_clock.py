"""The clock of the running event loop, which a test sets forward: a limit passes when the test wants it to pass.

A test that waits for a short limit in real time fails on a loaded machine, where the limit passes before the work begins.
Works on Python's own event loop only.
"""

import asyncio

import pytest

LIMIT = 600.0
"""Seconds: a limit that no test reaches unless it sets the clock forward."""


class LoopClock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._time, self.ahead = loop.time, 0.0
        monkeypatch.setattr(loop, "time", lambda: self._time() + self.ahead)

    def advance(self, seconds: float) -> None:
        self.ahead += seconds

    async def stuck(self) -> None:
        """Never returns; the limit of who waits for it passes at once."""
        self.advance(LIMIT)
        await asyncio.Event().wait()


class SteppedClock:
    """Stands still unless a test sets it forward: what happens at which time does not depend on the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)

    async def advance(self, seconds: float, step: float = 0.25) -> None:
        """Passes the time in steps. In each, the loop does all that is due."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            for _ in range(20):
                await asyncio.sleep(0)
