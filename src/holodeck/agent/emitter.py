"""Emits the events of one run and keeps its grammar: it closes every part that it opened, and emits one ending, last.

It is the model's listener, so a token becomes an event with one call and no task switch. It decides nothing: the loop
decides when to stop, what to store and which tool to call.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from holodeck.core import events as e
from holodeck.core.ids import new_call_id, new_message_id
from holodeck.core.messages import Content, ToolCall, ToolMessage
from holodeck.core.usage import TokenUsage
from holodeck.errors import HoloDeckError, InternalError, ModelError


class TimedListener:
    """The part of a listener that knows whether the time limit of a model call has expired."""

    silent = True  # the model has sent nothing yet in this step
    limit: asyncio.Timeout | None = None  # the current step's time limit

    def timed_out_without_output(self) -> bool:
        return self.silent and self.limit is not None and self.limit.expired()


class RunEmitter(TimedListener):
    """The model's listener during a step; all events of the run pass through it."""

    def __init__(self, emit: e.Emit, *, run_id: str, session_id: str, used_call_ids: Iterable[str] = ()) -> None:
        self.emit = self._show = emit
        self._held: list[e.Event] | None = None
        self._is_lost = False  # what is held back was not stored
        self._run_id = run_id
        self._session_id = session_id
        self._names: dict[str, str] = {}
        self._renamed: dict[str, str] = {}
        self._used_call_ids = set(used_call_ids)
        self._begin()

    def _begin(self) -> None:
        self.started = False
        self.silent = True
        self.message_id = ""  # the message id of the current step
        self.tools_ran = False  # a tool of the agent, the client or the provider has a result
        self._step: int | None = None
        self._text_open = False
        self._deltas: list[str] = []
        self._reasoning_id: str | None = None
        self._open_calls: dict[str, list[str]] = {}  # call id → pieces of its arguments

    # events that may not be shown yet

    def hold(self) -> None:
        """Holds all events back until `release`."""
        if self._is_lost:
            self.discard()
        self._held, self._show, self._has_shown_start = [], self.emit, self.started
        self.emit = self._held.append

    def release(self) -> None:
        """Emits the events that were held back, unless they are lost. Idempotent."""
        if self._is_lost:
            self.discard()
        elif self._held is not None:
            held, self._held, self.emit = self._held, None, self._show
            for event in held:
                self.emit(event)

    def lose(self) -> None:
        """Marks the events that are held back as lost: what they report was not stored.

        They are dropped later, because the model continues to call its listener until the run stops it.
        """
        self._is_lost = self._held is not None

    def discard(self) -> None:
        """Drops the events that were held back: what they report was not stored."""
        self._is_lost = False
        if self._held is not None:
            self._held, self.emit = None, self._show
            self._begin()
            self.started = self._has_shown_start

    # the run

    def run_started(self, *, parent_run_id: str | None, model: str, is_new_session: bool) -> None:
        self.started = True
        self.emit(e.RunStarted(self._run_id, self._session_id, parent_run_id, model, is_new_session))

    def run_ended(self, ending: e.Ending) -> None:
        """Closes the open parts, then emits the last event."""
        self.step_finished(None, ending.model)
        self.emit(ending)

    # the step

    def step_started(self, number: int, prompt_length: int = 0) -> None:
        self._step = number
        self.silent = True
        self.message_id = new_message_id()
        self._renamed.clear()
        self._deltas.clear()
        self.emit(e.StepStarted(number, prompt_length))

    def step_finished(self, usage: TokenUsage | None, model: str | None = None) -> None:
        if self._text_open or self._reasoning_id is not None or self._open_calls:
            self.reply_ended()
        if self._step is not None:
            self.emit(e.StepFinished(self._step, usage, sum(map(len, self._deltas)), model))
            self._step = None

    def text_so_far(self) -> str:
        """The text of this step so far. The loop keeps it when the model fails. Empty if the question was not stored."""
        return "" if self._is_lost else "".join(self._deltas)

    # the model's listener

    def text(self, delta: str) -> None:
        if not self._text_open:
            self._open_text()
        self._deltas.append(delta)
        self.emit(e.TextAdded(self.message_id, delta))

    def reasoning(self, delta: str) -> None:
        if self._reasoning_id is None:
            self.silent = False
            self._reasoning_id = new_message_id()
            self.emit(e.ReasoningStarted(self._reasoning_id))
        self.emit(e.ReasoningAdded(self._reasoning_id, delta))

    def call_started(self, call_id: str, name: str) -> None:
        self.silent = False
        if self._reasoning_id is not None:
            self._close_reasoning(self._reasoning_id)
        if self._text_open:
            self._close_text()
        own_id = self._unused(call_id)
        self._open_calls[own_id] = []
        self._names[own_id] = name
        self.emit(e.ToolCallStarted(own_id, name, self.message_id))

    def call_arguments(self, call_id: str, delta: str) -> None:
        own_id = self._renamed.get(call_id, call_id)
        self._open_calls[own_id].append(delta)
        self.emit(e.ToolArgumentsAdded(own_id, delta))

    def call_ended(self, call: ToolCall) -> None:
        own_id = self._renamed.get(call.id, call.id)
        self._open_calls.pop(own_id, None)
        self.emit(e.ToolCallEnded(own_id, call.name, call.arguments))

    def call_answered(self, call_id: str, content: Content, *, failed: bool = False) -> None:
        own_id = self._renamed.get(call_id, call_id)
        self.tools_ran = True
        self.emit(e.ToolFinished(own_id, self._names[own_id], new_message_id(), content, failed))

    def warning(self, code: str, message: str) -> None:
        self.emit(e.WarningRaised(code, message))

    def raw(self, event: Any) -> None:
        self.emit(e.RawReceived(event))

    # tools

    def own(self, call: ToolCall) -> ToolCall:
        """The call with the id that its events have."""
        own_id = self._renamed.get(call.id, call.id)
        return call if own_id == call.id else msgspec.structs.replace(call, id=own_id)

    def tool_finished(self, message: ToolMessage, seconds: float, *, cached: bool = False) -> None:
        self.tools_ran = True
        self.emit(
            e.ToolFinished(
                message.call_id, message.name, message.id, message.content, message.failed, round(seconds, 6), cached
            )
        )

    # keeping the grammar

    def _unused(self, call_id: str) -> str:
        """Returns an id that no event of the run has yet: some gateways number their calls from zero in every reply."""
        own_id = call_id if call_id not in self._used_call_ids else new_call_id()
        self._used_call_ids.add(own_id)
        if own_id != call_id:
            self._renamed[call_id] = own_id
        return own_id

    def _open_text(self) -> None:
        if self._reasoning_id is not None:
            self._close_reasoning(self._reasoning_id)
        self.silent = False
        self._text_open = True
        self.emit(e.TextStarted(self.message_id))

    def _close_text(self) -> None:
        self._text_open = False
        self.emit(e.TextEnded(self.message_id))

    def _close_reasoning(self, reasoning_id: str) -> None:
        self._reasoning_id = None
        self.emit(e.ReasoningEnded(reasoning_id))

    def reply_ended(self) -> None:
        """Closes the open parts: the model has finished its reply in this step, or the step ends."""
        if self._reasoning_id is not None:
            self._close_reasoning(self._reasoning_id)
        if self._text_open:
            self._close_text()
        for call_id, pieces in self._open_calls.items():
            name = self._names[call_id]
            self.emit(e.ToolCallEnded(call_id, name, "".join(pieces)))
            self.emit(e.ToolFinished(call_id, name, new_message_id(), CUT_CALL, failed=True))
        self._open_calls.clear()


