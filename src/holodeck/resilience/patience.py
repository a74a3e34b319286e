"""A time limit that those inside it can ask about.

A task whose time is over is cancelled exactly as one that somebody stopped. A guard has to tell the two apart: a model
that let the whole step pass in silence is broken, a model that was interrupted is not.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

_limit: ContextVar[tuple[asyncio.Timeout, Callable[[], bool]] | None] = ContextVar("limit", default=None)


@asynccontextmanager
async def patience(seconds: float, silent: Callable[[], bool]) -> AsyncIterator[None]:
    """Raises TimeoutError after `seconds`. `silent` says whether nothing has been heard until then."""
    async with asyncio.timeout(seconds) as timeout:
        token = _limit.set((timeout, silent))
        try:
            yield
        finally:
            _limit.reset(token)


def ended_in_silence() -> bool:
    """For whoever is being cancelled: whether it is because nothing was heard all the time."""
    limit = _limit.get()
    return limit is not None and limit[0].expired() and limit[1]()
