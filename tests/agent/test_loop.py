"""The loop, with a scripted model: limits, tools, failures, endings."""

import asyncio
from contextlib import suppress

import msgspec
import pytest

from holodeck.agent.definition import AgentContext
from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, ToolCall, ToolMessage, ToolStatus, UserMessage
from holodeck.core.request import FileNote
from holodeck.core.tools import ToolResult
from holodeck.core.usage import TokenUsage
from holodeck.errors import InvalidRequest, ModelInterrupted, ModelUnreachable, ShuttingDown
from holodeck.models.scripted import Turn, calls, says
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo
from tests.loop_clock import LIMIT, LoopClock


@pytest.mark.req("AGT-01")
async def test_a_plain_answer_is_emitted_word_by_word_and_returned():
    fixture = AgentFixture(says("Hello there friend", usage=TokenUsage(prompt_tokens=3, completion_tokens=4)))
    response = await fixture.play("hi")
    assert (response.status, response.final_response) == ("completed", "Hello there friend")
    assert [event.delta for event in fixture.emitted(e.TextAdded)] == ["Hello", " there", " friend"]
    assert [type(event) for event in fixture.events] == [
        e.RunStarted, e.StepStarted, e.TextStarted, *[e.TextAdded] * 3, e.TextEnded, e.StepFinished, e.RunFinished,
    ]  # fmt: skip
    assert response.usage is not None
    assert response.usage.total_tokens == 7
    assert [type(message) for message in fixture.conversation.messages] == [UserMessage, AssistantMessage]
    text_id = fixture.emitted(e.TextStarted)[0].message_id
    assert fixture.conversation.messages[-1].id == text_id, "the stream and the history name the message alike"


@pytest.mark.req("AGT-08")
async def test_tool_calls_of_one_step_run_at_the_same_time():
    both_started = asyncio.Barrier(2)

    async def meet(arguments, context):
        await both_started.wait()  # passes only if the two run side by side
        return ToolResult(content="met")

    fixture = AgentFixture(calls(("meet", "{}"), ("meet", "{}")), says("done"), tools=PlainTools(meet=meet))
    async with asyncio.timeout(5):
        response = await fixture.play("go")
    assert response.status == "completed"
    assert [result.content for result in fixture.emitted(e.ToolFinished)] == ["met", "met"]
    assert [type(message) for message in fixture.conversation.messages] == [
        UserMessage, AssistantMessage, ToolMessage, ToolMessage, AssistantMessage,
    ]  # fmt: skip


@pytest.mark.req("AGT-08", "A26", "A27")
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("echo", "{not json"), "JSON"),
        (("echo", "[1]"), "object"),
        (("nothing", "{}"), "There is no tool 'nothing'; the tools are broken, echo, stuck"),
        (("ec\x1b[mho", "{}"), "There is no tool 'ec\\x1b[mho'; the tools are broken, echo, stuck"),
        (("broken", "{}"), "internal error"),
    ],
)
async def test_what_a_tool_call_does_wrong_goes_back_to_the_model_as_text(call, expected):
    fixture = AgentFixture(calls(call), says("I see"))
    response = await fixture.play("go")
    assert response.status == "completed"
    shown = fixture.model.prompts[1].messages[-1]
    assert isinstance(shown, ToolMessage)
    assert shown.failed
    assert expected in shown.content
    assert "secret" not in shown.content
    assert response.executions[0].status is ToolStatus.FAILED


@pytest.mark.req("AGT-08")
async def test_a_result_is_bounded_and_says_so():
    async def long(arguments, context):
        return ToolResult(content="x" * 10_000)

    fixture = AgentFixture(calls(("long", "{}")), says("ok"), tools=PlainTools(long=long), max_result_characters=100)
    await fixture.play("go")
    content = fixture.emitted(e.ToolFinished)[0].content
    assert len(content) < 200
    assert "9900 of 10000 characters left out" in content


@pytest.mark.req("AGT-04", "A28")
@pytest.mark.parametrize("limit", [1, 3])
async def test_max_iterations_stops_the_loop_after_exactly_that_many_calls(limit):
    fixture = AgentFixture(calls(("echo", "{}")), max_iterations=limit)
    response = await fixture.play("go")
    assert response.status == "max_iterations_reached"
    assert response.finish_reason == "max_iterations"
    assert f"{limit} iterations" in (response.warning or "")
    assert len(fixture.tools.called) == len(fixture.model.prompts) == response.iterations == limit
    assert fixture.ending.outcome is e.Outcome.MAX_ITERATIONS
    ids = [event.call_id for event in fixture.emitted(e.ToolCallStarted)]
    assert len(set(ids)) == limit, "a model that repeats its ids gets new ones"


