"""Every run that the grammar allows, over both encoders and both profiles: accepted by the SDK's models, equal in meaning."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import Event as SdkEvent
from hypothesis import given
from pydantic import BaseModel, TypeAdapter

from holodeck.core import events as e
from holodeck.core.encoder import WithMetadata
from holodeck.core.grammar import TABLE, check
from holodeck.core.messages import AssistantMessage, History, MediaPart, UserMessage
from holodeck.wires.agui.encode import WARNING, ProtoEncoder, SseEncoder, translate
from holodeck.wires.agui.profile import Profile
from holodeck.wires.agui.protobuf import write_event
from tests.examples import examples
from tests.wires.agui.client_rules import Refused, verify
from tests.wires.agui.protobuf_reader import read_event, read_stream
from tests.wires.event_sequences import HISTORY, NAMED, RUN, SESSION, event_sequences, finished
from tests.wires.sse_parsers import agui_client, whatwg

GOLDEN = Path(__file__).parent.parent / "golden"
SDK = TypeAdapter[Any](SdkEvent)
RELAXED = examples(30)
BOTH = pytest.mark.parametrize("profile", Profile)


def over_sse(events: list[e.Event], profile: Profile) -> list[dict[str, Any]]:
    stream = SseEncoder(RUN, profile).encode_many(enumerate(events))
    data = [frame.data for frame in whatwg(stream)]
    assert data == agui_client(stream)
    return [json.loads(each) for each in data]


def over_protobuf(events: list[e.Event], profile: Profile) -> list[dict[str, Any]]:
    return read_stream(ProtoEncoder(RUN, profile).encode_many(enumerate(events)))


def exact(value: Any) -> Any:
    """JSON with its types: protobuf knows only doubles, but true is not 1."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ("number", float(value)) if is_number else (type(value).__name__, value)


def unknown_members(model: Any) -> list[str]:
    """Members that the SDK's models keep but do not know."""
    if isinstance(model, list):
        return [name for item in model for name in unknown_members(item)]
    if not isinstance(model, BaseModel):
        return []
    inner = [name for field in type(model).model_fields for name in unknown_members(getattr(model, field))]
    return [*(model.model_extra or {}), *inner]


def assert_accepted(wire: dict[str, Any]) -> None:
    model = SDK.validate_python(wire)
    assert unknown_members(model) == []
    assert SDK.dump_python(model, mode="json", by_alias=True) == wire, "the SDK would have written it differently"


@pytest.mark.req("SRV-05", "SRV-06")
@BOTH
@given(events=event_sequences())
@RELAXED
def test_any_event_sequence_is_accepted_and_means_the_same_on_both_wires(
    profile: Profile, events: list[e.Event]
) -> None:
    check(events)
    output = over_sse(events, profile)
    for wire in output:
        assert_accepted(wire)
    verify(output)
    assert [exact(wire) for wire in over_protobuf(events, profile)] == [exact(wire) for wire in output]


@given(events=event_sequences())
@RELAXED
def test_a_client_before_1_0_gets_nothing_that_ends_its_run(events: list[e.Event]) -> None:
    for wire in over_sse(events, Profile.LEGACY):
        assert wire.get("outcome", {}).get("type") in {None, "interrupt"}
        assert isinstance(wire.get("content", ""), str) or wire["type"] != "TOOL_CALL_RESULT"
        assert not any(m["role"] == "tool" and isinstance(m["content"], list) for m in wire.get("messages", []))
        assert '"type": "file"' not in json.dumps(wire.get("messages", []))


@given(events=event_sequences())
@RELAXED
def test_a_sequence_in_batches_is_the_same_stream(events: list[e.Event]) -> None:
    for make in (SseEncoder, ProtoEncoder):
        one, many = make(RUN), make(RUN)
        assert b"".join(one.encode(event, n) for n, event in enumerate(events)) == many.encode_many(enumerate(events))


@given(events=event_sequences())
@RELAXED
def test_every_event_has_one_frame_with_its_number_and_it_is_the_last_of_its_frames(events: list[e.Event]) -> None:
    encoder = SseEncoder(RUN)
    for n, event in enumerate(events):
        blocks = encoder.encode(event, n).split(b"\n\n")[:-1]
        assert blocks[-1].startswith(b"id: run-1:%d\ndata: {" % n)
        assert all(block.startswith(b"data: {") for block in blocks[:-1])


