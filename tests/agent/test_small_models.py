"""Runs of small models end with an answer, and no message kills a conversation for ever."""

import pytest

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.tools import ToolResult
from holodeck.core.usage import TokenUsage
from holodeck.errors import ContentFiltered, ContextOverflow, ModelAuthFailed, ModelRejected
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from tests.agent.agent_fixture import AgentFixture, PlainTools


class StubbornModel(ScriptedModel):
    """Calls the same tool as long as it sees one, as a model of 1.5B parameters does."""

    async def reply(self, prompt, listener):
        self.turns = [says("There are 42.") if prompt.answers_now else calls(("stock", '{"sku": "AB-1"}'))]
        return await super().reply(prompt, listener)


def stubborn(*results: str, **settings) -> AgentFixture:
    left = list(results)

    async def stock(arguments, context):
        return ToolResult(content=left.pop(0) if len(left) > 1 else left[0])

    fixture = AgentFixture(tools=PlainTools(stock=stock), **settings)
    model = StubbornModel([])
    object.__setattr__(fixture.agent, "model", model)
    fixture.model = model
    return fixture


async def test_two_equal_calls_with_equal_results_are_followed_by_an_answer():
    fixture = stubborn("42")
    response = await fixture.play("How many?")
    assert (response.status, response.final_response) == ("completed", "There are 42.")
    assert [prompt.answers_now for prompt in fixture.model.prompts] == [False, False, True]
    assert len(fixture.tools.called) == 2


async def test_spaces_in_the_arguments_make_no_difference():
    fixture = AgentFixture(calls(("echo", '{"a":1}')), calls(("echo", '{ "a": 1 }')), says("ok"))
    await fixture.play("go")
    assert [prompt.answers_now for prompt in fixture.model.prompts] == [False, False, True]


async def test_equal_calls_with_new_results_continue():
    fixture = stubborn("1", "2", "3", "3")
    await fixture.play("How many?")
    assert [prompt.answers_now for prompt in fixture.model.prompts] == [False, False, False, False, True]


async def test_the_last_iteration_is_asked_for_an_answer():
    fixture = stubborn("1", "2", "3", "4", "5", max_iterations=3)
    response = await fixture.play("How many?")
    assert (response.status, response.final_response) == ("completed", "There are 42.")
    assert [prompt.answers_now for prompt in fixture.model.prompts] == [False, False, True]


async def test_the_only_iteration_may_use_tools():
    fixture = stubborn("1", max_iterations=1)
    await fixture.play("How many?")
    assert len(fixture.tools.called) == 1


class SmallWindow(ScriptedModel):
    """Refuses prompts of more than so many characters."""

    limit = 500

    async def reply(self, prompt, listener):
        if sum(len(text_of(message.content)) for message in prompt.messages) > self.limit:
            raise ContextOverflow("The conversation is too long for the model.")
        return await super().reply(prompt, listener)


def small_window() -> AgentFixture:
    fixture = AgentFixture()
    model = SmallWindow([says("ok")])
    object.__setattr__(fixture.agent, "model", model)
    fixture.model = model
    return fixture


async def test_a_conversation_that_is_too_long_is_shown_from_a_later_point():
    fixture = small_window()
    for _ in range(4):
        await fixture.play("x" * 100)
    response = await fixture.play("y" * 120)
    assert (response.status, response.final_response) == ("completed", "ok")
    assert [event.code for event in fixture.emitted(e.WarningRaised)] == ["history-shortened"]
    assert fixture.model.prompts[-1].messages[-1].content == "y" * 120
    assert len(fixture.conversation.messages) == 10, "the history itself stays whole"


async def test_a_message_that_does_not_fit_is_refused_once_and_forgotten():
    fixture = small_window()
    await fixture.play("before")
    refused = await fixture.play("z" * 1000)
    assert (refused.status, fixture.ending.reason) == ("error", "context_overflow")
    response = await fixture.play("hi")
    assert response.final_response == "ok"
    shown = [text_of(message.content) for message in fixture.model.prompts[-1].messages]
    assert shown == ["before", "ok", "hi"]


async def test_a_message_that_the_filter_refuses_is_not_shown_again():
    fixture = AgentFixture(Turn(error=ContentFiltered("no")), says("ok"))
    refused = await fixture.play("something bad")
    assert refused.status == "error"
    assert (await fixture.play("hi")).final_response == "ok"
    assert [message.content for message in fixture.model.prompts[-1].messages] == ["hi"]


def rejected() -> ModelRejected:
    error = ModelRejected("The model endpoint refused the request (400). Its message: Invalid image.")
    error.of_request = True
    return error


async def test_a_message_that_the_endpoint_cannot_read_is_not_shown_again():
    fixture = AgentFixture(says("ok"), Turn(error=rejected()), Turn(error=rejected()), says("fine"))
    await fixture.play("before")
    assert (await fixture.play("a broken image")).status == "error"
    assert (await fixture.play("hi")).final_response == "fine"
    assert [text_of(message.content) for message in fixture.model.prompts[-1].messages] == ["before", "ok", "hi"]


async def test_an_old_message_that_another_model_cannot_read_ends_no_conversation():
    fixture = AgentFixture(says("ok"), Turn(error=rejected()), says("fine"))
    await fixture.play("an image that only the first model reads")
    response = await fixture.play("hi")
    assert response.final_response == "fine"
    assert [text_of(message.content) for message in fixture.model.prompts[-1].messages] == ["hi"]
    assert "was refused as a whole" in response.warning


async def test_a_refusal_that_is_not_about_the_request_hides_nothing():
    fixture = AgentFixture(Turn(error=ModelAuthFailed("no key")), says("ok"))
    await fixture.play("first")
    await fixture.play("second")
    assert [message.content for message in fixture.model.prompts[-1].messages] == ["first", "second"]


@pytest.mark.parametrize(
    "thoughts",
    [{"reasoning": ["Hm", "m"]}, {"usage": TokenUsage(prompt_tokens=1, completion_tokens=9, reasoning_tokens=9)}],
)
async def test_a_reply_of_thoughts_alone_says_what_to_raise(thoughts):
    fixture = AgentFixture(Turn(**thoughts))
    response = await fixture.play("hi")
    assert "Raise model.max_tokens, or lower model.reasoning.effort" in response.error
    assert (fixture.ending.message, fixture.ending.reason) == (response.error, "empty_reply")


async def test_an_empty_reply_without_thoughts_is_just_empty():
    assert (await AgentFixture(Turn()).play("hi")).error == "The model returned an empty answer."
