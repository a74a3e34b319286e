"""What is stored when: before a tool is called, before an ending is shown, and what a crash in between leaves."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from holodeck.agent.pending import NOT_MADE, OUTCOME_UNKNOWN, REFUSED
from holodeck.agent.settings import StateSettings
from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, PendingStep, ToolMessage, UserMessage
from holodeck.core.request import Resume
from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.errors import LostClaim, StoreUnavailable
from holodeck.models.port import Listener, Prompt
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.sessions.transcript import Transcript
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo


class Crash(BaseException):
    """The process ends here: nothing after it is stored or shown."""


class Journal(Transcript):
    """A conversation that writes down each write; `crash_at` ends the process in place of one."""

    def __init__(self, fixture: AgentFixture) -> None:
        super().__init__()
        self.fixture = fixture
        self.writes: list[tuple[str, int]] = []  # what, and how many events were shown before
        self.endings: list[e.Ending] = []
        self.broken = False

    async def commit(self, messages, pending=None, **more: Any) -> None:
        if self.broken:
            raise StoreUnavailable("The disk is full.")
        self.writes.append(("commit", len(self.fixture.events)))
        await super().commit(messages, pending, **more)

    def end(self, messages, pending, *, ending, **more: Any) -> asyncio.Future[None] | None:
        if self.broken:
            raise StoreUnavailable("The disk is full.")
        self.writes.append(("ending", len(self.fixture.events)))
        self.endings.append(ending)
        super().end(messages, pending, ending=ending, **more)
        return None

    def accept(self, messages, **more: Any) -> None:
        if self.broken:
            raise StoreUnavailable("The disk is full.")
        self.writes.append(("commit", len(self.fixture.events)))
        super().accept(messages, **more)

    async def begin_calls(self, step: PendingStep, **more: Any) -> None:
        self.writes.append(("begin", len(self.fixture.events)))
        await super().begin_calls(step, **more)


def journaled(*turns, **settings) -> tuple[AgentFixture, Journal]:
    fixture = AgentFixture(*turns, **settings)
    fixture.conversation = Journal(fixture)
    return fixture, fixture.conversation


async def test_the_users_message_is_stored_before_anything_is_shown():
    fixture, journal = journaled(says("hello"))
    await fixture.play("hi")
    assert journal.writes[0] == ("commit", 0)
    assert journal.messages[0].run_id == journal.messages[1].run_id != ""


class SlowJournal(Journal):
    """Its first commit is stored when `stored` is set."""

    def __init__(self, fixture: AgentFixture) -> None:
        super().__init__(fixture)
        self.stored = asyncio.get_running_loop().create_future()

    def accept(self, messages, **more: Any) -> asyncio.Future[None]:
        super().accept(messages, **more)
        return self.stored

    def end(self, messages, pending, **more: Any) -> asyncio.Future[None] | None:
        """With messages, the store writes them after those that it has accepted."""
        super().end(messages, pending, **more)
        return self.stored if messages else None


def played_slowly(*turns, **settings) -> tuple[AgentFixture, SlowJournal, asyncio.Task]:
    fixture = AgentFixture(*turns, **settings)
    fixture.conversation = SlowJournal(fixture)
    return fixture, fixture.conversation, asyncio.create_task(fixture.play("hi"))


def for_ever() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def passes(times: int = 50) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_the_model_is_asked_while_the_message_is_stored_and_nothing_is_shown_or_done_before():
    fixture, journal, playing = played_slowly(calls(("echo", "{}")), says("done"))
    await passes()
    assert [message.content for message in fixture.model.prompts[0].messages] == ["hi"]
    assert (fixture.events, fixture.tools.called, len(fixture.model.prompts)) == ([], [], 1)
    journal.stored.set_result(None)
    await playing
    assert isinstance(fixture.ending, e.RunFinished)
    assert len(fixture.tools.called) == 1
    assert [what for what, _ in journal.writes] == ["commit", "begin", "commit", "ending"]


class SlowResults(Journal):
    """The results of its first step are stored when `stored` is set."""

    def __init__(self, fixture: AgentFixture) -> None:
        super().__init__(fixture)
        self.stored = asyncio.get_running_loop().create_future()

    def accept(self, messages, **more: Any) -> asyncio.Future[None] | None:
        super().accept(messages, **more)
        return self.stored if isinstance(messages[-1], ToolMessage) else None


async def played_to_second_prompt(*turns) -> tuple[AgentFixture, SlowResults, asyncio.Task]:
    fixture = AgentFixture(*turns, tools=PlainTools(echo=echo))
    fixture.conversation = SlowResults(fixture)
    playing = asyncio.create_task(fixture.play("hi"))
    async with asyncio.timeout(30):
        while len(fixture.model.prompts) < 2:  # the first call of a tool loads what checks its arguments
            await asyncio.sleep(0)
    await passes()
    return fixture, fixture.conversation, playing


@pytest.mark.req("D03")
async def test_the_model_is_asked_while_results_are_stored_and_nothing_further_is_shown_or_done_before():
    turns = calls(("echo", "{}")), calls(("echo", "[]")), says("done")
    fixture, journal, playing = await played_to_second_prompt(*turns)
    shown, prompts, called = list(fixture.events), list(fixture.model.prompts), list(fixture.tools.called)
    journal.stored.set_result(None)
    await playing
    assert isinstance(prompts[1].messages[-1], ToolMessage)
    assert isinstance(shown[-1], e.StepFinished)
    assert (len(prompts), len(called)) == (2, 1)
    assert isinstance(fixture.ending, e.RunFinished)
    assert [what for what, _ in journal.writes] == ["commit", "begin", "commit", "commit", "ending"]


@pytest.mark.req("D03", "D05")
async def test_results_that_cannot_be_stored_end_the_run_and_it_begins_once():
    turns = calls(("echo", "{}")), Turn(text=["one"], pause=for_ever)
    fixture, journal, playing = await played_to_second_prompt(*turns)
    journal.stored.set_exception(StoreUnavailable("The disk is full."))
    response = await playing
    assert response.error_code == "store-unavailable"
    assert len(fixture.emitted(e.RunStarted)) == 1
    assert [type(event) for event in fixture.events[-2:]] == [e.StepFinished, e.RunFailed]
    assert not fixture.emitted(e.TextAdded)


async def test_what_the_model_says_after_the_message_is_stored_is_shown_at_once():
    fixture, journal, playing = played_slowly(Turn(text=["one"], pause=for_ever))
    await passes()
    assert fixture.events == []
    journal.stored.set_result(None)
    await passes()
    assert [event.delta for event in fixture.emitted(e.TextAdded)] == ["one"]
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing


async def test_a_message_that_cannot_be_stored_ends_the_run_in_the_middle_of_the_models_reply():
    fixture, journal, playing = played_slowly(Turn(text=["one"], pause=for_ever))
    await passes()
    journal.stored.set_exception(StoreUnavailable("The disk is full."))
    response = await playing
    assert response.error_code == "store-unavailable"
    assert [type(event) for event in fixture.events] == [e.RunStarted, e.RunFailed]
    assert [what for what, _ in journal.writes] == ["commit", "ending"], "nothing of the reply is stored"


class FailsMeanwhile(SlowJournal):
    """The write of the message fails in the moment in which the answer is complete."""

    def end(self, messages, pending, **more: Any) -> asyncio.Future[None] | None:
        if messages:
            self.stored.set_exception(StoreUnavailable("The disk is full."))
            raise StoreUnavailable("The disk is full.")
        return super().end(messages, pending, **more)


@pytest.mark.req("D03", "D08")
async def test_a_message_that_cannot_be_stored_is_named_although_its_answer_was_complete():
    fixture = AgentFixture(says("hello"))
    fixture.conversation = journal = FailsMeanwhile(fixture)
    response = await fixture.play("hi")
    assert response.error_code == "store-unavailable"
    assert [type(event) for event in fixture.events] == [e.RunStarted, e.RunFailed]
    assert fixture.ending.reason == "not_stored"
    assert journal.endings == [fixture.ending]


class LateReply(ScriptedModel):
    """A model whose connection delivers more of its reply after the store has failed and before the run is stopped."""

    def __init__(self, journal: SlowJournal, begin: Callable[[Listener], None], late: Callable[[Listener], None]):
        super().__init__([])
        self.journal, self.begin, self.late = journal, begin, late

    async def reply(self, prompt: Prompt, listener: Listener) -> NoReturn:
        self.begin(listener)
        self.journal.stored.set_exception(StoreUnavailable("The disk is full."))
        asyncio.get_running_loop().call_soon(self.late, listener)
        await for_ever()
        raise AssertionError("never reached")


@pytest.mark.req("D03", "D05")
@pytest.mark.parametrize(
    ("begin", "late"),
    [
        (lambda listener: None, lambda listener: listener.text("one")),
        (lambda listener: listener.text("one"), lambda listener: listener.text("two")),
        (
            lambda listener: listener.call_started("c1", "echo"),
            lambda listener: listener.call_arguments("c1", "{}"),
        ),
    ],
    ids=["begins", "text", "arguments"],
)
async def test_what_the_model_says_after_its_question_could_not_be_stored_is_neither_shown_nor_stored(begin, late):
    fixture = AgentFixture(says("never"))
    fixture.conversation = journal = SlowJournal(fixture)
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    fixture.agent = dataclasses.replace(fixture.agent, model=LateReply(journal, begin, late))
    response = await fixture.play("hi")
    assert response.error_code == "store-unavailable"
    assert [type(event) for event in fixture.events] == [e.RunStarted, e.RunFailed]
    assert fixture.ending.reason == "not_stored"
    assert [what for what, _ in journal.writes] == ["commit", "ending"], "nothing of the reply is stored"
    assert failures == []


async def test_an_answer_that_comes_before_its_question_is_stored_is_shown_after_it():
    fixture, journal, playing = played_slowly(says("hello"))
    await passes()
    assert fixture.events == []
    assert [what for what, _ in journal.writes] == ["commit", "ending"], "the store may join the two"
    journal.stored.set_result(None)
    await playing
    assert isinstance(fixture.events[0], e.RunStarted)
    assert isinstance(fixture.ending, e.RunFinished)


async def test_a_stop_while_the_message_is_stored_ends_the_run_as_stopped():
    fixture, journal, playing = played_slowly(Turn(text=["one"], pause=for_ever))
    await passes()
    playing.cancel()
    await passes()
    journal.stored.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert fixture.ending.outcome is e.Outcome.CANCELLED


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "iterations", "approval"])
async def test_the_ending_is_stored_before_it_is_shown(how):
    tools = PlainTools(approval=frozenset({"erase"}), erase=echo, echo=echo)
    turn = {"approval": calls(("erase", "{}")), "iterations": calls(("echo", "{}"))}.get(how, says("hello"))
    fixture, journal = journaled(turn, max_iterations=1, tools=tools)
    if how == "failed":
        fixture.model.turns = ()

    def on(event):
        if how == "cancelled" and isinstance(event, e.TextAdded):
            asyncio.current_task().cancel()

    if how == "cancelled":
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(fixture.play("hi", on=on))
    else:
        await fixture.play("hi")
    assert journal.endings == [fixture.ending]
    what, shown_before = journal.writes[-1]
    assert what == "ending"
    assert shown_before < len(fixture.events)


async def test_an_answer_and_its_ending_are_one_commit():
    fixture, journal = journaled(says("hello"), state=StateSettings(initial={"n": 1}))
    await fixture.play("hi")
    assert [what for what, _ in journal.writes] == ["commit", "ending"]
    assert journal.state == {"n": 1}


@pytest.mark.req("D03")
async def test_a_call_is_stored_before_it_is_made():
    seen = []

    async def look(arguments, context):
        seen.append(fixture.conversation.pending)
        return ToolResult(content="ok")

    fixture, journal = journaled(calls(("look", "{}")), says("done"), tools=PlainTools(look=look))
    await fixture.play("go")
    (step,) = seen
    assert step.begun == ("c1",)
    assert step.run_id == journal.messages[0].run_id
    assert journal.pending is None
    assert [what for what, _ in journal.writes] == ["commit", "begin", "commit", "ending"]


async def test_a_result_is_stored_while_another_call_still_runs():
    release, first_is_stored = asyncio.Event(), asyncio.Event()

    async def quick(arguments, context):
        return ToolResult(content="quick")

    async def slow(arguments, context):
        await release.wait()
        return ToolResult(content="slow")

    fixture, journal = journaled(
        calls(("quick", "{}"), ("slow", "{}")), says("done"), tools=PlainTools(quick=quick, slow=slow)
    )
    begin = journal.begin_calls

    async def noticed(step, **more):
        await begin(step, **more)
        if step.results:
            first_is_stored.set()

    journal.begin_calls = noticed
    playing = asyncio.create_task(fixture.play("go"))
    await asyncio.wait_for(first_is_stored.wait(), 30)
    assert [result.content for result in journal.pending.results] == ["quick"]
    assert journal.pending.begun == ("c1", "c2")
    release.set()
    await playing


@pytest.mark.req("D05")
async def test_a_result_that_says_that_the_state_has_changed_is_stored_with_the_state():
    """A crash while the other call runs keeps the result, so the state must not lack the change."""
    patch = '{"patch": [{"op": "replace", "path": "/count", "value": 2}]}'
    seen = []

    async def slow(_arguments, _context):
        while not (fixture.conversation.pending and fixture.conversation.pending.results):
            await asyncio.sleep(0)
        seen.append((fixture.conversation.pending.results[0].content, fixture.conversation.state))
        return ToolResult(content="done")

    turns = calls(("update_state", patch), ("slow", "{}")), says("ok")
    fixture = AgentFixture(*turns, tools=PlainTools(slow=slow), state=StateSettings(initial={"count": 1}))
    await asyncio.wait_for(fixture.play("count"), 20)
    assert seen == [("The state is changed.", {"count": 2})]


async def test_a_store_that_cannot_keep_a_result_is_named_as_what_failed():
    async def stays(arguments, context):
        await asyncio.Event().wait()

    fixture, journal = journaled(calls(("echo", "{}"), ("stays", "{}")), tools=PlainTools(echo=echo, stays=stays))
    begin = journal.begin_calls

    async def full(step, **more):
        if step.results:
            raise StoreUnavailable("The disk is full.")
        await begin(step, **more)

    journal.begin_calls = full
    await fixture.play("go")
    assert (fixture.ending.code, fixture.ending.message) == (StoreUnavailable.code, "The disk is full.")
    assert [message.content for message in journal.messages[2:]] == ["ada: {}", OUTCOME_UNKNOWN]


@pytest.mark.req("D03")
async def test_a_stop_says_of_each_call_whether_it_was_made():
    """One call runs, one waits for approval, and the third is the client's."""
    running = asyncio.Event()

    async def stays(arguments, context):
        running.set()
        await asyncio.Event().wait()

    tools = PlainTools(approval=frozenset({"erase"}), erase=echo, stays=stays)
    fixture, journal = journaled(calls(("stays", "{}"), ("erase", "{}"), ("show", "{}")), tools=tools)
    client_tools = (ToolSchema(name="show", description="Shows a page."),)
    playing = asyncio.create_task(fixture.play("go", client_tools=client_tools))
    await asyncio.wait_for(running.wait(), 30)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    results = [message.content for message in journal.messages if isinstance(message, ToolMessage)]
    assert results == [OUTCOME_UNKNOWN, NOT_MADE, OUTCOME_UNKNOWN]


