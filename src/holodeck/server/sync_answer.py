"""Waiting for a run's end on behalf of a client that wants nothing before it."""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from holodeck.core.events import Ending, RunFailed, RunFinished
from holodeck.runs.runs import Run, Runs


async def ending_of(runs: Runs, run: Run, receive: Receive) -> Ending:
    """Counts as a reader while it waits: a client that leaves gives the run its grace, then nobody needs it."""
    with runs.attached(run):
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({leaving, run.task or leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
    last = run.log.since(max(0, len(run.log) - 1))
    if not last or not isinstance(last[0], RunFinished | RunFailed):
        raise ClientDisconnect
    return last[0]


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
