"""Any run the grammar allows, as a stream that the official SDK's own state machine accepts; cut and resumed at every frame."""

import json
from typing import Any

import pytest
from hypothesis import given
from openai._models import construct_type_unchecked
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter

from holodeck.core import events as e
from holodeck.core.tools import ToolSchema
from holodeck.core.usage import TokenUsage
from holodeck.wires.openai_responses.builder import ResponseBuilder, ResponseEncoder, ResponseHead, ToolsSeen
from holodeck.wires.openai_responses.echo import RequestEcho, echoed
from tests.examples import examples
from tests.wires.event_sequences import APPROVAL, NAMED, STARTED, call, event_sequences, finished, step, text
from tests.wires.sse_parsers import whatwg

HEAD = ResponseHead(id="resp_run-1", created_at=1_800_000_000, model="tester", conversation="thread-1")
RELAXED = examples(25)
ITEM: Any = TypeAdapter(ResponseOutputItem)
EVENT: Any = TypeAdapter(ResponseStreamEvent)
Json = dict[str, Any]


def builder(**seen: Any) -> ResponseBuilder:
    return ResponseBuilder(HEAD, ToolsSeen(**{"client_tools": {"change_background"}, **seen}))


def encoded(events: list[e.Event], after: int = -1, **seen: Any) -> bytes:
    return ResponseEncoder(builder(**seen), after=after).encode_many(enumerate(events))


def frames(events: list[e.Event], **seen: Any) -> list[Json]:
    """The data of all frames but the last, which is [DONE]; checked as the SDK reads them."""
    found = whatwg(encoded(events, **seen))
    assert [frame.data for frame in found].index("[DONE]") == len(found) - 1
    read = [json.loads(frame.data) for frame in found[:-1]]
    assert [frame.event for frame in found[:-1]] == [each["type"] for each in read]
    assert [each["sequence_number"] for each in read] == list(range(len(read)))
    return read


def ended(received: list[Json]) -> list[Json]:
    """The frames up to the one with the whole response; an error follows that of a run which failed."""
    if received[-1]["type"] != "error":
        return received
    error, response = received[-1], received[-2]["response"]
    assert (response["status"], error["error"]["message"]) == ("failed", response["error"]["message"])
    return received[:-1]


def accepted(received: list[Json]) -> Response:
    """What the SDK's helper makes of the frames; it raises for any that do not follow from those before."""
    EVENT.validate_python(received[-1])
    received = ended(received)
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for frame in received:
        EVENT.validate_python(frame)
        state.handle_event(construct_type_unchecked(type_=ResponseStreamEvent, value=frame))
    return Response.model_validate(received[-1]["response"])


def whole(events: list[e.Event], **seen: Any) -> Json:
    reader = builder(**seen)
    for event in events:
        reader.read(event)
    result: Json = json.loads(json.dumps(reader.response()))
    return result


def kinds(received: list[Json]) -> list[str]:
    return [frame["type"].removeprefix("response.") for frame in received]


@given(events=event_sequences())
@RELAXED
def test_any_run_becomes_a_stream_that_the_sdk_accepts(events: list[e.Event]) -> None:
    output = frames(events)
    answer = accepted(output)
    output = ended(output)
    assert kinds(output)[:2] == ["created", "in_progress"]
    assert kinds(output)[-1] in {"completed", "incomplete", "failed"}
    for item in output[-1]["response"]["output"]:
        ITEM.validate_python(item)
    added = [frame["item"]["id"] for frame in output if frame["type"] == "response.output_item.added"]
    done = [frame["item"] for frame in output if frame["type"] == "response.output_item.done"]
    assert sorted(added) == sorted(item["id"] for item in done)
    assert [item["id"] for item in output[-1]["response"]["output"]] == added
    deltas = "".join(frame["delta"] for frame in output if frame["type"] == "response.output_text.delta")
    assert answer.output_text == deltas
    assert output[-1]["response"] == whole(events), "the plain answer is the stream's last object"


@given(events=event_sequences())
@RELAXED
def test_one_event_at_a_time_gives_the_same_bytes(events: list[e.Event]) -> None:
    one = ResponseEncoder(builder())
    assert b"".join(one.encode(event) for event in events) == encoded(events)


@pytest.mark.parametrize("name", NAMED)
def test_a_stream_that_is_cut_at_any_frame_continues_with_the_next(name: str) -> None:
    whole_stream = encoded(NAMED[name])
    every = [frame + b"\n\n" for frame in whole_stream.split(b"\n\n")[:-1]]
    for seen in range(len(every) - 1):
        assert b"".join(every[: seen + 1]) + encoded(NAMED[name], after=seen) == whole_stream


def test_after_a_crash_the_numbers_continue_beyond_all_that_clients_may_have_seen() -> None:
    events = NAMED["plain_text"]
    encoder = ResponseEncoder(builder())
    before = whatwg(encoder.encode_many(enumerate(events[:4])))
    rest = whatwg(encoder.encode_many(enumerate(events[4:], 1_000_000_000)))
    assert json.loads(before[-1].data)["sequence_number"] < 20
    assert [json.loads(frame.data)["sequence_number"] for frame in rest[:2]] == [1_000_000_000, 1_000_000_001]


