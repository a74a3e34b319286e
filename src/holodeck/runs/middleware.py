"""Event middleware: stages between a run's log and the encoder of each reader, on every wire (SRV-21).

A stage takes a batch of numbered events and returns one. An `EventMiddleware` belongs to one reader and sees the run
from its first event on: a reader that starts in the middle feeds it the events before, and drops the result. Histories
pass it as a `MessagesReplaced` event.

It never breaks the grammar. So filters remove whole parts, and a user's function may change, drop or add deltas
and notes, but neither remove nor move the frame around them.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from holodeck.core import events as e
from holodeck.core.encoder import WithMetadata, bare
from holodeck.core.grammar import TABLE, Action, RunPart
from holodeck.core.messages import AssistantMessage, Message, ToolCall, ToolMessage
from holodeck.core.tools import ToolSchema

Numbered: TypeAlias = tuple[int | None, e.Event]
NumberedEvents: TypeAlias = Iterable[Numbered]
Stage: TypeAlias = Callable[[NumberedEvents], NumberedEvents]
Own: TypeAlias = Callable[[e.Event], "e.Event | Iterable[e.Event] | None"]
ReportFailure: TypeAlias = Callable[[str], None]

LEFT_OUT = "[left out]"
MAX_ANSWER = 1_000  # events that a function may return for one

FAMILIES: Mapping[str, frozenset[type[e.Event]]] = {
    "reasoning": frozenset({e.ReasoningStarted, e.ReasoningAdded, e.ReasoningEnded}),
    "text": frozenset({e.TextStarted, e.TextAdded, e.TextEnded}),
    "tools": frozenset({e.ToolCallStarted, e.ToolArgumentsAdded, e.ToolCallEnded, e.ToolFinished}),
    "state": frozenset({e.StateReplaced, e.StatePatched}),
    "activity": frozenset({e.ActivityShown, e.ActivityPatched}),
    "custom": frozenset({e.CustomSent}),
    "raw": frozenset({e.RawReceived}),
    "warnings": frozenset({e.WarningRaised}),
    "messages": frozenset({e.MessagesReplaced, e.HistoryCompacted}),
}
"""The groups of events that can be hidden. The frame of the run and of its steps always stays."""


class EventMiddleware:
    """Stages, applied in order. Without stages, all events pass unchanged."""

    def __init__(self, stages: Iterable[Stage] = ()) -> None:
        self._stages = tuple(stages)
        self.is_empty = not self._stages

    def __call__(self, batch: NumberedEvents) -> NumberedEvents:
        for stage in self._stages:
            batch = stage(batch)
        return batch

    def shown(self, event: e.Event) -> list[e.Event]:
        """Applies the stages to an event that is in no log, such as a stored history.

        Adds no metadata. Empty if the event is hidden.
        """
        return [bare(shown) for _, shown in self([(None, event)])]

    def shown_messages(self, messages: Iterable[Message]) -> list[Message]:
        """The messages of a history that the stages let through."""
        events = self.shown(e.MessagesReplaced(tuple(messages)))
        return [message for event in events if isinstance(event, e.MessagesReplaced) for message in event.messages]

    def shown_tools(self, tools: Iterable[ToolSchema]) -> list[ToolSchema]:
        """The tools whose calls the stages let through, under the names that they give them.

        The stages see an event as if each tool were called now. Log stages see nothing, since nothing is called.
        """
        asked = self._without_logs()
        return [
            tool if event.name == tool.name else msgspec.structs.replace(tool, name=event.name)
            for n, tool in enumerate(tools)
            for event in asked.shown(e.ToolCallStarted(f"listed {n}", tool.name, ""))
            if isinstance(event, e.ToolCallStarted)
        ]

    def shown_arguments(self, call: ToolCall) -> str:
        """The arguments of a call as the stages show them, for a call of the run before. Log stages see nothing."""
        asked = self._without_logs()
        events = asked.shown(e.ToolCallStarted(call.id, call.name, ""))
        events += asked.shown(e.ToolCallEnded(call.id, call.name, call.arguments))
        return next((each.arguments for each in events if isinstance(each, e.ToolCallEnded)), "{}")

    def _without_logs(self) -> "EventMiddleware":
        return EventMiddleware(stage for stage in self._stages if not isinstance(stage, _Log))


NO_STAGES = EventMiddleware()


def log(report: Callable[[int | None, e.Event], None], *, deltas: bool = False) -> Stage:
    """Calls `report` with every event that passes. Deltas only on request, since nearly all events are deltas."""
    return _Log(report, deltas=deltas)


class _Log:
    def __init__(self, report: Callable[[int | None, e.Event], None], *, deltas: bool) -> None:
        self._report, self._deltas = report, deltas

    def __call__(self, batch: NumberedEvents) -> Iterator[Numbered]:
        for n, event in batch:
            if self._deltas or not isinstance(bare(event), e.DELTAS):
                self._report(n, event)
            yield n, event


def hide(families: Iterable[str]) -> Stage:
    """Drops whole families of events, named as in FAMILIES."""
    names = tuple(families)
    unknown = sorted(set(names) - set(FAMILIES))
    if unknown:
        raise ValueError(f"cannot hide {', '.join(unknown)}; known families: {', '.join(FAMILIES)}")
    hidden = frozenset[type[e.Event]]().union(*(FAMILIES[name] for name in names))
    of_messages = _IN_MESSAGES.intersection(names)

    def stage(batch: NumberedEvents) -> Iterator[Numbered]:
        for n, event in batch:
            plain = bare(event)
            if type(plain) in hidden:
                continue
            if of_messages and isinstance(plain, e.MessagesReplaced):
                messages = tuple(_without(of_messages, plain.messages))
                event = _rewrapped(event, e.MessagesReplaced(messages, corrects=plain.corrects))  # noqa: PLW2901  passes the changed event on
            yield n, event

    if "tools" not in names:
        return stage
    of_tools = _HiddenTools(lambda _name: True)  # what else shows tools: their progress, warnings about them
    return lambda batch: of_tools(stage(batch))


_IN_MESSAGES = frozenset({"tools", "text", "reasoning"})


def _without(families: frozenset[str], messages: Iterable[Message]) -> Iterator[Message]:
    """A history without hidden parts: user messages stay, an assistant message that would be empty does not."""
    for message in messages:
        if isinstance(message, ToolMessage) and "tools" in families:
            continue
        if not isinstance(message, AssistantMessage):
            yield message
            continue
        shown = msgspec.structs.replace(
            message,
            content="" if "text" in families else message.content,
            reasoning="" if "reasoning" in families else message.reasoning,
            tool_calls=() if "tools" in families else message.tool_calls,
        )
        if shown == message or shown.content or shown.tool_calls or shown.reasoning:
            yield shown


def hide_tools(names: Iterable[str] = (), only: Iterable[str] | None = None) -> Stage:
    """Drops the calls of some tools, even from snapshots of the conversation: start, arguments, progress, end and result.

    Warnings do not name them. With `only`, the calls of all other tools too: a tool that a server adds later stays hidden.
    Approval requests for hidden tools stay visible: a user cannot approve a call without them.
    """
    hidden, shown = frozenset(names), None if only is None else frozenset(only)
    return _HiddenTools(lambda name: name in hidden or (shown is not None and name not in shown))


class _HiddenTools:
    def __init__(self, hides: Callable[[str], bool]) -> None:
        self._hides = hides
        self._calls: set[str] = set()
        self._activities: set[str] = set()

    def __call__(self, batch: NumberedEvents) -> Iterator[Numbered]:
        for n, event in batch:
            shown = self._shown(event)
            if shown is not None:
                yield n, shown

    def _shown(self, event: e.Event) -> e.Event | None:
        plain = bare(event)
        if isinstance(plain, e.ToolCallStarted | e.ToolFinished) and self._hides(plain.name):
            self._calls.add(plain.call_id)
        if isinstance(plain, e.ToolCallStarted | e.ToolArgumentsAdded | e.ToolCallEnded | e.ToolFinished):
            return None if plain.call_id in self._calls else event
        if isinstance(plain, e.ActivityShown) and plain.call is not None and self._hides(plain.call[1]):
            self._activities.add(plain.message_id)
        if isinstance(plain, e.ActivityShown | e.ActivityPatched):
            return None if plain.message_id in self._activities else event
        if isinstance(plain, e.WarningRaised) and plain.tools:
            return _naming(event, [name for name in plain.tools if not self._hides(name)])
        if isinstance(plain, e.MessagesReplaced):
            left = _without_calls(plain.messages, lambda call, _: call.id in self._calls or self._hides(call.name))
            return _rewrapped(event, msgspec.structs.replace(plain, messages=tuple(left)))
        return event


def _naming(event: e.Event, tools: Sequence[str]) -> e.Event | None:
    """A warning about tools that names only these. None if there are none."""
    return _rewrapped(event, e.tools_unavailable(tools)) if tools else None


def _without_calls(messages: Iterable[Message], hides: Callable[[ToolCall, str], bool]) -> Iterator[Message]:
    """The messages without some calls and their results; `hides` gets a call and the id of its message."""
    hidden: set[str] = set()
    for message in messages:
        if isinstance(message, AssistantMessage):
            hidden.update(call.id for call in message.tool_calls if hides(call, message.id))
            kept = tuple(call for call in message.tool_calls if call.id not in hidden)
            if message.content or kept or not message.tool_calls:
                yield msgspec.structs.replace(message, tool_calls=kept)
        elif not isinstance(message, ToolMessage) or message.call_id not in hidden:
            yield message


def throttle(limit: int = 2000) -> Stage:
    """Joins neighbouring deltas of one message or call, up to `limit` characters each.

    It uses no clock. It joins only events that already wait for the reader, so it delays nothing.
    """

    def stage(batch: NumberedEvents) -> Iterator[Numbered]:
        held: Numbered | None = None
        for n, event in batch:
            if held is not None:
                joined = _joined(held[1], event, limit)
                if joined is not None:
                    held = (n, joined)
                    continue
                yield held
            held = (n, event)
        if held is not None:
            yield held

    return stage


def _joined(first: e.Event, second: e.Event, limit: int) -> e.Event | None:
    if type(first) is not type(second) or not isinstance(first, e.DELTAS):
        return None
    (key, before), (other, after) = msgspec.structs.astuple(first), msgspec.structs.astuple(second)
    return type(first)(key, before + after) if key == other and len(before) + len(after) <= limit else None


def annotate(metadata: Mapping[str, Any], families: Iterable[str] = FAMILIES) -> Stage:
    """Puts metadata on events of these families; not on deltas, since the start of their message has it."""
    kinds = frozenset[type[e.Event]]().union(*(FAMILIES[name] for name in families)).difference(e.DELTAS)
    fixed = dict(metadata)

    def stage(batch: NumberedEvents) -> Iterator[Numbered]:
        for n, event in batch:
            yield n, (WithMetadata(event, fixed) if type(bare(event)) in kinds else event)

    return stage


def own(function: Own, report: ReportFailure) -> Stage:
    """Makes a stage of a user's function, which gets an event and returns an event, several, or None to drop it.

    None for the start of a text, a reasoning or a call drops the whole part; for a call also its result, and the call
    in snapshots of the conversation. The function may be a filter, so it fails closed: if it raises, is async, or
    returns something that would break the grammar, the event is dropped as if it had returned None. `report` gets the
    first such failure of a stream: a function that fails at every token would write a line for each.
    """
    return _Own(function, report)


class _Own:
    def __init__(self, function: Own, report: ReportFailure) -> None:
        self._function, self._report = function, report
        self._has_failed = False
        self._name = getattr(function, "__qualname__", repr(function))
        self._dropped: set[tuple[RunPart, str]] = set()
        self._seen: set[str] = set()  # calls that were started in this stream
        self._activities: set[str] = set()  # those of dropped calls

    def __call__(self, batch: NumberedEvents) -> Iterator[Numbered]:
        for n, event in batch:
            answer = self._answered(event)
            last = len(answer) - 1
            for i, each in enumerate(answer):
                # only the last event has the number: a client that reconnects in between gets all of them again
                yield (n if i == last else None), each

    def _answered(self, event: e.Event) -> tuple[e.Event, ...]:
        plain = bare(event)
        action, part, key = TABLE[type(plain)]
        place = None if part is None or key is None or part is RunPart.STEP else (part, key(plain))
        if isinstance(plain, e.ToolCallStarted):
            self._seen.add(plain.call_id)
        elif isinstance(plain, e.ToolFinished) and plain.call_id not in self._seen:  # a call of the run before
            self._hides(ToolCall(id=plain.call_id, name=plain.name, arguments=""), "")
        if place in self._dropped or self._shows_dropped(plain):
            return ()
        if isinstance(plain, e.WarningRaised) and plain.tools:
            named = _naming(event, self._names(plain.tools))
            if named is None:
                return ()
            event = named
        if isinstance(plain, e.MessagesReplaced):
            event = _rewrapped(
                event, msgspec.structs.replace(plain, messages=tuple(_without_calls(plain.messages, self._hides)))
            )
        answer = self._asked(event)
        if answer and _fits(event, answer):
            return answer
        if answer:
            self._failed(f": its answer to {type(plain).__name__} breaks the grammar; it was dropped")
        if action is Action.OPEN and place is not None:
            self._dropped.add(place)
            return ()
        return () if action in {Action.NOTE, Action.CONTINUE} else (_emptied(event),)

    def _asked(self, event: e.Event) -> tuple[e.Event, ...]:
        """The function's result for an event, in the event's own wrapper. Empty if the function fails."""
        plain = bare(event)
        try:
            answer = _answer(self._function(plain))
        except Exception as error:  # noqa: BLE001  a user's own code; what it does must not end the stream
            self._failed(f" failed at {type(plain).__name__}, which was dropped: {error!r}")
            return ()
        return tuple(_rewrapped(event, each) if _grammar_key(each) == _grammar_key(event) else each for each in answer)

    def _failed(self, how: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._report(f"middleware {self._name}{how}. Further failures of it in this stream are not logged.")

    def _shows_dropped(self, event: e.Event) -> bool:
        """Whether an event is about the progress of a dropped call."""
        if isinstance(event, e.ActivityShown) and event.call is not None:
            call_id, name = event.call
            if self._hides(ToolCall(id=call_id, name=name, arguments=""), ""):
                self._activities.add(event.message_id)
        return isinstance(event, e.ActivityShown | e.ActivityPatched) and event.message_id in self._activities

    def _names(self, tools: Iterable[str]) -> list[str]:
        """The names that the function gives to tools if they are called; without those whose calls it drops."""
        answers = [self._asked(e.ToolCallStarted(f"named {n}", tool, "")) for n, tool in enumerate(tools)]
        return [each.name for answer in answers for each in map(bare, answer) if isinstance(each, e.ToolCallStarted)]

    def _hides(self, call: ToolCall, message_id: str) -> bool:
        """Whether the function drops this call. Calls the function with a `ToolCallStarted`, as if the call started now."""
        place = (RunPart.CALL, call.id)
        if call.id not in self._seen:
            self._seen.add(call.id)
            if not self._asked(e.ToolCallStarted(call.id, call.name, message_id)):
                self._dropped.add(place)
        return place in self._dropped


def _emptied(event: e.Event) -> e.Event:
    """A frame event that has to stay, without its content if that is a tool's result."""
    plain = bare(event)
    if not isinstance(plain, e.ToolFinished):
        return event
    return _rewrapped(event, msgspec.structs.replace(plain, content=LEFT_OUT))


