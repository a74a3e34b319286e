"""An ending that was shown although the store had not taken it, in every store that outlives the process."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core.events import NOT_STORED, Outcome, RunFailed, RunFinished
from holodeck.core.messages import UserMessage
from holodeck.core.request import Resume, RunRequest
from holodeck.errors import LostClaim, RunNotFound, StorageFull, StoreUnavailable
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.runs import unstored_endings
from holodeck.runs.idempotency import Claim, Idempotency, SentRequest
from holodeck.runs.port import RunKey, RunState, SharedRunStore
from holodeck.runs.run import state_after
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.runs import Runs
from holodeck.runs.stored_runs import StoredRuns
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools, echo
from tests.contracts.session_stores import ADA, RUN_STORES, Clock

DURABLE = [name for name in RUN_STORES if name != "memory"]
SHARED = [name for name in DURABLE if name != "sqlite"]
KEY = RunKey("rest", ADA, "k")


@pytest.fixture(params=DURABLE)
async def stores(request, tmp_path, monkeypatch):
    monkeypatch.setattr(unstored_endings, "PAUSES", (0.0, 0.0))
    place = request.getfixturevalue("postgres_database") if request.param.startswith("postgres") else tmp_path
    async with RUN_STORES[request.param](place, Clock()) as opened:
        yield opened


class Away:
    """The store takes no ending until `works` is set; it takes everything else."""

    def __init__(self, records, error=StoreUnavailable):
        self.works, self.tried, self.error = asyncio.Event(), asyncio.Event(), error
        self._end = records.end
        records.end = self.end

    async def end(self, record, ending):
        self.tried.set()
        self.refuse()
        await self._end(record, ending)

    def refuse(self):
        if not self.works.is_set():
            raise self.error("The store is away.")


def runs_without(stores, away, *turns):
    """Runs whose endings the store refuses while it is away."""
    agent = AgentDefinition(
        name="tester", model=ScriptedModel(turns or [says("hello")]), tools=Catalogue.of(PlainTools())
    )
    runs = Runs(agent, stores[0], RunSettings(), records=stores[1])
    open_conversation = runs.executor.open

    async def opened(run):
        conversation = await open_conversation(run)
        end = conversation.end

        async def refused():
            away.refuse()

        def ends(*step, **more):
            return end(*step, **more) if away.works.is_set() else asyncio.ensure_future(refused())

        conversation.end = ends
        return conversation

    runs.executor.open = opened
    return runs


def request(run_id="r"):
    message = UserMessage(content="hi", id=f"u-{run_id}")
    return RunRequest(run_id=run_id, session_id="s", owner=ADA, wire="rest", messages=(message,))


@asynccontextmanager
async def ended_without_store(stores, *turns, error=StoreUnavailable):
    away = Away(stores[1], error)
    runs = runs_without(stores, away, *turns)
    run = await runs.start(request(), key=KEY)
    await run.done()
    yield runs, run, away
    away.works.set()
    await runs.close(0)


async def stored(records, run_id="r"):
    async with asyncio.timeout(30):
        while (found := await records.find(run_id, owner=ADA)) is None or found.ending is None:
            await asyncio.sleep(0.01)
    return found


@pytest.mark.req("D03", "D08")
@pytest.mark.parametrize("error", [StoreUnavailable, StorageFull])
async def test_an_ending_that_the_store_refused_is_stored_when_it_works_again(stores, error):
    async with ended_without_store(stores, says("hello"), says("again"), error=error) as (runs, run, away):
        assert run.log.ending.code == error.code
        assert (await stores[1].find("r", owner=ADA)).ending is None
        await away.tried.wait()
        away.works.set()
        found = await stored(stores[1])
        assert (found.state, found.ending) == (RunState.FAILED, run.log.ending)
        later = await runs.start(request("later"))
        await later.done()
        assert later.log.ending.outcome is Outcome.COMPLETED
        assert (ADA, "r") not in runs.unstored.kept


@pytest.mark.req("C08", "D03")
@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_until_then_the_run_is_found_with_the_ending_that_was_shown(stores, is_in_memory):
    async with ended_without_store(stores) as (runs, run, _):
        runs.finished.until[run] = 0.0  # its replay window is over
        runs.finished.sweep()
        assert runs.find("r", owner=ADA) is run
        if not is_in_memory:  # too many others have ended
            runs.forget(run)
        reader = StoredRuns(runs, *stores)
        found = await reader.find("r", owner=ADA)
        assert (found.state, found.log.ending) == (RunState.FAILED, run.log.ending)
        assert await reader.ending_of("r", owner=ADA) == run.log.ending
        assert await reader.active("s", owner=ADA) == []
        repeated = await Idempotency(runs, reader.restored, reader.elsewhere).stored(KEY, b"")
        assert repeated.log.ending == run.log.ending


async def test_the_messages_of_a_run_are_not_kept_with_its_ending(stores):
    """Runs that fail while the store is away for hours must not fill the memory: a message may have megabytes."""
    async with ended_without_store(stores) as (runs, *_):
        noted = {**getattr(stores[1], "_registered", {}), **getattr(stores[1], "_records", {})}
        assert (ADA, "r") in noted
        assert [each.request.messages for each in (*runs.unstored.kept.values(), *noted.values())] == [(), ()]


async def test_a_run_of_which_nothing_could_be_stored_is_found_and_then_stored(stores):
    away = Away(stores[1])
    runs = runs_without(stores, away)

    async def open_nothing(_run):
        raise StoreUnavailable("The store is away.")

    runs.executor.open = open_nothing
    run = await runs.start(request(), key=KEY)
    await run.done()
    runs.forget(run)
    reader = StoredRuns(runs, *stores)
    assert (await reader.find("r", owner=ADA)).log.ending == run.log.ending
    away.works.set()
    assert (await stored(stores[1])).ending == run.log.ending
    await runs.close(0)


@pytest.mark.req("C08", "D03")
@pytest.mark.parametrize("known", ["in memory", "until it is stored", "in the store"])
@pytest.mark.parametrize("run_id", ["r", "retry"])
async def test_a_retry_of_a_message_that_was_not_stored_runs_under_the_same_key(stores, known, run_id):
    """The failure asks the client to send it again."""
    away = Away(stores[1])
    runs = runs_without(stores, away)
    open_conversation, reader = runs.executor.open, StoredRuns(runs, *stores)
    idempotency, sent = Idempotency(runs, reader.restored, reader.elsewhere), SentRequest("rest", ADA, b"", KEY)

    async def open_nothing(_run):
        raise StoreUnavailable("The store is away.")

    runs.executor.open = open_nothing
    async with Claim(idempotency, sent) as first:
        first.run = await runs.start(request(), key=KEY)
    await first.run.done()
    assert first.run.log.ending.reason == "not_stored"
    if known != "in memory":
        runs.forget(first.run)
    if known == "in the store":
        away.works.set()
        await stored(stores[1])
    runs.executor.open = open_conversation
    away.works.set()
    async with Claim(idempotency, sent) as again:
        assert again.run is None
        again.run = await runs.start(request(run_id), key=KEY)
    await again.run.done()
    assert again.run.log.ending.outcome is Outcome.COMPLETED
    async with Claim(idempotency, sent) as duplicate:
        assert duplicate.run is again.run
    await runs.close(0)


@pytest.mark.req("C08", "D03")
@pytest.mark.parametrize("is_in_memory", [True, False])
@pytest.mark.parametrize("run_id", ["r", "another"])
async def test_a_retry_of_an_answer_that_was_not_stored_runs_under_the_same_id(stores, run_id, is_in_memory):
    """Clients of AG-UI answer under an id of their own, or under that of the run that asked, as CopilotKit does."""
    away, tools = Away(stores[1]), PlainTools(frozenset({"erase"}), erase=echo)
    runs = runs_without(stores, away, calls(("erase", "{}")), says("done"))
    runs.use(replace(runs.agent, tools=Catalogue.of(tools)))
    open_conversation, reader = runs.executor.open, StoredRuns(runs, *stores)
    idempotency = Idempotency(runs, reader.restored, reader.elsewhere)
    away.works.set()
    asking = await runs.start(request(), key=RunKey("ag-ui", ADA, "r"), fingerprint=b"first")
    await asking.done()
    (asked,) = asking.log.ending.interrupts
    resume = (Resume(interrupt_id=asked.id, approved=True),)
    wanted = RunRequest(run_id=run_id, session_id="s", owner=ADA, resume=resume)
    sent = SentRequest("ag-ui", ADA, b"answer", RunKey("ag-ui", ADA, run_id, part=b"answer"))

    async def post():
        async with Claim(idempotency, sent) as claim:
            if not is_in_memory:
                with suppress(RunNotFound):
                    await reader.find(run_id, owner=ADA)
            claim.run = claim.run or await runs.start(wanted, key=sent.key, fingerprint=sent.fingerprint)
        await claim.joined.done()
        return claim.joined

    async def open_nothing(_run):
        raise StoreUnavailable("The store is away.")

    away.works.clear()
    runs.executor.open = open_nothing
    failed = await post()
    assert failed.log.ending.reason == "not_stored"
    runs.executor.open = open_conversation
    away.works.set()
    async with asyncio.timeout(30):
        while runs.unstored.kept:
            await asyncio.sleep(0.01)
    if not is_in_memory:
        stores[1].clock.now += 60
        for each in runs.of_session("s", owner=ADA):
            runs.forget(each)
    again = await post()
    assert again.log.ending.outcome is Outcome.COMPLETED
    assert [name for name, *_ in tools.called] == ["erase"]
    assert await post() is again, "a duplicate"
    await reader.close()
    await runs.close(0)


@pytest.mark.parametrize("stores", SHARED, indirect=True)
async def test_a_retry_that_starts_before_the_lookup_frees_the_key_for_the_next(stores):
    away = Away(stores[1])
    runs = runs_without(stores, away)
    reader = StoredRuns(runs, *stores)
    idempotency, sent = Idempotency(runs, reader.restored, reader.elsewhere), SentRequest("rest", ADA, b"", KEY)
    stopped = await runs.start(request(), key=KEY)
    runs.stop(stopped, StoreUnavailable("The store is away."))
    away.works.set()
    await stopped.done()
    assert (await stored(stores[1])).ending.message.endswith(NOT_STORED)
    runs.forget(stopped)
    with pytest.raises(StoreUnavailable, match=NOT_STORED):
        async with Claim(idempotency, sent, starts_first=True):
            await runs.start(request("retry"), key=KEY)
    async with Claim(idempotency, sent, starts_first=True) as again:
        again.run = await runs.start(request("retry"), key=KEY)
    await again.run.done()
    assert again.run.log.ending.outcome is Outcome.COMPLETED
    await runs.close(0)


async def test_a_retry_joins_the_run_that_another_process_has_taken_over_and_ended(stores):
    """This process showed that the message was not stored. The store has the answer."""
    away = Away(stores[1])
    runs = runs_without(stores, away)
    reader = StoredRuns(runs, *stores)
    idempotency, sent = Idempotency(runs, reader.restored, reader.elsewhere), SentRequest("rest", ADA, b"", KEY)
    async with Claim(idempotency, sent) as first:
        first.run = await runs.start(request(), key=KEY)
        runs.stop(first.run, StoreUnavailable("The store is away."))
    await first.run.done()
    away.works.set()
    runs.unstored.kept.clear()
    await stores[1].end(first.run.record, RunFinished("r", "s"))
    async with Claim(idempotency, sent) as again:
        assert again.run is not None
        assert again.run is not first.run
    await runs.close(0)


async def test_a_run_that_is_cancelled_before_its_first_step_gets_its_ending(stores):
    away = Away(stores[1])
    away.works.set()
    runs = runs_without(stores, away)
    run = await runs.start(request())
    run.task.cancel()
    await run.done()
    assert run.log.ending.outcome is Outcome.CANCELLED
    assert (await stored(stores[1])).ending == run.log.ending
    await runs.close(0)


@pytest.mark.parametrize("stores", SHARED, indirect=True)
async def test_the_process_that_has_taken_the_run_over_decides_how_it_ends(stores):
    async with ended_without_store(stores) as (runs, run, away):
        records = stores[1]
        assert isinstance(records, SharedRunStore)
        mine = records.replica
        _name(records, "another")
        keys = dict(records._keys)
        taken = await _taken_over(records, mine)
        assert [each.run_id for each in taken] == ["r"]
        _name(records, mine)
        away.works.set()
        async with asyncio.timeout(30):
            while (ADA, "r") in runs.unstored.kept:
                await asyncio.sleep(0.01)
        assert (await records.find("r", owner=ADA)).ending is None
        _name(records, "another")
        records._keys.update(keys)
        await records.end(run.record, RunFailed("r", "s", "interrupted", "Its server was stopped."))
        assert (await StoredRuns(runs, *stores).find("r", owner=ADA)).state is RunState.INTERRUPTED
        _name(records, mine)


def _name(records, replica):
    """Lets the store act as this process."""
    getattr(records, "_replicas", records).replica = replica


async def _taken_over(records, mine):
    """Takes the runs of this process over, under another name, as if it had left."""
    keys = dict(records._keys)
    if hasattr(records, "_database"):
        await records._database.rows("DELETE FROM holodeck.replicas WHERE id = %(id)s", {"id": mine})
    else:
        await records._file.execute("DELETE FROM replicas WHERE id = ?", (mine,))
    taken = await records.take_over(60)
    records._keys.clear()
    records._keys.update(keys)
    return taken


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize("deleted", ["the session", "the run"])
async def test_a_deleted_run_does_not_come_back_with_its_ending(stores, deleted):
    async with ended_without_store(stores) as (runs, run, away):
        if deleted == "the session":
            assert await runs.delete_session("s", owner=ADA)
        else:
            await runs.remove(run)
        away.works.set()
        await asyncio.wait({runs.unstored._storing})
        assert await stores[1].find("r", owner=ADA) is None
        with pytest.raises(RunNotFound):
            await StoredRuns(runs, *stores).find("r", owner=ADA)


@pytest.mark.req("D03", "SRV-11")
@pytest.mark.parametrize("is_in_progress", [True, False])
async def test_a_session_that_the_store_does_not_delete_keeps_the_endings_of_its_runs(
    stores, monkeypatch, is_in_progress
):
    """Otherwise their rows stay open until a restart, which continues or interrupts what its client saw end.

    In a store that processes share, the session would wait for them until they count as strays, and are interrupted.
    """
    gate = asyncio.Event()
    turn = says("hello", pause=lambda: asyncio.ensure_future(gate.wait())) if is_in_progress else says("hello")
    away = Away(stores[1])
    runs = runs_without(stores, away, turn, says("again"))
    run = await runs.start(request())
    if is_in_progress:
        async with asyncio.timeout(30):
            while len(run.log) < 3:
                await asyncio.sleep(0.01)
    else:
        await run.done()
    with monkeypatch.context() as refusing:
        refusing.setattr(stores[0], "delete", AsyncMock(side_effect=StoreUnavailable("The store is away.")))
        with pytest.raises(StoreUnavailable):
            await runs.delete_session("s", owner=ADA)
    away.works.set()
    found = await stored(stores[1])
    assert found.state is (RunState.CANCELLED if is_in_progress else RunState.FAILED)
    reading = StoredRuns(runs, *stores)
    async with asyncio.timeout(30):
        assert state_after((await reading.find_settled("r", owner=ADA)).log.ending) is found.state
    await reading.close()
    later = await runs.start(request("later"))
    async with asyncio.timeout(30):
        await later.done()
    assert later.log.ending.outcome is Outcome.COMPLETED
    await runs.close(0)


@pytest.mark.req("D03", "C08")
async def test_a_run_that_the_store_does_not_delete_keeps_its_ending(stores, monkeypatch):
    """A retry of a message that was not stored deletes its run first, perhaps while the store is still away."""
    async with ended_without_store(stores) as (runs, run, away):
        with monkeypatch.context() as refusing:
            refusing.setattr(stores[1], "remove", AsyncMock(side_effect=StoreUnavailable("The store is away.")))
            with pytest.raises(StoreUnavailable):
                await runs.remove(run)
        away.works.set()
        assert (await stored(stores[1])).ending == run.log.ending


async def test_a_server_that_stops_tries_once_more(stores):
    async with ended_without_store(stores) as (runs, run, away):
        away.works.set()
        await runs.close(0)
        assert (await stores[1].find("r", owner=ADA)).ending == run.log.ending


@pytest.mark.parametrize("error", [LostClaim, ZeroDivisionError])
async def test_an_ending_that_can_never_be_stored_does_not_keep_the_others(stores, error):
    async with ended_without_store(stores, says("hello"), says("again")) as (runs, run, away):
        away.error = error
        async with asyncio.timeout(30):
            while (ADA, "r") in runs.unstored.kept:
                await asyncio.sleep(0.01)
        assert isinstance(run.log.ending, RunFailed)
