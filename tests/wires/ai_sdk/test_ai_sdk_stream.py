"""Any run the grammar allows, as chunks that the AI SDK's client accepts; and what a page makes of them."""

import json
from typing import Any

import pytest
from hypothesis import given

from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall, ToolMessage, UserMessage
from holodeck.core.request import REFUSED
from holodeck.wires.ai_sdk.history import chunks_of, last_turn, not_in, turn_parts, ui_messages
from holodeck.wires.ai_sdk.request import KnownCall, UiAnswer
from holodeck.wires.ai_sdk.stream import UiMessageEncoder
from tests.examples import examples
from tests.wires.ai_sdk.ui_client import UiClient
from tests.wires.event_sequences import NAMED, STARTED, call, event_sequences, finished, step, text
from tests.wires.sse_parsers import whatwg

RELAXED = examples(25)
Json = dict[str, Any]
ASSISTANT = AssistantMessage(
    id="m1",
    content="May I?",
    run_id="run-0",
    tool_calls=(ToolCall(id="c1", name="delete_todo", arguments='{"id": 7}'),),
)


def chunks(events: list[e.Event], encoder: UiMessageEncoder | None = None) -> list[Json]:
    found = whatwg((encoder or UiMessageEncoder("run-1")).encode_many(enumerate(events)))
    assert [frame.data for frame in found].index("[DONE]") == len(found) - 1
    return [json.loads(frame.data) for frame in found[:-1]]


def shown(events: list[e.Event], encoder: UiMessageEncoder | None = None, parts: list[Json] | None = None) -> UiClient:
    client = UiClient(parts)
    for chunk in chunks(events, encoder):
        client.read(chunk)
    return client


@given(events=event_sequences())
@RELAXED
def test_any_run_is_a_message_that_the_client_accepts(events: list[e.Event]) -> None:
    client = shown(events)
    assert client.id == "run-1"
    assert client.texts() == "".join(each.delta for each in events if isinstance(each, e.TextAdded))
    assert client.texts("reasoning") == "".join(each.delta for each in events if isinstance(each, e.ReasoningAdded))
    asked = {each.call_id for each in events if isinstance(each, e.ToolCallStarted)}
    assert asked <= {part["toolCallId"] for part in client.tools()}
    if isinstance(events[-1], e.RunFailed):
        assert client.errors == [events[-1].message]
    assert (client.finish_reason == "error") == bool(client.errors)


@given(events=event_sequences())
@RELAXED
def test_one_event_at_a_time_gives_the_same_bytes(events: list[e.Event]) -> None:
    one, many = UiMessageEncoder("m"), UiMessageEncoder("m")
    assert b"".join(one.encode(event) for event in events) == many.encode_many(enumerate(events))


def test_names_at_which_the_parser_of_the_client_ends_the_stream_are_put_in_brackets() -> None:
    content = {"__proto__": 1, "constructor": {"prototype": [{"__proto__": 2}]}, "plain": {"constructor": "Ada"}}
    (start, activity, *_) = chunks([STARTED, e.ActivityShown("a1", "note", content), finished()])
    assert start["type"] == "start"
    expected = {"[__proto__]": 1, "[constructor]": {"prototype": [{"[__proto__]": 2}]}, "plain": {"constructor": "Ada"}}
    assert activity["data"]["content"] == expected


def test_tools_of_the_server_are_dynamic_and_those_of_the_client_are_not() -> None:
    (ours,) = shown(NAMED["tool_call"]).tools()
    assert (ours["state"], ours["output"], ours["dynamic"], ours["providerExecuted"]) == (
        "output-available",
        "created",
        True,
        True,
    )
    client = shown(NAMED["frontend_tool"], UiMessageEncoder("m", UiAnswer(client_tools=("change_background",))))
    (theirs,) = client.tools()
    assert (theirs["state"], theirs["input"]) == ("input-available", {"background": "red"})
    assert "dynamic" not in theirs
    assert client.finish_reason == "tool-calls"


def test_an_approval_waits_with_the_id_of_its_interrupt() -> None:
    client = shown(NAMED["approval"])
    (tool,) = client.tools()
    assert (tool["state"], tool["approval"], client.finish_reason) == ("approval-requested", "i1", "tool-calls")


@pytest.mark.parametrize("denied", [True, False])
def test_a_result_of_an_earlier_run_finds_its_call(*, denied: bool) -> None:
    known = {"c1": KnownCall(name="delete_todo", input={"id": 7})}
    fresh = shown(NAMED["resumed"], UiMessageEncoder("m", UiAnswer(open_calls=known, denied=("c1",) if denied else ())))
    (tool,) = fresh.tools()
    assert (tool["input"], tool["state"]) == ({"id": 7}, "output-denied" if denied else "output-available")
    before = [{"type": "step-start"}, {"type": "tool", "toolCallId": "c1", "state": "approval-responded"}]
    continued = shown(NAMED["resumed"], UiMessageEncoder("m", UiAnswer(open_calls=known)), before)
    assert len(continued.tools()) == 1


