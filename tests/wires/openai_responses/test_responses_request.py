"""Bodies of `POST /v1/responses`: what becomes of them, and what is refused by name."""

import json
from typing import Any

import pytest

from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolMessage, UserMessage
from holodeck.core.request import Resume
from holodeck.errors import HoloDeckError, InvalidRequest
from holodeck.wires.openai_responses.request import ResponsesRequest, decode

PNG = "data:image/png;base64,iVBORw0KGgo="


def read(**body: Any) -> ResponsesRequest:
    return decode(json.dumps({"input": "Hello", **body}).encode())


def message(role: str, *parts: Any) -> Any:
    return {"type": "message", "role": role, "content": list(parts)}


def test_a_text_is_a_message_of_the_user() -> None:
    asked = read()
    assert [(type(each), each.content) for each in asked.run.messages] == [(UserMessage, "Hello")]
    assert (asked.run.detached, asked.run.throw_away, asked.run.only_adds) == (False, False, True)


def test_items_of_every_kind() -> None:
    asked = read(
        input=[
            {"role": "developer", "content": "Be brief."},
            message("user", {"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PNG}),
            {"type": "reasoning", "summary": []},
            {"type": "mcp_call", "id": "x"},
            {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "b", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
            message("assistant", {"type": "output_text", "text": "A pixel."}),
            {"type": "something new"},
            message("user", {"type": "input_file", "filename": "a.txt", "file_data": "aGk="}),
            {"type": "mcp_approval_response", "approval_request_id": "i1", "approve": False},
        ],
        instructions="Answer in French.",
    )
    first, calls, one, two, answer, last = asked.run.messages
    assert first.content == (TextPart("What is this?"), MediaPart(mime_type="image/png", data="iVBORw0KGgo="))
    assert isinstance(calls, AssistantMessage)
    assert [(call.id, call.name) for call in calls.tool_calls] == [("c1", "a"), ("c2", "b")]
    assert isinstance(one, ToolMessage)
    assert (one.name, one.content) == ("a", "1")
    assert isinstance(two, ToolMessage)
    assert (two.name, two.content) == ("b", (TextPart("2"),))
    assert answer.content == "A pixel."
    assert isinstance(last.content[0], MediaPart)
    assert asked.run.resume == (Resume(interrupt_id="i1", approved=False),)
    assert [text for _, text in asked.run.context] == ["Answer in French.", "Be brief."]


def test_options_and_state() -> None:
    asked = read(
        tools=[{"type": "function", "name": "paint", "parameters": {"type": "object"}}],
        tool_choice={"type": "function", "name": "paint"},
        max_output_tokens=9,
        previous_response_id="resp_r1",
        background=True,
        stream=True,
    )
    assert (asked.run.options.tool_choice, asked.run.options.max_output_tokens) == ("paint", 9)
    assert (asked.run.parent_run_id, asked.run.detached, asked.stream) == ("r1", True, True)
    assert [tool.name for tool in asked.run.client_tools] == ["paint"]
    assert read(conversation={"id": "a thread/1"}).conversation == "a thread/1"
    assert read(store=False).run.throw_away


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp", "server_url": "http://127.0.0.1"}]}, "tools[0].type"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, "text.format"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"store": False, "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [message("user", {"type": "input_audio"})]}, "input[0].content[0].type"),
        ({"input": [message("user", {"type": "input_image", "file_id": "file-1"})]}, "input[0].content[0].image_url"),
        ({"input": [message("critic", {"type": "input_text", "text": "x"})]}, "input[0].role"),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**body)
    assert (refused.value.field, refused.value.reason, refused.value.status) == (field, "unsupported_parameter", 400)


@pytest.mark.parametrize("kind", [[], {}, None])
def test_a_type_that_is_not_text_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidRequest, match="must be input_text"):
        read(input=[message("user", {"type": kind, "text": "x"})])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": [message("assistant", {"type": "output_text", "text": "x"})]}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"type": "mcp_approval_response", "approval_request_id": "i", "approve": "yes"}]}, "input[0].approve"),
        ({"previous_response_id": "resp_1", "conversation": "c"}, "previous_response_id"),
        ({"background": True, "store": False}, "background"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"conversation": {"id": ""}}, "conversation.id"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**body)
    assert refused.value.field == field


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [[]], {"type": []}, {"id": {}}])
@pytest.mark.parametrize(
    "member", ["input", "instructions", "tools", "tool_choice", "text", "reasoning", "metadata", "store", "stream",
               "background", "conversation", "previous_response_id", "model", "max_output_tokens", "temperature"],
)  # fmt: skip
def test_nothing_breaks_the_decoder(member: str, value: Any) -> None:
    try:
        read(**{member: value})
    except HoloDeckError:
        return
    assert True
