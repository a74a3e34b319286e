"""Names of tools that a model invented: the history goes back with names that the providers accept."""

import pytest

from holodeck.core.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from holodeck.models.anthropic.message_request import messages_of
from holodeck.models.chat_format import to_chat
from holodeck.models.openai_responses.input_items import to_input
from holodeck.models.port import Prompt

NAMES = {
    "multi_tool_use.parallel": "multi_tool_use_parallel",
    "a b/ü": "a_b__",
    "x" * 70: "x" * 64,
    "look-up_2": "look-up_2",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_goes_back_with_the_characters_that_providers_accept(name):
    history = [
        UserMessage(content="Hi"),
        AssistantMessage(content="", tool_calls=(ToolCall(id="c", name=name, arguments="{}"),)),
        ToolMessage(call_id="c", name=name, content="There is no such tool.", failed=True),
    ]
    _, asked, result = to_chat(Prompt(messages=history))
    sent = {asked["tool_calls"][0]["function"]["name"], result["name"]}
    sent |= {to_input(history)[1]["name"], messages_of(history)[1]["content"][0]["name"]}
    assert sent == {NAMES[name]}
