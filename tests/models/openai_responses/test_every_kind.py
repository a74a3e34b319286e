"""One of each: every event and every item that OpenAI's own package knows is read, and none of them loses the answer."""

from typing import Any, get_args

import pytest
from openai.types.responses import ResponseStreamEvent
from openai.types.responses.response_output_item import ResponseOutputItem

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.errors import ContentFiltered, ModelProtocolError
from holodeck.models.chunks import InBandError
from holodeck.models.openai_responses.input_items import to_input
from holodeck.models.openai_responses.output_items import KEPT
from tests.models.openai_responses.response_streams import (
    OPENING,
    Shape,
    call,
    completed,
    ev,
    message,
    response,
    text_events,
)
from tests.models.openai_responses.test_shapes import read


def kinds_of(union: Any) -> dict[str, Any]:
    members = get_args(get_args(union)[0])
    return {get_args(each.model_fields["type"].annotation)[0]: each for each in members}


EVENTS, ITEMS = kinds_of(ResponseStreamEvent), kinds_of(ResponseOutputItem)
SAMPLES = {
    "delta": "D", "item_id": "x_1", "output_index": 0, "content_index": 0, "summary_index": 0, "command_index": 0,
    "code": "D", "command": "ls", "text": "D", "refusal": "D", "arguments": "{}", "input": "D", "obfuscation": "o",
    "annotation": {"type": "file_path"}, "annotation_index": 0, "partial_image_b64": "aGk=", "partial_image_index": 0,
    "item": {"id": "x_1", "type": "future"}, "output": [], "logprobs": [],
}  # fmt: skip
ENDS = {"response.completed", "response.failed", "response.incomplete", "error"}
FAILS = {  # what an event without the others that belong to it amounts to
    "response.refusal.delta": ContentFiltered,
    "response.refusal.done": ContentFiltered,
    **dict.fromkeys(
        (f"response.{name}.{end}" for name in ("function_call_arguments", "custom_tool_call_input") for end in ("delta", "done")),
        ModelProtocolError,
    ),
}  # fmt: skip
ADDS_TEXT = {"response.output_text.delta", "response.output_text.done"}


@pytest.mark.parametrize("kind", sorted(EVENTS.keys() - ENDS))
def test_an_event_does_no_harm(kind):
    members = {name: SAMPLES.get(name) for name in EVENTS[kind].model_fields if name not in ("type", "sequence_number")}
    if "part" in members:
        members["part"] = {"type": "summary_text", "text": "D"}
    if "response" in members:
        members["response"] = response("in_progress")
    body = Shape([*OPENING, {"type": kind, **members}, *text_events(1, "Hi"), completed(message("Hi"))]).body
    if kind in FAILS:
        with pytest.raises(FAILS[kind]):
            read(body)
        return
    reply, _ = read(body)
    assert reply.text == ("DHi" if kind in ADDS_TEXT else "Hi")
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_end_that_is_none_is_an_error(status):
    with pytest.raises(InBandError):
        read(Shape([*OPENING, *text_events(0, "Hi"), ev(status, response=response(status))]).body)


@pytest.mark.parametrize("kind", sorted(ITEMS.keys() - {"message"}))
def test_an_item_is_shown_if_it_is_a_call_and_goes_back(kind):
    everything = {
        "id": "x_1", "status": "completed", "call_id": "call_7", "name": "tool", "arguments": "{}", "input": "in",
        "output": "out", "code": "c", "result": "r", "encrypted_content": "e", "tools": [{"name": "t"}],
        "operation": {"type": "create_file"}, "queries": ["q"], "summary": [], "server_label": "s", "role": "assistant",
    }  # fmt: skip
    item = {"type": kind} | {name: value for name, value in everything.items() if name in ITEMS[kind].model_fields}
    added, done = (ev(f"output_item.{word}", output_index=0, item=item) for word in ("added", "done"))
    reply, listener = read(Shape([*OPENING, added, done, *text_events(1, "Hi"), completed(item, message("Hi"))]).body)
    assert reply.text == "Hi"
    is_ours = kind == "function_call"  # the provider ran a custom tool that it goes on after
    assert [each.name for each in reply.tool_calls] == (["tool"] if is_ours else [])
    is_theirs = not is_ours and (kind.endswith("_call") or kind in ("mcp_list_tools", "program"))
    assert len(listener.answered) == is_theirs
    kept = AssistantMessage(content=reply.text, tool_calls=reply.tool_calls, extra=reply.extra)
    sent = to_input([UserMessage(content="Hi"), kept])
    has_own_role = kind == "additional_tools"  # of the developer: never from a session, which may be edited
    is_kept = not has_own_role and kind != "custom_tool_call"
    assert (kind in [each.get("type") for each in sent]) is is_kept


def test_a_call_keeps_who_made_it():
    """A program of the provider, or a set of tools: the provider wants the member back with the call."""
    made = {**call("f", "{}"), "caller": {"type": "program", "caller_id": "p_1"}, "namespace": "crm"}
    added, done = (ev(f"output_item.{word}", output_index=0, item=made) for word in ("added", "done"))
    reply, _ = read(Shape([*OPENING, added, done, completed(made)]).body)
    kept = AssistantMessage(content=reply.text, tool_calls=reply.tool_calls, extra=reply.extra)
    assert reply.extra[KEPT]["items"] == [
        {"type": "function_call", "caller": {"type": "program", "caller_id": "p_1"}, "namespace": "crm"}
    ]
    sent = to_input([kept])[0]
    assert (sent["call_id"], sent["namespace"]) == ("call_1", "crm")


@pytest.mark.parametrize("before", ["", "Here it is. "])
def test_an_answer_that_came_as_a_call_goes_back_as_text_after_encrypted_reasoning(before):
    text = [{"type": "message", "content": [{"type": "output_text", "text": before}]}] if before else []
    items = [{"type": "reasoning", "id": "rs", "encrypted_content": "e"}, *text, {"type": "function_call"}]
    kept = AssistantMessage(content=before + '{"x":1}', extra={"openai_responses": {"items": items}})
    sent = [item["content"] for item in to_input([kept]) if item.get("role") == "assistant"]
    assert sent == [*filter(None, [before]), '{"x":1}']
