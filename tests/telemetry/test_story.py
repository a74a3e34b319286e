"""The lines that a run leaves behind."""

import os

import pytest

from holodeck.core import events as e
from holodeck.core.usage import TokenUsage
from holodeck.telemetry import logs
from holodeck.telemetry.run_logger import RunLogger
from tests.telemetry.test_logs import read_lines

STORY = [
    e.RunStarted("r", "s", model="scripted"),
    e.StepStarted(1),
    e.ReasoningStarted("m"),
    e.ReasoningEnded("m"),
    e.TextStarted("m"),
    e.TextAdded("m", "private words"),
    e.TextEnded("m"),
    e.ToolCallStarted("c", "list", "m"),
    e.ToolCallEnded("c", "list", '{"private": "arguments"}'),
    e.ToolFinished("c", "list", "t", "private result", seconds=0.25),
    e.ToolFinished("d", "list", "t", "no", failed=True),
    e.StepFinished(1, TokenUsage(prompt_tokens=3, completion_tokens=4)),
    e.WarningRaised("reply-cut", "It was cut."),
    e.RunFinished("r", "s", iterations=1),
]


def told(story, *, debug=False):
    read, write = os.pipe()
    output = logs.configure(fd=write, debug=debug)
    tell = RunLogger(run_id="r", session_id="s", user_id="u", debug=debug, said=lambda: "private words")
    for event in story:
        tell(event)
    output.close()
    lines = read_lines(read)
    for fd in (read, write):
        os.close(fd)
    return lines


@pytest.mark.req("ORC-08")
def test_a_run_is_told_in_the_words_of_the_list():
    lines = told(STORY)
    assert [line["event"] for line in lines] == [
        "model_called", "agent_reasoning", "mcp_tool_called", "mcp_tool_result", "mcp_tool_result", "model_result",
        "error_occurred", "run_completed",
    ]  # fmt: skip
    assert {(line["conversation_id"], line["user_id"], line["details"]["run_id"]) for line in lines} == {
        ("s", "u", "r")
    }
    assert lines[3]["duration_ms"] == 250
    assert lines[4]["level"] == "warning"
    assert lines[5]["details"]["usage"] == {"input": 3, "output": 4, "total": 7}
    assert lines[-1]["details"]["outcome"] == "completed"


@pytest.mark.req("SRV-18")
def test_what_was_said_is_told_only_for_debugging():
    assert "private" not in str(told(STORY))
    text = str(told(STORY, debug=True))
    for words in ("private words", "private result", "arguments"):
        assert words in text


def test_a_failure_is_told_as_one():
    lines = told([e.RunStarted("r", "s"), e.RunFailed("r", "s", code="model-error", message="It failed.")])
    assert (lines[-1]["event"], lines[-1]["level"]) == ("error_occurred", "error")
    assert lines[-1]["details"]["code"] == "model-error"
