"""A run as the named events of the REST wire (SRV-09).

One reply is one message, so all frames carry one `message_id`: the run's. Every call that was started is ended, at the
latest before the last frame, which is `stream_end` or `error`. Nearly all frames are deltas, so their constant bytes
are built once.
"""

from collections.abc import Callable, Sequence
from typing import Any

from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.request import FileNote
from holodeck.errors import HoloDeckError
from holodeck.wires import sse
from holodeck.wires.problem import problem
from holodeck.wires.reply import WAITING, ReplyReader, error_of, failure_of
from holodeck.wires.rest.response import how_it_ended, token_counts


class RestEventMapper(ReplyReader[bytes]):
    """`elapsed` returns the milliseconds that the run has taken. `instance` names the request in a problem."""

    def __init__(
        self,
        run_id: str,
        *,
        elapsed: Callable[[], int],
        instance: str | None = None,
        files: Sequence[FileNote] = (),
        is_new_session: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self._is_new_session = is_new_session
        self._message_id, self._elapsed, self._instance, self._files = run_id, elapsed, instance, files
        self._open_calls: dict[str, None] = {}
        own_id = sse.json_bytes(run_id)
        self._after_delta = b',"message_id":%b}\n\n' % own_id

    def run_started(self, event: e.RunStarted) -> Sequence[bytes]:
        data: dict[str, Any] = {"session_id": event.session_id, "message_id": self._message_id}
        new = {"session_is_new": True} if self._is_new_session() else {}
        return (sse.frame(data | new | ({"files": self._files} if self._files else {}), event="stream_start"),)

    def text_added(self, event: e.TextAdded) -> Sequence[bytes]:
        return self._delta(b"message_delta", self._reply.add(event))

    def reasoning_added(self, event: e.ReasoningAdded) -> Sequence[bytes]:
        return self._delta(b"reasoning_delta", event.delta)

    def _delta(self, name: bytes, delta: str) -> Sequence[bytes]:
        if not delta:
            return ()
        return (b'event: %b\ndata: {"delta":%b%b' % (name, sse.json_bytes(delta), self._after_delta),)

    def tool_call_started(self, event: e.ToolCallStarted) -> Sequence[bytes]:
        return (self._call_start(event.call_id, event.name),)

    def _call_start(self, call_id: str, name: str) -> bytes:
        self._open_calls[call_id] = None
        data = {"tool_call_id": call_id, "name": name, "message_id": self._message_id}
        return sse.frame(data, event="tool_call_start")

    def tool_arguments_added(self, event: e.ToolArgumentsAdded) -> Sequence[bytes]:
        data = {"tool_call_id": event.call_id, "args_delta": event.delta}
        return (sse.frame(data, event="tool_call_args"),)

    def tool_finished(self, event: e.ToolFinished) -> Sequence[bytes]:
        """A result may answer a call of the previous run, which this stream has not shown yet."""
        known = event.call_id in self._open_calls
        start = () if known else (self._call_start(event.call_id, event.name),)
        status = "error" if event.failed else "success"
        return (*start, self._call_end(event.call_id, status, result=text_of(event.content)))

    def _call_end(self, call_id: str, status: str, **result: str) -> bytes:
        self._open_calls.pop(call_id, None)
        return sse.frame({"tool_call_id": call_id, "status": status, **result}, event="tool_call_end")

    def run_finished(self, ending: e.RunFinished) -> Sequence[bytes]:
        left = self._ends("pending" if ending.outcome in WAITING else "error")
        error = failure_of(ending, self._reply.answer(ending))
        if error is not None:
            return (*left, self._error(error))
        data = {
            "message_id": self._message_id,
            "tokens_used": token_counts(ending.usage),
            "execution_time_ms": self._elapsed(),
            **how_it_ended(ending),
        }
        return (*left, sse.frame(data, event="stream_end"))

    def run_failed(self, ending: e.RunFailed) -> Sequence[bytes]:
        return (*self._ends("error"), self._error(error_of(ending)))

    def _ends(self, status: str) -> Sequence[bytes]:
        return [self._call_end(call_id, status) for call_id in list(self._open_calls)]

    def _error(self, error: HoloDeckError) -> bytes:
        """The same problem document as on the route without a stream."""
        return sse.frame(problem(error, self._instance), event="error")
