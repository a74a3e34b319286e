"""Recovers a run that a crash interrupted: pure functions over the copy of its log and its session.

A call that reached its tool and has no result gets the result "unknown"; it is never repeated. The model's text so far
is kept as a message marked as cut. Readers of the log get events that close the open parts, the stored conversation,
and an ending.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import TypeVar

import msgspec

from holodeck.agent.emitter import CUT_CALL
from holodeck.agent.pending import NOT_MADE, OUTCOME_UNKNOWN
from holodeck.core import events as e
from holodeck.core.ids import new_ulid
from holodeck.core.messages import (
    INTERRUPTED,
    AssistantMessage,
    Message,
    PendingStep,
    ToolExecution,
    ToolMessage,
    ToolStatus,
    UserMessage,
    text_of,
)
from holodeck.core.tools import arguments_shown
from holodeck.runs.log import ReplayGone
from holodeck.runs.port import RunRecord, RunResult
from holodeck.sessions.port import StoredSession

M = TypeVar("M", bound=Message)

CALL_AGAIN = "Interrupted by a restart of the server; it may be called again."
ANSWER_GONE = "This run is complete, but its answer is no longer stored: its conversation has expired or was cut."
ANSWER_NOT_KEPT = "This run is complete, but its answer is no longer stored: it had no session."
PART_STRIDE = 1_000_000_000
"""Event numbers restart at the next multiple of this after a crash.