@pytest.mark.req("SRV-05")
@pytest.mark.parametrize("name", NAMED)
@BOTH
def test_golden(name: str, profile: Profile) -> None:
    """The streams as files, to be read by people. HOLODECK_GOLDEN=write makes them anew."""
    check(NAMED[name], awaiting=frozenset({"c1"} if name == "resumed" else ()))
    stream = SseEncoder(RUN, profile).encode_many(enumerate(NAMED[name]))
    file = GOLDEN / f"{name}.{profile.name.lower()}.txt"
    if os.environ.get("HOLODECK_GOLDEN") == "write":
        file.write_bytes(stream)
    assert stream == file.read_bytes()
    events = over_sse(NAMED[name], profile)
    verify(events)
    for wire in events:
        assert_accepted(wire)


def test_every_event_of_the_grammar_has_a_frame() -> None:
    examples = {type(event): event for events in NAMED.values() for event in events}
    assert set(examples) == set(TABLE), "each type of event is in a named story"
    assert all(translate(event, profile) for event in examples.values() for profile in Profile)


def test_a_null_is_only_where_json_of_others_has_one() -> None:
    for events in NAMED.values():
        for profile in Profile:
            for wire in over_sse(events, profile):
                open_members = {"snapshot", "value", "event", "content", "delta", "patch"}
                assert None not in [item for key, item in wire.items() if key not in open_members]


@pytest.mark.req("SRV-06")
@pytest.mark.parametrize("name", NAMED)
def test_protobuf_is_byte_for_byte_what_the_official_package_writes(name: str) -> None:
    """The file was made with `encode` of @ag-ui/proto 1.0.0 from the JSON of the same event_sequences: sequence, type, bytes."""
    lines = [line.split(" ") for line in (GOLDEN / "ag-ui-proto-1.0.0.txt").read_text().splitlines()]
    official = [(kind, data) for events, kind, data in lines if events == name]
    wires = [wire for event in NAMED[name] for wire in translate(event, Profile.FULL)]
    assert [(wire["type"], write_event(wire).hex()) for wire in wires] == official
    stream = b"".join(len(data).to_bytes(4, "big") + data for data in (bytes.fromhex(data) for _, data in official))
    assert ProtoEncoder(RUN).encode_many(enumerate(NAMED[name])) == stream
    assert [exact(read_event(bytes.fromhex(data))) for _, data in official] == [exact(wire) for wire in wires]


