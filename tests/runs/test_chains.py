"""Chains of runs, branches of conversations, and what a client may decide about a run."""

import asyncio

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core.messages import ToolMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.owner import Owner
from holodeck.core.request import Resume, RunOptions, RunRequest
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest, RunNotFound, StoreUnavailable
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.runs.branches import branch_after
from holodeck.runs.idempotency import Claim, Idempotency, SentRequest
from holodeck.runs.memory_runs import MemoryRunStore
from holodeck.runs.port import RunKey
from holodeck.runs.runs import Runs
from holodeck.runs.stored_runs import StoredRuns
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools

THEIRS = ToolSchema(name="theirs", description="", on_client=True)


class RunsFixture:
    def __init__(self, *turns):
        self.records = MemoryRunStore()
        self.store = MemorySessionStore(on_drop=self.records.forget_session)
        self.model = ScriptedModel(turns or [says("answer")])
        agent = AgentDefinition(name="tester", model=self.model, tools=Catalogue.of(PlainTools()))
        self.runs = Runs(agent, self.store, records=self.records)
        self.stored = StoredRuns(self.runs, self.store, self.records)
        self.duplicates = Idempotency(self.runs, self.stored.restored, self.stored.elsewhere)

    async def ask(self, text="go", session="s", **fields):
        messages = fields.pop("messages", None) or (UserMessage(content=text),)
        run = await self.runs.start(RunRequest(session_id=session, messages=messages, **fields))
        await run.done()
        return run

    async def branch(self, run, *, owner=ME):
        going = [each.run_id for each in self.runs.of_session(run.session_id, owner=owner) if not each.log.ended]
        return await branch_after(run.run_id, run.session_id, self.store, owner=owner, in_progress=going)

    async def texts(self, session):
        return [message.content for message in (await self.store.read(session, owner=ME)).messages]


async def test_a_run_that_answers_what_another_waits_for_joins_its_chain():
    fixture = RunsFixture(calls(("theirs", "{}")), calls(("theirs", "{}")), says("done"), says("something else"))
    first = await fixture.ask(client_tools=(THEIRS,))
    runs = [first]
    for _ in range(2):
        (call,) = (await fixture.store.read("s", owner=ME)).pending.client_calls
        result = ToolMessage(call_id=call, name="theirs", content="ok")
        runs.append(await fixture.ask(messages=(result,), client_tools=(THEIRS,)))
    apart = await fixture.ask("another question")
    assert [run.root for run in (*runs, apart)] == [first.run_id] * 3 + [apart.run_id]
    assert [run.request.parent_run_id for run in runs] == [None, runs[0].run_id, runs[1].run_id]
    chain = await fixture.records.runs_of(owner=ME, root=first.run_id)
    assert [each.run_id for each in chain] == [run.run_id for run in reversed(runs)]
    started = runs[1].log.since(0)[0]
    assert started.parent_run_id == first.run_id


async def test_a_run_can_be_read_again_by_its_record_when_its_log_is_gone():
    fixture = RunsFixture(says("the answer"))
    run = await fixture.ask()
    fixture.runs.forget(run)
    found = await fixture.stored.find(run.run_id, owner=ME)
    assert found is not run
    assert found.result.text == "the answer"
    assert (found.session_id, found.state) == ("s", run.state)
    with pytest.raises(RunNotFound):
        await fixture.stored.find(run.run_id, owner=Owner("default", "eve"))


async def test_a_waiting_run_that_is_rebuilt_shows_its_calls():
    fixture = RunsFixture(calls(("theirs", '{"a":1}')))
    run = await fixture.ask(client_tools=(THEIRS,))
    fixture.runs.forget(run)
    found = await fixture.stored.find(run.run_id, owner=ME)
    shown = [event for part in found.parts for event in part.log.since(0)]
    assert [event.arguments for event in shown if type(event).__name__ == "ToolCallEnded"] == ['{"a":1}']


async def test_a_removed_run_is_gone_and_its_messages_stay():
    fixture = RunsFixture()
    run = await fixture.ask()
    await fixture.runs.remove(run)
    with pytest.raises(RunNotFound):
        await fixture.stored.find(run.run_id, owner=ME)
    assert await fixture.texts("s") == ["go", "answer"]


async def test_the_last_run_is_continued_and_an_earlier_one_branches():
    fixture = RunsFixture(says("one"), says("two"), says("three"))
    first, second = await fixture.ask("1"), await fixture.ask("2")
    head = await fixture.branch(second)
    assert head == ("s", second.run_id)
    branch = await fixture.branch(first)
    assert branch.session_id != "s"
    assert await fixture.texts(branch.session_id) == ["1", "one"]
    await fixture.ask("3", branch.session_id, follows=branch.follows)
    assert await fixture.texts(branch.session_id) == ["1", "one", "3", "three"]
    assert await fixture.texts("s") == ["1", "one", "2", "two"]