They cannot collide with those of events that the dead process sent but did not copy.
"""


@dataclass(frozen=True, kw_only=True)
class Remains:
    """The remains of a run after a crash: events to show, messages to store, and whether the run can continue."""

    closings: Sequence[e.Event] = ()  # they close the open parts of the log
    messages: Sequence[Message] = ()  # messages that recovery stores
    settles_step: bool = False  # `messages` complete the pending step
    is_certain: bool = True  # no call may have taken effect unnoticed: the run can continue
    steps: int = 0  # how many were begun
    has_moved_on: bool = False  # a terminal has added turns: the run cannot continue, its partial text is not stored


@dataclass
class _Seen:
    """The state of a run as readers of its log know it."""

    step: int | None = None
    steps: int = 0
    text_id: str | None = None
    reasoning_id: str | None = None
    message_id: str = ""  # the message id of the step's reply
    text: list[str] = field(default_factory=list)
    open_calls: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # id → name, pieces of the arguments
    calls: dict[str, str] = field(default_factory=dict)  # id → name, without a result

    def take(self, event: e.Event) -> None:  # noqa: C901  a table, one row for each kind of event
        match event:
            case e.StepStarted(number):
                self.step, self.steps, self.message_id, self.text = number, number, "", []
            case e.StepFinished():
                self.step = None
            case e.TextStarted(message_id):
                self.text_id = self.message_id = message_id
            case e.TextAdded(_, delta):
                self.text.append(delta)
            case e.TextEnded():
                self.text_id = None
            case e.ReasoningStarted(message_id):
                self.reasoning_id = message_id
            case e.ReasoningEnded():
                self.reasoning_id = None
            case e.ToolCallStarted(call_id, name, message_id):
                self.open_calls[call_id], self.calls[call_id], self.message_id = (name, []), name, message_id
            case e.ToolArgumentsAdded(call_id, delta):
                self.open_calls[call_id][1].append(delta)
            case e.ToolCallEnded(call_id):
                self.open_calls.pop(call_id, None)
            case e.ToolFinished(call_id):
                self.calls.pop(call_id, None)


def remains_of(
    record: RunRecord,
    events: Sequence[e.Event],
    stored: StoredSession | None,
    is_repeatable: Callable[[str], bool] = lambda _name: False,
) -> Remains:
    """Decides what to store and to show of a run whose process died."""
    seen = _Seen()
    for event in events:
        seen.take(event)
    known = set() if stored is None else {message.id for message in stored.messages}
    step = None if stored is None else _cut_step(stored.pending, record.run_id)
    if stored is not None and stored.pending is not None and step is None:  # it waits as before
        known.add(stored.pending.assistant.id)
        waiting = {call.id for call in stored.pending.waiting}
        seen.calls = {id_: name for id_, name in seen.calls.items() if id_ not in waiting}
    settled = [] if step is None else _settled(step, is_repeatable)
    new = [message for message in record.request.messages if message.id not in known]
    # Results enter the history with the pending step that they complete.
    asked = [_of_run(each, record.run_id) for each in dropwhile(lambda each: isinstance(each, ToolMessage), new)]
    has_moved_on = stored is not None and _is_behind(stored.messages, record.run_id)
    partial = [] if step is not None or has_moved_on else _partial(seen, known, record.run_id)
    results = {message.call_id: message for message in settled if isinstance(message, ToolMessage)}
    if record.request.acted:  # no step was stored, so any of its calls may have been made
        results = {
            id_: _unknown(id_, name, record.run_id) for id_, name in seen.calls.items() if id_ not in seen.open_calls
        }
    return Remains(
        closings=_closings(seen, results),
        messages=[*settled, *asked, *partial],
        settles_step=step is not None,
        is_certain=all(message.content != OUTCOME_UNKNOWN for message in results.values()),
        steps=seen.steps,
        has_moved_on=has_moved_on,
    )


def _is_behind(messages: Sequence[Message], run_id: str) -> bool:
    """Whether messages of another turn follow those of the run. Runs of a server take turns; a terminal does not wait."""
    ids = [message.run_id for message in messages]
    return run_id in ids and ids[-1] != run_id


def _cut_step(pending: PendingStep | None, run_id: str) -> PendingStep | None:
    """The step whose tools were running. A step that waits for a person does not change."""
    return pending if pending is not None and pending.run_id == run_id and pending.begun else None


def _settled(step: PendingStep, is_repeatable: Callable[[str], bool]) -> list[Message]:
    results = {result.call_id: _of_run(result, step.run_id) for result in step.results}
    for call in step.assistant.tool_calls:
        if call.id not in results:
            unknown = CALL_AGAIN if is_repeatable(call.name) else OUTCOME_UNKNOWN
            text = unknown if call.id in step.begun else NOT_MADE
            results[call.id] = ToolMessage(
                call_id=call.id, name=call.name, content=text, failed=True, run_id=step.run_id
            )
    return [step.assistant, *(results[call.id] for call in step.assistant.tool_calls)]


def _unknown(call_id: str, name: str, run_id: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, name=name, content=OUTCOME_UNKNOWN, failed=True, run_id=run_id)


def _of_run(message: M, run_id: str) -> M:
    """Adds the run's id to a message. It would have got the id with the commit of its step, which never came."""
    return message if message.run_id else msgspec.structs.replace(message, run_id=run_id)


def _partial(seen: _Seen, known: set[str], run_id: str) -> list[Message]:
    text = "".join(seen.text)
    if not text.strip() or seen.message_id in known:
        return []
    return [AssistantMessage(id=seen.message_id, content=text, cut=INTERRUPTED, run_id=run_id)]


def _closings(seen: _Seen, results: dict[str, ToolMessage]) -> list[e.Event]:
    events: list[e.Event] = []
    if seen.reasoning_id is not None:
        events.append(e.ReasoningEnded(seen.reasoning_id))
    if seen.text_id is not None:
        events.append(e.TextEnded(seen.text_id))
    events += [e.ToolCallEnded(id_, name, "".join(pieces)) for id_, (name, pieces) in seen.open_calls.items()]
    for call_id, name in seen.calls.items():
        result = results.get(call_id)
        text = CUT_CALL if call_id in seen.open_calls else NOT_MADE
        if result is None:
            events.append(e.ToolFinished(call_id, name, new_ulid(), text, failed=True))
        else:
            events.append(e.ToolFinished(call_id, name, result.id, result.content, result.failed))
    if seen.step is not None:
        events.append(e.StepFinished(seen.step))
    return events


