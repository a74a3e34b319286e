"""A SQLite file that the workers of one server share: changes that they notice, endings that the disk refuses, take-over."""

import asyncio

import pytest

from holodeck.core.events import RunFailed, RunFinished, TextAdded
from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.errors import InternalError, SessionBusy, SessionDeleted
from holodeck.runs.log import RunLog
from holodeck.runs.session_news import SessionNews
from holodeck.sessions.port import KEEP
from holodeck.stores.log_copier import LogPiece
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.sqlite_shared_runs import SharedSqliteRunStore, WorkersFile
from tests.stores.stored_sessions import begun, on_file, run, say, texts

ENDING = RunFinished("r", "s")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sessions.db"


@pytest.fixture
async def files(path):
    """Stores on one file: of workers, or of a server that is alone."""
    stores = []

    async def open_file(*, alone=False):
        file = SqliteFile(path, durable=False)
        runs = SqliteRunStore(file, "tester") if alone else SharedSqliteRunStore(file, "tester", new_ulid())
        store = SqliteSessionStore(file, "tester", runs=runs)
        stores.append(store)
        await store.start()
        return store

    yield open_file
    for store in stores:
        await store.close()


@pytest.mark.req("D03b")
async def test_workers_take_up_what_a_server_that_was_alone_left_and_the_other_way_round(files):
    alone = await files(alone=True)
    for name in ("r", "r2"):
        await alone.runs.begin(run(name))
    worker = await files()
    assert [each.run_id for each in await worker.runs.take_over(60)] == ["r", "r2"]
    await worker.runs.take_up(run("r2"))
    conversation = await worker.open("s", owner=ME, run_id="r", create=True)
    await conversation.commit([UserMessage(content="hi")], ending=ENDING)
    again = await files(alone=True)
    assert [each.run_id for each in await again.runs.unfinished()] == ["r2"]


async def test_one_look_serves_all_that_wait(files, monkeypatch):
    """However many readers a worker has, a change of the file costs it one statement for logs and one for sessions."""
    monkeypatch.setattr("holodeck.stores.sqlite_shared_runs.WAIT_SECONDS", 200)
    store, other, statements = await files(), await files(), []
    named = [run(f"r{number}", f"s{number}") for number in range(20)]
    for record in named:
        await other.runs.begin(record)
    watches = [store.runs.watch_session(record.session_id, owner=ME) for record in named * 2]
    readers = [asyncio.create_task(store.runs.wait_for_more(record, 0)) for record in named * 2]
    waiting = [asyncio.create_task(watch.wait(200)) for watch in watches]
    await asyncio.sleep(0)
    changes = store.runs._changes
    changes.close()
    await store.file.look(lambda connection: connection.set_trace_callback(statements.append))
    changes._seen = None
    changes._look()
    assert len([each for each in statements if "pieces" in each]) == 1
    assert len([each for each in statements if "FROM runs" in each]) == 1
    await other.runs._store_pieces([LogPiece((ME, "r3"), 0, [TextAdded("m", "a")])])
    await other.runs.end(named[7], ENDING)
    async with asyncio.timeout(50):
        await asyncio.gather(readers[3], readers[23], waiting[7], waiting[27])
    assert [task.done() for task in readers].count(True) == [task.done() for task in waiting].count(True) == 2
    for task in (*readers, *waiting):
        task.cancel()
    await asyncio.wait([*readers, *waiting])
    for watch in watches:
        watch.close()


async def test_the_cost_of_a_look_does_not_grow_with_the_sessions_that_are_watched(files):
    """It did, by each of them and by each run that they ever had: 90,000 steps of SQLite for 500 sessions of 20 runs."""
    store, costs = await files(), []
    changes = store.runs._changes
    changes.close()

    async def cost_of_a_look():
        steps = []
        await store.file.look(lambda connection: connection.set_progress_handler(lambda: steps.append(1), 1))
        changes._seen = None
        changes._look()
        await store.file.look(lambda connection: connection.set_progress_handler(None, 0))
        changes.close()
        return len(steps)

    async def play(number):
        record = run(f"r{number}", f"s{number % 40}")
        await store.runs.begin(record)
        await store.runs.end(record, ENDING)

    await play(0)
    watches = [store.runs.watch_session("s0", owner=ME)]
    costs.append(await cost_of_a_look())
    for number in range(1, 200):
        await play(number)
    watches += [store.runs.watch_session(f"s{number}", owner=ME) for number in range(40)]
    await cost_of_a_look()  # which reads the new runs
    costs.append(await cost_of_a_look())
    assert costs[0] == costs[1]
    for watch in watches:
        watch.close()


