"""Runs of small models end with an answer, and no message kills a conversation for ever."""

import pytest

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.tools import ToolResult
from holodeck.core.usage import TokenUsage
from holodeck.errors import ContentFiltered, ContextOverflow, ModelAuthFailed, ModelRejected
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from tests.agent.parts import PlainTools, Scene


class StubbornModel(ScriptedModel):
    """Calls the same tool as long as it sees one, as a model of 1.5B parameters does."""

    async def reply(self, prompt, listener):
        self.turns = [says("There are 42.") if prompt.answers_now else calls(("stock", '{"sku": "AB-1"}'))]
        return await super().reply(prompt, listener)


def stubborn(*results: str, **settings) -> Scene:
    left = list(results)

    async def stock(arguments, context):
        return ToolResult(content=left.pop(0) if len(left) > 1 else left[0])

    scene = Scene(tools=PlainTools(stock=stock), **settings)
    model = StubbornModel([])
    object.__setattr__(scene.agent, "model", model)
    scene.model = model
    return scene


async def test_two_equal_calls_with_equal_results_are_followed_by_an_answer():
    scene = stubborn("42")
    response = await scene.play("How many?")
    assert (response.status, response.final_response) == ("completed", "There are 42.")
    assert [prompt.answers_now for prompt in scene.model.prompts] == [False, False, True]
    assert len(scene.tools.called) == 2


async def test_spaces_in_the_arguments_make_no_difference():
    scene = Scene(calls(("echo", '{"a":1}')), calls(("echo", '{ "a": 1 }')), says("ok"))
    await scene.play("go")
    assert [prompt.answers_now for prompt in scene.model.prompts] == [False, False, True]


async def test_equal_calls_with_new_results_go_on():
    scene = stubborn("1", "2", "3", "3")
    await scene.play("How many?")
    assert [prompt.answers_now for prompt in scene.model.prompts] == [False, False, False, False, True]


async def test_the_last_iteration_is_asked_for_an_answer():
    scene = stubborn("1", "2", "3", "4", "5", max_iterations=3)
    response = await scene.play("How many?")
    assert (response.status, response.final_response) == ("completed", "There are 42.")
    assert [prompt.answers_now for prompt in scene.model.prompts] == [False, False, True]


async def test_the_only_iteration_may_use_tools():
    scene = stubborn("1", max_iterations=1)
    await scene.play("How many?")
    assert len(scene.tools.called) == 1


class SmallWindow(ScriptedModel):
    """Refuses prompts of more than so many characters."""

    limit = 500

    async def reply(self, prompt, listener):
        if sum(len(text_of(message.content)) for message in prompt.messages) > self.limit:
            raise ContextOverflow("The conversation is too long for the model.")
        return await super().reply(prompt, listener)


def small_window() -> Scene:
    scene = Scene()
    model = SmallWindow([says("ok")])
    object.__setattr__(scene.agent, "model", model)
    scene.model = model
    return scene


async def test_a_conversation_that_is_too_long_is_shown_from_a_later_point():
    scene = small_window()
    for _ in range(4):
        await scene.play("x" * 100)
    response = await scene.play("y" * 120)
    assert (response.status, response.final_response) == ("completed", "ok")
    assert [event.code for event in scene.emitted(e.WarningRaised)] == ["history-shortened"]
    assert scene.model.prompts[-1].messages[-1].content == "y" * 120
    assert len(scene.conversation.messages) == 10, "the history itself stays whole"


async def test_a_message_that_does_not_fit_is_refused_once_and_forgotten():
    scene = small_window()
    await scene.play("before")
    refused = await scene.play("z" * 1000)
    assert (refused.status, scene.ending.reason) == ("error", "context_overflow")
    response = await scene.play("hi")
    assert response.final_response == "ok"
    shown = [text_of(message.content) for message in scene.model.prompts[-1].messages]
    assert shown == ["before", "ok", "hi"]


async def test_a_message_that_the_filter_refuses_is_not_shown_again():
    scene = Scene(Turn(error=ContentFiltered("no")), says("ok"))
    refused = await scene.play("something bad")
    assert refused.status == "error"
    assert (await scene.play("hi")).final_response == "ok"
    assert [message.content for message in scene.model.prompts[-1].messages] == ["hi"]


def rejected() -> ModelRejected:
    error = ModelRejected("The model endpoint refused the request (400). Its message: Invalid image.")
    error.of_request = True
    return error


async def test_a_message_that_the_endpoint_cannot_read_is_not_shown_again():
    scene = Scene(says("ok"), Turn(error=rejected()), Turn(error=rejected()), says("fine"))
    await scene.play("before")
    assert (await scene.play("a broken image")).status == "error"
    assert (await scene.play("hi")).final_response == "fine"
    assert [text_of(message.content) for message in scene.model.prompts[-1].messages] == ["before", "ok", "hi"]


async def test_an_old_message_that_another_model_cannot_read_ends_no_conversation():
    scene = Scene(says("ok"), Turn(error=rejected()), says("fine"))
    await scene.play("an image that only the first model reads")
    response = await scene.play("hi")
    assert response.final_response == "fine"
    assert [text_of(message.content) for message in scene.model.prompts[-1].messages] == ["hi"]
    assert "was refused as a whole" in response.warning


async def test_a_refusal_that_is_not_about_the_request_hides_nothing():
    scene = Scene(Turn(error=ModelAuthFailed("no key")), says("ok"))
    await scene.play("first")
    await scene.play("second")
    assert [message.content for message in scene.model.prompts[-1].messages] == ["first", "second"]


@pytest.mark.parametrize(
    "thoughts",
    [{"reasoning": ["Hm", "m"]}, {"usage": TokenUsage(prompt_tokens=1, completion_tokens=9, reasoning_tokens=9)}],
)
async def test_a_reply_of_thoughts_alone_says_what_to_raise(thoughts):
    scene = Scene(Turn(**thoughts))
    response = await scene.play("hi")
    assert "Raise model.max_tokens, or lower model.reasoning.effort" in response.error
    assert (scene.ending.message, scene.ending.reason) == (response.error, "empty_reply")


async def test_an_empty_reply_without_thoughts_is_just_empty():
    assert (await Scene(Turn()).play("hi")).error == "The model returned an empty answer."
