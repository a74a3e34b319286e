"""What every store that processes share has to show: claims, turns, keys, take-over."""

import asyncio
import time
from contextlib import suppress
from types import SimpleNamespace

import msgspec
import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.config.schema import ClusterSettings
from holodeck.core.events import RunFinished
from holodeck.core.ids import new_ulid
from holodeck.core.messages import AssistantMessage, KeptAnswer, PendingStep, ToolCall, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.errors import LostClaim, SessionBusy, SessionDeleted, ShuttingDown, StoreUnavailable
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs import runs as runs_module
from holodeck.runs import stored_runs, unstored_endings
from holodeck.runs.log import RunLog
from holodeck.runs.port import Pulse, RunExists, RunState
from holodeck.runs.remote_runs import RemoteRuns, run_of
from holodeck.runs.replica import Replica
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.runs import Runs
from holodeck.runs.shared_entry import SharedEntry
from holodeck.runs.stored_runs import StoredRuns
from holodeck.server.agent_server import AgentServer
from holodeck.server.options import ServerSettings
from holodeck.stores.session_watches import SessionWatches
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.runs.following import more
from tests.stores.processes import ENDING, opened
from tests.stores.stored_sessions import begun, on_file, run, say, texts

__all__ = ["opened"]


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


@pytest.mark.req("C08")
async def test_a_run_id_and_the_key_of_another_run_are_one_namespace(opened):
    """On a wire whose runs are found by their ids, a request could otherwise find the run of another request."""
    one, other = await opened(), await opened()
    own, named = run("a", "s1", wire="rest", key="k"), run("k", "s2", wire="rest", key="k")
    for first, second in ((own, named), (named, own)):
        await one.runs.begin(first)
        with pytest.raises(RunExists):
            await other.runs.begin(second)
        other.runs.release(second)
        assert (await other.runs.by_key("rest", "k", owner=ME)).run_id == first.run_id
        await one.runs.withdraw(first)
    await one.runs.begin(own)
    await other.runs.begin(run("k", "s2", wire="ag-ui", key="k"))  # the keys of another wire are others


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
    for late in (dead.runs.turn(waiting), dead.runs.take_up(waiting)):
        with pytest.raises(LostClaim):
            await late
    assert [(await one.runs.find(name, owner=ME)).recovered for name in ("r", "never opened")] == [0, 0]
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


@pytest.mark.req("D08", "D03b")
async def test_a_run_that_a_dead_process_left_in_the_queue_is_recovered_in_its_turn(opened):
    """The run before it belongs to a living process: it stores its answer first."""
    dead, alive = await opened(), await opened()
    running = await begun(alive, run())
    await running.commit([UserMessage(content="first", run_id="r")])
    asked = RunRequest(run_id="waits", session_id="s", messages=(UserMessage(content="second"),), detached=True)
    assert not (await dead.runs.begin(run("waits", request=asked))).is_first
    runs = runs_on(alive)
    stored = StoredRuns(runs, alive, alive.runs)
    taken_up = asyncio.get_running_loop().create_future()
    stored.on_taken_up.append(taken_up.set_result)
    for _ in range(3):
        await alive.runs.beat()
    try:
        assert await stored.take_up(await alive.runs.take_over(0)) == 1
        await running.commit([AssistantMessage(content="answer", run_id="r")], ending=ENDING)
        alive.runs.release(run())
        await asyncio.wait_for((await asyncio.wait_for(taken_up, 50)).done(), 50)
        assert await texts(alive) == ["first", "answer", "second", "hello"]
        states = [each.state for each in await alive.runs.runs_of(owner=ME)]
        assert states == [RunState.FINISHED, RunState.FINISHED]
    finally:
        running.close()
        await runs.close(0)
        await stored.close()