def _answer(answer: Any) -> tuple[e.Event, ...]:
    if answer is None:
        return ()
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("it is async; write a plain function")
    made = (answer,) if isinstance(answer, e.Event) else tuple(islice(answer, MAX_ANSWER + 1))
    if len(made) > MAX_ANSWER:
        raise ValueError(f"it returned more than {MAX_ANSWER:,} events for one")
    if not all(isinstance(each, e.Event) for each in made):
        raise TypeError("it returned something that is not an event")
    return made


def _fits(event: e.Event, answer: tuple[e.Event, ...]) -> bool:
    action, _, _ = TABLE[type(bare(event))]
    same = [i for i, each in enumerate(answer) if _grammar_key(each) == _grammar_key(event)]
    if len(same) + sum(_is_note(each) for i, each in enumerate(answer) if i not in same) != len(answer):
        return False
    if action in {Action.NOTE, Action.CONTINUE}:
        return True
    stays = {Action.BEGIN: same[:1] == [0], Action.END: same[-1:] == [len(answer) - 1]}
    return len(same) == 1 and stays.get(action, True)


def _grammar_key(event: e.Event) -> tuple[type[e.Event], str]:
    """The position of an event in the grammar: its type and the id of its part."""
    plain = bare(event)
    _, _, key = TABLE.get(type(plain), (None, None, None))
    return type(plain), key(plain) if key else ""


def _is_note(event: e.Event) -> bool:
    row = TABLE.get(type(bare(event)))
    return row is not None and row[0] is Action.NOTE


def _rewrapped(event: e.Event, changed: e.Event) -> e.Event:
    if not isinstance(event, WithMetadata):
        return changed
    return WithMetadata(_rewrapped(event.event, changed), event.metadata)
