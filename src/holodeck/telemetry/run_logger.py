"""The story of a run as log lines: model calls, tool calls, the end, errors (ORC-08).

A reader like all others, but one that is told only of the rare events: no line and no work for a token. Names, times and
counts by default; what was said, asked and answered only when somebody debugs.
"""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.usage import TokenUsage
from holodeck.telemetry.logs import event_log

_MAX_SHOWN = 4000

Text: TypeAlias = Callable[[], str]


class RunLogger:
    """Tells one run. `said` is asked for the whole reply, and only in debugging."""

    def __init__(self, *, run_id: str, session_id: str, user_id: str, debug: bool = False, said: Text = str) -> None:
        self._who = {"conversation_id": session_id, "user_id": user_id, "run_id": run_id}
        self._log = event_log
        self._debug = debug
        self._said = said
        self._model: str | None = None
        self._begun = self._step_begun = self._reply_ended = self._thought_begun = time.monotonic()

    def __call__(self, event: e.Event) -> None:
        tell = _LINES.get(type(event))
        if tell is not None:
            tell(self, event)

    def started(self, event: e.RunStarted) -> None:
        self._model = event.model

    def step_started(self, event: e.StepStarted) -> None:
        self._step_begun = self._reply_ended = time.monotonic()
        self._log.info("model_called", details={"model": self._model, "step": event.number}, **self._who)

    def part_ended(self, _event: e.Event) -> None:
        self._reply_ended = time.monotonic()

    def step_finished(self, event: e.StepFinished) -> None:
        """The model's share of a step ends with the last part of its reply; the tools' share is in their own lines."""
        details = {"model": self._model, "step": event.number, "usage": _counts(event.usage)}
        self._log.info(
            "model_result", duration_ms=_since(self._step_begun, self._reply_ended), details=details, **self._who
        )

    def thinks(self, _event: e.ReasoningStarted) -> None:
        self._thought_begun = time.monotonic()

    def thought(self, event: e.ReasoningEnded) -> None:
        self.part_ended(event)
        self._log.info("agent_reasoning", duration_ms=_since(self._thought_begun), **self._who)

    def call_ended(self, event: e.ToolCallEnded) -> None:
        self.part_ended(event)
        shown = {"arguments": event.arguments[:_MAX_SHOWN]} if self._debug else {}
        self._log.info("mcp_tool_called", details={"tool": event.name, "call_id": event.call_id, **shown}, **self._who)

    def tool_finished(self, event: e.ToolFinished) -> None:
        status = "failed" if event.failed else "success"
        shown = {"result": text_of(event.content)[:_MAX_SHOWN]} if self._debug else {}
        tell = self._log.warning if event.failed else self._log.info
        details = {"tool": event.name, "call_id": event.call_id, "status": status, **shown}
        tell("mcp_tool_result", duration_ms=event.seconds * 1000, details=details, **self._who)

    def warned(self, event: e.WarningRaised) -> None:
        details = {"code": event.code, "message": event.message, "recoverable": True}
        self._log.warning("error_occurred", details=details, **self._who)

    def compacted(self, event: e.HistoryCompacted) -> None:
        details = {"messages": event.messages, "summarized": event.summarized, "usage": _counts(event.usage)}
        self._log.info("history_compacted", details=details, **self._who)

    def failed(self, event: e.RunFailed) -> None:
        details = {"code": event.code, "reason": event.reason, "message": event.message, "recoverable": False}
        self._log.error("error_occurred", duration_ms=_since(self._begun), details=details, **self._who)

    def finished(self, event: e.RunFinished) -> None:
        shown = {"reply": self._said()[:_MAX_SHOWN]} if self._debug else {}
        details = {
            "outcome": event.outcome.value,
            "iterations": event.iterations,
            "usage": _counts(event.usage),
            "warning": event.warning,
            **shown,
        }
        self._log.info("run_completed", duration_ms=_since(self._begun), details=details, **self._who)


_LINES: dict[type[e.Event], Callable[[RunLogger, Any], None]] = {
    e.RunStarted: RunLogger.started,
    e.StepStarted: RunLogger.step_started,
    e.StepFinished: RunLogger.step_finished,
    e.TextEnded: RunLogger.part_ended,
    e.ReasoningStarted: RunLogger.thinks,
    e.ReasoningEnded: RunLogger.thought,
    e.ToolCallEnded: RunLogger.call_ended,
    e.ToolFinished: RunLogger.tool_finished,
    e.WarningRaised: RunLogger.warned,
    e.HistoryCompacted: RunLogger.compacted,
    e.RunFailed: RunLogger.failed,
    e.RunFinished: RunLogger.finished,
}


def _since(begin: float, end: float | None = None) -> float:
    return ((time.monotonic() if end is None else end) - begin) * 1000


def _counts(usage: TokenUsage | None) -> dict[str, float | None] | None:
    if usage is None:
        return None
    counts: dict[str, float | None] = {
        "input": usage.prompt_tokens,
        "output": usage.completion_tokens,
        "total": usage.total_tokens,
    }
    return counts if usage.cost is None else counts | {"cost": usage.cost}
