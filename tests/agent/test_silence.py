"""A step that ran out of time and one that was stopped are different."""

import asyncio

import pytest

from holodeck.agent.emitter import RunEmitter


async def cut(seconds, *, speaks=False, stop=False):
    """What a model's call finds when it is cancelled."""
    found = []
    emitter = RunEmitter([].append, run_id="r", session_id="s")

    async def step():
        async with asyncio.timeout(seconds) as emitter.limit:
            emitter.step_started(1)
            if speaks:
                emitter.text("Hello")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                found.append(emitter.timed_out_without_output())
                raise

    task = asyncio.create_task(step())
    if stop:
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError if stop else TimeoutError):
        await task
    return found


@pytest.mark.req("A07")
async def test_silence_until_the_end_differs_from_being_stopped():
    assert await cut(0.01) == [True]
    assert await cut(0.01, speaks=True) == [False]
    assert await cut(60, stop=True) == [False]