async def test_every_change_of_a_session_wakes_those_who_watch_it_and_no_other(files):
    store, other = await files(), await files()
    store.runs._changes.close()
    watches = {name: store.runs.watch_session(name, owner=ME) for name in "ab"}

    async def changed(*named):
        store.runs._changes._look()
        store.runs._changes.close()
        woken = {name for name, watch in watches.items() if watch.has_changed.is_set()}
        for watch in watches.values():
            watch.has_changed.clear()
        assert woken == set(named)

    await changed()
    await other.runs.begin(run("r1", "a"))
    await changed("a")
    await other.runs.begin(run("r2", "b"))
    await other.runs.end(run("r1", "a"), ENDING)
    await changed("a", "b")
    other.runs.release(run("r1", "a"))
    await other.runs.begin(run("r1", "a"), continues=ENDING)  # under its own id
    await changed("a")
    await other.runs.begin(run("r3", "b"))
    await other.runs.end(run("r3", "b"), ENDING)  # between two looks
    await changed("b")
    await other.delete("a", owner=ME)
    await changed("a")
    await other.runs.begin(run("r4", "c"))
    await changed()
    for watch in watches.values():
        watch.close()
    assert store.runs._changes._runs is None


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize(
    ("alone", "stored"),
    [(True, "nothing"), (True, "its record"), (True, "a message"), (False, "its record"), (False, "a message")],
)  # a worker stores a run before anything else of it
async def test_a_session_that_a_command_deletes_under_a_running_server_stays_deleted(files, alone, stored):
    server, command = await files(alone=alone), await files(alone=True)
    await say(server, "before")
    if stored == "its record":
        await server.runs.begin(run())
    server.runs.register(run())
    conversation = await server.open("s", owner=ME, run_id="r")
    if stored == "a message":
        await conversation.commit([UserMessage(content="hi")])
    await command.delete("s", owner=ME)
    for late, ending in ((UserMessage(content="late"), None), (AssistantMessage(content="too late"), ENDING)):
        with pytest.raises(SessionDeleted):
            await conversation.commit([late], ending=ending)
    await server.runs.end(run(), ENDING)
    assert await command.runs.find("r", owner=ME) is None
    assert await texts(command) is None