@pytest.mark.req("AGT-04")
async def test_iteration_timeout_stops_a_tool_that_hangs_and_leaves_a_whole_history(monkeypatch):
    clock = LoopClock(monkeypatch)

    async def stuck_after_the_other(arguments, context):
        while not fixture.emitted(e.ToolFinished):
            await asyncio.sleep(0)
        await clock.stuck()

    tools = PlainTools(echo=echo, stuck=stuck_after_the_other)
    fixture = AgentFixture(calls(("stuck", "{}"), ("echo", "{}")), tools=tools, iteration_timeout=LIMIT)
    response = await fixture.play("go")
    assert (response.status, response.error_code) == ("error", "timeout")
    assert "600 s" in (response.error or "")
    results = [message for message in fixture.conversation.messages if isinstance(message, ToolMessage)]
    assert [result.failed for result in results] == [True, False]
    assert (fixture.ending.code, fixture.ending.reason) == ("timeout", "iteration_timeout")


@pytest.mark.req("AGT-04")
async def test_iteration_timeout_stops_a_model_that_hangs_and_keeps_its_text(monkeypatch):
    fixture = AgentFixture(Turn(text=["so far"], pause=LoopClock(monkeypatch).stuck), iteration_timeout=LIMIT)
    response = await fixture.play("go")
    assert (response.status, response.error_code) == ("error", "timeout")
    assert fixture.conversation.messages[-1].content == "so far"
    assert fixture.conversation.messages[-1].cut


UNREACHED = ToolResult.failure("no connection", retryable=True, unsent=True)
BROKE_OFF = ToolResult.failure("broke off", retryable=True)
REFUSED = ToolResult.failure("no such todo")


@pytest.mark.req("AGT-04")
@pytest.mark.parametrize(
    ("result", "repeatable", "enabled", "tries"),
    [
        (UNREACHED, False, False, 1),
        (UNREACHED, False, True, 3),
        (BROKE_OFF, False, True, 1),  # it may have taken effect
        (BROKE_OFF, True, True, 3),
        (BROKE_OFF, True, False, 1),
        (REFUSED, True, True, 1),  # it answered
    ],
)
async def test_only_calls_that_took_no_effect_or_do_no_harm_are_repeated(result, repeatable, enabled, tries):
    attempts = []

    async def flaky(_arguments, _context):
        attempts.append(1)
        return result

    class Marked(PlainTools):
        def schemas(self):
            return [msgspec.structs.replace(schema, repeatable=repeatable) for schema in super().schemas()]

    fixture = AgentFixture(
        calls(("flaky", "{}")), says("pity"), tools=Marked(flaky=flaky), enable_retry=enabled, retry_attempts=2
    )
    await fixture.play("go")
    assert len(attempts) == tries


@pytest.mark.req("AGT-07")
@pytest.mark.parametrize("user_id", ["", " ", "victim\x00", "\x00victim", "vic\ntim", " victim", "a\ud800", "x" * 256])
async def test_a_user_id_that_might_be_read_as_another_is_refused(user_id):
    with pytest.raises(InvalidRequest) as caught:
        AgentContext(user_id=user_id)
    assert caught.value.field == "user_id"


@pytest.mark.req("A26")
async def test_a_model_that_keeps_sending_unusable_calls_is_given_up():
    fixture = AgentFixture(calls(("echo", "not json")))
    response = await fixture.play("go")
    assert response.status == "error"
    assert response.iterations == 3
    assert fixture.ending.reason == "bad_tool_arguments"


@pytest.mark.req("A23")
async def test_a_reply_cut_by_length_is_finished_with_a_warning_and_its_call_is_not_carried_out():
    half = ToolCall(id="h", name="echo", arguments='{"a": ')
    fixture = AgentFixture(Turn(text=["partial"], calls=[half], finish_reason="length"))
    response = await fixture.play("go")
    assert response.status == "completed"
    assert "max_tokens" in (response.warning or "")
    assert fixture.tools.called == []
    assert fixture.conversation.messages[-1].cut == "length"
    assert fixture.ending.finish_reason == "length"