def correction(events: Sequence[e.Event], history: Sequence[Message]) -> e.MessagesReplaced:
    """The event that shows the stored conversation to readers of a run that was cut after these events.

    Before the first step the client has seen only a snapshot of the history, so the event is not a correction then.
    """
    return e.MessagesReplaced(tuple(history), corrects=e.StepStarted in map(type, events))


def log_of(record: RunRecord, messages: Sequence[Message]) -> list[e.Event]:
    """Builds a log from the stored messages of a finished run whose own copy is gone."""
    request = record.request
    events: list[e.Event] = [
        e.RunStarted(record.run_id, record.session_id, request.parent_run_id, is_new_session=request.new_session)
    ]
    own = _made_by(record, messages)
    calls: dict[str, str] = {}
    step = 0
    for message in own:
        if isinstance(message, AssistantMessage):
            events += [e.StepFinished(step)] if step else []
            step += 1
            events += _shown(message, step)
            calls.update((call.id, call.name) for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.call_id in calls:
            events.append(e.ToolFinished(message.call_id, message.name, message.id, message.content, message.failed))
    events += [e.StepFinished(step)] if step else []
    return events


def shown_ending(record: RunRecord, ending: e.Ending, messages: Sequence[Message]) -> e.Ending:
    """The ending of a run whose log is gone, as readers are shown it: a lost answer must not look like an empty one.

    A record may be kept longer than the messages: the session has expired, made room for another, or was cut. Of a run
    without a session the store never had them, nor the question with which it may have ended.
    """
    outcome = ending.outcome if isinstance(ending, e.RunFinished) else e.Outcome.CANCELLED
    has_question = record.request.throw_away and outcome is not e.Outcome.CANCELLED
    has_answer = has_question or outcome in (e.Outcome.COMPLETED, e.Outcome.MAX_ITERATIONS)
    if not has_answer or any(message.run_id == record.run_id for message in messages):
        return ending
    gone = ANSWER_NOT_KEPT if record.request.throw_away else ANSWER_GONE
    return e.failure(record.run_id, record.session_id, ReplayGone(gone))


def _shown(message: AssistantMessage, step: int) -> list[e.Event]:
    events: list[e.Event] = [e.StepStarted(step)]
    if message.content:
        events += [e.TextStarted(message.id), e.TextAdded(message.id, message.content), e.TextEnded(message.id)]
    for call in message.tool_calls:
        events.append(e.ToolCallStarted(call.id, call.name, message.id))
        if call.arguments:
            events.append(e.ToolArgumentsAdded(call.id, call.arguments))
        events.append(e.ToolCallEnded(call.id, call.name, call.arguments))
    return events


def _made_by(record: RunRecord, messages: Sequence[Message]) -> list[Message]:
    """The messages of a run, without those that it adopted from its client's history."""
    return [
        message
        for message in messages
        if message.run_id == record.run_id and (isinstance(message, UserMessage) or not message.from_client)
    ]


def result_of(record: RunRecord, messages: Sequence[Message]) -> RunResult:
    """The result of a finished run, rebuilt from its messages."""
    own = _made_by(record, messages)
    texts = [message.content for message in own if isinstance(message, AssistantMessage)]
    calls = {call.id: call for each in own if isinstance(each, AssistantMessage) for call in each.tool_calls}
    executions = [
        ToolExecution(
            tool_name=message.name,
            call_id=message.call_id,
            parameters=arguments_shown(calls[message.call_id].arguments) if message.call_id in calls else {},
            status=ToolStatus.FAILED if message.failed else ToolStatus.SUCCESS,
            result=None if message.failed else text_of(message.content),
            error_message=(text_of(message.content) or "failed") if message.failed else None,
        )
        for message in own
        if isinstance(message, ToolMessage)
    ]
    failed = isinstance(record.ending, e.RunFailed)
    return RunResult(texts[-1] if texts and not failed else None, executions)
