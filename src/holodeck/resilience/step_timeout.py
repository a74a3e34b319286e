"""A time limit whose cause of cancellation the code inside can query.

A task whose time is over is cancelled exactly as one that a user stopped. A circuit breaker has to distinguish the two: a
model that was silent for the whole step has failed, a model that was interrupted has not.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType

_limit: ContextVar[tuple[asyncio.Timeout, Callable[[], bool]] | None] = ContextVar("limit", default=None)


class StepTimeout:
    """`async with StepTimeout(30, silent)` raises TimeoutError after 30 s. `silent` returns whether the model has sent nothing."""

    __slots__ = ("_silent", "_timeout", "_token")

    def __init__(self, seconds: float, silent: Callable[[], bool]) -> None:
        self._timeout, self._silent = asyncio.timeout(seconds), silent

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._token = _limit.set((self._timeout, self._silent))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _limit.reset(self._token)
        await self._timeout.__aexit__(kind, error, trace)


def ended_in_silence() -> bool:
    """True if this cancellation is a step timeout without any model output."""
    limit = _limit.get()
    return limit is not None and limit[0].expired() and limit[1]()