def crashed(fixture: AgentFixture, step: PendingStep) -> None:
    """Leaves the conversation as a crash would."""
    fixture.conversation.pending = step


async def cut_in(tool_calls, **step: Any) -> AgentFixture:
    """A fixture whose last run was killed after the given step was stored."""
    fixture = AgentFixture(says("what now?"), tools=PlainTools(approval=frozenset({"erase"}), erase=echo, echo=echo))
    await fixture.conversation.commit([UserMessage(content="go")])
    reply = await _reply(calls(*tool_calls))
    crashed(fixture, PendingStep(assistant=reply, run_id="before", **step))
    return fixture


async def _reply(turn):
    fixture = AgentFixture(turn, says("x"), tools=PlainTools(erase=echo, echo=echo))
    await fixture.play("go")
    return fixture.conversation.messages[1]


@pytest.mark.req("D03")
async def test_after_a_crash_a_begun_call_is_answered_as_unknown_and_not_made_again():
    done = ToolMessage(call_id="c1", name="echo", content="done")
    fixture = await cut_in([("echo", "{}"), ("echo", "{}"), ("erase", "{}")], begun=("c1", "c2"), results=(done,))
    await fixture.play("and?")
    results = [each for each in fixture.conversation.messages if isinstance(each, ToolMessage)]
    assert [each.content for each in results] == ["done", OUTCOME_UNKNOWN, NOT_MADE]
    assert [each.failed for each in results] == [False, True, True]
    assert fixture.tools.called == []
    assert fixture.conversation.pending is None


