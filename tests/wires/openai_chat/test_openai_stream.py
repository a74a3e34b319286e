"""Any run the grammar allows, as chunks that the official SDK's types accept; and as the one answer that they add up to."""

import json
from typing import Any

import pytest
from hypothesis import given
from openai.types import chat as official

from holodeck.core import events as e
from holodeck.core.usage import TokenUsage
from holodeck.errors import HoloDeckError
from holodeck.wires import sse
from holodeck.wires.openai_chat.completion_pieces import CompletionReader
from holodeck.wires.openai_chat.response import ChunkEncoder, CompletionHead, completion
from tests.examples import examples
from tests.wires.event_sequences import NAMED, USAGE, call, event_sequences, finished, step, text
from tests.wires.sse_parsers import whatwg

HEAD = CompletionHead(id="chatcmpl-run-1", created=1_800_000_000, model="tester")
RELAXED = examples(25)
Json = dict[str, Any]


def reader(**options: Any) -> CompletionReader:
    return CompletionReader(client_tools={"change_background"}, **options)


def frames(events: list[e.Event], **options: Any) -> list[Json]:
    """The data of all frames but the last, which is [DONE]."""
    stream = ChunkEncoder(HEAD, reader(**options), include_usage=True).encode_many(enumerate(events))
    found = whatwg(stream)
    assert [frame.data for frame in found].index("[DONE]") == len(found) - 1
    return [json.loads(frame.data) for frame in found[:-1]]


def whole(events: list[e.Event], **options: Any) -> Json:
    read = reader(**options).read
    received = completion(HEAD, (piece for event in events for piece in read(event)))
    decoded: Json = json.loads(sse.json_bytes(received))
    return decoded


def added_up(chunks: list[Json], member: str) -> str:
    return "".join(choice["delta"].get(member) or "" for chunk in chunks for choice in chunk["choices"])


@given(events=event_sequences())
@RELAXED
def test_any_run_becomes_chunks_that_the_sdk_accepts(events: list[e.Event]) -> None:
    output = frames(events)
    if "error" in output[-1]:
        assert set(output.pop()["error"]) == {"message", "type", "param", "code"}
        with pytest.raises(HoloDeckError):
            whole(events)
        endings = []
    else:
        endings = [
            choice["finish_reason"] for chunk in output for choice in chunk["choices"] if choice["finish_reason"]
        ]
        assert len(endings) == 1
    for chunk in output:
        official.ChatCompletionChunk.model_validate(chunk, strict=True)
    assert output[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    if endings:
        answer = whole(events)
        official.ChatCompletion.model_validate(answer, strict=True)
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == endings[0]
        assert (choice["message"]["content"] or "") == added_up(output, "content")
        assert choice["message"].get("reasoning_content", "") == added_up(output, "reasoning_content")


@given(events=event_sequences())
@RELAXED
def test_one_event_at_a_time_gives_the_same_bytes(events: list[e.Event]) -> None:
    one = ChunkEncoder(HEAD, reader())
    many = ChunkEncoder(HEAD, reader())
    assert b"".join(one.encode(event) for event in events) == many.encode_many(enumerate(events))


def test_text_and_usage() -> None:
    events = frames(NAMED["plain_text"])
    assert added_up(events, "content") == "Hello 😀"
    assert events[-2]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert (events[-1]["choices"], events[-1]["usage"]) == (
        [],
        {
            "prompt_tokens": 12,
            "completion_tokens": 34,
            "total_tokens": 46,
            "prompt_tokens_details": {"cached_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
    )
    assert whole(NAMED["plain_text"])["usage"] == events[-1]["usage"]
    assert "usage" not in whole(NAMED["reasoning_then_text"])
    assert all("usage" not in chunk for chunk in frames(NAMED["reasoning_then_text"]))


def test_what_the_provider_put_into_its_cache_is_counted() -> None:
    usage = TokenUsage(prompt_tokens=12, completion_tokens=34, cache_write_tokens=7)
    last = frames([e.RunStarted("run-1", "s1"), *step(*text("m1", "So.")), finished(usage=usage)])[-1]
    assert last["usage"]["prompt_tokens_details"] == {"cache_write_tokens": 7}


def test_tools_of_the_server_are_lines_of_reasoning() -> None:
    events = frames(NAMED["tool_call"])
    assert added_up(events, "reasoning_content") == '→ create_todo {"title": "eggs"}\n← create_todo created\n'
    assert all("tool_calls" not in choice["delta"] for chunk in events for choice in chunk["choices"])
    failed = added_up(frames([NAMED["plain_text"][0], *step(*call("c1", "a", "{}"), e.ToolFinished("c1", "a", "t1", "no\nway", failed=True), *text("m2", "So.")), finished()]), "reasoning_content")  # fmt: skip
    assert failed == "→ a {}\n← a failed: no way\n"


def test_a_line_about_a_tool_never_ends_a_thought() -> None:
    thought = [e.ReasoningStarted("r1"), e.ReasoningAdded("r1", "Hm"), e.ReasoningEnded("r1")]
    events = [NAMED["plain_text"][0], *step(*thought, *call("c1", "a", "{}"), *text("m2", "So.")), finished()]
    assert added_up(frames(events), "reasoning_content") == "Hm\n→ a {}\n"


def test_tools_of_the_client_are_tool_calls() -> None:
    events = frames(NAMED["frontend_tool"])
    asked = {"id": "c1", "type": "function", "function": {"name": "change_background", "arguments": '{"background": "red"}'}}  # fmt: skip
    assert events[1]["choices"][0]["delta"] == {"tool_calls": [{"index": 0, **asked}]}
    assert events[2]["choices"][0]["finish_reason"] == "tool_calls"
    (choice,) = whole(NAMED["frontend_tool"])["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "tool_calls": [asked]}


@pytest.mark.parametrize("throw_away", [True, False])
def test_what_waits_for_a_person_is_named_with_where_it_can_be_approved(*, throw_away: bool) -> None:
    events = frames(NAMED["approval"], throw_away=throw_away)
    assert ("X-Session-Id" if throw_away else "in session thread-1") in added_up(events, "content")
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    (waits,) = events[-1]["holodeck"]["interrupts"]
    assert (waits["id"], waits["tool"], waits["arguments"]) == ("i1", "delete_todo", {"id": 7})
    assert whole(NAMED["approval"])["holodeck"] == events[-1]["holodeck"]


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("stopped", "cancelled", "invalid_request_error"),
        ("failed", "model-unavailable", "server_error"),
        ("failed_at_once", "internal-error", "server_error"),
    ],
)
def test_a_run_without_an_answer_ends_with_an_error(name: str, code: str, kind: str) -> None:
    error = frames(NAMED[name])[-1]["error"]
    assert (error["code"], error["type"]) == (code, kind)
    with pytest.raises(HoloDeckError):
        whole(NAMED[name])


@pytest.mark.parametrize(
    ("outcome", "reason", "received"),
    [
        (e.Outcome.COMPLETED, "stop", "stop"),
        (e.Outcome.COMPLETED, "length", "length"),
        (e.Outcome.COMPLETED, "something new", "stop"),
        (e.Outcome.COMPLETED, "content_filter", "content_filter"),
        (e.Outcome.MAX_ITERATIONS, "tool_calls", "length"),
    ],
)
def test_only_the_finish_reasons_that_clients_know(outcome: e.Outcome, reason: str, received: str) -> None:
    events = [NAMED["plain_text"][0], *step(*text("m1", "So.")), finished(outcome, finish_reason=reason, usage=USAGE)]
    assert whole(events)["choices"][0]["finish_reason"] == received
