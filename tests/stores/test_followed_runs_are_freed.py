"""A run of another process that was read here is gone when it was read, as this process's own runs are (D11).

The collector runs rarely in a server: what waits for it is memory that grows with the runs of all servers.
"""

import asyncio
import gc
import weakref
from contextlib import suppress
from functools import partial

import pytest
import uvloop

from holodeck.agent.run_ending import RunEnding
from holodeck.core.events import RunFinished, RunStarted, TextAdded
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.errors import SessionBusy, SessionDeleted, StoreUnavailable
from holodeck.runs import remote_runs
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunExists, RunState
from holodeck.runs.recovery import PART_STRIDE
from holodeck.runs.remote_runs import RemoteRuns, run_of
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.session_news import SessionNews
from holodeck.runs.shared_entry import SharedEntry
from holodeck.stores.log_copier import LogCopier
from tests.server.serving import until
from tests.stores.stored_sessions import on_file, run

ENDING = RunFinished("r", "s")


@pytest.fixture
async def stores(tmp_path):
    """Two processes that share a file."""
    opened = [on_file(tmp_path / "sessions.db", "tester") for _ in range(2)]
    for store in opened:
        await store.start()
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def followed(stores, parts):
    """Reads a run of the first process at the second, to its end. Each part but the last is cut by a crash."""
    one, other = stores
    await one.runs.begin(run())
    remote = RemoteRuns(other, other.runs, RunSettings())
    read = await remote.open(run())
    for part in range(parts):
        log = RunLog()
        one.runs.follow(run(), log, part * PART_STRIDE)
        for event in (RunStarted("r", "s"), TextAdded("m", str(part)), *([ENDING] if part == parts - 1 else [])):
            log.append(event)
        async with asyncio.timeout(50):
            while (last := remote._followed.get((ME, "r"))) is not None and last.next_number <= part * PART_STRIDE:
                await asyncio.sleep(0.01)
    await asyncio.wait_for(read.done(), 50)
    assert remote._followed == {}
    return read


@pytest.fixture
def separation(monkeypatch):
    """The timer that separates the parts of a run has an effect as soon as this is set."""
    allowed, separate = asyncio.Event(), RemoteRuns._separate

    def when_allowed(self, run):
        separate(self, run) if allowed.is_set() else self._separate_later(run)

    monkeypatch.setattr(remote_runs, "SEPARATE_SECONDS", 0.01)
    monkeypatch.setattr(RemoteRuns, "_separate", when_allowed)
    return allowed


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("parts", [1, 2], ids=["to its end", "after a crash"])
async def test_a_run_that_was_followed_is_gone_without_the_collector(stores, parts, separation):
    read = await followed(stores, parts)
    refs = [weakref.ref(read), *([] if read.later is None else [weakref.ref(read.later)])]
    assert len(refs) == parts
    del read
    separation.set()
    await until(lambda: not any(ref() for ref in refs), 50, "the run to be gone")


async def test_a_reader_that_is_slow_finds_the_later_parts_of_a_run_that_has_ended(stores, separation):
    read = await followed(stores, 2)
    read.readers += 1
    separation.set()
    remote = RemoteRuns(stores[1], stores[1].runs, RunSettings())
    remote._separate(read.later)
    assert read.later is not None
    read.readers -= 1
    await until(lambda: read.later is None, 50, "the parts to be separate")


@pytest.mark.usefixtures("no_collector")
def test_a_run_that_never_ends_is_gone_without_the_collector():
    dropped = run_of(run(), RunLog())
    dropped.emit(RunStarted("r", "s"))
    gone = weakref.ref(dropped)
    del dropped
    assert gone() is None


def test_a_run_notes_its_ending():
    ended = run_of(run(), RunLog())
    ended.emit(ENDING)
    assert (ended.state, ended.finished_at is None) == (RunState.FINISHED, False)