@dataclass(slots=True, eq=False)
class OverlappingCommit:
    """A commit that runs while the model is already being asked. The emitter holds its events back until it is stored.

    If the commit fails, the run fails too, whatever it is doing by then.
    """

    _emitter: RunEmitter
    stored: "asyncio.Future[Any] | None" = None  # the future of the commit in progress
    _task: "asyncio.Task[Any] | None" = None
    _waiter: "asyncio.Future[None] | None" = None
    _failure: BaseException | None = None

    def begin(self, stored: "asyncio.Future[Any] | None") -> None:
        """Starts to wait for a commit. `stored` is None if the commit is already durable.

        Must not be called while another commit is in progress.
        """
        if stored is not None:
            self.stored, self._task, self._waiter = stored, asyncio.current_task(), None
            self._emitter.hold()
            stored.add_done_callback(self._settled)

    async def wait(self) -> None:
        """Waits until the messages are stored and the held events are shown.

        Raises the error if they cannot be stored.
        """
        if self.stored is not None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def cancelled_by(self) -> HoloDeckError | None:
        """Returns why the commit failed, if that failure cancelled the task, and undoes the cancellation.

        Otherwise None.
        """
        if self._failure is None or self._task is None or self._task.uncancel() > 0:
            return None  # the run was stopped for another reason, or for several
        error = self._failure
        return error if isinstance(error, HoloDeckError) else InternalError("The run's messages could not be stored.")

    def finish(self) -> None:
        """Takes note of a commit that is done. Its callback may not have come yet, and the run ends now."""
        if self.stored is not None and self.stored.done():
            self._task, self._waiter = None, None
            self._settled(self.stored)

    def _settled(self, stored: "asyncio.Future[Any]") -> None:
        if self.stored is not stored:
            return
        self.stored = None
        failure = asyncio.CancelledError() if stored.cancelled() else stored.exception()
        if failure is None:
            self._emitter.release()
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
            return
        if self._waiter is not None:
            self._emitter.discard()
            if not self._waiter.done():
                self._waiter.set_exception(failure)
            return
        self._emitter.lose()
        if self._task is not None:
            self._failure = failure
            self._task.cancel()


CUT_CALL = "Not carried out: the model's reply was cut off before the call was complete."


def reason_for_cut(error: BaseException) -> str:
    """The reason why a stored message is incomplete, in the vocabulary of `holodeck.errors`."""
    if isinstance(error, ModelError) and error.reason:
        return error.reason
    return error.code if isinstance(error, HoloDeckError) else "stopped"
