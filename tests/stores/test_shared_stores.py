"""What every store that processes share has to show: claims, turns, keys, take-over."""

import asyncio
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core.events import RunFailed, RunFinished, RunStarted, TextAdded
from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, KeptAnswer, PendingStep, ToolCall, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.errors import LostClaim, SessionBusy, SessionDeleted, ShuttingDown, StoreUnavailable
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs.log import RunLog
from holodeck.runs.port import Pulse, RunExists, RunState
from holodeck.runs.recovery import PART_STRIDE
from holodeck.runs.remote_runs import RemoteRuns, run_of
from holodeck.runs.replica import Replica
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.runs import Runs
from holodeck.runs.shared_entry import SharedEntry
from holodeck.runs.stored_runs import StoredRuns
from holodeck.stores.log_copier import LogCopier, LogPiece
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_sessions import PostgresSessionStore
from holodeck.stores.session_watches import SessionWatches
from tests.agent.parts import PlainTools
from tests.stores.stored_sessions import begun, on_file, run, say, texts

ENDING = RunFinished("r", "s")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sessions.db"


def on_database(url, agent):
    database = PostgresDatabase(url)
    return PostgresSessionStore(database, agent, runs=PostgresRunStore(database, agent))


@pytest.fixture(params=["a file", "a database"])
async def opened(request, path):
    """Opens stores on one file or database, as processes would."""
    stores = []
    is_file = request.param == "a file"
    place = path if is_file else request.getfixturevalue("postgres_database")

    async def open_store(agent="tester"):
        store = (on_file if is_file else on_database)(place, agent)
        stores.append(store)
        await store.start()
        return store

    yield open_store
    for store in stores:
        await store.close()


# several processes


@pytest.mark.req("SRV-15")
async def test_what_one_process_stores_every_other_reads(opened):
    one, other = await opened(), await opened()
    await say(one, "hello")
    assert await texts(other) == ["hello"]
    assert await texts(await opened("another agent")) is None


@pytest.mark.req("D08")
async def test_a_run_whose_session_another_process_has_taken_over_stores_nothing_more(opened):
    one, other = await opened(), await opened()
    late = await one.open("s", owner=ME, create=True)
    await late.commit([UserMessage(content="first")])
    taker = await other.open("s", owner=ME)
    await taker.commit([UserMessage(content="second")])
    for write in (lambda: late.commit([AssistantMessage(content="too late")]), lambda: late.commit([])):
        with pytest.raises(LostClaim):
            await write()
    await taker.commit([AssistantMessage(content="third")])
    silent = await one.open("s", owner=ME)
    await silent.commit([], state={"taken": True})
    with pytest.raises(LostClaim):
        await taker.commit([AssistantMessage(content="late")])
    assert await texts(one) == ["first", "second", "third"]


async def test_of_two_that_open_at_the_same_time_the_first_to_write_wins(opened):
    one, other = await opened(), await opened()
    await say(one, "zero")
    first, second = await one.open("s", owner=ME), await other.open("s", owner=ME)
    await second.commit([UserMessage(content="second")])
    with pytest.raises(LostClaim):
        await first.commit([UserMessage(content="first")])
    assert await texts(one) == ["zero", "second"]


async def test_of_two_that_begin_a_session_the_first_to_write_wins(opened):
    one, other = await opened(), await opened()
    first, second = [await each.open("s", owner=ME, create=True) for each in (one, other)]
    await second.commit([UserMessage(content="second")])
    with pytest.raises(LostClaim):
        await first.commit([UserMessage(content="first")])
    assert await texts(one) == ["second"]


@pytest.mark.req("D08")
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "known"])
async def test_a_run_does_not_take_the_commit_of_a_writer_without_a_run_for_its_own(opened, is_new):
    """The terminal stores a message between the run's first read and its first commit: both commits add one step."""
    one, other = await opened(), await opened()
    if not is_new:
        await say(one, "zero")
    late = await begun(one, run())
    await say(other, "from the terminal")
    with pytest.raises(LostClaim):
        await late.commit([UserMessage(content="from the run")])
    assert await texts(one) == (["from the terminal"] if is_new else ["zero", "from the terminal"])


