"""What every store that processes share has to show: claims, turns, keys, take-over."""

import asyncio
import time

import msgspec
import pytest

from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, KeptAnswer, PendingStep, ToolCall, ToolMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.errors import LostClaim, SessionDeleted
from holodeck.runs.port import RunExists
from holodeck.runs.remote_runs import RemoteRuns
from holodeck.runs.run_settings import RunSettings
from tests.stores.processes import ENDING, opened
from tests.stores.stored_sessions import begun, run, say, texts

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


@pytest.mark.req("DUR-02")
async def test_a_run_that_was_opened_before_a_terminal_made_calls_does_not_remove_their_trace(opened):
    """The run has no new message (`POST /runs/{id}/continue`), so its first write comes when the model has answered."""
    server, terminal = await opened(), await opened()
    call = ToolCall(id="c1", name="pay", arguments="{}")
    step = PendingStep(assistant=AssistantMessage(tool_calls=(call,)), begun=("c1",), run_id="r0")
    typing = await terminal.open("s", owner=ME, create=True)
    await typing.commit([UserMessage(content="pay")])
    late = await server.open("s", owner=ME)
    await typing.begin_calls(step)
    with pytest.raises(LostClaim):
        await late.commit([AssistantMessage(content="nothing was paid")], None)
    assert (await server.read("s", owner=ME)).pending == step
    await typing.commit([step.assistant, ToolMessage(call_id="c1", name="pay", content="paid")])
    assert (await server.read("s", owner=ME)).pending is None


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


@pytest.mark.req("D03b", "D08", "C09b")
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


@pytest.mark.req("D08")
async def test_runs_of_equal_requests_are_found_without_reading_the_others(opened):
    """A client that repeats a request would otherwise have the server decode whatever its owner's runs were asked."""
    store = await opened()
    for name, session, fingerprint in (("a", "s1", b"one"), ("b", "s2", b"two"), ("c", "s3", b"one")):
        record = msgspec.structs.replace(run(name), session_id=session, fingerprint=fingerprint)
        await store.runs.begin(record)
    assert [each.run_id for each in await store.runs.equal_runs(b"one", owner=ME, seconds=9)] == ["a", "c"]
    assert await store.runs.equal_runs(b"three", owner=ME, seconds=9) == []
    assert [each.run_id for each in await store.runs.open_runs(owner=ME, session_id="s3")] == ["c"]
