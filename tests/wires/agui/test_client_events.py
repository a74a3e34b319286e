"""What a terminal reads of a server's stream is what it would be shown of the run itself."""

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given

from holodeck.cli.paint import Paint
from holodeck.cli.plain_display import PlainDisplay
from holodeck.core import events as e
from holodeck.wires.agui.client_events import ClientEvents
from holodeck.wires.agui.encode import translate
from holodeck.wires.agui.profile import Profile
from tests.wires import event_sequences
from tests.wires.event_sequences import NAMED, RUN, SESSION


def read(events: list[e.Event]) -> list[e.Event]:
    names = {event.call_id: event.name for event in events if isinstance(event, e.ToolFinished)}
    reader = ClientEvents(RUN, SESSION, names, clock=lambda: 0.0)
    wires = [msgspec.json.encode(wire) for event in events for wire in translate(event, Profile.FULL)]
    return [found for wire in wires for found in reader.read(wire)]


def shown(events: list[e.Event], *, verbose: bool = False) -> str:
    out = io.StringIO()
    display = PlainDisplay(out, Paint(enabled=False), verbose=verbose)
    for event in events:
        display.emit(msgspec.structs.replace(event, seconds=0.0) if isinstance(event, e.ToolFinished) else event)
    display.close()
    return out.getvalue()


@pytest.mark.parametrize("name", NAMED)
def test_the_display_shows_the_same(name: str) -> None:
    assert shown(read(NAMED[name])) == shown(NAMED[name])


@pytest.mark.hypothesis
@given(event_sequences.event_sequences())
def test_any_run_is_shown_the_same(events: list[e.Event]) -> None:
    assert shown(read(events)) == shown(as_streamed(events))


def as_streamed(events: list[e.Event]) -> list[e.Event]:
    """The run with the arguments that its pieces make: those of the strategy need not fit, and AG-UI has only the pieces."""
    pieces: dict[str, str] = {}
    found = []
    for event in events:
        if isinstance(event, e.ToolArgumentsAdded):
            pieces[event.call_id] = pieces.get(event.call_id, "") + event.delta
        if isinstance(event, e.ToolCallEnded):
            found.append(msgspec.structs.replace(event, arguments=pieces.get(event.call_id, "")))
        else:
            found.append(event)
    return found


def test_a_call_of_an_earlier_run_takes_the_time_since_this_one_began() -> None:
    times = iter((10.0, 12.5))
    reader = ClientEvents(RUN, SESSION, {"c": "wipe"}, clock=lambda: next(times))
    begun, result = {"type": "RUN_STARTED"}, {"type": "TOOL_CALL_RESULT", "toolCallId": "c", "content": "gone"}
    (_, finished) = [event for wire in (begun, result) for event in reader.read(msgspec.json.encode(wire))]
    assert isinstance(finished, e.ToolFinished)
    assert (finished.name, finished.seconds) == ("wipe", 2.5)


def test_an_approval_comes_whole() -> None:
    (ending,) = [event for event in read(NAMED["approval"]) if isinstance(event, e.RunFinished)]
    (interrupt,) = ending.interrupts
    assert (interrupt, ending.outcome) == (event_sequences.APPROVAL, e.Outcome.INTERRUPTED)


def test_the_ids_are_the_servers() -> None:
    reader = ClientEvents("mine", "mine")
    reader.read(b'{"type": "RUN_STARTED", "runId": "its", "threadId": "its too"}')
    (ending,) = reader.read(b'{"type": "RUN_FINISHED", "usage": [{"inputTokens": 1, "outputTokens": 2}]}')
    assert isinstance(ending, e.RunFinished)
    assert (ending.run_id, ending.session_id) == ("its", "its too")
    assert ending.usage is not None
    assert ending.usage.total_tokens == 3


WRONG: list[Any] = [None, 0, -1, True, "x", [], [None], {}, {"type": 1}, {"x": []}]
KINDS = [
    "RUN_STARTED", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
    "ACTIVITY_SNAPSHOT", "CUSTOM", "RUN_FINISHED", "RUN_ERROR", "REASONING_MESSAGE_CONTENT",
]  # fmt: skip
MEMBERS = [
    "runId", "threadId", "messageId", "delta", "toolCallId", "toolCallName", "content", "metadata", "name", "value",
    "outcome", "result", "usage", "message", "code",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_a_server_sends_breaks_the_display(kind: str) -> None:
    for wrong in WRONG:
        members = {"type": kind, **dict.fromkeys(MEMBERS, wrong)}
        outcomes = [members, {**members, "outcome": {"type": "interrupt", "interrupts": [wrong, {"id": wrong}]}}]
        for wire in outcomes:
            found = ClientEvents(RUN, SESSION).read(msgspec.json.encode(wire))
            assert isinstance(shown(found, verbose=True), str)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b'"x"', b"{}", b'{"type": "NEWER_THAN_US"}', b"[" * 100_000])
def test_data_that_is_not_an_event_is_skipped(data: bytes) -> None:
    assert ClientEvents(RUN, SESSION).read(data) == []