@pytest.mark.req("D03")
async def test_a_crash_after_an_approval_never_reads_as_not_approved():
    fixture = await cut_in([("erase", "{}")], begun=("c1",))
    await fixture.play("and?")
    (result,) = [each for each in fixture.conversation.messages if isinstance(each, ToolMessage)]
    assert result.content == OUTCOME_UNKNOWN
    assert fixture.tools.called == []


async def test_a_message_that_comes_with_an_answer_is_stored_although_the_run_is_stopped_in_the_approved_call():
    running = asyncio.Event()

    async def erase(arguments, context):
        running.set()
        await asyncio.Event().wait()

    tools = PlainTools(approval=frozenset({"erase"}), erase=erase)
    fixture = AgentFixture(calls(("erase", "{}")), tools=tools)
    await fixture.play("go")
    (asked,) = fixture.ending.interrupts
    playing = asyncio.create_task(fixture.play("and then this", resume=[Resume(interrupt_id=asked.id, approved=True)]))
    await asyncio.wait_for(running.wait(), 20)
    playing.cancel()
    await asyncio.wait({playing})
    result, message = fixture.conversation.messages[-2:]
    assert (result.content, message.content) == (OUTCOME_UNKNOWN, "and then this")


@pytest.mark.parametrize("until", ["the step is stored", "later"])
async def test_a_message_that_comes_with_an_answer_is_stored_or_named_if_the_store_refuses_the_approved_call(until):
    fixture, journal = journaled(calls(("erase", "{}")), tools=PlainTools(approval=frozenset({"erase"}), erase=echo))
    await fixture.play("go")
    (asked,) = fixture.ending.interrupts

    async def full(step, **more):
        journal.broken = until == "later"
        raise StoreUnavailable("The disk is full.")

    journal.begin_calls = full
    await fixture.play("and then this", resume=[Resume(interrupt_id=asked.id, approved=True)])
    is_stored = journal.messages[-1].content == "and then this"
    assert is_stored is (until == "the step is stored")
    assert fixture.ending.message.endswith(e.NOT_STORED) is not is_stored
    assert fixture.tools.called == []


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_stop_while_a_message_that_came_with_an_answer_is_written_says_whether_it_is_stored(is_stored):
    fixture, journal = journaled(calls(("erase", "{}")), tools=PlainTools(approval=frozenset({"erase"}), erase=echo))
    await fixture.play("go")
    writing, written, commit = asyncio.Event(), asyncio.Event(), journal.commit

    async def slow(messages, *args, **more):
        if isinstance(messages[0], UserMessage):
            writing.set()
            await written.wait()
            journal.broken = not is_stored
        await commit(messages, *args, **more)

    journal.commit = slow
    playing = asyncio.create_task(fixture.play("and then this"))
    await asyncio.wait_for(writing.wait(), 20)
    playing.cancel()
    await passes()
    written.set()
    await asyncio.wait({playing})
    assert (journal.messages[-1].content == "and then this") is is_stored
    assert (fixture.ending.outcome, fixture.ending.warning) == (
        e.Outcome.CANCELLED,
        None if is_stored else e.STOPPED_UNSTORED,
    )


