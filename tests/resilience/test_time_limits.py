"""Being out of time and being stopped are different."""

import asyncio

import pytest

from holodeck.resilience.step_timeout import StepTimeout, ended_in_silence


async def cut(seconds, *, silent, stop=False):
    """What a task inside a limit finds when it is cancelled."""
    found = []

    async def inside():
        async with StepTimeout(seconds, lambda: silent):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                found.append(ended_in_silence())
                raise

    task = asyncio.create_task(inside())
    if stop:
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError if stop else TimeoutError):
        await task
    return found


@pytest.mark.req("A07")
async def test_silence_until_the_end_differs_from_being_stopped():
    assert await cut(0.01, silent=True) == [True]
    assert await cut(0.01, silent=False) == [False]
    assert await cut(60, silent=True, stop=True) == [False]
    assert not ended_in_silence()