@pytest.mark.req("D08", "D03b")
@pytest.mark.parametrize("lost", ["while it waits", "in its turn"])
async def test_the_message_of_a_run_that_was_left_in_the_queue_outlives_a_lost_store(opened, monkeypatch, lost):
    """Only its row has the message until the run begins."""
    for module in (runs_module, stored_runs):
        monkeypatch.setattr(module, "AGAIN_SECONDS", 0)
    dead, alive = await opened(), await opened()
    asked = RunRequest(run_id="waits", session_id="s", messages=(UserMessage(content="hi"),), detached=True)
    await begun(dead, run())
    await dead.runs.begin(run("waits", request=asked))
    await dead.runs.end(run(), ENDING)
    runs = runs_on(alive)
    stored = StoredRuns(runs, alive, alive.runs)
    taken_up = asyncio.get_running_loop().create_future()
    stored.on_taken_up.append(taken_up.set_result)
    where, name = (alive.runs, "turn") if lost == "while it waits" else (alive, "read")
    works, failed = getattr(where, name), asyncio.Event()

    async def away(*args, **named):
        if not failed.is_set():
            failed.set()
            raise StoreUnavailable("The database cannot be used.")
        return await works(*args, **named)

    monkeypatch.setattr(where, name, away)
    try:
        for _ in range(3):
            await alive.runs.beat()
        await stored.take_up(await alive.runs.take_over(0))
        await asyncio.wait_for(failed.wait(), 50)
        await (await asyncio.wait_for(taken_up, 50)).done()
        found = await alive.runs.find("waits", owner=ME)
        assert (await texts(alive), found.state) == (["hi", "hello"], RunState.FINISHED)
    finally:
        await runs.close(0)
        await stored.close()


@pytest.mark.req("SRV-10")
async def test_a_run_that_was_left_in_the_queue_is_stopped_while_it_waits(opened):
    """Before its turn: the run before it may take an hour. Two were left, and the second is stopped."""
    dead, alive = await opened(), await opened()
    running = await begun(alive, run())
    for name in ("waits", "stopped"):
        await dead.runs.begin(run(name))
    runs = runs_on(alive)
    stored = StoredRuns(runs, alive, alive.runs)
    replica = Replica(runs, stored, alive.runs, 50)
    try:
        for _ in range(3):
            await alive.runs.beat()
        assert await stored.take_up(await alive.runs.take_over(0)) == 2
        assert await dead.runs.want_stop(run("stopped"))
        await replica.beat()
        async with asyncio.timeout(50):
            while (found := await dead.runs.find("stopped", owner=ME)).ending is None:
                await asyncio.sleep(0.01)
        assert found.state is RunState.CANCELLED
        shown = await stored.find("stopped", owner=ME)
        assert shown.log.ending == found.ending
        assert [each.run_id for each in await alive.runs.open_runs(owner=ME)] == ["r", "waits"]
    finally:
        running.close()
        await runs.close(0)
        await stored.close()


async def test_a_process_that_stops_leaves_what_waits_for_its_turn_to_another(opened):
    dead, alive = await opened(), await opened()
    await begun(alive, run())
    await dead.runs.begin(run("waits"))
    runs = runs_on(alive)
    stored = StoredRuns(runs, alive, alive.runs)
    for _ in range(3):
        await alive.runs.beat()
    assert await stored.take_up(await alive.runs.take_over(0)) == 1
    await asyncio.wait_for(stored.close(), 50)
    left = await alive.runs.find("waits", owner=ME)
    assert (left.state, left.ending) == (RunState.QUEUED, None)


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


async def test_a_run_that_begins_in_another_process_is_noticed(opened):
    one, other = await opened(), await opened()
    watch = other.runs.watch_session("s", owner=ME)
    await watch.wait(0.01)
    await one.runs.begin(run())
    await asyncio.wait_for(watch.wait(200), 50)
    watch.close()


