"""A time limit that those inside it can ask about.

A task whose time is over is cancelled exactly as one that somebody stopped. A guard has to tell the two apart: a model
that let the whole step pass in silence is broken, a model that was interrupted is not.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType

_limit: ContextVar[tuple[asyncio.Timeout, Callable[[], bool]] | None] = ContextVar("limit", default=None)


class StepTimeout:
    """`async with StepTimeout(30, silent)` raises TimeoutError after 30 s. `silent` says whether nothing was heard."""

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
    """For whoever is being cancelled: whether it is because nothing was heard all the time."""
    limit = _limit.get()
    return limit is not None and limit[0].expired() and limit[1]()