async def test_a_run_whose_first_commit_failed_is_stored_with_the_next(files, monkeypatch):
    store = await files(alone=True)
    store.runs.register(run())
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    with monkeypatch.context() as patched:
        patched.setattr(store, "insert", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await conversation.commit([UserMessage(content="hi")])
    await store.runs.end(run(), ENDING)
    assert (await store.runs.find("r", owner=ME)).ending == ENDING


async def test_a_run_whose_first_commit_failed_with_its_ending_is_stored_with_the_next_ending(files, monkeypatch):
    """Both in one transaction that the disk refuses: its record must not count as stored."""
    store = await files(alone=True)
    store.runs.register(run())
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    with monkeypatch.context() as patched:
        patched.setattr(store, "insert", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await conversation.commit([UserMessage(content="hi")], ending=ENDING)
    failed = RunFailed("r", "s", "storage-full", "The disk is full.")
    await conversation.end((), KEEP, state=KEEP, ending=failed)
    assert (await store.runs.find("r", owner=ME)).ending == failed


async def test_the_parent_s_word_is_enough_for_a_worker_to_be_taken_over(path):
    with WorkersFile.opened(path) as parent:
        dead, store = on_file(path, "tester"), on_file(path, "tester")
        left = asyncio.Event()
        for each in (dead, store):
            await each.start()
        store.runs.on_pulse = lambda pulse: left.set() if pulse.left else None
        await dead.runs.begin(run())
        assert await store.runs.take_over(60) == []
        async with asyncio.timeout(50):
            while not store.runs._others:
                await asyncio.sleep(0.01)
        parent.ended(dead.runs.replica)
        await asyncio.wait_for(left.wait(), 50)
        assert [each.run_id for each in await store.runs.take_over(60)] == ["r"]
        for each in (dead, store):
            await each.close()


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("seconds", [0, 200])
async def test_a_run_in_the_background_is_flushed_before_its_client_is_answered(files, monkeypatch, seconds, alone):
    """With its first commit, or by itself if that does not come in time."""
    monkeypatch.setattr("holodeck.stores.sqlite_runs.FIRST_COMMIT_SECONDS", seconds)
    store, flushed = await files(alone=alone), []
    write = store.file.write

    def noted(job, *, synced=True, changes=True, **more):
        flushed.extend([synced] if changes else [])
        return write(job, changes=changes, **more)

    monkeypatch.setattr(store.file, "write", noted)
    if alone:
        store.runs.register(run())
    else:
        await store.runs.begin(run())
    assert flushed == ([] if alone else [False])
    answering = asyncio.create_task(store.runs.stored(run()))
    if seconds:
        await asyncio.sleep(0)
        conversation = await store.open("s", owner=ME, run_id="r", create=True)
        await conversation.commit([UserMessage(content="hi")])
    await asyncio.wait_for(answering, 50)
    assert flushed[-1]
    assert flushed.count(True) == 1
    assert await store.runs.find("r", owner=ME) is not None


async def test_a_command_and_a_new_piece_are_noticed_without_a_beat(files):
    one, other = await files(), await files()
    commands = asyncio.Queue()
    one.runs.on_pulse = commands.put_nowait
    await one.runs.begin(run())
    await other.runs.want_stop(run())
    assert (await asyncio.wait_for(commands.get(), 50)).stops == [(ME, "r")]
    await other.runs.note_followed([(ME, "r")])
    assert (await asyncio.wait_for(commands.get(), 50)).followed == [(ME, "r")]
    log = RunLog()
    one.runs.follow(run(), log)
    log.append(TextAdded("m", "a"))
    async with asyncio.timeout(50):
        while not await other.runs.events(run()):
            await other.runs.wait_for_more(run(), 0)
    await other.delete("s", owner=ME)
    assert (await asyncio.wait_for(commands.get(), 50)).stops == [(ME, "r")]


async def test_a_session_that_another_worker_uses_does_not_expire_and_is_not_rewound(files):
    one, other = await files(), await files()
    conversation = await begun(one, run())
    await conversation.commit([UserMessage(content="hi", id="m")])
    other._ttl = 0
    assert await texts(other) == ["hi"]
    assert await other.cleanup_expired() == 0
    with pytest.raises(SessionBusy):
        await other.rewind("s", "m", owner=ME)
    await conversation.commit([], ending=ENDING)
    assert await other.cleanup_expired() == 1


async def test_a_reader_that_comes_back_after_a_defect_is_shown_further_runs(files, monkeypatch):
    """Also if another reader of the session has not left yet."""
    here, there = await files(), await files()
    first, again = asyncio.Queue(), asyncio.Queue()

    async def restored(record):
        return record

    news = SessionNews(here.runs, restored)
    async with asyncio.timeout(50), news.announced((ME, "s"), first.put_nowait):
        with monkeypatch.context() as patched:
            patched.setattr(here.runs, "runs_of", lambda **_: 1 / 0)
            await there.runs.begin(run("a"))
            assert isinstance(await first.get(), InternalError)
        async with news.announced((ME, "s"), again.put_nowait):
            await there.runs.begin(run("b"))
            assert (await again.get()).run_id == "b"
    assert first.empty()
    assert not here.runs._changes.sessions, "nothing is watched any more"
