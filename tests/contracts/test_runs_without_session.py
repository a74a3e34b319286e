"""Runs without a session whose request may come again: every store has their rows, and none of their messages."""

import asyncio

import msgspec
import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core import events as e
from holodeck.core.events import Outcome, RunFailed, RunFinished, ToolFinished, says_not_stored
from holodeck.core.ids import new_ulid
from holodeck.core.messages import UserMessage
from holodeck.core.request import FileNote, RunRequest
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.runs.idempotency import Claim, Idempotency, SentRequest
from holodeck.runs.interrupted_runs import InterruptedRuns
from holodeck.runs.log import ReplayGone, RunLog
from holodeck.runs.port import RunKey, RunRecord
from holodeck.runs.recorded_transcript import RecordedTranscript
from holodeck.runs.recovery import remains_of, shown_ending
from holodeck.runs.remote_runs import run_of
from holodeck.runs.run import kept_of
from holodeck.runs.runs import Runs
from holodeck.runs.stored_runs import StoredRuns
from holodeck.stores import records as bodies
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.port import ToolResult
from tests.agent.agent_fixture import PlainTools
from tests.contracts.session_stores import ADA, RUN_STORES, Clock

pytestmark = pytest.mark.req("C08", "D08")

DURABLE = [name for name in RUN_STORES if name != "memory"]
SECRET = "only between us"
KEY = RunKey("openai", ADA, "k")
ACTS = calls(("act", "{}"))


@pytest.fixture(params=RUN_STORES)
async def stores(request, tmp_path):
    place = request.getfixturevalue("postgres_database") if request.param.startswith("postgres") else tmp_path
    async with RUN_STORES[request.param](place, Clock()) as opened:
        yield opened


def runs_on(stores, *turns, **tools):
    agent = AgentDefinition(name="tester", model=ScriptedModel(turns), tools=Catalogue.of(PlainTools(**tools)))
    return Runs(agent, stores[0], records=stores[1])


def request(run_id="r"):
    note = FileNote(name=SECRET, mime_type="text/plain", read_as="text")
    asked = UserMessage(content=SECRET, id=f"u-{run_id}")
    return RunRequest(
        run_id=run_id, owner=ADA, wire="openai", messages=(asked,), context=(("", SECRET),), state=SECRET,
        files=(note,), warnings=(SECRET,), throw_away=True, encoding={"created": 1},
    )  # fmt: skip


async def test_its_row_is_there_before_a_tool_is_called_and_has_no_message_at_any_time(stores):
    store, records = stores
    seen = []

    async def act(_arguments, _context):
        seen.append(await records.find("r", owner=ADA))
        return ToolResult(content="done")

    runs = runs_on(stores, ACTS, says("an answer"), act=act)
    run = await runs.start(request(), key=KEY, fingerprint=b"f")
    await run.done()
    assert run.log.ending.outcome is Outcome.COMPLETED
    ended = await records.find("r", owner=ADA)
    for record in (*seen, ended):
        assert (record.key, record.fingerprint, record.request.throw_away) == ("k", b"f", True)
        assert record.request.acted
        assert record.request.encoding == {"created": 1}
        for text in (SECRET, "an answer"):
            assert text.encode() not in bodies.encode(record)
    assert [each.ending is None for each in (*seen, ended)] == [True, False]
    assert (ended.ending.outcome, ended.ending.usage) == (run.log.ending.outcome, run.log.ending.usage)
    assert list(await store.sessions_of(owner=ADA)) == []
    assert (await store.count(), await store.tenant_bytes(ADA.tenant)) == (0, 0)
    assert await store.read(run.session_id, owner=ADA) is None
    await runs.close(0)


async def test_without_a_key_or_an_attempt_it_has_no_row(stores):
    runs = runs_on(stores, says("hello"), says("hello"))
    for run_id, may_repeat in (("r", False), ("again", True)):
        await (await runs.start(request(run_id), fingerprint=b"f", may_repeat=may_repeat)).done()
    assert await stores[1].find("r", owner=ADA) is None
    found = await stores[1].find("again", owner=ADA)
    if stores[1].outlives_process:
        assert found.ending.outcome is Outcome.COMPLETED
    else:
        assert found is None, "the process that has it knows it, and no other can"
    await runs.close(0)


async def test_a_duplicate_after_the_log_is_gone_starts_no_second_run(stores):
    runs = runs_on(stores, says("hello"), says("a second run"))
    run = await runs.start(request(), key=KEY, fingerprint=b"f")
    await run.done()
    runs.forget(run)
    if hasattr(stores[1], "clock"):
        now = stores[1].clock()
        stores[1].clock = lambda: now + 1000
    if hasattr(stores[1], "remove_old"):
        await stores[1].remove_old()
    found = await duplicates(runs, stores).stored(KEY, b"f")
    assert found.run_id == "r"
    assert isinstance(found.log.ending, RunFailed)
    assert found.log.ending.code == ReplayGone.code
    await runs.close(0)


def duplicates(runs, stores):
    reader = StoredRuns(runs, *stores)
    return Idempotency(runs, reader.restored, reader.elsewhere)


