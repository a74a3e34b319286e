"""The events of a run, and their grammar.

A run emits events; readers (encoders, the terminal, telemetry) turn them into what their clients expect. The
grammar, in words (the table that enforces it is `holodeck.core.grammar`):

    run      = RunStarted  (note | ToolFinished)*  (step  note*)*  ending
    step     = StepStarted  (note | reasoning | text | call | ToolFinished)*  StepFinished
    reasoning = ReasoningStarted  ReasoningAdded*  ReasoningEnded
    text     = TextStarted  TextAdded*  TextEnded
    call     = ToolCallStarted  ToolArgumentsAdded*  ToolCallEnded
    note     = StateReplaced | StatePatched | ActivityShown | ActivityPatched | CustomSent | RawReceived
             | WarningRaised | MessagesReplaced | HistoryCompacted
    ending   = RunFinished | RunFailed

At most one text and one reasoning are open at a time; calls may overlap; a result follows the end of its call. A text
that was ended may be started again with the same id: what is added then belongs to the same message.
A ToolFinished before the first step answers a call of the run before, which waited for a person or for the client.
The ending is always there, always last, and nothing is open when it comes.

Events hold no live objects and mention no wire: they can be stored, sent to another process, replayed.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias, get_args

import msgspec

from holodeck.core.messages import Content, Message, PendingStep
from holodeck.core.usage import TokenUsage
from holodeck.errors import HoloDeckError, LostClaim


class Outcome(StrEnum):
    """How a run ended that did not fail."""

    COMPLETED = "completed"
    MAX_ITERATIONS = "max_iterations"
    INTERRUPTED = "interrupted"  # waits for a person's approval
    CLIENT_TOOLS = "client_tools"  # waits for tools that the client carries out
    CANCELLED = "cancelled"


class Interrupt(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person that must be answered before the run can continue."""

    id: str
    call_id: str
    tool: str
    arguments: str
    message: str
    expires_at: datetime | None = None


class Event(msgspec.Struct, frozen=True, tag=True, tag_field="type", gc=False):
    """Any event.

    `gc=False`, which all below inherit: they hold no live objects, so the garbage collector can skip them.
    """


HISTORY = "holodeck.history"
"""The custom event that reports, in counts, how a client's history was used: adopted, left_out, rewound."""


class RunStarted(Event, frozen=True, tag=True):
    run_id: str
    session_id: str
    parent_run_id: str | None = None
    model: str | None = None
    is_new_session: bool = False  # the client named a session that is unknown, or has expired


class StepStarted(Event, frozen=True, tag=True):
    """One iteration: a model call and the tool calls it asked for. Counts from 1."""

    number: int
    prompt_length: int = 0  # characters that the model is shown


class StepFinished(Event, frozen=True, tag=True):
    number: int
    usage: TokenUsage | None = None
    response_length: int = 0  # characters of text that the model wrote
    model: str | None = None  # the one that answered: the agent's, or a fallback


class ReasoningStarted(Event, frozen=True, tag=True):
    message_id: str


class ReasoningAdded(Event, frozen=True, tag=True):
    message_id: str
    delta: str


class ReasoningEnded(Event, frozen=True, tag=True):
    message_id: str


class TextStarted(Event, frozen=True, tag=True):
    message_id: str


class TextAdded(Event, frozen=True, tag=True):
    message_id: str
    delta: str


class TextEnded(Event, frozen=True, tag=True):
    message_id: str


class ToolCallStarted(Event, frozen=True, tag=True):
    """The model began to ask for a tool. `message_id` is the assistant message that holds the call."""

    call_id: str
    name: str
    message_id: str


class ToolArgumentsAdded(Event, frozen=True, tag=True):
    call_id: str
    delta: str


class ToolCallEnded(Event, frozen=True, tag=True):
    """The call is complete, and its tool starts now. `arguments` is the whole text of its arguments."""

    call_id: str
    name: str
    arguments: str


class ToolFinished(Event, frozen=True, tag=True):
    """The result of a call, as the model will read it. `message_id` is the tool message's."""

    call_id: str
    name: str
    message_id: str
    content: Content
    failed: bool = False
    seconds: float = 0.0
    cached: bool = False  # the result of an earlier call


class StateReplaced(Event, frozen=True, tag=True):
    state: Any


class StatePatched(Event, frozen=True, tag=True):
    """RFC 6902 operations on the shared state."""

    patch: list[dict[str, Any]]


class ActivityShown(Event, frozen=True, tag=True):
    """Long work that a person may watch: reading a file, restarting a tool server."""

    message_id: str
    kind: str
    content: dict[str, Any]
    call: tuple[str, str] | None = None  # the id and the tool of the call whose progress it shows


class ActivityPatched(Event, frozen=True, tag=True):
    message_id: str
    kind: str
    patch: list[dict[str, Any]]


class CustomSent(Event, frozen=True, tag=True):
    name: str
    value: Any


class RawReceived(Event, frozen=True, tag=True):
    """A provider's own event, for debugging only."""

    event: Any
    source: str | None = None


TOOLS_UNAVAILABLE = "tools-unavailable"  # the code of the warning that some tools are not offered at the moment


class WarningRaised(Event, frozen=True, tag=True):
    """Something a person should know that did not stop the run. `code` is from `holodeck.errors`' vocabulary."""

    code: str
    message: str
    tools: tuple[str, ...] = ()  # the tools that it names


def tools_unavailable(names: Iterable[str]) -> WarningRaised:
    tools = tuple(names)
    sentence = f"Not available at the moment, because they keep failing: {', '.join(tools)}."
    return WarningRaised(TOOLS_UNAVAILABLE, sentence, tools)


