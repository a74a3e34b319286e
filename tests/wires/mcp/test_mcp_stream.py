"""Any run the grammar allows, as progress and a result that the official types accept."""

import json
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from mcp_types import CallToolResult, InputRequiredResult, ProgressNotificationParams

from holodeck.core import events as e
from holodeck.wires.mcp.agent_tools import ANSWER_SCHEMA
from holodeck.wires.mcp.call_progress import AnswerReader, ProgressEncoder
from holodeck.wires.mcp.envelope import MODERN, Caller
from tests.examples import examples
from tests.wires.event_sequences import NAMED, event_sequences
from tests.wires.sse_parsers import whatwg

RELAXED = examples(25)
INFO = {"name": "tester", "version": "1"}
LEGACY, PLAIN, FORMS = Caller(), Caller(version=MODERN), Caller(version=MODERN, capabilities={"elicitation": {}})
Json = dict[str, Any]


def frames(events: list[e.Event], caller: Caller, token: str | None = "t") -> list[Json]:
    encoder = ProgressEncoder(5, AnswerReader(caller, INFO), token)
    return [json.loads(frame.data) for frame in whatwg(encoder.encode_many(enumerate(events)))]


def result_of(name: str, caller: Caller = PLAIN) -> Json:
    result: Json = frames(NAMED[name], caller)[-1]["result"]
    return result


@given(events=event_sequences())
@RELAXED
@pytest.mark.parametrize("caller", [LEGACY, PLAIN, FORMS])
def test_any_run_is_progress_and_then_one_result(caller: Caller, events: list[e.Event]) -> None:
    *progress, last = frames(events, caller)
    assert [each["params"]["progress"] for each in progress] == [*range(1, len(progress) + 1)]
    for each in progress:
        assert each["method"] == "notifications/progress"
        ProgressNotificationParams.model_validate(each["params"])
    assert (last["jsonrpc"], last["id"]) == ("2.0", 5)
    result = last["result"]
    if result.get("resultType") == "input_required":
        InputRequiredResult.model_validate(result)
        return
    CallToolResult.model_validate(result)
    Draft202012Validator(ANSWER_SCHEMA).validate(result["structuredContent"])
    assert ("resultType" in result) == caller.is_modern


@given(events=event_sequences())
@RELAXED
def test_one_event_at_a_time_gives_the_same_bytes(events: list[e.Event]) -> None:
    one, many = (ProgressEncoder(1, AnswerReader(PLAIN, INFO), "t") for _ in range(2))
    assert b"".join(one.encode(event) for event in events) == many.encode_many(enumerate(events))


def test_without_a_token_there_is_no_progress() -> None:
    assert len(frames(NAMED["tool_call"], PLAIN, token=None)) == 1


def test_a_tool_is_two_lines_of_progress() -> None:
    lines = [each["params"]["message"] for each in frames(NAMED["tool_call"], PLAIN)[:-1]]
    assert lines == ['→ create_todo {"title": "eggs"}', "← create_todo created"]


def test_silence_is_progress_too() -> None:
    encoder = ProgressEncoder(1, AnswerReader(PLAIN, INFO), "t")
    first, second = (json.loads(whatwg(encoder.keepalive)[0].data)["params"]["progress"] for _ in range(2))
    assert (first, second) == (1, 2)
    assert ProgressEncoder(1, AnswerReader(PLAIN, INFO)).keepalive.startswith(b":")


def test_the_answer_with_its_calls() -> None:
    result = result_of("tool_call")
    assert result["content"] == [{"type": "text", "text": "Done."}]
    assert result["structuredContent"] == {
        "status": "completed",
        "session": "thread-1",
        "run": "run-1",
        "tool_calls": [{"name": "create_todo", "arguments": {"title": "eggs"}, "status": "success"}],
        "answer": "Done.",
    }
    assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": INFO}


def test_a_failure_is_a_tool_that_failed() -> None:
    result = result_of("failed")
    assert result["isError"] is True
    assert result["structuredContent"]["error"] == "model-unavailable"
    assert result["content"][0]["text"] == "The model is not available at the moment"


def test_approvals_are_forms_where_the_client_has_them() -> None:
    result = result_of("approval", FORMS)
    (form,) = result["inputRequests"].values()
    assert (result["requestState"], form["method"]) == ("run-1", "elicitation/create")
    assert form["params"]["message"] == 'May I delete todo 7?\n\ndelete_todo {"id": 7}'
    assert set(form["params"]["requestedSchema"]["properties"]) == {"decision", "arguments", "reason"}


@pytest.mark.parametrize("caller", [LEGACY, PLAIN])
def test_approvals_are_in_the_answer_elsewhere(caller: Caller) -> None:
    about = result_of("approval", caller)["structuredContent"]
    assert about["status"] == "waiting"
    (approval,) = about["approvals"]
    assert (approval["id"], approval["tool"], approval["arguments"]) == ("i1", "delete_todo", {"id": 7})