@pytest.mark.req("A03")
async def test_a_model_that_breaks_keeps_its_text_marked_as_cut():
    fixture = AgentFixture(says("half an ans", error=ModelInterrupted("broken off", started=True)))
    response = await fixture.play("go")
    assert (response.status, response.error_code) == ("error", "model-error")
    assert fixture.conversation.messages[-1].content == "half an ans"
    assert fixture.conversation.messages[-1].cut == "upstream_interrupted"
    assert fixture.ending.reason == "upstream_interrupted"


async def test_a_call_that_the_model_began_and_never_finished_is_reported_as_failed():
    class Stops:
        name = "stops"

        async def reply(self, prompt, listener):
            listener.call_started("c1", "echo")
            listener.call_arguments("c1", '{"a"')
            raise ModelInterrupted("gone", started=True)

        async def close(self):
            return None

    fixture = AgentFixture(says("unused"))
    object.__setattr__(fixture.agent, "model", Stops())
    await fixture.play("go")
    assert fixture.emitted(e.ToolFinished)[0].failed
    assert fixture.tools.called == []


async def test_the_user_message_is_kept_when_the_model_cannot_be_reached():
    fixture = AgentFixture(Turn(error=ModelUnreachable("refused")))
    response = await fixture.play("remember this")
    assert response.status == "error"
    assert [message.content for message in fixture.conversation.messages] == ["remember this"]


@pytest.mark.req("A24")
async def test_a_filtered_reply_ends_as_a_failure_with_its_reason():
    fixture = AgentFixture(says("I will", finish_reason="content_filter"))
    await fixture.play("go")
    assert fixture.ending.reason == "content_filter"
    assert fixture.conversation.messages[-1].cut == "content_filter"


async def test_an_empty_reply_is_never_a_silent_success():
    fixture = AgentFixture(Turn())
    response = await fixture.play("go")
    assert (response.status, response.final_response, response.error_code) == ("error", None, "model-error")
    assert (fixture.ending.code, fixture.ending.reason) == ("model-error", "empty_reply")
    assert isinstance(fixture.conversation.messages[-1], UserMessage), "an empty message would break the next turn"


async def test_an_empty_reply_after_tools_ran_is_a_success_with_a_warning():
    fixture = AgentFixture(calls(("echo", "{}")), Turn(), tools=PlainTools(echo=echo))
    response = await fixture.play("go")
    assert (response.status, response.final_response) == ("completed", "")
    assert response.warning == fixture.ending.warning == "The model returned an empty answer."
    assert [event.code for event in fixture.events if isinstance(event, e.WarningRaised)] == ["empty-reply"]


async def test_a_defect_of_ours_becomes_an_ending_and_not_a_dead_stream(caplog):
    fixture = AgentFixture(says("x"))
    object.__setattr__(fixture.agent, "max_messages", "not a number")
    response = await fixture.play("go")
    assert response.error_code == fixture.ending.code == "internal-error"
    assert "not a number" not in fixture.ending.message
    assert "unexpected error" in caplog.text


async def test_nothing_to_answer_is_refused():
    fixture = AgentFixture(says("x"))
    response = await fixture.play()
    assert response.error_code == "invalid-request"


