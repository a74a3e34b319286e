"""What of a long conversation the model is shown, in messages and in tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.agent.budget import TOKENS_OF_A_MESSAGE, TOKENS_OF_AN_IMAGE, tokens_in, tokens_of
from holodeck.agent.prompting import latest
from holodeck.core.messages import (
    AssistantMessage,
    MediaPart,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    unanswered,
)
from holodeck.models.scripted import says
from tests.agent.agent_fixture import AgentFixture


def turn(steps, size):
    messages = [UserMessage(content="q" * size)]
    for number in range(steps):
        ids = [f"c{number}{letter}" for letter in "ab"]
        messages.append(AssistantMessage(tool_calls=tuple(ToolCall(id=each, name="t", arguments="{}") for each in ids)))
        messages += [ToolMessage(call_id=each, name="t", content="r" * size) for each in ids]
    return [*messages, AssistantMessage(content="a" * size)]


TURNS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), min_size=1, max_size=8)


@pytest.mark.req("CHT-09")
@given(TURNS, st.integers(1, 40), st.none() | st.integers(1, 2000))
def test_whatever_is_cut_calls_keep_their_results_and_limits_hold(turns, limit, max_tokens):
    parts = [turn(steps, size) for steps, size in turns]
    messages = [message for part in parts for message in part]
    shown = latest(messages, limit, max_tokens)
    assert list(shown) == messages[len(messages) - len(shown) :], "the end of the conversation, unbroken"
    assert unanswered(shown) == []
    assert isinstance(shown[0], UserMessage)
    last = parts[-1]
    if len(shown) > len(last):
        assert len(shown) <= limit
        assert max_tokens is None or tokens_in(shown) <= max_tokens
    else:
        assert list(shown) == last, "the last turn is always whole"
    before = messages[: len(messages) - len(shown)]
    if before:
        start = max(index for index, message in enumerate(before) if isinstance(message, UserMessage))
        one_more = messages[start:]
        assert len(one_more) > limit or (max_tokens is not None and tokens_in(one_more) > max_tokens), (
            "no less than fits"
        )


def test_a_history_that_begins_with_an_answer_is_shown_whole_when_it_fits():
    messages = [AssistantMessage(content="Welcome!"), UserMessage(content="hi")]
    assert list(latest(messages, 2, 100)) == messages
    assert list(latest(messages, 1, 100)) == messages[1:]
    assert list(latest(messages[:1], 1, 1)) == messages[:1], "there is nothing else to show"


def test_a_limit_of_tokens_may_be_used_up_to_the_last():
    messages = [*turn(1, 40), *turn(2, 40)]
    all_of_it = tokens_in(messages)
    assert list(latest(messages, 100, all_of_it)) == messages
    assert list(latest(messages, 100, all_of_it - 1)) == messages[5:]


def test_tokens_are_estimated():
    assert tokens_of(UserMessage(content="12345")) == TOKENS_OF_A_MESSAGE + 2
    call = ToolCall(id="c", name="name", arguments='{"a": 1}')
    assert tokens_of(AssistantMessage(content="", tool_calls=(call,))) == TOKENS_OF_A_MESSAGE + 3
    picture = MediaPart(mime_type="image/png", data="A" * 1_000_000)
    message = UserMessage(content=(TextPart("1234"), picture))
    assert tokens_of(message) == TOKENS_OF_A_MESSAGE + 1 + TOKENS_OF_AN_IMAGE


async def test_the_agent_shows_no_more_than_its_tokens():
    fixture = AgentFixture(says("w" * 400))
    object.__setattr__(fixture.agent, "max_tokens", 250)
    for _ in range(4):
        await fixture.play("q" * 80)
    assert [len(prompt.messages) for prompt in fixture.model.prompts] == [1, 3, 3, 3]
    assert len(fixture.conversation.messages) == 8, "the session keeps all of it"