def test_what_the_provider_put_into_its_cache_is_counted() -> None:
    usage = TokenUsage(prompt_tokens=12, completion_tokens=34, cache_write_tokens=7)
    answer = accepted(frames([STARTED, *step(*text("m1", "So.")), finished(usage=usage)]))
    assert answer.usage is not None
    assert answer.usage.input_tokens_details.cache_write_tokens == 7


def test_text() -> None:
    events = frames(NAMED["plain_text"])
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * 3, "output_text.done",
        "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    answer = accepted(events)
    assert (answer.output_text, answer.status, answer.id) == ("Hello 😀", "completed", "resp_run-1")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (12, 34, 46)
    assert (answer.usage.input_tokens_details.cached_tokens, answer.usage.output_tokens_details.reasoning_tokens) == (
        8,
        5,
    )


def test_reasoning_is_a_summary() -> None:
    answer = accepted(frames(NAMED["reasoning_then_text"]))
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].summary[0].text == "Hm…"  # type: ignore[union-attr]


def test_tools_of_the_server_are_mcp_calls_and_never_the_clients() -> None:
    answer = accepted(frames(NAMED["parallel_calls_one_fails"], label_of=lambda name: f"of {name}"))
    called = [item.to_dict() for item in answer.output if item.type == "mcp_call"]
    assert [(item["name"], item["status"], item["server_label"]) for item in called] == [
        ("add", "completed", "of add"),
        ("sub", "failed", "of sub"),
    ]
    assert called[1]["error"] == {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no such number"}]}  # fmt: skip
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")  # type: ignore[union-attr]


def test_tools_of_the_client_are_function_calls() -> None:
    answer = accepted(frames(NAMED["frontend_tool"]))
    (item,) = answer.output
    assert (item.type, item.call_id, item.arguments) == ("function_call", "c1", '{"background": "red"}')  # type: ignore[union-attr]


def test_an_approval_is_asked_at_the_end_and_its_call_is_shown_by_the_run_that_makes_it() -> None:
    asked = accepted(frames(NAMED["approval"], needs_approval=lambda _: True))
    (item,) = asked.output
    assert (item.type, item.id, item.arguments) == ("mcp_approval_request", "i1", '{"id": 7}')  # type: ignore[union-attr]
    answer = accepted(frames(NAMED["resumed"], asked={"c1": APPROVAL}))
    made, _text = answer.output
    assert (made.type, made.approval_request_id, made.arguments, made.output) == ("mcp_call", "i1", '{"id": 7}', "deleted")  # type: ignore[union-attr]  # fmt: skip
    assert answer.output_text == "Gone."
    unknown = accepted(frames(NAMED["resumed"]))
    assert [item.type for item in unknown.output] == ["message"], "a result of the client's own tool"


def test_a_call_whose_approval_was_not_foreseen_is_closed_and_asked() -> None:
    answer = accepted(frames(NAMED["approval"]))
    assert [(item.type, getattr(item, "status", None)) for item in answer.output] == [
        ("mcp_call", "incomplete"),
        ("mcp_approval_request", None),
    ]


def test_a_stopped_run_is_cancelled_and_a_failed_one_failed() -> None:
    assert accepted(frames(NAMED["stopped"])).status == "cancelled"
    events = frames(NAMED["failed"])
    assert kinds(events)[-2:] == ["failed", "error"], (
        "openai-js throws at `error`: it must have seen the response before"
    )
    failed = accepted(events)
    assert (failed.status, failed.error.code, failed.error.to_dict()["type"]) == ("failed", "server_error", "model-unavailable")  # type: ignore[union-attr]  # fmt: skip


def test_a_text_that_is_opened_again_is_an_item_of_its_own() -> None:
    events = [STARTED, *step(*text("m1", "a"), *call("c1", "add", "{}"), *text("m1", "b"), e.ToolFinished("c1", "add", "t", "1"), *text("m2", "c")), finished()]  # fmt: skip
    answer = accepted(frames(events))
    assert [item.id for item in answer.output] == ["msg_run-1_m1", "mcp_c1", "msg_run-1_m1_1", "msg_run-1_m2"]
    assert answer.output_text == "ab\n\nc", "a blank line before another message only"


def test_a_response_in_the_background_is_queued_first() -> None:
    head = ResponseHead(id="resp_r", created_at=1, model="tester", echo=RequestEcho(background=True))
    events = whatwg(ResponseEncoder(ResponseBuilder(head)).encode_many(enumerate(NAMED["plain_text"])))
    assert [json.loads(frame.data)["type"] for frame in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert json.loads(events[0].data)["response"]["status"] == "queued"


def test_every_member_is_there_and_repeats_the_request() -> None:
    raw = {
        "temperature": 0.5, "top_p": "wrong", "metadata": {"a": "b"}, "tool_choice": {"type": "function", "name": "t"},
        "instructions": "Be brief.", "reasoning": {"effort": "low"}, "store": False, "max_output_tokens": 5, "truncation": "auto",
    }  # fmt: skip
    echo = echoed(raw, [ToolSchema(name="t")])
    response = ResponseBuilder(ResponseHead(id="resp_r", created_at=1, model="m", echo=echo)).response()
    assert len(response) == 32 + 1, "Open Responses' members and `conversation`"
    given_back = {name: response[name] for name in raw}
    assert given_back == {**raw, "top_p": 1.0, "reasoning": {"effort": "low", "summary": None}}
    assert response["tools"][0]["name"] == "t"