class TestCancellation:
    @pytest.mark.parametrize("point", range(14))
    async def test_at_any_event_it_leaves_one_ending_and_a_whole_history(self, point):
        """The checks are in Scene.play: grammar, one ending, no unanswered call."""
        fixture = AgentFixture(
            Turn(reasoning=["hm"], text=["let", " me"], calls=[ToolCall(id="a", name="echo", arguments="{}")]),
            says("all done"),
        )
        task = None
        seen = 0

        def cancel_at_point(event):
            nonlocal seen
            if seen == point:
                task.cancel()
            seen += 1

        task = asyncio.create_task(fixture.play("go", on=cancel_at_point))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert fixture.ending.outcome is e.Outcome.CANCELLED
        assert fixture.conversation.messages[:1]

    async def test_during_a_tool_call_the_history_says_that_its_effect_is_unknown(self):
        fixture = AgentFixture(calls(("stuck", "{}"), ("echo", "{}")))
        task = None

        def cancel_after_echo(event):
            if isinstance(event, e.ToolFinished) and event.name == "echo":
                task.cancel()

        task = asyncio.create_task(fixture.play("go", on=cancel_after_echo))
        with pytest.raises(asyncio.CancelledError):
            await task
        stuck, finished = fixture.conversation.messages[-2:]
        assert "not known" in stuck.content
        assert not finished.failed

    @pytest.mark.parametrize("count", [1, 2])
    async def test_a_toolset_that_swallows_it_does_not_continue_the_run(self, count):
        async def stubborn(_arguments, _context):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return ToolResult(content="done anyway")

        fixture = AgentFixture(calls(*[("stubborn", "{}")] * count), tools=PlainTools(stubborn=stubborn))
        task = asyncio.create_task(fixture.play("go"))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert fixture.ending.outcome is e.Outcome.CANCELLED
        assert len(fixture.emitted(e.ToolFinished)) == count

    @pytest.mark.parametrize("count", [1, 2])
    async def test_one_that_the_caller_survived_before_does_not_end_the_run(self, count):
        fixture = AgentFixture(calls(*[("echo", "{}")] * count), says("done"))

        async def asked_in_clean_up():
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await fixture.play("go")

        task = asyncio.create_task(asked_in_clean_up())
        await asyncio.sleep(0)
        task.cancel()
        await task
        assert fixture.ending.outcome is e.Outcome.COMPLETED

    async def test_forced_from_outside_it_ends_with_that_error(self):
        fixture = AgentFixture(calls(("stuck", "{}")))
        task = None

        def cancel_at_call(event):
            if isinstance(event, e.ToolCallEnded):
                task.cancel()

        task = asyncio.create_task(
            fixture.play("go", on=cancel_at_call, why_stopped=lambda: ShuttingDown("going down"))
        )
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (fixture.ending.code, fixture.ending.message) == ("shutting-down", "going down")


async def test_a_text_after_a_tool_call_continues_in_the_same_message():
    class Talkative:
        name = "talkative"

        async def reply(self, prompt, listener):
            from holodeck.models.port import ModelReply

            if len(prompt.messages) > 1:
                listener.text("end")
                return ModelReply(text="end")
            call = ToolCall(id="c", name="echo", arguments="{}")
            listener.text("before")
            listener.call_started("c", "echo")
            listener.call_ended(call)
            listener.text(" after")
            return ModelReply(text="before after", tool_calls=(call,))

        async def close(self):
            return None

    fixture = AgentFixture(says("unused"))
    object.__setattr__(fixture.agent, "model", Talkative())
    await fixture.play("go")
    first, second = fixture.emitted(e.TextStarted)[:2]
    assert first.message_id == second.message_id
    assert fixture.conversation.messages[1].content == "before after"


async def test_the_model_sees_the_conversation_so_far():
    fixture = AgentFixture(says("one"), says("two"))
    await fixture.play("first")
    await fixture.play("second")
    assert [message.content for message in fixture.model.prompts[1].messages] == ["first", "one", "second"]


@pytest.mark.req("AGT-07")
async def test_tools_get_the_user_of_the_run():
    fixture = AgentFixture(calls(("echo", '{"user_id": "eve"}')), says("ok"), tools=PlainTools(echo=echo))
    await fixture.play("go", user_id="ada")
    assert fixture.tools.called[0][2] == "ada"


async def test_what_became_of_the_files_is_reported_first():
    note = FileNote(name="a.pdf", mime_type="application/pdf", read_as="pdf", characters=12)
    fixture = AgentFixture(says("read"))
    await fixture.play("see file", files=[note])
    answer = fixture.events[1]
    assert (answer.name, answer.value[0]["characters"]) == ("holodeck.files", 12)


async def test_a_call_that_was_stopped_has_its_true_duration(monkeypatch):
    clock = LoopClock(monkeypatch)

    async def stuck(arguments, context):
        await clock.stuck()

    fixture = AgentFixture(calls(("stuck", "{}")), says("done"), tools=PlainTools(stuck=stuck), iteration_timeout=LIMIT)
    (execution,) = (await fixture.play("go")).executions
    assert execution.status == "failed"
    assert execution.execution_time > 0


async def test_an_execution_can_be_printed():
    async def paints(arguments, context):
        return ToolResult(content="\x1b[31mred\x1b[0m\x07 text")

    response = await AgentFixture(calls(("paints", "{}")), says("done"), tools=PlainTools(paints=paints)).play("go")
    assert response.executions[0].result == "red text"
