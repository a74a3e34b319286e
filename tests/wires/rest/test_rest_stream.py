"""Every run that the grammar allows, as the REST wire encodes it: legal frames, calls that end, one last frame."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given

from holodeck.core import events as e
from holodeck.core.request import FileNote
from holodeck.wires.rest.stream import RestEventMapper
from holodeck.wires.sse import NamedEventEncoder
from tests.examples import examples
from tests.wires.event_sequences import NAMED, RUN, SESSION, USAGE, call, event_sequences, finished, step, text
from tests.wires.sse_parsers import whatwg

RELAXED = examples(25)
MEMBERS = {  # event → members that it always has
    "stream_start": {"session_id", "message_id"},
    "message_delta": {"delta", "message_id"},
    "reasoning_delta": {"delta", "message_id"},
    "tool_call_start": {"tool_call_id", "name", "message_id"},
    "tool_call_args": {"tool_call_id", "args_delta"},
    "tool_call_end": {"tool_call_id", "status"},
    "stream_end": {"message_id", "tokens_used", "execution_time_ms", "status"},
    "error": {"type", "title", "status", "detail"},
}
OPTIONAL = {
    "stream_start": {"files"},
    "tool_call_end": {"result"},
    "stream_end": {"interrupts", "warning"},
    "error": {"instance", "reason", "retry_after"},
}
LAST = {"stream_end", "error"}


def encoder(**fields: Any) -> NamedEventEncoder:
    return NamedEventEncoder(RUN, RestEventMapper(RUN, elapsed=lambda: 7, **fields).read)


def frames_of(events: list[e.Event], **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(frame.event, json.loads(frame.data)) for frame in whatwg(encoder(**fields).encode_many(enumerate(events)))]


@pytest.mark.req("SRV-09")
@given(events=event_sequences())
@RELAXED
def test_any_event_sequence_becomes_legal_frames(events: list[e.Event]) -> None:
    frames = frames_of(events)
    names = [name for name, _ in frames]
    assert names[0] == "stream_start"
    assert [name for name in names if name in LAST] == names[-1:]
    for name, data in frames:
        assert set(data) >= MEMBERS[name]
        assert set(data) <= MEMBERS[name] | OPTIONAL.get(name, set())
        assert data.get("message_id", RUN) == RUN
    started = Counter(data["tool_call_id"] for name, data in frames if name == "tool_call_start")
    ended = Counter(data["tool_call_id"] for name, data in frames if name == "tool_call_end")
    assert started == ended
    assert set(started.values()) <= {1}


@pytest.mark.req("SRV-09")
@given(events=event_sequences())
@RELAXED
def test_the_text_arrives_whole_with_a_blank_line_between_messages(events: list[e.Event]) -> None:
    pieces: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, e.TextAdded) and event.delta:
            if pieces and pieces[-1][0] == event.message_id:
                pieces[-1] = (event.message_id, pieces[-1][1] + event.delta)
            else:
                pieces.append((event.message_id, event.delta))
    words = "".join(data["delta"] for name, data in frames_of(events) if name == "message_delta")
    assert words == "\n\n".join(piece for _, piece in pieces)


@given(events=event_sequences())
@RELAXED
def test_a_sequence_in_batches_is_the_same_stream_and_numbers_rise(events: list[e.Event]) -> None:
    one, many = encoder(), encoder()
    stream = many.encode_many(enumerate(events))
    assert b"".join(one.encode(event, n) for n, event in enumerate(events)) == stream
    numbers = [int(line.rpartition(b":")[2]) for line in stream.split(b"\n") if line.startswith(b"id: ")]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == len(events) - 1


ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain_text": ("stream_end", {"status": "completed", "tokens_used": {"prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46}}),
    "parallel_calls_one_fails": ("stream_end", {"status": "max_iterations", "warning": "the limit of 1 step was reached", "tokens_used": None}),
    "approval": ("stream_end", {"status": "interrupted"}),
    "frontend_tool": ("stream_end", {"status": "client_tools"}),
    "stopped": ("error", {"type": "https://holodeck.dev/errors/cancelled", "status": 409}),
    "failed": ("error", {"type": "https://holodeck.dev/errors/model-unavailable", "status": 503, "reason": "upstream_overloaded", "retry_after": 2.5}),
    "failed_at_once": ("error", {"type": "https://holodeck.dev/errors/internal-error", "status": 500, "detail": "Something went wrong on our side"}),
    "notes": ("stream_end", {"status": "completed"}),
}  # fmt: skip


@pytest.mark.req("SRV-09", "SRV-17")
@pytest.mark.parametrize("name", ENDINGS)
def test_how_streams_end(name: str) -> None:
    kind, data = frames_of(NAMED[name])[-1]
    expected_kind, expected = ENDINGS[name]
    assert kind == expected_kind
    assert {key: data.get(key) for key in expected} == expected


@pytest.mark.req("SRV-09")
def test_a_tool_call_from_start_to_end() -> None:
    calls = [frame for frame in frames_of(NAMED["tool_call"]) if frame[0].startswith("tool_call")]
    assert calls == [
        ("tool_call_start", {"tool_call_id": "c1", "name": "create_todo", "message_id": RUN}),
        ("tool_call_args", {"tool_call_id": "c1", "args_delta": '{"title":'}),
        ("tool_call_args", {"tool_call_id": "c1", "args_delta": ' "eggs"}'}),
        ("tool_call_end", {"tool_call_id": "c1", "status": "success", "result": "created"}),
    ]


def test_a_call_that_waits_for_a_person_is_pending_and_the_question_is_reported() -> None:
    *_, (kind, end), (_, last) = frames_of(NAMED["approval"])
    assert (kind, end) == ("tool_call_end", {"tool_call_id": "c1", "status": "pending"})
    assert last["interrupts"] == [
        {
            "id": "i1",
            "tool": "delete_todo",
            "arguments": {"id": 7},
            "message": "May I delete todo 7?",
            "expires_at": "2026-11-15T12:00:00+00:00",
        }
    ]


def test_a_result_of_the_run_before_is_shown_with_its_call() -> None:
    kinds = [name for name, _ in frames_of(NAMED["resumed"])]
    assert kinds == ["stream_start", "tool_call_start", "tool_call_end", "message_delta", "stream_end"]


def test_files_and_the_request_are_named() -> None:
    note = FileNote(name="a.csv", mime_type="text/csv", read_as="text", characters=3)
    assert frames_of(NAMED["plain_text"], files=[note])[0][1]["files"] == [
        {"name": "a.csv", "mime_type": "text/csv", "read_as": "text", "characters": 3, "truncated": False}
    ]
    assert frames_of(NAMED["failed"], instance="req_0123456789ab")[-1][1]["instance"] == "req_0123456789ab"


def test_halves_of_surrogate_pairs_do_not_break_a_frame() -> None:
    events = [e.RunStarted(RUN, SESSION), *step(*text("m1", "a\ud83d", "b")), finished(usage=USAGE)]
    assert [data["delta"] for name, data in frames_of(events) if name == "message_delta"] == ["a�", "b"]


def test_an_answer_before_the_last_tool_call_is_an_empty_answer() -> None:
    events = [
        e.RunStarted(RUN, SESSION),
        *step(*text("m1", "Let me see."), *call("c1", "look", "{}"), e.ToolFinished("c1", "look", "t1", "nothing")),
        *step(number=2),
        finished(),
    ]
    assert frames_of(events)[-1][0] == "stream_end", "tools ran: it is an empty answer"
    events[-1] = finished(e.Outcome.MAX_ITERATIONS, warning="enough")
    assert frames_of(events)[-1] == (
        "stream_end",
        {
            "message_id": RUN,
            "tokens_used": None,
            "execution_time_ms": 7,
            "status": "max_iterations",
            "warning": "enough",
        },
    )
