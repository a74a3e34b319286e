"""What the tools are called with, and the answers of forms: a value or an InvalidRequest, whatever comes."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from mcp_types import Tool

from holodeck.core.events import Interrupt
from holodeck.core.messages import MediaPart
from holodeck.core.request import Resume
from holodeck.errors import HoloDeckError, InvalidRequest
from holodeck.wires.mcp.agent_tools import (
    ask_request,
    continue_request,
    run_to_wait_for,
    tool_list,
)
from holodeck.wires.mcp.approvals import form_answers
from holodeck.wires.mcp.envelope import MODERN, Caller
from tests.examples import examples
from tests.wires.event_sequences import JSON, OBJECTS

ASKED = (Interrupt(id="i1", call_id="c", tool="t", arguments="{}", message="May I?", expires_at=datetime.now(UTC)),)


def failure_of(read: Callable[[], object]) -> int | None:
    """The status of the error that it raises; None if it raises none."""
    try:
        read()
    except HoloDeckError as error:
        return error.status
    return None


@given(given_arguments=OBJECTS)
@examples(50)
def test_whatever_the_arguments_are(given_arguments: dict[str, Any]) -> None:
    for read in (partial(ask_request, max_text=100), continue_request, run_to_wait_for):
        assert failure_of(partial(read, given_arguments)) in {None, 413, 422}


@given(answers=JSON)
@examples(50)
def test_whatever_a_form_answers(answers: Any) -> None:
    given_answers = {"i1": answers, "other": answers}
    assert failure_of(lambda: form_answers(given_answers, ASKED)) in {None, 422}


@pytest.mark.parametrize(
    ("answer", "approved"),
    [
        ({"action": "accept", "content": {"decision": "approve"}}, True),
        ({"action": "accept", "content": {"decision": "approve", "arguments": ""}}, True),
        ({"action": "accept", "content": {"decision": "reject"}}, False),
        ({"action": "decline"}, False),
    ],
)
def test_a_clear_answer(answer: dict[str, Any], *, approved: bool) -> None:
    assert form_answers({"i1": answer}, ASKED).decided == (Resume(interrupt_id="i1", approved=approved),)


def test_other_arguments() -> None:
    answer = {"action": "accept", "content": {"decision": "approve", "arguments": '{"id": 8}'}}
    (decided,) = form_answers({"i1": answer}, ASKED).decided
    assert decided.payload == {"arguments": {"id": 8}}


def test_a_form_that_was_closed_decides_nothing() -> None:
    answers = form_answers({"i1": {"action": "cancel"}, "i2": {"action": "accept"}}, ASKED)
    assert (answers.decided, answers.dismissed) == ((), {"i1"})


@pytest.mark.req("ACC-07")
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"action": "yes"},
        {"action": "accept"},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"decision": True}},
        {"action": "accept", "content": {"decision": "APPROVE"}},
        {"action": "accept", "content": {"decision": "approve", "arguments": "{"}},
        {"action": "accept", "content": {"decision": "approve", "arguments": "[1]"}},
        {"action": "accept", "content": {"decision": "approve", "arguments": {"id": 8}}},
        [],
        True,
    ],
)
def test_an_unclear_answer_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidRequest):
        form_answers({"i1": answer}, ASKED)


def test_files_are_bytes_or_an_address() -> None:
    asked = ask_request({"message": "read", "files": [{"data": "QUJD", "name": "a.txt"}, {"url": "http://a/b"}]}, 9)
    assert asked.messages[0].content[1:] == (
        MediaPart(mime_type="application/octet-stream", data="QUJD", filename="a.txt"),
        MediaPart(mime_type="application/octet-stream", url="http://a/b"),
    )
    for wrong in ({}, {"data": "QUJD", "url": "http://a/b"}, {"data": "é"}, {"data": 1}, {"url": 1}):
        with pytest.raises(InvalidRequest):
            ask_request({"message": "read", "files": [wrong]}, 9)


@pytest.mark.parametrize(
    ("caller", "names"),
    [
        (Caller(), ["ask", "continue", "wait"]),
        (Caller(version=MODERN), ["ask", "continue", "wait"]),
        (Caller(version=MODERN, capabilities={"elicitation": {}}), ["ask", "wait"]),
        (
            Caller(
                version=MODERN,
                capabilities={"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
            ),
            ["ask"],
        ),
    ],
)
def test_a_client_is_offered_what_it_needs(caller: Caller, names: list[str]) -> None:
    offered = tool_list("tester", "For tests", caller)
    assert [each["name"] for each in offered] == names
    for each in offered:
        Tool.model_validate(each)
        Draft202012Validator.check_schema(each["inputSchema"])
        Draft202012Validator.check_schema(each["outputSchema"])