@pytest.mark.req("D09")
@pytest.mark.parametrize(("seconds", "is_recent"), [(1, True), (60, False)])
async def test_how_long_ago_a_run_has_ended_is_read_from_the_clock_of_the_store(opened, seconds, is_recent):
    """A server whose own clock is an hour behind would rebuild a log that is still being copied, or wait for an old one."""
    one, other = await opened(), await opened()
    ended = time.time() + 3600
    one.runs.clock, other.runs.clock = lambda: ended, lambda: ended + seconds
    await one.runs.begin(run())
    await one.runs.end(run(), ENDING)
    found = await other.runs.find("r", owner=ME)
    assert RemoteRuns(other, other.runs, RunSettings()).may_be_copied_yet(found) is is_recent


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


def runs_on(store, *turns):
    model = ScriptedModel(turns or [says("hello")])
    agent = AgentDefinition(name="tester", model=model, tools=Catalogue.of(PlainTools()))
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
    replica.takes_over = True
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
    await asyncio.wait_for(store.runs.turn(run("later")), 50)
    found = await store.runs.find("r", owner=ME)
    assert (found.state, found.ending.code) == (RunState.INTERRUPTED, "interrupted")
    await replica.beat()
    assert [each.run_id for each in await store.runs.open_runs(owner=ME)] == ["later"]


async def test_a_process_that_takes_runs_up_still_beats():
    """A thousand runs take seconds. One that does not beat meanwhile ends its own runs, and others take it for dead."""
    taken, is_up = [], asyncio.Event()

    async def beat():
        return Pulse()

    async def take_over(seconds):
        taken.append(seconds)
        return [run()]

    async def take_up(_taken):
        await is_up.wait()

    records = SimpleNamespace(beat=beat, take_over=take_over, on_pulse=None)
    replica = Replica(
        SimpleNamespace(is_closing=False), SimpleNamespace(take_up=take_up, stop_queued=list), records, 200
    )
    await replica.beat()
    assert taken == [], "the agent has not started"
    replica.takes_over = True
    for _ in range(2):
        await asyncio.wait_for(replica.beat(), 50)
    assert taken == [200, 200]
    await asyncio.wait_for(replica.close(), 50)


async def test_a_server_beats_from_the_moment_at_which_it_joins(path, monkeypatch):
    """Tool servers may need longer to start than other processes wait for a beat."""
    store, has_beaten, done = on_file(path, "tester"), asyncio.Event(), []
    real = {name: getattr(store.runs, name) for name in ("beat", "take_over")}

    async def beat():
        has_beaten.set()
        return await real["beat"]()

    async def take_over(seconds):
        done.append("took over")
        return await real["take_over"](seconds)

    class Slow(PlainTools):
        async def start(self):
            await asyncio.wait_for(has_beaten.wait(), 50)
            done.append("started")

    monkeypatch.setattr(store.runs, "beat", beat)
    monkeypatch.setattr(store.runs, "take_over", take_over)
    agent = AgentDefinition(name="tester", model=ScriptedModel([says("hello")]), tools=Catalogue.of(Slow()))
    settings = ServerSettings(cluster=ClusterSettings.model_construct(take_over_seconds=0.2))
    server = AgentServer(agent, store, records=store.runs, settings=settings)
    try:
        await asyncio.wait_for(server.start(), 50)
        assert done[:2] == ["started", "took over"]
    finally:
        await server.close()


@pytest.mark.req("D08")
async def test_a_run_that_waits_for_its_turn_also_waits_for_the_store(opened, monkeypatch):
    """Its message is stored: the run before it ends when the store is lost, and this one is answered afterwards."""
    monkeypatch.setattr(runs_module, "AGAIN_SECONDS", 0)
    store, answers, lost = await opened(), asyncio.Event(), asyncio.Event()
    runs = runs_on(store, says("one two", pause=answers.wait), says("hello"))
    replica = Replica(runs, StoredRuns(runs, store, store.runs), store.runs, 200)
    turn = store.runs.turn

    async def away(record):
        if not lost.is_set():
            lost.set()
            raise StoreUnavailable("The database cannot be used.")
        await turn(record)

    monkeypatch.setattr(store.runs, "turn", away)
    first, second = [
        await runs.start(RunRequest(session_id="s", messages=(UserMessage(content=each),))) for each in ("a", "b")
    ]
    assert await more(first.log, 3)
    await asyncio.wait_for(lost.wait(), 50)
    replica._lost_store()
    await asyncio.wait_for(asyncio.gather(first.done(), second.done()), 50)
    assert (first.log.ending.code, second.state) == ("interrupted", RunState.FINISHED)
    assert await texts(store) == ["a", "one", "b", "hello"]


