"""The log lines of a run: model calls, tool calls, the end, errors (ORC-08).

It reads only the rare events: a token causes no line and no work. Lines contain names, times, counts, lengths, and the
beginning of an error's text. They contain texts, arguments and results only with --debug.
"""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.text import one_line
from holodeck.core.usage import TokenUsage
from holodeck.telemetry.log_context import RequestContext, current
from holodeck.telemetry.logs import event_log

_MAX_SHOWN = 4000
_MAX_REASON = 200

TextGetter: TypeAlias = Callable[[], str]


class RunLogger(e.Observer):
    """Logs one run. `reply` and `reasoning` return the whole texts; called only with --debug.

    The lines carry the client's id of the conversation. The logger records success and tools for the line
    `request_completed` of the request that started the run. `begun` is the run's start, by `time.monotonic`: a run may
    have begun in a process that was killed.
    """

    def __init__(
        self,
        *,
        run_id: str,
        session_id: str,
        user_id: str,
        begun: float | None = None,
        debug: bool = False,
        reply: TextGetter = str,
        reasoning: TextGetter = str,
    ) -> None:
        request = current()
        self._request = request if request.request_id else RequestContext()  # a run that no request started
        conversation = self._request.conversation_id or session_id
        self._who = {"conversation_id": conversation, "user_id": user_id, "run_id": run_id}
        self._log = event_log
        self._debug = debug
        self._reply, self._reasoning = reply, reasoning
        self._model: str | None = None
        self._step = 0
        self._called: dict[str, None] = {}
        self._result: tuple[float, dict[str, Any]] | None = None  # time and details of the model call that ended last
        self._step_begun = self._thought_begun = time.monotonic()
        self._begun = self._step_begun if begun is None else begun
        self._reply_ended: float | None = None

    def run_started(self, event: e.RunStarted) -> None:
        self._model = event.model

    def step_started(self, event: e.StepStarted) -> None:
        self._write_result()
        self._step, self._step_begun, self._reply_ended = event.number, time.monotonic(), None
        details = {"model": self._model, "step": event.number, "prompt_length": event.prompt_length}
        self._log.info("model_called", details=details, **self._who)

    def text_ended(self, _event: e.TextEnded) -> None:
        self._reply_ended = time.monotonic()

    def step_finished(self, event: e.StepFinished) -> None:
        """The model's share of a step ends with the last part of its reply. The tools' share is in their own lines.

        Only the next event shows whether the call was a success.
        """
        details = {
            "model": event.model or self._model,
            "step": event.number,
            "response_length": event.response_length,
            "tokens_used": _counts(event.usage),
        }
        self._result = _since(self._step_begun, self._reply_ended), details

    def _write_result(self, *, success: bool = True) -> None:
        """Writes the line of the model call that ended last. Every event that may follow a step calls this first."""
        if self._result is not None:
            (duration, details), self._result = self._result, None
            write = self._log.info if success else self._log.warning
            write("model_result", duration_ms=duration, details={**details, "success": success}, **self._who)

    def reasoning_started(self, _event: e.ReasoningStarted) -> None:
        self._thought_begun = time.monotonic()

    def reasoning_ended(self, _event: e.ReasoningEnded) -> None:
        self._reply_ended = time.monotonic()
        shown = {"reasoning": self._reasoning()[-_MAX_SHOWN:]} if self._debug else {}
        details = {"model": self._model, "step": self._step, **shown}
        self._log.info("agent_reasoning", duration_ms=_since(self._thought_begun), details=details, **self._who)

    def tool_call_ended(self, event: e.ToolCallEnded) -> None:
        self._reply_ended = time.monotonic()
        if event.name not in self._called:
            self._called[event.name] = None
            self._request.tools_called.append(event.name)
        shown = {"arguments": event.arguments[:_MAX_SHOWN]} if self._debug else {}
        details = {"tool_name": event.name, "call_id": event.call_id, "arguments_length": len(event.arguments), **shown}
        self._log.info("mcp_tool_called", details=details, **self._who)

    def tool_finished(self, event: e.ToolFinished) -> None:
        text = text_of(event.content)
        details: dict[str, Any] = {"tool_name": event.name, "call_id": event.call_id, "success": not event.failed}
        details["result_length"] = len(text)
        if event.cached:
            details["cached"] = True
        if event.failed:
            details["error_message"] = one_line(text, _MAX_REASON)
        if self._debug:
            details["result_preview"] = text[:_MAX_SHOWN]
        write = self._log.warning if event.failed else self._log.info
        write("mcp_tool_result", duration_ms=event.seconds * 1000, details=details, **self._who)

    def warning_raised(self, event: e.WarningRaised) -> None:
        self._write_result()
        details = {"error_type": event.code, "error_message": event.message, "recoverable": True}
        self._log.warning("error_occurred", details=details, **self._who)

    def history_compacted(self, event: e.HistoryCompacted) -> None:
        self._write_result()
        details = {
            "model": event.model or self._model,
            "messages": event.messages,
            "summarized": event.summarized,
            "tokens_used": _counts(event.usage),
        }
        self._log.info("history_compacted", details=details, **self._who)

    def run_failed(self, event: e.RunFailed) -> None:
        self._write_result(success=False)
        self._request.failed = True
        details = {
            "model": event.model or self._model,
            "error_type": event.code,
            "reason": event.reason,
            "error_message": event.message,
            "recoverable": False,
            "tools_called": list(self._called),
        }
        self._log.error("error_occurred", duration_ms=_since(self._begun), details=details, **self._who)

    def run_finished(self, event: e.RunFinished) -> None:
        self._write_result()
        shown = {"reply": self._reply()[:_MAX_SHOWN]} if self._debug else {}
        details = {
            "model": event.model or self._model,
            "outcome": event.outcome,
            "iterations": event.iterations,
            "success": event.outcome is not e.Outcome.CANCELLED,
            "tools_called": list(self._called),
            "tokens_used": _counts(event.usage),
            "warning": event.warning,
            **shown,
        }
        self._log.info("run_completed", duration_ms=_since(self._begun), details=details, **self._who)


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