def test_long_lengths_take_more_than_one_byte() -> None:
    for size in (0, 1, 127, 128, 511, 512, 16_383, 16_384, 2_100_000):
        (wire,) = read_stream(ProtoEncoder(RUN).encode(e.TextAdded("m", "x" * size)))
        assert wire == {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x" * size}


def test_metadata_of_a_middleware_is_on_every_frame_of_its_event() -> None:
    events = translate(WithMetadata(e.ReasoningStarted("m"), {"a": 1}), Profile.FULL)
    assert [wire["metadata"] for wire in events] == [{"a": 1}, {"a": 1}]
    failed = WithMetadata(e.ToolFinished("c", "t", "m", "no", failed=True), {"a": 1})
    assert translate(failed, Profile.FULL)[0]["metadata"] == {"failed": True, "a": 1}
    assert read_stream(ProtoEncoder(RUN).encode(failed))[0]["metadata"] == {"failed": True, "a": 1.0}


def test_history_before_the_answer_is_reported_in_two() -> None:
    first, reply, second = (
        UserMessage(id="u1", content="a"),
        AssistantMessage(id="a1"),
        UserMessage(id="u2", content="b"),
    )
    events = translate(e.MessagesReplaced((first, reply, second)), Profile.FULL)
    assert [[message["id"] for message in wire["messages"]] for wire in events] == [["u1", "a1"], ["u1", "a1", "u2"]]
    assert len(translate(e.MessagesReplaced((first, reply)), Profile.FULL)) == 1
    assert len(translate(e.MessagesReplaced((first, second)), Profile.FULL)) == 1
    assert len(translate(e.MessagesReplaced((first, reply, second), corrects=True), Profile.FULL)) == 1


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("make", [SseEncoder, ProtoEncoder])
@pytest.mark.parametrize("corrects", [False, True])
def test_a_history_as_json_is_sent_as_its_messages_are(
    make: type[SseEncoder | ProtoEncoder], profile: Profile, *, corrects: bool
) -> None:
    asked = UserMessage(id="u3", content="and \u2028 now?")
    for messages in ((), HISTORY[:2], HISTORY, (*HISTORY, asked), (*HISTORY, asked, *HISTORY[:1])):
        plain, short = e.MessagesReplaced(messages, corrects=corrects), History(messages[:3])
        for _ in range(2):  # the second time what is written was written before
            shared = e.MessagesReplaced(short.extended(messages[3:]), corrects=corrects)
            assert make(RUN, profile).encode(shared, 7) == make(RUN, profile).encode(plain, 7)
            noted, bare = WithMetadata(shared, {"a": 1}), WithMetadata(plain, {"a": 1})
            assert make(RUN, profile).encode(noted, 7) == make(RUN, profile).encode(bare, 7)


@pytest.mark.parametrize("make", [SseEncoder, ProtoEncoder])
def test_what_no_client_would_take_is_left_out_with_a_warning(make: type[SseEncoder | ProtoEncoder]) -> None:
    huge = (UserMessage(content=(MediaPart(mime_type="image/png", data="A" * 9_100_000),)),)
    for messages in (huge, History(huge)):
        stream = make(RUN).encode(e.MessagesReplaced(messages), 1)
        assert len(stream) < 300
        events = json.loads(agui_client(stream)[0]) if make is SseEncoder else read_stream(stream)[0]
        assert events["name"] == WARNING
        assert events["value"]["code"] == "payload-too-large"


def test_values_that_json_cannot_say_become_null_on_both_wires() -> None:
    events = [e.RunStarted(RUN, SESSION), e.StateReplaced({"n": float("nan"), "when": (1, 2)}), finished()]
    sse, proto = over_sse(events, Profile.FULL), over_protobuf(events, Profile.FULL)
    assert sse[1]["snapshot"] == proto[1]["snapshot"] == {"n": None, "when": [1, 2]}


def test_integers_beyond_doubles_do_not_break_protobuf() -> None:
    (events,) = read_stream(ProtoEncoder(RUN).encode(e.StateReplaced([10**400, -(10**400), 2**60])))
    assert events["snapshot"] == [float("inf"), float("-inf"), float(2**60)]


@pytest.mark.parametrize(
    "kinds",
    [
        [],
        ["CUSTOM"],
        ["RUN_STARTED"],
        ["RUN_STARTED", "RUN_STARTED", "RUN_FINISHED"],
        ["RUN_STARTED", "RUN_FINISHED", "CUSTOM"],
        ["RUN_STARTED", "RUN_ERROR", "RUN_FINISHED"],
        ["RUN_STARTED", "TEXT_MESSAGE_CONTENT", "RUN_FINISHED"],
        ["RUN_STARTED", "TEXT_MESSAGE_START", "RUN_FINISHED"],
        ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"],
        ["RUN_STARTED", "TOOL_CALL_END", "RUN_FINISHED"],
        ["RUN_STARTED", "STEP_FINISHED", "RUN_FINISHED"],
        ["RUN_STARTED", "REASONING_START", "RUN_FINISHED"],
        ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "REASONING_MESSAGE_START", "REASONING_MESSAGE_END", "RUN_FINISHED"],
    ],
)  # fmt: skip
def test_the_verifier_itself_refuses(kinds: list[str]) -> None:
    ids = {"threadId": "t", "runId": "r", "messageId": "m", "toolCallId": "c", "stepName": "s"}
    with pytest.raises(Refused):
        verify([{"type": kind, **ids} for kind in kinds])


@pytest.mark.req("MOD-03")
def test_a_step_names_the_model_that_answered_to_clients_that_know_metadata() -> None:
    finished = e.StepFinished(1, None, 0, "openai/gpt-4.1")
    (full,) = translate(finished, Profile.FULL)
    assert full == {"type": "STEP_FINISHED", "stepName": "step-1", "metadata": {"model": "openai/gpt-4.1"}}
    (legacy,) = translate(finished, Profile.LEGACY)
    assert "metadata" not in legacy
