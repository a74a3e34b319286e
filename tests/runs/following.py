"""Waiting for a run's events, for tests that have no stream to do it for them."""

import asyncio

from holodeck.runs.log import RunLog


async def more(log: RunLog, number: int) -> bool:
    """Waits until there is an event `number`; False if there will never be one."""
    while number >= len(log):
        if log.ended:
            return False
        came = asyncio.Event()
        log.call_at_next(came.set)
        try:
            await came.wait()
        finally:
            log.do_not_call(came.set)
    return True
