"""Every run that the grammar allows, as the chat-stream wire encodes it: five kinds of events, `done` always last."""

import json
from typing import Any

import pytest
from hypothesis import given

from holodeck.core import events as e
from holodeck.wires.chat_stream.stream import MAX_ACCUMULATED, ChatStreamEventMapper
from holodeck.wires.sse import NamedEventEncoder
from tests.examples import examples
from tests.wires.event_sequences import NAMED, RUN, SESSION, event_sequences, finished, reasoning, step, text
from tests.wires.sse_parsers import whatwg

RELAXED = examples(25)
REQUEST = "req_0123456789ab"
MEMBERS = {
    "thinking": {"content"},
    "tool_call": {"tool_name", "arguments", "status"},
    "response_delta": {"delta", "accumulated"},
    "error": {"error_type", "message", "recoverable"},
    "done": {"final_output", "tools_called", "success"},
}


def encoder(*, minimal: bool = False) -> NamedEventEncoder:
    return NamedEventEncoder(RUN, ChatStreamEventMapper(REQUEST, minimal=minimal).read)


def frames_of(events: list[e.Event], *, minimal: bool = False) -> list[tuple[str, dict[str, Any]]]:
    stream = encoder(minimal=minimal).encode_many(enumerate(events))
    return [(frame.event, json.loads(frame.data)) for frame in whatwg(stream)]


@pytest.mark.req("ORC-02", "ORC-07")
@given(events=event_sequences())
@RELAXED
def test_any_event_sequence_becomes_legal_frames(events: list[e.Event]) -> None:
    frames = frames_of(events)
    assert [i for i, (name, _) in enumerate(frames) if name == "done"] == [len(frames) - 1]
    for name, data in frames:
        assert data.pop("request_id") == REQUEST
        assert set(data) - ({"warning"} if name == "done" else set()) == MEMBERS[name]
    fatal = [data for name, data in frames if name == "error" and not data["recoverable"]]
    assert frames[-1][1]["success"] is (fatal == [])
    assert frames[-2:-1] == [("error", fatal[0])] if fatal else True


@pytest.mark.req("ORC-02")
@given(events=event_sequences())
@RELAXED
def test_accumulated_is_all_the_text_so_far(events: list[e.Event]) -> None:
    words = ""
    for name, data in frames_of(events):
        if name == "response_delta":
            words += data["delta"]
            assert data["accumulated"] == words
    assert all("accumulated" not in data for _, data in frames_of(events, minimal=True))


@given(events=event_sequences())
@RELAXED
def test_a_sequence_in_batches_is_the_same_stream(events: list[e.Event]) -> None:
    one = encoder()
    assert b"".join(one.encode(event, n) for n, event in enumerate(events)) == encoder().encode_many(enumerate(events))


@pytest.mark.req("ORC-02", "ORC-07")
def test_a_tool_call_comes_twice_and_a_failed_one_does_not_end_the_stream() -> None:
    frames = [(name, data) for name, data in frames_of(NAMED["parallel_calls_one_fails"]) if name != "response_delta"]
    shown = [(name, data.get("tool_name"), data.get("status"), data.get("recoverable")) for name, data in frames]
    assert shown == [
        ("tool_call", "add", "in_progress", None),
        ("tool_call", "sub", "in_progress", None),
        ("tool_call", "sub", "failed", None),
        ("error", None, None, True),
        ("tool_call", "add", "completed", None),
        ("done", None, None, None),
    ]
    assert frames[3][1]["error_type"] == "tool-failed"
    assert frames[3][1]["message"] == "no such number"
    assert frames[-1][1]["tools_called"] == ["add", "sub"]


@pytest.mark.req("ORC-02")
def test_arguments_are_the_object_that_they_are() -> None:
    calls = [data for name, data in frames_of(NAMED["tool_call"]) if name == "tool_call"]
    assert [data["arguments"] for data in calls] == [{"title": "eggs"}] * 2
    assert [data["status"] for data in calls] == ["in_progress", "completed"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [("", {}), ("[1]", {"arguments": [1]}), ("{oops", {"arguments": "{oops"}), ("7", {"arguments": 7})],
)
def test_arguments_that_are_not_an_object_are_shown_too(arguments: str, shown: dict[str, Any]) -> None:
    events = [e.RunStarted(RUN, SESSION), *step(e.ToolCallStarted("c", "t", "m"), e.ToolCallEnded("c", "t", arguments)), finished()]  # fmt: skip
    (data,) = [data for name, data in frames_of(events) if name == "tool_call" and data["status"] == "in_progress"]
    assert data["arguments"] == shown


ENDINGS = {
    "failed": ("model-unavailable", "The model is not available at the moment. Please try again."),
    "failed_at_once": ("internal-error", "Something went wrong on our side"),
    "stopped": ("cancelled", "The run was stopped before it had answered."),
    "approval": ("approval-needed", "A person must approve delete_todo first, and this wire cannot ask; REST and AG-UI can."),
}  # fmt: skip


@pytest.mark.req("ORC-07")
@pytest.mark.parametrize("name", ENDINGS)
def test_what_ended_a_run_is_reported_before_done(name: str) -> None:
    (kind, error), (last, done) = frames_of(NAMED[name])[-2:]
    assert (kind, last) == ("error", "done")
    assert (error["error_type"], error["message"]) == ENDINGS[name]
    assert (error["recoverable"], done["success"]) == (False, False)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("It failed.", "It failed. Please try again."),
        ("It failed (500). Try again later. Its message: x", "It failed (500). Try again later. Its message: x"),
        ("The server is full; try again in a moment.", "The server is full; try again in a moment."),
    ],
)
def test_to_try_again_is_advised_once(message: str, shown: str) -> None:
    failed = e.RunFailed(RUN, SESSION, "model-error", message, retryable=True)
    (_, error), _ = frames_of([e.RunStarted(RUN, SESSION), failed])
    assert error["message"] == shown


def test_the_final_output_is_the_last_text() -> None:
    events = [e.RunStarted(RUN, SESSION), *step(*text("m1", "First.")), *step(*text("m2", "Then", " this."), number=2), finished()]  # fmt: skip
    frames = frames_of(events)
    assert "".join(data["delta"] for name, data in frames if name == "response_delta") == "First.\n\nThen this."
    assert frames[-1][1]["final_output"] == "Then this."


@pytest.mark.req("ORC-02")
def test_thinking_comes_line_by_line() -> None:
    events = [e.RunStarted(RUN, SESSION), *step(*reasoning("r", "The us", "er wants\n\n eg", "gs.\nNow"), *text("m", "ok")), finished()]  # fmt: skip
    thoughts = [data["content"] for name, data in frames_of(events) if name == "thinking"]
    assert thoughts == ["The user wants", " eggs.", "Now"]


@pytest.mark.req("ORC-02")
def test_a_long_reply_costs_what_it_is_long() -> None:
    """`accumulated` stops at its limit: most frames are short, however long the text before was."""
    pieces = 20_000
    events = [e.RunStarted(RUN, SESSION), *step(*text("m", *(["0123456789"] * pieces))), finished()]
    stream = encoder().encode_many(enumerate(events))
    assert len(stream) < pieces * 150 + MAX_ACCUMULATED**2 / 10
    last = [json.loads(frame.data) for frame in whatwg(stream) if frame.event == "response_delta"]
    assert [len(data["accumulated"]) for data in last if "accumulated" in data][-1] == MAX_ACCUMULATED