async def test_an_approval_is_used_up_in_the_write_that_begins_its_call():
    seen = []

    async def erase(arguments, context):
        seen.append(fixture.conversation.pending)
        return ToolResult(content="erased")

    tools = PlainTools(approval=frozenset({"erase", "burn"}), erase=erase, burn=echo)
    fixture, journal = journaled(calls(("erase", "{}"), ("burn", "{}")), says("done"), tools=tools)
    await fixture.play("go")
    erasing, burning = fixture.ending.interrupts
    answers = [Resume(interrupt_id=erasing.id, approved=True), Resume(interrupt_id=burning.id, approved=False)]
    journal.writes.clear()
    await fixture.play(resume=answers)
    assert [what for what, _ in journal.writes] == ["begin", "commit", "ending"]
    (step,) = seen
    assert (step.approvals, step.begun) == ({}, ("c1",))
    assert [result.content for result in step.results] == [REFUSED], "a refusal is stored as one"


async def test_a_store_that_fails_ends_the_run_and_leaves_no_answer_that_is_not_stored():
    fixture, journal = journaled(says("hello"))
    journal.broken = True
    response = await fixture.play("hi")
    assert response.error_code == "store-unavailable"
    assert [type(event) for event in fixture.events] == [e.RunStarted, e.RunFailed]
    assert fixture.ending.retryable


