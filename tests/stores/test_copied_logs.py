"""The copies of logs that other processes read: when they are written, how they are read, and what ends them."""

import asyncio
from functools import partial

import pytest

from holodeck.core.events import RunFailed, RunStarted, TextAdded
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.errors import StoreRefused, StoreUnavailable
from holodeck.runs.log import RunLog
from holodeck.runs.recovery import PART_STRIDE
from holodeck.runs.remote_runs import RemoteRuns
from holodeck.runs.run_settings import RunSettings
from holodeck.stores import log_copier
from holodeck.stores.log_copier import LogCopier, LogPiece
from tests.stores.processes import ENDING, opened
from tests.stores.stored_sessions import run

__all__ = ["opened"]


async def test_the_copy_of_a_log_is_read_by_others_and_ends_with_the_claim(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    log, late = RunLog(), RunLog()
    one.runs.follow(run(), log)
    for text in ("a", "b"):
        log.append(TextAdded("m", text))
    async with asyncio.timeout(50):
        while not (pieces := await other.runs.events(run())):
            await asyncio.sleep(0.02)
    assert pieces == [(0, [TextAdded("m", "a"), TextAdded("m", "b")])]
    assert await other.runs.events(run(), 2) == []
    for _ in range(3):
        await other.runs.beat()
    assert len(await other.runs.take_over(0)) == 1
    other.runs.follow(run(), late, PART_STRIDE)
    for each in (log, late):
        each.append(TextAdded("m", "c"))
        each.append(ENDING)
    await asyncio.gather(one.close(), other.close())
    assert [first for first, _ in await (await opened()).runs.events(run())] == [0, PART_STRIDE], (
        "a late piece is refused"
    )


async def test_a_store_that_is_away_for_a_moment_does_not_end_the_reading_of_a_copy(opened, monkeypatch):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    log, wait, failed = RunLog(), other.runs.wait_for_more, []

    async def fails_once(*args):
        if not failed:
            failed.append(True)
            raise StoreUnavailable("locked")
        await wait(*args)

    monkeypatch.setattr(other.runs, "wait_for_more", fails_once)
    monkeypatch.setattr("holodeck.runs.remote_runs.STATE_SECONDS", 0.01)
    read = await RemoteRuns(other, other.runs, RunSettings()).open(run())
    one.runs.follow(run(), log)
    for event in (TextAdded("m", "a"), ENDING):
        log.append(event)
    await asyncio.wait_for(read.done(), 50)
    assert (list(read.log.kept), failed) == ([TextAdded("m", "a"), ENDING], [True])


async def test_a_run_that_continues_under_its_own_id_is_read_to_its_last_ending(opened):
    """Its copy has the ending with which it waited for a person, in the middle."""
    one, other = await opened(), await opened()
    waited, continues = RunLog(), RunLog()
    await one.runs.begin(run())
    one.runs.follow(run(), waited)
    for event in (RunStarted("r", "s"), ENDING):
        waited.append(event)
    await one.runs.end(run(), ENDING)
    one.runs.release(run())
    await one.runs.begin(run(), continues=ENDING)
    one.runs.follow(run(), continues, 2)
    continues.append(RunStarted("r", "s"))
    async with asyncio.timeout(50):
        while [first for first, _ in await other.runs.events(run())] != [0, 2]:
            await asyncio.sleep(0.01)
    read = await RemoteRuns(other, other.runs, RunSettings()).open(run())
    assert (read.first_number, read.log.ended) == (2, False)
    for event in (TextAdded("m", "a"), ENDING):
        continues.append(event)
    await asyncio.wait_for(read.done(), 50)
    shown = [list(part.log.kept) for part in read.parts]
    assert shown == [[RunStarted("r", "s"), ENDING], [RunStarted("r", "s"), TextAdded("m", "a"), ENDING]]


async def test_a_run_that_was_not_stored_and_begins_again_under_its_id_has_only_its_new_log(opened):
    """Its client sends it again at once, before the copy of the first attempt is written."""
    one, other = await opened(), await opened()
    refused, stored, another = RunLog(), RunLog(), RunLog()
    for name in ("r", "another"):
        await one.runs.begin(run(name, session=name))
    one.runs.follow(run(), refused)
    for event in (RunStarted("r", "s"), RunFailed("r", "s", "store-unavailable", "not stored")):
        refused.append(event)
    await one.runs.remove("r", owner=ME)
    one.runs.release(run())
    await one.runs.begin(run())
    one.runs.follow(run(), stored)
    one.runs.follow(run("another"), another)
    for log in (stored, another):
        log.append(TextAdded("m", "a"))
    async with asyncio.timeout(50):
        while not (await other.runs.events(run()) and await other.runs.events(run("another"))):
            await asyncio.sleep(0.02)
    stored.append(ENDING)
    await one.runs._copier.close()
    assert [event for _, events in await other.runs.events(run()) for event in events] == [TextAdded("m", "a"), ENDING]


async def test_a_reader_that_waits_for_the_end_is_noted_also_after_another_process_has_continued_the_run(
    opened, monkeypatch
):
    """It reads the first part, as an answer in one piece does: the process that continues the run must not take it for unread."""
    one, other = await opened(), await opened()
    monkeypatch.setattr("holodeck.runs.remote_runs.NOTE_SECONDS", 0.0)
    await one.runs.begin(run())
    read = await RemoteRuns(other, other.runs, RunSettings()).open(run())
    read.attach()
    continues, note, noted = RunLog(), other.runs.note_followed, asyncio.Event()

    async def note_and_set(runs):
        await note(runs)
        if read.later is not None:
            noted.set()

    monkeypatch.setattr(other.runs, "note_followed", note_and_set)
    one.runs.follow(run(), continues, PART_STRIDE)
    continues.append(RunStarted("r", "s"))
    await asyncio.wait_for(noted.wait(), 50)
    continues.append(ENDING)
    await asyncio.wait_for(read.done(), 50)


async def test_a_defect_in_the_reading_of_a_copy_ends_its_readers(opened, monkeypatch):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    read = await RemoteRuns(other, other.runs, RunSettings()).open(run())

    async def fails(*_args):
        raise ZeroDivisionError

    monkeypatch.setattr(other.runs, "events", fails)
    await asyncio.wait_for(read.done(), 50)
    assert (type(read.log.ending), read.log.ending.code) == (RunFailed, "internal-error")


@pytest.mark.parametrize("error", [TypeError("a value of a foreign class"), StoreRefused("a damaged page")])
async def test_an_event_that_cannot_be_written_takes_nothing_from_the_copies_of_other_runs(error):
    written, logs = [], [RunLog(), RunLog()]

    async def write(pieces):
        if any(piece.run == (ME, "a") for piece in pieces):
            raise error
        written.extend((piece.run, piece.first, len(piece.events)) for piece in pieces)
        return ()

    copier = LogCopier(write)
    copier.seconds = 0.0
    for name, log in zip("ab", logs, strict=True):
        copier.follow((ME, name), log)
        log.append(TextAdded("m", "1"))
    async with asyncio.timeout(50):
        while not written:
            await asyncio.sleep(0.001)
        logs[1].append(TextAdded("m", "2"))
        while len(written) == 1:
            await asyncio.sleep(0.001)
    assert written == [((ME, "b"), 0, 1), ((ME, "b"), 1, 1)], "without a gap"
    await copier.close()


async def test_a_store_that_is_away_for_hours_does_not_collect_the_logs_of_all_runs_that_end(monkeypatch):
    monkeypatch.setattr(log_copier, "MAX_ENDED", 2)
    monkeypatch.setattr(log_copier, "RETRY_SECONDS", 0.0)
    attempts, works = [], asyncio.Event()

    async def write(pieces):
        attempts.append([piece.run[1] for piece in pieces])
        if not works.is_set():
            raise StoreUnavailable("locked")
        return ()

    copier = LogCopier(write)
    copier.seconds = 0.0
    logs = {name: RunLog() for name in ("goes on", "1", "2", "3", "4")}
    for name, log in logs.items():
        copier.follow((ME, name), log)
        log.append(TextAdded("m", "1"))
        if name != "goes on":
            log.append(ENDING)
    async with asyncio.timeout(50):
        while len(attempts) < 2:
            await asyncio.sleep(0)
    works.set()
    await copier.close()
    assert attempts[0] == [*logs]
    assert attempts[-1] == ["goes on", "3", "4"]


@pytest.mark.parametrize("why", ["it ends", "it is read elsewhere"])
async def test_a_log_is_copied_before_its_time_when_its_run_begins_and_when(why):
    written, copied, log = [], asyncio.Event(), RunLog()

    async def write(pieces):
        written.extend(event for piece in pieces for event in piece.events)
        copied.set()
        return ()

    async def is_copied(*events):
        await asyncio.wait_for(copied.wait(), 50)
        copied.clear()
        assert written == list(events)

    copier = LogCopier(write)
    copier.seconds, copier.news_seconds = 3600.0, 0.0
    copier.follow((ME, "r"), log)
    events = [TextAdded("m", "1"), TextAdded("m", "2"), ENDING if why == "it ends" else TextAdded("m", "3")]
    log.append(events[0])
    await is_copied(events[0])
    for event in events[1:]:
        log.append(event)
    (copier.has_ended if why == "it ends" else partial(copier.hurry, (ME, "r")))()
    await is_copied(*events)
    await copier.close()


async def test_of_a_run_that_is_read_elsewhere_a_first_event_is_copied_at_once_and_a_stream_in_batches():
    written, copied, log = [], asyncio.Event(), RunLog()

    async def write(pieces):
        written.append([event for piece in pieces for event in piece.events])
        copied.set()
        return ()

    copier = LogCopier(write)
    copier.seconds = copier.news_seconds = 3600.0
    copier.follow((ME, "r"), log)
    copier.hurry((ME, "r"))
    events = [TextAdded("m", str(number)) for number in range(5)]
    log.append(events[0])
    await asyncio.wait_for(copied.wait(), 50)
    while copier._is_writing:
        await asyncio.sleep(0)
    copier.hurried_seconds = 1800.0
    for event in events[1:]:
        log.append(event)
    assert copier._due_at - asyncio.get_running_loop().time() > 1000, "it has just been copied"
    await copier.close()
    assert written == [events[:1], events[1:]]


@pytest.mark.parametrize("fate", ["stored", "not stored", "not now", "a defect"])
async def test_what_cannot_be_written_at_once_is_written_the_other_way(fate):
    written, waiting, log = [], asyncio.Queue(), RunLog()

    def at_once(pieces, done):
        if fate == "a defect":
            raise TypeError("a value of a foreign class")
        waiting.put_nowait((pieces, done))
        return fate != "not now"

    async def write(pieces):
        written.extend(pieces)
        return ()

    copier = LogCopier(write, at_once)
    copier.seconds = copier.news_seconds = 0.0
    copier.follow((ME, "r"), log)
    log.append(TextAdded("m", "1"))
    if fate in ("stored", "not stored"):
        pieces, done = await asyncio.wait_for(waiting.get(), 50)
        log.append(TextAdded("m", "2"))
        closing = asyncio.create_task(copier.close())
        await asyncio.sleep(0)
        assert not closing.done(), "it waits for the answer"
        done(fate == "stored")
        await asyncio.wait_for(closing, 50)
        assert [len(piece.events) for piece in (*pieces, *written)] == ([1, 1] if fate == "stored" else [1, 1, 1])
    else:
        async with asyncio.timeout(50):
            while not written:
                await asyncio.sleep(0)
        await copier.close()
    assert [piece.first for piece in written] == {"stored": [1], "not stored": [0, 1]}.get(fate, [0])


async def test_a_piece_that_was_written_again_and_is_longer_now_is_read_on(opened):
    store = await opened()
    await store.runs.begin(run())
    events = [TextAdded("m", str(number)) for number in range(6)]
    await store.runs._store_pieces([LogPiece((ME, "r"), 0, events[:2])])
    assert await store.runs.events(run()) == [(0, events[:2])]
    await store.runs._store_pieces([LogPiece((ME, "r"), 0, events[:5])])
    await store.runs._store_pieces([LogPiece((ME, "r"), 2, events[2:])])
    assert await store.runs.events(run(), 2) == [(2, events[2:])]
    assert await store.runs.events(run(), 1) == [(1, events[1:5]), (5, events[5:])]
    assert await store.runs.events(run(), 6) == []
    await store.runs._store_pieces([LogPiece((ME, "r"), 9, events[:1]), LogPiece((ME, "r"), PART_STRIDE, events[:1])])
    assert await store.runs.events(run(), 6) == [(PART_STRIDE, events[:1])], "nothing behind a gap, but the next part"
