"""Messages, contents, unanswered calls; and the tool values that CHT-05 asks for."""

from uuid import UUID

import msgspec
import pytest

from holodeck.core.messages import (
    AssistantMessage,
    MediaPart,
    Message,
    PendingStep,
    TextPart,
    ToolCall,
    ToolExecution,
    ToolMessage,
    ToolStatus,
    UserMessage,
    text_of,
    unanswered,
)
from holodeck.core.tools import ToolResult

A, B = ToolCall(id="a", name="t", arguments="{}"), ToolCall(id="b", name="t", arguments="{}")
ASKED = AssistantMessage(tool_calls=(A, B))


def answer(call):
    return ToolMessage(call_id=call.id, name=call.name, content="done")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("words", "words"),
        ((), ""),
        ((TextPart("a"), TextPart("b")), "a\nb"),
        (
            (TextPart("see"), MediaPart(mime_type="image/png", data="AA==", filename="cat.png")),
            "see\n[image/png: cat.png]",
        ),
        ((MediaPart(mime_type="image/png", url="http://127.0.0.1/cat"),), "[image/png]"),
    ],
)
def test_no_part_is_dropped_without_a_trace(content, text):
    assert text_of(content) == text
    assert ToolResult(content=content).text == text


@pytest.mark.parametrize(
    ("history", "left"),
    [
        ([], []),
        ([UserMessage(content="hi"), AssistantMessage(content="hello")], []),
        ([ASKED], [A, B]),
        ([ASKED, answer(B)], [A]),
        ([ASKED, answer(B), answer(A)], []),
        ([ASKED, answer(A), answer(B), AssistantMessage(tool_calls=(A,))], [A]),
        ([answer(A)], []),
    ],
)
def test_unanswered_calls(history, left):
    assert unanswered(history) == left


@pytest.mark.req("CHT-04")
def test_messages_come_back_as_they_were_stored():
    history: list[Message] = [UserMessage(content=(TextPart("hi"),)), ASKED, answer(A)]
    assert msgspec.json.decode(msgspec.json.encode(history), type=list[Message]) == history
    assert all(UUID(message.id) and message.timestamp.tzinfo for message in history)


def test_a_pending_step_waits_for_the_calls_without_a_result():
    assert PendingStep(assistant=ASKED, results=(answer(A),)).waiting == [B]


@pytest.mark.req("CHT-05")
def test_a_failed_execution_needs_its_message():
    assert ToolExecution(tool_name="t", status=ToolStatus.FAILED, error_message="no").error_message == "no"
    with pytest.raises(ValueError, match="error_message"):
        ToolExecution(tool_name="t", status=ToolStatus.FAILED)
    with pytest.raises(ValueError, match="negative"):
        ToolExecution(tool_name="t", execution_time=-1.0)
