"""A client that waits for a whole answer, while the server stops and the run does not."""

import asyncio
from contextlib import suppress

import pytest

from holodeck.errors import ShuttingDown
from holodeck.models.scripted import says
from holodeck.runs import runs as runs_module
from holodeck.server.sync_answer import ending_of
from tests.runs.following import more
from tests.runs.test_runs import ask, make_runs


@pytest.mark.req("SRV-20")
@pytest.mark.parametrize("is_left", [False, True])
async def test_it_is_answered_although_the_task_of_its_run_does_not_end(monkeypatch, is_left):
    monkeypatch.setattr(runs_module, "STOP_SECONDS", 0.01)
    store_works, is_waiting, leaves = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn():
        while not store_works.is_set():
            with suppress(asyncio.CancelledError):
                await store_works.wait()

    async def receive():
        is_waiting.set()
        await leaves.wait()

    runs = make_runs(says("one two", pause=stubborn))
    run = await runs.start(ask())
    assert await more(run.log, 3)
    waiting = asyncio.create_task(ending_of(runs, run, receive))
    await is_waiting.wait()
    try:
        if is_left:  # as if the ending is not stored and another process is there
            run.log.cut()
            await runs._end_stuck([run])
            with pytest.raises(ShuttingDown):
                await asyncio.wait_for(waiting, 50)
        else:
            await runs.close(0)
            assert (await asyncio.wait_for(waiting, 50)).code == "shutting-down"
        assert not run.task.done()
    finally:
        store_works.set()
        await asyncio.wait({run.task}, timeout=50)
