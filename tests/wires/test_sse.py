"""Frames: what may be in them, and that nothing in them can be taken for the end of one (T21, T22)."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.core.text import scalar
from holodeck.wires import sse
from holodeck.wires.agui.encode import ProtoEncoder, SseEncoder, translate
from holodeck.wires.agui.profile import Profile
from tests.wires.agui.protobuf_reader import read_stream
from tests.wires.sse_parsers import agui_client, whatwg

STRINGS = 2_000  # for each event; about forty thousand in all
ALPHABET = [
    *"\r\n\0\t\x0b\x0c\x1b\x7f\x85\u2028\u2029\ufeff\ufffd", "\r\n", "\n\n", "\r\r", "data:", "data: ", "event:", "id:", "retry:",
    ": ", "[DONE]", "{", "}", '"', "\\", "\\u000a", "</script>", "😀", "é", "a", " ", "\ud83d", "\ude00", "\ud83d\ude00",
]  # fmt: skip


def hostile_strings(count: int, seed: int = 21) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(ALPHABET, k=rng.randint(0, 6))) for _ in range(count)]


# Every text of every event, as one function of a string each.
FIELDS: list[Callable[[str], e.Event]] = [
    lambda s: e.RunStarted(s, s, s, s),
    e.ReasoningStarted,
    lambda s: e.ReasoningAdded("m", s),
    lambda s: e.ReasoningAdded(s, s),
    e.ReasoningEnded,
    e.TextStarted,
    lambda s: e.TextAdded("m", s),
    lambda s: e.TextAdded(s, s),
    e.TextEnded,
    lambda s: e.ToolCallStarted(s, s, s),
    lambda s: e.ToolArgumentsAdded("c", s),
    lambda s: e.ToolArgumentsAdded(s, s),
    lambda s: e.ToolCallEnded(s, s, s),
    lambda s: e.ToolFinished(s, s, s, s),
    lambda s: e.ToolFinished(s, s, s, (TextPart(s), MediaPart(mime_type=s, data=s, filename=s)), failed=True),
    lambda s: e.StateReplaced({s: [s]}),
    lambda s: e.StatePatched([{"op": "move", "path": s, "from": s}, {"op": "add", "path": s, "value": {s: s}}]),
    lambda s: e.ActivityShown(s, s, {s: s}),
    lambda s: e.ActivityPatched(s, s, [{"op": "add", "path": s, "value": s}]),
    lambda s: e.CustomSent(s, s),
    lambda s: e.RawReceived({s: s}, s),
    lambda s: e.WarningRaised(s, s),
    lambda s: e.MessagesReplaced(
        (
            UserMessage(id=s, content=s),
            AssistantMessage(id=s, content=s, tool_calls=(ToolCall(id=s, name=s, arguments=s),)),
            ToolMessage(id=s, call_id=s, name=s, content=s, failed=True),
        )
    ),
    lambda s: e.RunFinished(
        s,
        s,
        e.Outcome.INTERRUPTED,
        s,
        interrupts=(e.Interrupt(id=s, call_id=s, tool=s, arguments=s, message=s),),
        warning=s,
    ),
    lambda s: e.RunFailed(s, s, s, s, s),
]


def mended(value: Any) -> Any:
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, dict):
        return {scalar(key): mended(item) for key, item in value.items()}
    return [mended(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.req("T21", "T22")
@pytest.mark.parametrize("make", FIELDS, ids=lambda make: type(make("x")).__name__)
def test_no_text_in_any_field_breaks_a_frame(make: Callable[[str], e.Event]) -> None:
    events = [make(text) for text in hostile_strings(STRINGS)]
    output = [mended(wire) for event in events for wire in translate(event, Profile.FULL)]
    stream = SseEncoder("run").encode_many(enumerate(events))
    frames = whatwg(stream)
    assert len(frames) == len(agui_client(stream)) == len(output)
    assert [json.loads(frame.data) for frame in frames] == output
    assert json.loads(f"[{','.join(agui_client(stream))}]") == output
    assert {frame.event for frame in frames} == {"message"}
    assert [frame.id for frame in frames][-1] == f"run:{len(events) - 1}"


@pytest.mark.req("T21", "T22")
def test_ten_thousand_texts_as_deltas_come_out_as_they_went_in() -> None:
    strings = hostile_strings(STRINGS, seed=22)
    events = [e.TextAdded("m", text) for text in strings]
    expected = [scalar(text) for text in strings]
    stream = SseEncoder("run").encode_many(enumerate(events))
    assert [json.loads(frame.data)["delta"] for frame in whatwg(stream)] == expected
    assert [wire["delta"] for wire in read_stream(ProtoEncoder("run").encode_many(enumerate(events)))] == expected


@pytest.mark.parametrize("bad", ["a\rb", "a\nb", "a\0b", "\r\n", "x\n\ndata: {}"])
@pytest.mark.req("T21")
def test_names_and_ids_that_could_break_a_frame_are_refused(bad: str) -> None:
    for make in (
        lambda: sse.frame({}, event=bad),
        lambda: sse.frame({}, event_id=bad),
        lambda: SseEncoder(bad),
    ):
        with pytest.raises(ValueError, match="CR, LF and NUL"):
            make()


def test_a_frame() -> None:
    assert sse.frame({"a": "b\n"}, event="message_delta", event_id="r:1") == (
        b'id: r:1\nevent: message_delta\ndata: {"a":"b\\n"}\n\n'
    )
    assert sse.frame([]) == b"data: []\n\n"


def test_a_keepalive_is_not_an_event() -> None:
    assert whatwg(sse.KEEPALIVE) == []
    assert agui_client(sse.KEEPALIVE) == []


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("run:1:0", 0),
        ("run:1:42", 42),
        ("run:1:-1", None),
        ("run:1:1.5", None),
        ("run:1:", None),
        ("run:1:٣", None),
        ("run:1:" + "9" * 5000, None),
        ("run:2:4", None),
        ("42", None),
        ("", None),
        ("run:1:4 ", None),
    ],
)
@pytest.mark.req("T21")
def test_the_position_in_a_last_event_id(text: str, position: int | None) -> None:
    assert sse.position_after(text, "run:1") == position