@pytest.mark.req("D08")
async def test_calls_are_not_made_if_another_process_changed_the_pending_step(opened):
    """Without its own stored step, a run would make calls that a second approval makes again."""
    one, other = await opened(), await opened()
    call = ToolCall(id="c1", name="pay", arguments="{}")
    waiting = PendingStep(assistant=AssistantMessage(tool_calls=(call,)), approvals={"i1": "c1"}, run_id="r0")
    first = await one.open("s", owner=ME, create=True)
    await first.commit([UserMessage(content="pay")], waiting)
    first.close()
    late = await begun(one, run())
    keeper = await other.open("s", owner=ME, last=1)
    await keeper.commit([], msgspec.structs.replace(waiting, answers={"i1": KeptAnswer(approved=True)}))
    with pytest.raises(LostClaim):
        await late.begin_calls(PendingStep(assistant=waiting.assistant, begun=("c1",), run_id="r"))
    assert (await other.read("s", owner=ME)).pending.begun == ()


@pytest.mark.req("C09b")
async def test_runs_of_one_session_take_turns_over_all_processes(opened):
    stores = [await opened(), await opened(), await opened()]
    active, order, most = set(), [], []

    async def play(number):
        store, record = stores[number % 3], run(f"r{number}")
        begun = await store.runs.begin(record)
        if not begun.is_first:
            await store.runs.turn(record)
        active.add(number)
        order.append(number)
        most.append(len(active))
        conversation = await store.open("s", owner=ME, run_id=record.run_id, create=True)
        await conversation.commit([UserMessage(content=str(number))])
        active.discard(number)
        await conversation.commit([AssistantMessage(content=str(number))], ending=RunFinished(record.run_id, "s"))
        store.runs.release(record)

    await asyncio.wait_for(asyncio.gather(*(play(number) for number in range(12))), 50)
    assert max(most) == 1
    found = await texts(stores[0])
    assert found == [str(number) for number in order for _ in range(2)], "no step of one run among those of another"


