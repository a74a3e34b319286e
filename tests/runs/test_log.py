"""The run log: any number of readers from anywhere, none of them felt by the writer."""

import asyncio

import pytest

from holodeck.core.events import RunFinished, StepStarted, TextAdded
from holodeck.runs.log import ReplayGone, RunLog
from tests.runs.following import more

END = RunFinished("r", "s")


def word(number):
    return TextAdded("m", str(number))


async def read_all(log, start=0):
    seen = []
    while await more(log, start + len(seen)):
        seen.extend(log.since(start + len(seen)))
    return seen


async def test_readers_from_any_offset_see_the_same_events():
    log = RunLog()
    readers = [asyncio.create_task(read_all(log, start)) for start in range(5)]
    written = [word(number) for number in range(20)]
    for event in written:
        log.append(event)
        await asyncio.sleep(0)
    log.append(END)
    events = [*written, END]
    assert [await reader for reader in readers] == [events[start:] for start in range(5)]
    assert await read_all(log, 3) == events[3:], "a reader that comes after the end is served too"


async def test_a_burst_wakes_a_reader_once():
    log = RunLog()
    batches = []

    async def read():
        number = 0
        while await more(log, number):
            batches.append(new := log.since(number))
            number += len(new)

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    for number in range(100):
        log.append(word(number))
    log.append(END)
    await reader
    assert [len(batch) for batch in batches] == [101]


async def test_a_reader_that_leaves_leaves_nothing_behind():
    log = RunLog()
    reader = asyncio.create_task(more(log, 0))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait({reader})
    assert log._waiting == []


async def test_the_log_is_bounded_and_says_what_it_does_not_have():
    log = RunLog(limit=100)
    for number in range(1000):
        log.append(word(number))
    assert len(log) == 1000
    assert len(log._events) <= 100
    assert log.since(999)[0].delta == "999"
    with pytest.raises(ReplayGone, match="from number 9"):
        log.since(0)


async def test_nothing_more_comes_after_the_end():
    log = RunLog()
    log.append(END)
    assert await more(log, 0) is True
    assert await more(log, 1) is False


def test_an_event_behind_the_ending_is_no_second_ending():
    """A tool that swallows its cancellation may still show something after its run was ended in its place."""
    log, endings = RunLog(), []
    log.on_ending = endings.append
    log.append(END)
    log.append(StepStarted(1))
    assert endings == [END]


def test_a_log_that_was_cut_takes_no_more_events():
    log = RunLog()
    log.append(word(1))
    log.cut()
    log.append(END)
    assert (list(log.kept), log.ended, log.has_ending) == ([word(1)], True, False)
