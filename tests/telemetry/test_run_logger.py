"""The lines that a run leaves behind."""

import os
from itertools import count
from types import SimpleNamespace

import pytest

from holodeck.core import events as e
from holodeck.core.usage import TokenUsage
from holodeck.telemetry import logs, run_logger
from holodeck.telemetry.run_logger import RunLogger
from tests.telemetry.test_logs import read_lines

EVENTS = [
    e.RunStarted("r", "s", model="scripted"),
    e.StepStarted(1, prompt_length=120),
    e.ReasoningStarted("m"),
    e.ReasoningEnded("m"),
    e.TextStarted("m"),
    e.TextAdded("m", "private words"),
    e.TextEnded("m"),
    e.ToolCallStarted("c", "list", "m"),
    e.ToolCallEnded("c", "list", '{"private": "arguments"}'),
    e.ToolFinished("c", "list", "t", "private result", seconds=0.25),
    e.ToolFinished("d", "list", "t", "The disk\nis full.", failed=True),
    e.StepFinished(1, TokenUsage(prompt_tokens=3, completion_tokens=4), response_length=13),
    e.WarningRaised("reply-cut", "It was cut."),
    e.RunFinished("r", "s", iterations=1),
]


def logged(events, *, debug=False, begun=None):
    read, write = os.pipe()
    output = logs.configure(fd=write, debug=debug)
    words = {"reply": lambda: "private words", "reasoning": lambda: "private thoughts"}
    emit = RunLogger(run_id="r", session_id="s", user_id="u", begun=begun, debug=debug, **words)
    for event in events:
        emit(event)
    output.close()
    lines = read_lines(read)
    for fd in (read, write):
        os.close(fd)
    return lines


def test_a_result_from_the_cache_is_named_as_one():
    fresh, cached = logged([e.ToolFinished("c", "list", "t", "x", cached=hit) for hit in (False, True)])
    assert ("cached" in fresh["details"], cached["details"]["cached"]) == (False, True)


@pytest.mark.req("ORC-08")
def test_a_run_is_logged_with_the_event_names_of_the_requirement():
    lines = logged(EVENTS)
    assert [line["event"] for line in lines] == [
        "model_called", "agent_reasoning", "mcp_tool_called", "mcp_tool_result", "mcp_tool_result", "model_result",
        "error_occurred", "run_completed",
    ]  # fmt: skip
    assert {(line["conversation_id"], line["user_id"], line["details"]["run_id"]) for line in lines} == {
        ("s", "u", "r")
    }
    assert lines[3]["duration_ms"] == 250
    assert lines[4]["level"] == "warning"
    assert lines[5]["details"]["tokens_used"] == {"input": 3, "output": 4, "total": 7}
    assert lines[-1]["details"]["outcome"] == "completed"


@pytest.mark.req("ORC-08")
def test_lines_name_the_model_that_answered():
    lines = logged(
        [
            e.RunStarted("r", "s", model="a/first"),
            e.StepStarted(1),
            e.StepFinished(1, model="b/second"),
            e.RunFinished("r", "s", model="b/second"),
        ]
    )
    assert [(line["event"], line["details"]["model"]) for line in lines] == [
        ("model_called", "a/first"), ("model_result", "b/second"), ("run_completed", "b/second"),
    ]  # fmt: skip


@pytest.mark.req("ORC-08")
def test_lines_carry_lengths_success_and_why_a_tool_failed():
    called, reasoned, asked, result, failed, answered, _, completed = (line["details"] for line in logged(EVENTS))
    assert (called["prompt_length"], answered["response_length"], answered["success"]) == (120, 13, True)
    assert reasoned["step"] == 1
    assert (asked["tool_name"], asked["arguments_length"]) == ("list", 24)
    assert (result["tool_name"], result["success"], result["result_length"]) == ("list", True, 14)
    assert (failed["success"], failed["error_message"]) == (False, "The disk is full.")
    assert (completed["success"], completed["tools_called"]) == (True, ["list"])


@pytest.mark.req("ORC-08")
def test_a_model_that_fails_without_a_word_has_a_true_duration(monkeypatch):
    clock = count(100.0, 30.0)  # each look at the clock is half a minute later
    monkeypatch.setattr(run_logger, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    events = [
        e.RunStarted("r", "s"),
        e.StepStarted(1),
        e.StepFinished(1),
        e.RunFailed("r", "s", code="timeout", message="Late"),
    ]
    (_, result, error) = logged(events)
    assert (result["event"], result["level"], result["details"]["success"]) == ("model_result", "warning", False)
    assert result["duration_ms"] == 30_000
    assert (error["details"]["error_type"], error["details"]["error_message"]) == ("timeout", "Late")


@pytest.mark.req("ORC-08")
def test_a_run_that_began_in_another_process_has_its_whole_duration(monkeypatch):
    monkeypatch.setattr(run_logger, "time", SimpleNamespace(monotonic=lambda: 100.0))
    (error,) = logged([e.RunFailed("r", "s", code="interrupted", message="Cut")], begun=92.0)
    assert error["duration_ms"] == 8_000


@pytest.mark.req("SRV-18")
def test_contents_are_logged_only_for_debugging():
    assert "private" not in str(logged(EVENTS))
    text = str(logged(EVENTS, debug=True))
    for words in ("private words", "private thoughts", "private result", "arguments"):
        assert words in text


def test_a_failure_is_reported_as_one():
    lines = logged([e.RunStarted("r", "s"), e.RunFailed("r", "s", code="model-error", message="It failed.")])
    assert (lines[-1]["event"], lines[-1]["level"]) == ("error_occurred", "error")
    assert lines[-1]["details"]["error_type"] == "model-error"