class MessagesReplaced(Event, frozen=True, tag=True):
    """The conversation as it is on the server."""

    # A tuple, or a `History`, which encoders know. Copies of logs have none (`remote_runs`).
    messages: Sequence[Message]
    last_id: str | None = None  # only in copies of logs, in place of the messages; empty if there are none
    corrects: bool = False  # readers have the history before the run; it corrects what they saw of the run


class HistoryCompacted(Event, frozen=True, tag=True):
    """The model summarized the `messages` oldest messages. From now on it is shown the summary, if it wrote one.

    The cost belongs to no step: `usage` if the endpoint reports it, else our `estimate` in tokens.
    """

    messages: int
    summarized: bool = True
    usage: TokenUsage | None = None
    estimate: int = 0
    model: str | None = None  # the one that answered


class RunFinished(Event, frozen=True, tag=True):
    run_id: str
    session_id: str
    outcome: Outcome = Outcome.COMPLETED
    finish_reason: str = "stop"  # the model's last one: stop, length, tool_calls, …
    iterations: int = 0
    usage: TokenUsage | None = None
    interrupts: tuple[Interrupt, ...] = ()
    pending_calls: tuple[str, ...] = ()
    warning: str | None = None
    output: Any = None  # the final answer as a JSON value, if the agent has an output type
    model: str | None = None  # the one that answered last; None if none did


class RunFailed(Event, frozen=True, tag=True):
    """`code` and `reason` as in `holodeck.errors`; `message` is safe to show to any client."""

    run_id: str
    session_id: str
    code: str
    message: str
    reason: str | None = None
    retryable: bool = False
    retry_after: float | None = None
    usage: TokenUsage | None = None
    model: str | None = None  # the one that failed, or answered last


def failure(
    run_id: str, session_id: str, error: HoloDeckError, usage: TokenUsage | None = None, model: str | None = None
) -> RunFailed:
    return RunFailed(
        run_id,
        session_id,
        code=error.code,
        message=error.message,
        reason=error.reason,
        retryable=error.retryable,
        retry_after=error.retry_after,
        usage=usage,
        model=model,
    )


Emit: TypeAlias = Callable[[Event], None]
"""How a run emits its events: a plain call that never awaits and never fails."""


def methods_by_event(cls: type) -> dict[type[Event], Callable[[Any, Any], Any]]:
    """The methods of a class that are named after events: `text_added` for TextAdded."""
    names = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(AnyEvent)}
    return {kind: getattr(cls, name) for kind, name in names.items() if hasattr(cls, name)}


class Observer:
    """Reads the events of one run. A subclass has a method for each event that it wants, named after it."""

    handlers: ClassVar[Mapping[type[Event], Callable[[Any, Any], None]]] = {}

    def __init_subclass__(cls) -> None:
        if "handlers" not in vars(cls):
            cls.handlers = methods_by_event(cls)

    def __call__(self, event: Event) -> None:
        handle = self.handlers.get(type(event))
        if handle is not None:
            handle(self, event)


Ending: TypeAlias = RunFinished | RunFailed


def interrupts_of(ending: Ending | None) -> tuple[Interrupt, ...]:
    return ending.interrupts if isinstance(ending, RunFinished) else ()


def questions_of(step: PendingStep | None) -> tuple[Interrupt, ...]:
    """What a stored step asks a person. A question that has expired is among them: it can still be refused."""
    if step is None:
        return ()
    calls = {call.id: call for call in step.waiting}
    return tuple(
        Interrupt(
            id=interrupt_id,
            call_id=call.id,
            tool=call.name,
            arguments=call.arguments,
            message=f"Allow {call.name} with {call.arguments or '{}'}?",
            expires_at=step.expires_at,
        )
        for interrupt_id, call_id in step.approvals.items()
        if (call := calls.get(call_id)) is not None
    )


AnyEvent: TypeAlias = (
    RunStarted
    | StepStarted
    | StepFinished
    | ReasoningStarted
    | ReasoningAdded
    | ReasoningEnded
    | TextStarted
    | TextAdded
    | TextEnded
    | ToolCallStarted
    | ToolArgumentsAdded
    | ToolCallEnded
    | ToolFinished
    | StateReplaced
    | StatePatched
    | ActivityShown
    | ActivityPatched
    | CustomSent
    | RawReceived
    | WarningRaised
    | MessagesReplaced
    | HistoryCompacted
    | RunFinished
    | RunFailed
)
"""Every event, for decoders."""


ENDINGS: frozenset[type[Event]] = frozenset({RunFinished, RunFailed})
DELTAS = (TextAdded, ReasoningAdded, ToolArgumentsAdded)
"""Nearly all events. Each has two fields: the id of its part, and the added text."""


NOT_STORED, NOT_STORED_REASON = "The message was not stored; send it again.", "not_stored"
STOPPED_UNSTORED = "It was stopped before its message was stored."


def before_anything_is_stored(ending: Ending) -> Ending:
    """The ending of a run that fails before its message is stored: it says so if the client may send it again.

    If another process has taken the run over, that process stores the message. A run that a client has stopped says it in
    its warning: another client may have sent the message.
    """
    if isinstance(ending, RunFinished):
        is_stopped = ending.outcome is Outcome.CANCELLED
        return msgspec.structs.replace(ending, warning=STOPPED_UNSTORED) if is_stopped else ending
    if not ending.retryable or ending.code == LostClaim.code:
        return ending
    text = f"{ending.message} {NOT_STORED}"
    return msgspec.structs.replace(ending, message=text, reason=ending.reason or NOT_STORED_REASON)


def says_not_stored(ending: Ending | None) -> bool:
    return isinstance(ending, RunFailed) and ending.message.endswith(NOT_STORED)