def test_an_output_that_the_client_gave_is_not_replaced() -> None:
    client = shown(NAMED["resumed"], UiMessageEncoder("m", UiAnswer(client_tools=("delete_todo",), settled=("c1",))))
    assert client.tools() == []


def test_state_is_whole_at_the_end_of_each_step() -> None:
    client = shown(NAMED["shared_state"])
    kinds = [part["type"] for part in client.notes]
    assert kinds == ["data-state-delta"]
    (state,) = [part for part in client.parts if part["type"] == "data-state"]
    assert state["data"] is None
    patched = [*NAMED["shared_state"][:-2], NAMED["shared_state"][-1]]
    (state,) = [part for part in shown(patched).parts if part["type"] == "data-state"]
    assert state["data"] == {"document": "Once"}


def test_notes_are_transient_and_activities_are_updated_in_place() -> None:
    client = shown(NAMED["notes"])
    assert [note["type"] for note in client.notes] == [
        "data-warning",
        "data-history",
    ]  # the run has no text
    (activity,) = [part for part in client.parts if part["type"] == "data-activity"]
    assert activity["data"] == {"kind": "file", "content": {"name": "plan.pdf", "pages": 3}}


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (finished(), "stop"),
        (finished(finish_reason="length"), "length"),
        (finished(finish_reason="content_filter"), "content-filter"),
        (finished(finish_reason="something new"), "other"),
        (finished(e.Outcome.MAX_ITERATIONS), "other"),
        (finished(e.Outcome.CANCELLED), "other"),
    ],
)
def test_only_the_finish_reasons_that_clients_know(ending: e.RunFinished, reason: str) -> None:
    client = shown([STARTED, *step(*text("m1", "So.")), ending])
    assert (client.finish_reason, client.metadata["outcome"]) == (reason, ending.outcome.value)


def test_the_history_is_one_message_for_each_turn() -> None:
    messages = [
        UserMessage(id="u1", content="Delete it"),
        AssistantMessage(id="a0", content="Let me see.", run_id="run-0"),
    ]
    pending = PendingStep(assistant=ASSISTANT, approvals={"i1": "c1"})
    user, answer = ui_messages(messages, pending, server_tools={"delete_todo"})
    assert (user["id"], answer["id"]) == ("u1", "run-0")
    tool = answer["parts"][-1]
    assert (tool["type"], tool["state"]) == ("dynamic-tool", "approval-requested")
    assert tool["approval"] == {"id": "i1", "requestReason": e.questions_of(pending)[0].message}
    client = UiClient()
    for chunk in chunks_of(answer["parts"]):
        client.read(chunk)
    assert client.texts() == "Let me see.May I?"
    assert [each["state"] for each in client.tools()] == ["approval-requested"]


def test_a_refused_call_is_denied_in_the_history_too() -> None:
    refused = ToolMessage(call_id="c1", name="delete_todo", content=f"{REFUSED} Their reason: no", failed=True)
    (answer,) = ui_messages([ASSISTANT, refused], None, server_tools={"delete_todo"})
    tool = answer["parts"][-1]
    assert (tool["state"], tool["approval"]["approved"]) == ("output-denied", False)
    client = UiClient()
    for chunk in chunks_of(answer["parts"]):
        client.read(chunk)
    assert [each["state"] for each in client.tools()] == ["output-denied"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_turn_is_shown_again_without_what_the_run_shows_itself(*, stored: bool) -> None:
    """The run answered a call that waited. Its log has the result and what followed, but not the call."""
    log = [*NAMED["resumed"][:-1]]
    result = ToolMessage(id="t1", call_id="c1", name="delete_todo", content="deleted", run_id="run-1")
    later = AssistantMessage(id="m2", content="Gone.", run_id="run-1")
    user = UserMessage(id="u1", content="Delete it")
    messages = [user, ASSISTANT, result, later] if stored else [user]
    pending = None if stored else PendingStep(assistant=ASSISTANT, approvals={"i1": "c1"})
    turn = last_turn(messages, pending)
    encoder = UiMessageEncoder("run-0")
    encoder.before = list(chunks_of(turn_parts(not_in(log, turn), pending, server_tools={"delete_todo"})))
    client = shown(NAMED["resumed"], encoder)
    assert client.texts() == "May I?Gone."
    (tool,) = client.tools()
    assert (tool["input"], tool["output"]) == ({"id": 7}, "deleted")


def test_an_empty_answer_after_tools_ran_is_no_error() -> None:
    assert shown([STARTED, *step(*call("c1", "add", "{}"), e.ToolFinished("c1", "add", "t", "3")), finished()]).errors == []  # fmt: skip


def test_a_call_of_this_run_is_not_repeated() -> None:
    done = e.ToolFinished("c1", "add", "t1", "3")
    events = chunks([STARTED, *step(*call("c1", "add", "{}"), done), finished()])
    assert [each["type"] for each in events if each["type"].startswith("tool-")] == [
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-available",
    ]