async def test_an_answer_to_a_question_that_is_no_longer_open_leaves_no_copy_of_the_conversation():
    fixture = RunsFixture(calls(("theirs", "{}")), says("two"))
    first = await fixture.ask("1", client_tools=(THEIRS,))
    await fixture.ask("2")
    answers = (Resume(interrupt_id="x", approved=True),)
    with pytest.raises(InvalidRequest, match="no open interrupt"):
        await branch_after(first.run_id, "s", fixture.store, owner=ME, resume=answers)
    assert [each.session_id for each in await fixture.store.sessions_of(owner=ME)] == ["s"]


async def test_what_was_continued_meanwhile_is_not_continued_again():
    fixture = RunsFixture(says("one"), says("two"), says("never"))
    first = await fixture.ask("1")
    branch = await fixture.branch(first)
    await fixture.ask("2", follows=branch.follows)
    late = await fixture.ask("3", follows=branch.follows)
    assert late.log.since(0)[-1].code == "session-busy"
    assert await fixture.texts("s") == ["1", "one", "2", "two"]


async def test_there_is_no_branch_after_a_run_whose_words_are_gone():
    fixture = RunsFixture()
    run = await fixture.ask()
    await fixture.store.delete("s", owner=ME)
    with pytest.raises(RunNotFound):
        await fixture.branch(run)


@pytest.mark.parametrize(
    ("choice", "answers_now", "chosen"), [(None, False, None), ("none", True, "none"), ("theirs", False, "theirs")]
)
async def test_options_reach_the_model(choice, answers_now, chosen):
    fixture = RunsFixture()
    await fixture.ask(
        client_tools=(THEIRS,),
        options=RunOptions(tool_choice=choice, max_output_tokens=7, one_call_at_a_time=answers_now),
    )
    (prompt,) = fixture.model.prompts
    assert (prompt.answers_now, prompt.tool_choice, prompt.max_output_tokens) == (answers_now, chosen, 7)
    assert prompt.one_call_at_a_time is answers_now


async def test_a_request_that_is_repeated_finds_the_run_of_its_first_attempt_only():
    fixture = RunsFixture()
    run, duplicates, sent = await fixture.ask(), fixture.duplicates, SentRequest("openai", ME, b"hash")
    duplicates.note_attempt(sent, run)
    assert await duplicates.earlier_attempt(sent, 1) is run
    assert await duplicates.earlier_attempt(sent, 0) is None
    assert await duplicates.earlier_attempt(sent, 1) is None, "the attempt before was refused: nothing of it runs"


async def test_a_request_that_is_repeated_joins_the_run_that_another_server_began_after_this_one_refused_it():
    """A load balancer sends each attempt to another server: the first to this one, the second elsewhere, the third here."""
    fixture, sent = RunsFixture(), SentRequest("openai", ME, b"hash", attempt=0)
    found = [await fixture.ask("the same, asked before")]

    async def elsewhere(*_request):
        return found[0]

    duplicates = Idempotency(fixture.runs, fixture.stored.restored, elsewhere)
    duplicates.note_attempt(sent, None)
    assert await duplicates.earlier_attempt(sent, 1) is None
    found[0] = await fixture.ask()
    assert await duplicates.earlier_attempt(sent, 2) is found[0]


async def test_a_request_that_is_repeated_runs_if_its_message_was_not_stored():
    fixture = RunsFixture()
    run = await fixture.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="go"),)))
    fixture.runs.stop(run, StoreUnavailable("down"))
    await run.done()
    duplicates, sent = fixture.duplicates, SentRequest("openai", ME, b"hash")
    duplicates.note_attempt(sent, run)
    assert run.log.ending.reason == "not_stored"
    assert await duplicates.earlier_attempt(sent, 1) is None


@pytest.mark.parametrize(("refusal", "lookups"), [(StoreUnavailable("down"), 0), (RunNotFound("refused"), 1)])
async def test_a_store_that_does_not_answer_is_not_asked_again_who_else_has_begun_the_run(
    monkeypatch, refusal, lookups
):
    fixture, asked = RunsFixture(), []

    async def find(run_id, **_options):
        asked.append(run_id)

    monkeypatch.setattr(fixture.records, "find", find)
    sent = SentRequest("ag-ui", ME, b"hash", key=RunKey("ag-ui", ME, "r", part=b"answers"))
    with pytest.raises(type(refusal)):
        async with Claim(fixture.duplicates, sent):
            raise refusal
    assert len(asked) == lookups


async def test_a_detached_run_continues_without_readers():
    fixture = RunsFixture()
    run = await fixture.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="go"),), detached=True))
    with fixture.runs.attached(run):
        pass
    assert run.grace is None
    await run.done()
    assert fixture.runs.finished.until[run] - asyncio.get_running_loop().time() > 500