async def test_a_store_that_fails_when_a_part_begins_leaves_no_run_behind(stores, monkeypatch):
    """The next part of a taken-over run begins with a snapshot, whose messages are read from the store."""
    one, other = stores
    remote, failed = RemoteRuns(other, other.runs, RunSettings()), []
    read_history = remote._history

    async def fails_once(record):
        if not failed:
            failed.append(True)
            raise StoreUnavailable("locked")
        return await read_history(record)

    monkeypatch.setattr(remote_runs, "STATE_SECONDS", 0.01)
    await one.runs.begin(run())
    read = await remote.open(run())
    monkeypatch.setattr(remote, "_history", fails_once)
    log = RunLog()
    log.append(remote_runs.MessagesReplaced(()))
    log.append(ENDING)
    one.runs.follow(run(), log, PART_STRIDE)
    await asyncio.wait_for(read.done(), 50)
    assert (remote._followed, failed, read.later.log.ending) == ({}, [True], ENDING)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("end", ["it ends", "it is cut"])
async def test_nothing_is_kept_of_a_log_that_was_copied(end):
    async def write(_pieces):
        return ()

    copier, log = LogCopier(write), RunLog()
    copier.seconds = copier.news_seconds = copier.hurried_seconds = 0.0
    copier.follow((ME, "r"), log)
    copier.hurry((ME, "r"))
    assert len(copier._copies) == 1
    log.append(TextAdded("m", "1"))
    (log.cut if end == "it is cut" else partial(log.append, ENDING))()
    await until(lambda: not copier._copies, 50, "the copy to be gone")
    copier.hurry((ME, "r"))  # a command that comes late
    assert not copier._copies
    await copier.close()


@pytest.mark.usefixtures("no_collector")
async def test_a_request_that_another_one_has_started_is_gone_without_the_collector(stores, monkeypatch):
    store, _ = stores

    async def begin(_record, **_more):
        raise RunExists("started by another request")

    monkeypatch.setattr(store.runs, "begin", begin)

    async def refused():
        duplicate = run_of(run(), RunLog())
        with suppress(RunExists):
            await SharedEntry(store.runs, lambda _session_id, _ahead: None).begin(duplicate, run())
        assert duplicate.log.is_cut
        return weakref.ref(duplicate)

    gone = await refused()
    assert gone() is None


@pytest.mark.usefixtures("no_collector")
async def test_the_feed_of_a_session_is_gone_without_the_collector_after_its_last_reader(stores):
    store, _ = stores
    news = SessionNews(store.runs, None)
    async with news.announced((ME, "s"), lambda _run: None):
        feed = weakref.ref(news._feeds[ME, "s"])
        async with asyncio.timeout(50):
            while feed()._announcing is None:
                await asyncio.sleep(0)
    await until(lambda: feed() is None, 50, "the feed to be gone")


@pytest.mark.usefixtures("no_collector")
async def test_a_write_that_failed_is_gone_without_the_collector():
    """The traceback of its error leads to all that the run has."""

    async def failed():
        writes = [asyncio.get_running_loop().create_future()]
        writes[0].set_exception(SessionDeleted())
        write = weakref.ref(writes[0])
        with suppress(SessionDeleted):
            await RunEnding(None, None, None).durable(writes.pop())
        return write

    gone = await failed()
    assert gone() is None


def test_a_run_may_end_while_a_copy_of_a_run_that_is_read_elsewhere_is_due_at_once():
    """On the server's event loop. An error here would leave the ended run among those in progress, for ever."""

    async def write(_pieces):
        return ()

    async def play():
        copier, log = LogCopier(write), RunLog()
        copier.follow((ME, "r"), log)
        copier.hurry((ME, "r"))
        log.append(TextAdded("m", "1"))
        copier.has_ended()
        log.append(ENDING)
        await copier.close()

    uvloop.run(play())


@pytest.mark.usefixtures("no_collector")
async def test_nothing_is_kept_of_the_log_of_a_run_that_is_refused(stores):
    store, _ = stores

    def refuse(_session_id, _ahead):
        raise SessionBusy("busy")

    refused = run_of(run(), RunLog())
    store.runs.register(run())
    store.runs.follow(run(), refused.log)
    with pytest.raises(SessionBusy):
        await SharedEntry(store.runs, refuse).begin(refused, run())
    await until(lambda: not store.runs._copier._copies, 50, "the copy to be gone")