async def test_the_run_that_came_first_is_the_first_to_go(opened):
    one, other = await opened(), await opened()
    first, second, third = run("r1"), run("r2"), run("r3")
    assert (await one.runs.begin(first)).is_first
    assert not (await one.runs.begin(second)).is_first
    assert (await other.runs.begin(third)).ahead == {"r1", "r2"}
    await one.runs.end(first, RunFinished("r1", "s"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(other.runs.turn(third), 0.3)
    await asyncio.wait_for(one.runs.turn(second), 50)
    await one.runs.end(second, RunFinished("r2", "s"))
    await asyncio.wait_for(other.runs.turn(third), 50)


@pytest.mark.req("C08")
async def test_one_idempotency_key_is_one_run_over_all_processes(opened):
    stores = [await opened() for _ in range(4)]
    records = [run(f"r{n}", f"s{n}", wire="rest", key="k", fingerprint=b"f") for n in range(4)]
    begins = (store.runs.begin(each) for store, each in zip(stores, records, strict=True))
    results = await asyncio.gather(*begins, return_exceptions=True)
    assert sorted(isinstance(each, RunExists) for each in results) == [False, True, True, True]
    found = {(await store.runs.by_key("rest", "k", owner=ME)).run_id for store in stores}
    assert found == {records[[isinstance(each, RunExists) for each in results].index(False)].run_id}
    with pytest.raises(RunExists):
        await stores[3].runs.begin(run(next(iter(found)), "elsewhere"))


@pytest.mark.req("C08")
async def test_a_run_that_has_ended_is_begun_again_only_by_what_continues_it(opened):
    """Another process may have begun and ended it after this one looked for it: the model was asked."""
    one, other = await opened(), await opened()
    record = run(wire="ag-ui", key="r", fingerprint=b"f")
    await one.runs.begin(record)
    await one.runs.end(record, ENDING)
    one.runs.release(record)
    for late in (record, run(wire="terminal", key="r"), run("another", wire="ag-ui", key="r")):
        with pytest.raises(RunExists):
            await other.runs.begin(late)
        other.runs.release(late)
        assert (await one.runs.find("r", owner=ME)).ending == ENDING
    assert (await other.runs.begin(record, continues=ENDING)).is_first
    found = await one.runs.find("r", owner=ME)
    assert (found.ending, found.replica) == (None, other.runs.replica)
    with pytest.raises(RunExists):
        await one.runs.begin(record, continues=ENDING)
    done = RunFinished("r", "s", finish_reason="length")
    await other.runs.end(record, done)
    other.runs.release(record)
    with pytest.raises(RunExists):  # it has seen the ending before the last
        await one.runs.begin(record, continues=ENDING)
    assert (await one.runs.find("r", owner=ME)).ending == done


async def test_a_run_that_is_refused_leaves_its_key_free(opened):
    store = await opened()
    await store.runs.begin(run(wire="rest", key="k"))
    await store.runs.withdraw(run(wire="rest", key="k"))
    await store.runs.begin(run("again", wire="rest", key="k"))


# processes that end


@pytest.mark.req("D03b", "D08")
async def test_a_dead_process_is_taken_over_once_and_may_write_nothing_more(opened):
    dead, one, other = [await opened() for _ in range(3)]
    conversation = await begun(dead, run())
    await conversation.commit([UserMessage(content="hi")])
    waiting = run("never opened", "new")
    await dead.runs.begin(waiting)
    for store in (one, other) * 2:
        await store.runs.beat()
        assert await store.runs.take_over(0) == [], "it may be alive"
    await asyncio.gather(one.runs.beat(), other.runs.beat())
    found = await asyncio.gather(one.runs.take_over(0), other.runs.take_over(0))
    assert sorted(each.run_id for taken in found for each in taken) == ["never opened", "r"], "by one of them"
    assert not (await dead.runs.beat()).is_alive
    for late in (conversation, await dead.open("new", owner=ME, run_id="never opened", create=True)):
        with pytest.raises(LostClaim):
            await late.commit([UserMessage(content="late")], ending=ENDING)
    await dead.runs.end(run(), ENDING)
    with pytest.raises(LostClaim):
        await dead.runs.turn(waiting)
    assert (await one.runs.find("r", owner=ME)).ending is None
    assert await texts(one) == ["hi"]
    assert await texts(one, "new") is None


@pytest.mark.req("D08")
async def test_the_death_of_a_process_whose_run_only_waits_does_not_stop_the_run_before_it(opened):
    dead, alive = await opened(), await opened()
    running = await begun(alive, run())
    await running.commit([UserMessage(content="first")])
    assert not (await dead.runs.begin(run("waits"))).is_first
    for _ in range(3):
        await alive.runs.beat()
    assert [each.run_id for each in await alive.runs.take_over(0)] == ["waits"]
    await running.commit([AssistantMessage(content="second")], ending=ENDING)
    assert await texts(alive) == ["first", "second"]


async def test_a_process_whose_counter_moves_is_alive(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    for _ in range(5):
        await one.runs.beat()
        await other.runs.beat()
        assert await other.runs.take_over(0) == [], "its counter has changed since the last look"
    for _ in range(3):
        await other.runs.beat()
    await one.runs.beat()
    assert await other.runs.take_over(0) == [], "it has shown that it is alive after the last look"


async def test_the_runs_of_a_process_that_left_are_taken_at_once(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    await one.close()
    assert [each.run_id for each in await other.runs.take_over(60)] == ["r"]


async def test_commands_reach_the_process_that_has_the_run(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    await one.runs.begin(run("second"))
    assert await other.runs.want_stop(run())
    await other.runs.note_followed([(ME, "second")])
    pulse = await one.runs.beat()
    assert (pulse.stops, pulse.followed, pulse.awaited) == ([(ME, "r")], [(ME, "second")], [(ME, "r")])
    assert (await one.runs.beat()).followed == []
    await one.runs.end(run(), ENDING)
    assert not await other.runs.want_stop(run())


@pytest.mark.req("SRV-11")
async def test_deleting_a_session_elsewhere_ends_its_run(opened):
    one, other = await opened(), await opened()
    conversation = await begun(one, run(request=RunRequest(state="a secret")))
    await conversation.commit([UserMessage(content="hi")])
    await other.delete("s", owner=ME)
    assert [(await one.runs.beat()).gone for _ in range(2)] == [[], [(ME, "r")]]
    with pytest.raises(SessionDeleted):
        await conversation.commit([AssistantMessage(content="late")])
    await one.runs.end(run(), ENDING)
    assert await other.runs.find("r", owner=ME) is None
    assert await texts(other) is None, "a run that goes on does not bring it back"


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


async def test_a_defect_in_the_reading_of_a_copy_ends_its_readers(opened, monkeypatch):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    read = await RemoteRuns(other, other.runs, RunSettings()).open(run())

    async def fails(*_args):
        raise ZeroDivisionError

    monkeypatch.setattr(other.runs, "events", fails)
    await asyncio.wait_for(read.done(), 50)
    assert (type(read.log.ending), read.log.ending.code) == (RunFailed, "internal-error")


async def test_an_event_that_cannot_be_written_takes_nothing_from_the_copies_of_other_runs():
    written, logs = [], [RunLog(), RunLog()]

    async def write(pieces):
        if any(piece.run == (ME, "a") for piece in pieces):
            raise TypeError("a value of a foreign class")
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
    assert copier._timer.when() - asyncio.get_running_loop().time() > 1000, "it has just been copied"
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


async def test_a_run_that_begins_in_another_process_is_noticed(opened):
    one, other = await opened(), await opened()
    watch = other.runs.watch_session("s", owner=ME)
    await watch.wait(0.01)
    await one.runs.begin(run())
    await asyncio.wait_for(watch.wait(200), 50)
    watch.close()


# runs that do not start, and endings that are not stored


def begin_slowly(store, monkeypatch):
    """Events: a run is stored; its begin may return."""
    stored, released, begin = asyncio.Event(), asyncio.Event(), store.runs.begin

    async def slow(record, **more):
        found = await begin(record, **more)
        stored.set()
        await released.wait()
        return found

    monkeypatch.setattr(store.runs, "begin", slow)
    return stored, released


def runs_on(store):
    agent = AgentDefinition(name="tester", model=ScriptedModel([says("hello")]), tools=PlainTools())
    return Runs(agent, store, records=store.runs)


@pytest.mark.req("D08")
async def test_a_request_that_is_cancelled_while_its_run_is_stored_leaves_no_run(opened, monkeypatch):
    store = await opened()
    runs = runs_on(store)
    asked = RunRequest(session_id="s", messages=(UserMessage(content="hi"),))
    with monkeypatch.context() as patched:
        stored, released = begin_slowly(store, patched)
        request = asyncio.create_task(runs.start(asked))
        await asyncio.wait_for(stored.wait(), 50)
        request.cancel()
        released.set()
        await asyncio.wait({request}, timeout=50)
    assert request.cancelled()
    assert await store.runs.open_runs(owner=ME) == []
    after = await runs.start(msgspec.structs.replace(asked, run_id=new_ulid()))
    await asyncio.wait_for(after.done(), 50)
    assert after.state is RunState.FINISHED, "it does not wait for the run that never started"


@pytest.mark.req("D08")
async def test_a_run_that_is_being_stored_when_the_server_stops_does_not_start(opened, monkeypatch):
    """It would go on behind the back of the server, which has ended all runs that it knew."""
    store = await opened()
    runs = runs_on(store)
    stored, released = begin_slowly(store, monkeypatch)
    request = asyncio.create_task(runs.start(RunRequest(session_id="s", messages=(UserMessage(content="hi"),))))
    await asyncio.wait_for(stored.wait(), 50)
    await runs.close(0)
    released.set()
    with pytest.raises(ShuttingDown):
        await asyncio.wait_for(request, 50)
    assert await store.runs.open_runs(owner=ME) == []


@pytest.mark.req("D08")
async def test_a_second_request_under_the_id_of_a_run_that_is_being_stored_takes_nothing_from_it(opened, monkeypatch):
    """Two answers under one run id in one moment: the refusal of one must not drop what is noted of the other."""
    store = await opened()
    runs = runs_on(store)
    asked = RunRequest(run_id="r", session_id="s", messages=(UserMessage(content="hi"),))
    stored, released = begin_slowly(store, monkeypatch)
    request = asyncio.create_task(runs.start(asked))
    await asyncio.wait_for(stored.wait(), 50)
    with pytest.raises(RunExists):
        await asyncio.wait_for(runs.start(asked), 50)
    released.set()
    first = await asyncio.wait_for(request, 50)
    await asyncio.wait_for(first.done(), 50)
    assert (await store.runs.find("r", owner=ME)).ending == first.log.ending
    assert await texts(store) == ["hi", "hello"]


async def test_a_refused_continuation_of_a_run_leaves_the_run_as_it_was(opened):
    store = await opened()
    earlier = run_of(run(), RunLog())
    earlier.emit(ENDING)
    await store.runs.begin(run())
    await store.runs.end(run(), ENDING)
    store.runs.release(run())

    def refuse(_session_id, _ahead):
        raise SessionBusy("busy")

    with pytest.raises(SessionBusy):
        await SharedEntry(store.runs, refuse).begin(run_of(run(), RunLog(), earlier=earlier), run())
    assert (await store.runs.find("r", owner=ME)).ending == ENDING


@pytest.mark.req("D08")
async def test_runs_of_equal_requests_are_found_without_reading_the_others(opened):
    """A client that repeats a request would otherwise have the server decode whatever its owner's runs were asked."""
    store = await opened()
    for name, session, fingerprint in (("a", "s1", b"one"), ("b", "s2", b"two"), ("c", "s3", b"one")):
        record = msgspec.structs.replace(run(name), session_id=session, fingerprint=fingerprint)
        await store.runs.begin(record)
    assert [each.run_id for each in await store.runs.open_runs(owner=ME, fingerprint=b"one")] == ["a", "c"]
    assert [each.run_id for each in await store.runs.open_runs(owner=ME, session_id="s3", fingerprint=b"one")] == ["c"]
    assert await store.runs.open_runs(owner=ME, fingerprint=b"three") == []


@pytest.mark.req("D08")
async def test_a_run_whose_ending_could_not_be_stored_is_ended_later(opened):
    """Else all further runs of its session would wait for it until the process ends."""
    store = await opened()
    runs = runs_on(store)
    replica = Replica(runs, StoredRuns(runs, store, store.runs), store.runs, 200)
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="hi")])
    conversation.close()
    await replica.beat()
    await replica.beat()
    assert [each.run_id for each in await store.runs.open_runs(owner=ME)] == ["r"], "it goes on"
    store.runs.release(run())
    await replica.beat()
    await store.runs.begin(run("later"))
    await replica.beat()
    found = await store.runs.find("r", owner=ME)
    assert (found.state, found.ending.code) == (RunState.INTERRUPTED, "interrupted")
    await asyncio.wait_for(store.runs.turn(run("later")), 50)
    await replica.beat()
    assert [each.run_id for each in await store.runs.open_runs(owner=ME)] == ["later"]


# waits that are cancelled


async def test_a_wait_that_is_cancelled_in_the_moment_in_which_it_ends_is_cancelled():
    watches = SessionWatches()
    watch = watches.open((ME, "s"))
    waiting = asyncio.create_task(watch.wait(50))
    await asyncio.sleep(0)
    watches.changed((ME, "s"))
    waiting.cancel()
    await asyncio.wait({waiting}, timeout=50)
    assert waiting.cancelled(), "a run that waits for its turn can be stopped"


async def test_a_process_that_stops_while_another_leaves_stops():
    async def beat():
        return Pulse()

    async def take_over(_seconds):
        return []

    records = SimpleNamespace(beat=beat, take_over=take_over, on_pulse=None)
    replica = Replica(Runs.__new__(Runs), None, records, 200)
    replica.start()
    await asyncio.sleep(0)
    records.on_pulse(Pulse(left=True))
    await asyncio.wait_for(replica.close(), 50)
