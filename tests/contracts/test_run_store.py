"""What every run store promises, beside a session store. A new one joins by one more line in `session_stores`."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core.events import Outcome, RunFinished
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall, ToolMessage, UserMessage, now
from holodeck.core.request import RunRequest
from holodeck.core.usage import TokenUsage
from holodeck.errors import SessionDeleted
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs import stored_runs
from holodeck.runs.kept_answers import withdraw
from holodeck.runs.log import RunLog
from holodeck.runs.memory_runs import MemoryRunStore
from holodeck.runs.port import RunExists, RunKey, RunRecord, RunState, SharedRunStore
from holodeck.runs.remote_runs import run_of
from holodeck.runs.runs import Runs
from holodeck.runs.stored_runs import StoredRuns
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.contracts.session_stores import ADA, EVE, RUN_STORES, SAME_NAME_ELSEWHERE, Clock

USAGE = TokenUsage(prompt_tokens=3, completion_tokens=4)


@pytest.fixture(params=RUN_STORES)
async def stores(request, tmp_path):
    place = request.getfixturevalue("postgres_database") if request.param.startswith("postgres") else tmp_path
    async with RUN_STORES[request.param](place, Clock()) as opened:
        yield opened


async def a_run(stores, run_id, *, owner=ADA, session="s", ending=None, **fields):
    """One run as `Runs` stores it: noted, committed with its messages, ended, released."""
    store, runs = stores
    record = RunRecord(
        run_id=run_id, owner=owner, session_id=session, request=RunRequest(run_id=run_id, wire="rest"), **fields
    )
    log = RunLog()
    runs.register(record)
    runs.follow(record, log)
    conversation = await store.open(session, owner=owner, run_id=run_id, create=True)
    await conversation.commit([UserMessage(content="hi", run_id=run_id)])
    ending = ending or RunFinished(run_id, session, usage=USAGE)
    await conversation.commit([AssistantMessage(content="ho", run_id=run_id)], ending=ending)
    conversation.close()
    log.append(ending)
    runs.release(record)
    return record


async def ids(runs, **wanted):
    return [each.run_id for each in await runs.runs_of(**{"owner": ADA, **wanted})]


async def test_a_run_that_ended_is_found_with_its_session_its_wire_its_times_and_its_usage(stores):
    await a_run(stores, "r", wire="rest")
    found = await stores[1].find("r", owner=ADA)
    assert (found.run_id, found.owner, found.session_id, found.wire) == ("r", ADA, "s", "rest")
    assert found.state is RunState.FINISHED
    assert found.ending.usage == USAGE
    assert found.finished_at is not None
    assert found.created_at.tzinfo is not None


async def test_another_owner_finds_nothing(stores):
    await a_run(stores, "r")
    for owner in (EVE, SAME_NAME_ELSEWHERE):
        assert await stores[1].find("r", owner=owner) is None
        assert await ids(stores[1], owner=owner) == []
        assert not await stores[1].remove("r", owner=owner)
    assert await stores[1].find("r", owner=ADA) is not None


async def test_the_same_id_of_two_owners_is_two_runs(stores):
    await a_run(stores, "r", session="of ada")
    await a_run(stores, "r", owner=EVE, session="of eve")
    found = [(await stores[1].find("r", owner=owner)).session_id for owner in (ADA, EVE)]
    assert found == ["of ada", "of eve"]


@pytest.mark.req("C08")
async def test_a_run_does_not_get_the_row_of_a_run_of_another_wire_that_has_its_id(stores):
    """A client of AG-UI chooses the id. Its key finds only runs of AG-UI."""
    before = await a_run(stores, "r", wire="rest")
    found = await stores[1].find("r", owner=ADA)
    if isinstance(stores[1], SharedRunStore):  # a statement that is repeated has the time of the first one
        stores[1].clock.now += 60
    model = ScriptedModel([says("a secret")])
    agent = AgentDefinition(name="tester", model=model, tools=Catalogue.of(PlainTools()))
    runs = Runs(agent, stores[0], records=stores[1])
    message = UserMessage(content="another question", id="u")
    request = RunRequest(run_id="r", session_id="another", owner=ADA, messages=(message,), wire="ag-ui")
    with suppress(RunExists):  # or the first thing that the run stores is refused
        run = await runs.start(request, key=RunKey("ag-ui", ADA, "r"), fingerprint=b"f")
        await run.done()
        assert run.log.ending.code == RunExists.code
    await runs.close(0)
    assert await stores[1].find("r", owner=ADA) == found
    assert found.session_id == before.session_id
    assert await stores[0].read("another", owner=ADA) is None


async def test_a_run_of_which_nothing_was_stored_leaves_no_record(stores):
    record = RunRecord(run_id="r", owner=ADA, session_id="s")
    stores[1].register(record)
    stores[1].release(record)
    assert await stores[1].find("r", owner=ADA) is None
    assert await ids(stores[1]) == []


async def test_a_run_that_waits_for_its_turn_is_there_before_it_ends(stores):
    record = RunRecord(run_id="r", owner=ADA, session_id="s")
    await stores[1].begin(record)
    found = await stores[1].find("r", owner=ADA)
    assert (found.ending, found.finished_at) == (None, None)
    await stores[1].end(record, RunFinished("r", "s", outcome=Outcome.CANCELLED))
    assert (await stores[1].find("r", owner=ADA)).state is RunState.CANCELLED


async def test_the_wait_of_a_run_that_was_released_can_be_cancelled(stores):
    record = await a_run(stores, "r", ending=RunFinished("r", "s", outcome=Outcome.INTERRUPTED), wire="rest", key="k")
    await stores[1].end(record, RunFinished("r", "s", outcome=Outcome.CANCELLED))
    found = await stores[1].find("r", owner=ADA)
    assert (found.state, found.ending.outcome) == (RunState.CANCELLED, Outcome.CANCELLED)
    assert await ids(stores[1]) == ["r"]


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize("is_late", [True, False])
async def test_a_stop_says_how_the_run_ended_also_if_it_comes_while_the_ending_is_stored(stores, is_late):
    store, records = stores
    paused, storing, may_be_stored = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def opened(run):
        conversation = await open_conversation(run)
        end = conversation.end

        async def held(stored):
            storing.set()
            await may_be_stored.wait()
            if stored is not None:
                await stored

        conversation.end = lambda *step, **more: asyncio.ensure_future(held(end(*step, **more)))
        return conversation

    def pause():
        paused.set()
        return asyncio.get_running_loop().create_future()

    model = ScriptedModel([says("hello") if is_late else says("hello", pause=pause)])
    agent = AgentDefinition(name="tester", model=model, tools=Catalogue.of(PlainTools()))
    runs = Runs(agent, store, records=records)
    open_conversation, runs.executor.open = runs.executor.open, opened
    run = await runs.start(RunRequest(run_id="r", session_id="s", owner=ADA, messages=(UserMessage(content="hi"),)))
    await (storing if is_late else paused).wait()
    stopping = asyncio.create_task(StoredRuns(runs, store, records).stop([run]))
    async with asyncio.timeout(30):
        while not run.is_being_stopped:
            await asyncio.sleep(0)
    may_be_stored.set()
    (result,) = await stopping
    assert (result.was_active, result.by_this) == (True, not is_late)
    assert result.state is (RunState.FINISHED if is_late else RunState.CANCELLED)
    assert (await records.find("r", owner=ADA)).state is result.state
    assert run.log.ending is not None
    (again,) = await StoredRuns(runs, store, records).stop([run])
    assert (again.by_this, again.state) == (False, result.state)
    await runs.close(0)


@pytest.mark.req("SRV-11")
async def test_a_stop_does_not_wait_for_ever_for_a_run_that_does_not_end(stores, monkeypatch):
    store, records = stores
    monkeypatch.setattr(stored_runs, "STOP_SECONDS", 0.01)
    begun, over = asyncio.Event(), asyncio.Event()

    class Stubborn(ScriptedModel):
        async def reply(self, prompt, listener):
            begun.set()
            while not over.is_set():
                with suppress(asyncio.CancelledError):
                    await over.wait()
            return await super().reply(prompt, listener)

    runs = Runs(
        AgentDefinition(name="tester", model=Stubborn([says("hello")]), tools=Catalogue.of(PlainTools())),
        store,
        records=records,
    )
    run = await runs.start(RunRequest(run_id="r", session_id="s", owner=ADA, messages=(UserMessage(content="hi"),)))
    await begun.wait()
    (result,) = await StoredRuns(runs, store, records).stop([run])
    assert (result.was_active, result.by_this, result.has_ended) == (True, False, False)
    over.set()
    await run.done()
    await runs.close(0)


class Crash(Exception):
    """The process ends here."""


@pytest.mark.req("D08")
@pytest.mark.parametrize("stores", [name for name in RUN_STORES if name != "memory"], indirect=True)
async def test_a_crash_after_a_wait_was_withdrawn_leaves_no_run_that_waits(stores, monkeypatch):
    """The results of its calls and its ending are one transaction."""
    store, records = stores
    waiting = RunFinished("r", "s", outcome=Outcome.INTERRUPTED)
    record = await a_run(stores, "r", ending=waiting, wire="a2a", root="first")
    asks = AssistantMessage(tool_calls=(ToolCall(id="c", name="pay", arguments="{}"),), run_id="r")
    conversation = await store.open("s", owner=ADA)
    await conversation.commit([], PendingStep(assistant=asks, approvals={"i": "c"}, run_id="r"))
    conversation.close()

    async def crash(*_):
        raise Crash

    monkeypatch.setattr(records, "end", crash)
    agent = AgentDefinition(name="tester", model=ScriptedModel([]), tools=Catalogue.of(PlainTools()))
    with pytest.raises(Crash):
        await withdraw(Runs(agent, store, records=records), run_of(record, RunLog()))
    found, session = await records.find("r", owner=ADA), await store.read("s", owner=ADA)
    assert (found.state, found.ending.outcome, found.root) == (RunState.CANCELLED, Outcome.CANCELLED, "first")
    assert found.request.wire == "rest"
    assert session.pending is None
    assert isinstance(session.messages[-1], ToolMessage)
    assert session.messages[-1].failed


async def test_runs_are_listed_newest_first_in_pages(stores):
    for number in range(5):
        await a_run(stores, f"r{number}", session=f"s{number % 2}")
    assert await ids(stores[1]) == ["r4", "r3", "r2", "r1", "r0"]
    assert await ids(stores[1], limit=2) == ["r4", "r3"]
    assert await ids(stores[1], session_id="s0") == ["r4", "r2", "r0"]


async def test_the_runs_of_a_chain_are_found_by_its_root(stores):
    await a_run(stores, "first")
    await a_run(stores, "second", root="first")
    await a_run(stores, "other")
    await a_run(stores, "third", root="first")
    assert await ids(stores[1], root="first") == ["third", "second", "first"]
    assert (await stores[1].find("third", owner=ADA)).root == "first"
    assert (await stores[1].find("first", owner=ADA)).root == ""


async def test_a_root_that_is_known_only_later_is_stored(stores):
    record = RunRecord(run_id="r", owner=ADA, session_id="s")
    await stores[1].begin(record)
    await a_run(stores, "r", root="first")
    assert (await stores[1].find("r", owner=ADA)).root == "first"


async def test_a_key_finds_its_run(stores):
    await a_run(stores, "r", wire="rest", key="k", fingerprint=b"f")
    found = await stores[1].by_key("rest", "k", owner=ADA)
    assert (found.run_id, found.fingerprint) == ("r", b"f")
    assert await stores[1].by_key("ag-ui", "k", owner=ADA) is None
    assert await stores[1].by_key("rest", "k", owner=EVE) is None


async def test_a_key_is_free_a_day_after_its_run_and_the_id_of_a_run_is_not(monkeypatch):
    """In memory. The first run of a key may be dropped with its session while another one has the key."""
    runs, day = MemoryRunStore(), timedelta(days=1)
    for run_id, key in (("first", "k"), ("id", "id")):
        record = RunRecord(run_id=run_id, owner=ADA, session_id=run_id, wire="w", key=key)
        await runs.begin(record)
        await runs.end(record, RunFinished(run_id, run_id))
    later = now() + day + timedelta(seconds=1)
    monkeypatch.setattr("holodeck.runs.memory_runs.now", lambda: later)
    assert await runs.by_key("w", "k", owner=ADA) is None
    assert (await runs.by_key("w", "id", owner=ADA)).run_id == "id"
    await runs.begin(RunRecord(run_id="second", owner=ADA, session_id="second", wire="w", key="k"))
    runs.forget_session(ADA, "first")
    assert (await runs.by_key("w", "k", owner=ADA)).run_id == "second"


async def test_one_record_can_be_removed_and_the_session_stays(stores):
    await a_run(stores, "r1")
    await a_run(stores, "r2")
    assert await stores[1].remove("r1", owner=ADA)
    assert not await stores[1].remove("r1", owner=ADA)
    assert await ids(stores[1]) == ["r2"]
    assert (await stores[0].get("s", owner=ADA)).message_count == 4


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize("forgotten", [True, False])  # `Runs.forget_session` releases the run before its task has ended
async def test_a_run_whose_session_was_deleted_stores_nothing_more_and_nothing_in_a_run_that_begins_then(
    stores, forgotten
):
    store, runs = stores

    async def begun(name, owner):
        record = RunRecord(run_id=name, owner=owner, session_id=name)
        runs.register(record)
        conversation = await store.open(name, owner=owner, run_id=name, create=True)
        await conversation.commit([UserMessage(content=name, run_id=name)])
        return record, conversation

    record, late = await begun("late", ADA)
    if forgotten:
        runs.release(record)
    await store.delete("late", owner=ADA)
    other, new = await begun("new", EVE)
    for ending in (None, RunFinished("late", "late")):
        with pytest.raises(SessionDeleted):
            await late.commit([AssistantMessage(content="a secret")], ending=ending)
    late.close()
    if not forgotten:
        runs.release(record)
    assert await runs.find("late", owner=ADA) is None
    found = await runs.find("new", owner=EVE)
    assert found is None or found.ending is None
    await new.commit([AssistantMessage(content="ho", run_id="new")], ending=RunFinished("new", "new"))
    new.close()
    runs.release(other)
    assert [each.content for each in (await store.read("new", owner=EVE)).messages] == ["new", "ho"]
    again, _ = await begun("late", ADA)  # the client sends its request again
    await runs.store_request(again)
    assert await runs.find("late", owner=ADA) is not None or type(runs) is MemoryRunStore


@pytest.mark.req("SRV-11")
async def test_deleting_a_session_deletes_the_records_of_its_runs(stores):
    await a_run(stores, "r1")
    await a_run(stores, "r2", session="t")
    await stores[0].delete("s", owner=ADA)
    assert await stores[1].find("r1", owner=ADA) is None
    assert await ids(stores[1]) == ["r2"]
