"""A task that is cancelled while it uses a store ends, although a library loses the cancellation (Python 3.11)."""

import asyncio
from contextlib import suppress

import pytest

from holodeck.core.cancellations import noticing_cancellation
from holodeck.errors import StoreUnavailable
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.valkey_link import ValkeyLink


class IgnoresCancellation:
    """Work that is done in the moment of its cancellation, and loses it."""

    def __init__(self, failure=None):
        self.failure, self.is_waiting = failure, asyncio.Event()

    async def __call__(self, *_args):
        self.is_waiting.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return []

    async def cancelled(self, work):
        """Whether a task with this work ends as cancelled."""
        task = asyncio.create_task(work)
        await asyncio.wait_for(self.is_waiting.wait(), 50)
        task.cancel()
        await asyncio.wait({task}, timeout=50)
        return task.cancelled()


@pytest.mark.parametrize("failure", [None, StoreUnavailable("locked")], ids=["done", "failed"])
async def test_a_cancellation_that_the_work_loses_is_noticed(failure):
    work = IgnoresCancellation(failure)
    assert await work.cancelled(noticing_cancellation(work()))


async def test_what_was_cancelled_before_can_still_use_the_store():
    """Such as the task of a run that is stopped, which stores its ending."""
    begun = asyncio.Event()

    async def ends():
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await noticing_cancellation(asyncio.sleep(0, "stored"))

    task = asyncio.create_task(ends())
    await begun.wait()
    task.cancel()
    assert await task == "stored"


async def test_a_time_out_around_lost_work_is_a_time_out():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await noticing_cancellation(IgnoresCancellation()())


async def test_a_cancelled_statement_ends_its_task(monkeypatch):
    database, work = PostgresDatabase("postgresql://postgres@127.0.0.1:1/none"), IgnoresCancellation()
    monkeypatch.setattr(database, "_once", work)
    assert await work.cancelled(database.rows("SELECT 1"))


async def test_a_cancelled_command_to_valkey_ends_its_task():
    link, work = ValkeyLink("redis://127.0.0.1:1", "tester", "me", replay_window=1), IgnoresCancellation()
    try:
        assert await work.cancelled(link._tried(work()))
    finally:
        await link.close()