@pytest.mark.req("SRV-20", "D03")
@pytest.mark.parametrize(("others", "works"), [(1, False), (1, True), (0, False)])
async def test_a_server_that_stops_shows_no_ending_of_a_run_that_another_one_continues(
    opened, monkeypatch, others, works
):
    """A server that has not stored the ending of a run in time leaves the run, if another process is there."""
    monkeypatch.setattr(runs_module, "STOP_SECONDS", 0.01)
    for module in (runs_module, unstored_endings):
        monkeypatch.setattr(module, "CLOSE_SECONDS", 50 if works else 0.01)
    store, works_on, again = await opened(), asyncio.Event(), asyncio.Event()
    for _ in range(others):
        await (await opened()).runs.beat()
    await store.runs.beat()

    async def stubborn():
        while not works_on.is_set():
            with suppress(asyncio.CancelledError):
                await works_on.wait()

    async def away(*_):
        await again.wait()

    if not works:
        monkeypatch.setattr(store.runs, "end", away)
    runs = runs_on(store, says("one two", pause=stubborn))
    first = await runs.start(RunRequest(run_id="r", session_id="s", messages=(UserMessage(content="hi"),)))
    assert await more(first.log, 3)
    runs.attach(first)  # by a client that does not reconnect
    try:
        await asyncio.wait_for(runs.close(0), 50)
        found, ending, is_cut = await store.runs.find("r", owner=ME), first.log.ending, first.log.is_cut
    finally:
        works_on.set()
        again.set()
        await asyncio.wait({first.task}, timeout=50)
    assert is_cut == (store.runs.has_others and not works), "the workers of a file stop together"
    assert found.ending == (ending if works else None), "it is stored before it is shown"
    assert (ending is None) == is_cut


@pytest.mark.req("SRV-20", "D08")
async def test_a_server_that_stops_shows_no_ending_of_a_run_that_another_one_has_taken_over(opened, monkeypatch):
    """The store answers, and takes no ending from the process that no longer has the run."""
    monkeypatch.setattr(runs_module, "STOP_SECONDS", 0.01)
    store, other, works_on = await opened(), await opened(), asyncio.Event()
    monkeypatch.setattr(type(store.runs), "has_others", True)  # also for workers of one file

    async def stubborn():
        while not works_on.is_set():
            with suppress(asyncio.CancelledError):
                await works_on.wait()

    runs = runs_on(store, says("one two", pause=stubborn))
    first = await runs.start(RunRequest(run_id="r", session_id="s", messages=(UserMessage(content="hi"),)))
    assert await more(first.log, 3)
    runs.attach(first)
    try:
        for _ in range(3):
            await other.runs.beat()
        assert [each.run_id for each in await other.runs.take_over(0)] == ["r"]
        await asyncio.wait_for(runs.close(0), 50)
        assert (first.log.ending, first.log.is_cut) == (None, True)
        assert (await other.runs.find("r", owner=ME)).ending is None
    finally:
        works_on.set()
        await asyncio.wait({first.task}, timeout=50)


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
    replica = Replica(Runs.__new__(Runs), SimpleNamespace(stop_queued=list), records, 200)
    replica.start()
    await asyncio.sleep(0)
    records.on_pulse(Pulse(left=True))
    await asyncio.wait_for(replica.close(), 50)