async def test_a_store_that_fails_at_the_end_does_not_say_that_the_run_succeeded():
    fixture, journal = journaled(says("hello"))

    def on(event):
        journal.broken = journal.broken or isinstance(event, e.TextEnded)

    await fixture.play("hi", on=on)
    assert fixture.ending.code == "store-unavailable"


class TakenOver(Journal):
    """A conversation that another process takes over while the model replies."""

    async def commit(self, messages, pending=None, **more: Any) -> None:
        raise LostClaim("Another process has taken this run over.")

    def end(self, messages, pending, **more: Any) -> None:
        raise LostClaim("Another process has taken this run over.")

    theirs = AssistantMessage(content="what the other process has stored")

    async def stored(self) -> list[Any]:
        return [*self.messages, self.theirs]


async def test_a_run_that_another_process_has_taken_over_shows_what_is_stored_before_it_ends():
    """The other process has not seen the last tokens, so it cannot have stored them."""
    fixture = AgentFixture(says("one two"))
    fixture.conversation = TakenOver(fixture)
    await fixture.play("hi")
    shown, ending = fixture.events[-2:]
    assert (shown.messages[-1], shown.corrects) == (TakenOver.theirs, True)
    assert (type(ending), ending.code) == (e.RunFailed, "session-taken")


@pytest.mark.parametrize("how", ["stopped", "the store fails"])
async def test_the_ending_that_is_stored_is_shown_if_the_history_cannot_be(how):
    fixture, journal = journaled(calls(("echo", "{}")), says("done"), tools=PlainTools(echo=echo))
    reading, history = asyncio.Event(), journal.history

    async def blocked() -> Any:
        if journal.endings:
            reading.set()
            if how == "the store fails":
                raise StoreUnavailable("The disk is gone.")
            await asyncio.Event().wait()
        return await history()

    journal.history = blocked
    playing = asyncio.create_task(fixture.play("hi", client_ids=frozenset()))
    await reading.wait()
    playing.cancel()
    await asyncio.wait({playing})
    assert [fixture.ending] == journal.endings
