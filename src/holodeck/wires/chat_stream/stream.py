"""A run as the five events of the chat-stream wire (ORC-02): thinking, tool_call, response_delta, error, done.

`done` is always the last. An error before it either ended the run (`recoverable` false), or is about a tool that failed
or is unavailable; then the run continues. `accumulated` is a growing piece of JSON. It is left out once it is long or
not wanted: otherwise a reply would cost quadratic time.
"""

from collections.abc import Sequence
from typing import Any

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.text import shorten
from holodeck.core.tools import arguments_shown
from holodeck.errors import HoloDeckError
from holodeck.wires import sse
from holodeck.wires.reply import ReplyReader, error_of, failure_of

TOOL_FAILED = "tool-failed"
APPROVAL_NEEDED = "approval-needed"
MAX_ACCUMULATED = 8_000  # characters
MAX_MESSAGE = 1_000  # characters of a failed tool's text in an error

_QUOTES = slice(1, -1)


class ChatStreamEventMapper(ReplyReader[bytes]):
    """`request_id` is in every frame. `minimal` leaves `accumulated` out (`Prefer: return=minimal`)."""

    def __init__(self, request_id: str, *, minimal: bool = False) -> None:
        super().__init__()
        self._request_id = request_id
        self._after_delta = b',"request_id":%b}\n\n' % sse.json_bytes(request_id)
        self._accumulated: bytes | None = None if minimal else b""
        self._length = 0
        self._thought = ""
        self._open_calls: dict[str, tuple[str, dict[str, Any]]] = {}  # call id → name, arguments
        self._called: list[str] = []
        self._is_new = False  # the conversation that the client named is unknown, or has expired

    def run_started(self, event: e.RunStarted) -> Sequence[bytes]:
        self._is_new = event.is_new_session
        return ()

    def reasoning_added(self, event: e.ReasoningAdded) -> Sequence[bytes]:
        """Sends whole lines: clients show each `thinking` event on its own, and single words would be unreadable."""
        self._thought += event.delta
        if "\n" not in event.delta:
            return ()
        lines, _, self._thought = self._thought.rpartition("\n")
        return self._thinking(lines)

    def reasoning_ended(self, _event: e.ReasoningEnded) -> Sequence[bytes]:
        lines, self._thought = self._thought, ""
        return self._thinking(lines)

    def _thinking(self, lines: str) -> Sequence[bytes]:
        return (self._frame("thinking", content=lines.strip("\n")),) if lines.strip() else ()

    def text_added(self, event: e.TextAdded) -> Sequence[bytes]:
        delta = self._reply.add(event)
        if not delta:
            return ()
        encoded = sse.json_bytes(delta)
        self._accumulate(delta, encoded)
        total = b"" if self._accumulated is None else b',"accumulated":"%b"' % self._accumulated
        return (b'event: response_delta\ndata: {"delta":%b%b%b' % (encoded, total, self._after_delta),)

    def _accumulate(self, delta: str, encoded: bytes) -> None:
        self._length += len(delta)
        if self._length > MAX_ACCUMULATED:
            self._accumulated = None
        if self._accumulated is not None:
            self._accumulated += encoded[_QUOTES]

    def tool_call_ended(self, event: e.ToolCallEnded) -> Sequence[bytes]:
        self._called.append(event.name)
        self._open_calls[event.call_id] = call = (event.name, arguments_shown(event.arguments))
        return (self._call(*call, "in_progress"),)

    def tool_finished(self, event: e.ToolFinished) -> Sequence[bytes]:
        """A result may answer a call of the previous run, whose arguments are not known."""
        call = self._open_calls.pop(event.call_id, (event.name, {}))
        if not event.failed:
            return (self._call(*call, "completed"),)
        message = shorten(text_of(event.content), MAX_MESSAGE)
        return (
            self._call(*call, "failed"),
            self._frame("error", error_type=TOOL_FAILED, message=message, recoverable=True),
        )

    def warning_raised(self, event: e.WarningRaised) -> Sequence[bytes]:
        """Shows only that tools are unavailable now: the client may try again later. `done` carries the other warnings."""
        if event.code != e.TOOLS_UNAVAILABLE:
            return ()
        return (self._frame("error", error_type=event.code, message=event.message, recoverable=True),)

    def _call(self, name: str, arguments: dict[str, Any], status: str) -> bytes:
        return self._frame("tool_call", tool_name=name, arguments=arguments, status=status)

    def run_finished(self, ending: e.RunFinished) -> Sequence[bytes]:
        answer = self._reply.answer(ending)
        error = failure_of(ending, answer)
        if error is not None:
            return self._broken_off(answer, self._error(error))
        if ending.interrupts:
            tools = ", ".join(each.tool for each in ending.interrupts)
            message = f"A person must approve {tools} first, and this wire cannot ask; REST and AG-UI can."
            asked = self._frame("error", error_type=APPROVAL_NEEDED, message=message, recoverable=False)
            return self._broken_off(answer, asked)
        more: dict[str, Any] = {"warning": ending.warning} if ending.warning else {}
        if ending.output is not None:
            more["output"] = ending.output
        return (self._done(answer, success=True, **more),)

    def run_failed(self, ending: e.RunFailed) -> Sequence[bytes]:
        error = error_of(ending)
        advises = "try again" in error.message.lower()
        advice = f"{error.message.rstrip('.')}. Please try again." if ending.retryable and not advises else None
        return self._broken_off(self._reply.answer(ending), self._error(error, advice))

    def _broken_off(self, answer: str, why: bytes) -> Sequence[bytes]:
        """Reports unanswered calls as failed, so that each `in_progress` gets its end."""
        left = [self._call(*call, "failed") for call in self._open_calls.values()]
        return (*left, why, self._done(answer, success=False))

    def _error(self, error: HoloDeckError, message: str | None = None) -> bytes:
        return self._frame("error", error_type=error.code, message=message or error.message, recoverable=False)

    def _done(self, answer: str, *, success: bool, **more: Any) -> bytes:
        new = {"session_is_new": True} if self._is_new else {}
        return self._frame("done", final_output=answer, tools_called=self._called, success=success, **more, **new)

    def _frame(self, name: str, **data: Any) -> bytes:
        return sse.frame({**data, "request_id": self._request_id}, event=name)