@pytest.mark.parametrize("stores", DURABLE, indirect=True)
async def test_a_request_that_was_stored_is_known_from_one_that_was_not(stores):
    records, record = stores[1], RunRecord(run_id="r", owner=ADA, session_id="s", request=request())
    await records.begin(record)
    assert await records.store_request(record)
    assert await records.end(record, RunFinished("r", "s"))
    assert not await records.store_request(record)
    assert await records.remove("r", owner=ADA)
    assert not await records.store_request(record)


@pytest.mark.parametrize("stores", DURABLE, indirect=True)
async def test_a_tool_is_not_called_if_another_process_has_ended_the_run(stores):
    acts, asked, go = [], asyncio.Event(), asyncio.Event()

    async def act(_arguments, _context):
        acts.append(1)
        return ToolResult(content="done")

    async def paused():
        asked.set()
        await go.wait()

    runs = runs_on(stores, msgspec.structs.replace(ACTS, pause=paused), says("done"), act=act)
    run = await runs.start(request(), key=KEY, fingerprint=b"f")
    await asked.wait()
    async with asyncio.timeout(30):
        while await stores[1].find("r", owner=ADA) is None:
            await asyncio.sleep(0.01)
    await stores[1].remove("r", owner=ADA)
    go.set()
    await run.done()
    assert acts == []
    assert isinstance(run.log.ending, RunFailed)
    await runs.close(0)


@pytest.mark.parametrize("stores", DURABLE, indirect=True)
@pytest.mark.parametrize("acted", [True, False])
async def test_after_a_crash_it_runs_again_only_if_it_had_called_no_tool(stores, acted):
    store, records = stores
    runs = runs_on(stores, says("asked again"))
    kept = RunRequest(run_id="r", owner=ADA, wire="openai", throw_away=True, shortened=True, acted=acted)
    record = RunRecord(
        run_id="r", owner=ADA, session_id="s", wire="openai", key="k", fingerprint=b"f", request=kept, recovered=1
    )
    await records.begin(record)
    await InterruptedRuns(runs).take_up([record])
    ended = await records.find("r", owner=ADA)
    assert (ended.ending.code, says_not_stored(ended.ending)) == ("interrupted", not acted)
    assert list(await store.sessions_of(owner=ADA)) == []
    keyed, repeated = (SentRequest("openai", ADA, b"f", *how) for how in ((KEY, None), (None, 1)))
    for sent in (repeated, keyed):
        async with Claim(duplicates(runs, stores), sent) as claim:
            joined = claim.run
            claim.run = claim.run or await runs.start(request(new_ulid()), fingerprint=b"f", may_repeat=True)
            await claim.run.done()
        assert (None if joined is None else joined.run_id) == ("r" if acted else None)
    assert (await records.find("r", owner=ADA) is not None) == acted
    await runs.close(0)


def test_calls_that_may_have_been_made_before_a_crash_are_not_shown_as_not_made():
    kept = RunRequest(run_id="r", owner=ADA, throw_away=True, acted=True)
    record = RunRecord(run_id="r", owner=ADA, session_id="s", request=kept)
    seen = [
        e.RunStarted("r", "s"),
        e.StepStarted(1),
        e.ToolCallStarted("c", "act", "m"),
        e.ToolCallEnded("c", "act", "{}"),
    ]
    (closing,) = [each for each in remains_of(record, seen, None).closings if isinstance(each, ToolFinished)]
    assert "not known" in closing.content


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.CLIENT_TOOLS, Outcome.INTERRUPTED])
async def test_the_store_gets_no_answer_and_no_question_of_it(stores, outcome):
    """Its client may repeat the request after the log is gone: an empty answer would look like a whole one."""
    records, record = stores[1], RunRecord(run_id="r", owner=ADA, session_id="s", request=kept_of(request()))
    conversation = RecordedTranscript(run_of(record, RunLog()), records, is_begun=False)
    await conversation.accept(request().messages)
    ended = RunFinished("r", "s", outcome=outcome, warning=SECRET, output={"said": SECRET}, pending_calls=("c1",))
    await conversation.end((), None, state=None, ending=ended)
    found = await records.find("r", owner=ADA)
    assert SECRET.encode() not in bodies.encode(found)
    assert found.ending.outcome is outcome
    gone = shown_ending(found, found.ending, ())
    assert (gone.code, "conversation" in gone.message) == (ReplayGone.code, False), "it never had one"
    stopped = RunFinished("r", "s", outcome=Outcome.CANCELLED)
    assert shown_ending(found, stopped, ()) is stopped


@pytest.mark.parametrize("stores", DURABLE, indirect=True)
async def test_its_record_and_its_key_are_kept_for_a_day(stores):
    """Other records are kept as long as the sessions. Clients that have no session are often programs, and ask much."""
    store, records = stores
    runs = runs_on(stores, says("hello"))
    began, records._kept_seconds = store.now(), 30 * 24 * 3600
    for request_, key in ((request(), KEY), (RunRequest(run_id="kept", session_id="s", owner=ADA), None)):
        await (await runs.start(request_, key=key)).done()
    left = {}
    for hours in (23, 25):
        records.clock = lambda hours=hours: began + hours * 3600
        await records.remove_old()
        left[hours] = [each.run_id for each in await records.runs_of(owner=ADA)]
    assert left == {23: ["kept", "r"], 25: ["kept"]}
    assert await records.by_key("openai", "k", owner=ADA) is None
    await runs.close(0)
