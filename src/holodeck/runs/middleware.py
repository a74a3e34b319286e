"""Event middleware: stages between a run's log and the encoder of each reader, on every wire (SRV-21).

A stage takes a batch of numbered events and returns one; a chain is stages in a row. A chain belongs to one reader and
sees the run from its first event on: a reader that starts in the middle feeds its chain the events before, and drops
the result. Histories pass it as a `MessagesReplaced` event.

A chain never breaks the grammar. So filters remove whole parts, and a user's function may change, drop or add deltas
and notes, but neither remove nor move the frame around them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from holodeck.core import events as e
from holodeck.core.encoder import WithMetadata, bare
from holodeck.core.grammar import TABLE, Action
from holodeck.core.messages import AssistantMessage, Message, ToolMessage

Numbered: TypeAlias = tuple[int | None, e.Event]
Batch: TypeAlias = Iterable[Numbered]
Stage: TypeAlias = Callable[[Batch], Batch]
Own: TypeAlias = Callable[[e.Event], "e.Event | Iterable[e.Event] | None"]
Report: TypeAlias = Callable[[str], None]

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
"""What can be hidden: groups of events that belong together. The frame of the run and of its steps is always there."""


class Chain:
    """Stages, applied in order. Without stages, everything passes."""

    def __init__(self, stages: Iterable[Stage] = ()) -> None:
        self._stages = tuple(stages)

    def __call__(self, batch: Batch) -> Batch:
        for stage in self._stages:
            batch = stage(batch)
        return batch

    def shown(self, event: e.Event) -> list[e.Event]:
        """What becomes of an event that is in no log, such as a stored history: without metadata, empty if it is hidden."""
        return [bare(shown) for _, shown in self([(None, event)])]


def log(report: Callable[[int | None, e.Event], None], *, deltas: bool = False) -> Stage:
    """Calls `report` with every event that passes; with deltas only on request, since nearly all events are deltas."""

    def stage(batch: Batch) -> Iterator[Numbered]:
        for n, event in batch:
            if deltas or not isinstance(bare(event), e.DELTAS):
                report(n, event)
            yield n, event

    return stage


def hide(families: Iterable[str]) -> Stage:
    """Drops whole families of events, named as in FAMILIES."""
    names = tuple(families)
    unknown = sorted(set(names) - set(FAMILIES))
    if unknown:
        raise ValueError(f"cannot hide {', '.join(unknown)}; known are {', '.join(FAMILIES)}")
    hidden = frozenset[type[e.Event]]().union(*(FAMILIES[name] for name in names))
    of_messages = _IN_MESSAGES.intersection(names)

    def stage(batch: Batch) -> Iterator[Numbered]:
        for n, event in batch:
            plain = bare(event)
            if type(plain) in hidden:
                continue
            if of_messages and isinstance(plain, e.MessagesReplaced):
                messages = tuple(_without(of_messages, plain.messages))
                event = _rewrapped(event, e.MessagesReplaced(messages))  # noqa: PLW2901  the changed one goes on
            yield n, event

    return stage


_IN_MESSAGES = frozenset({"tools", "text", "reasoning"})


def _without(families: frozenset[str], messages: Iterable[Message]) -> Iterator[Message]:
    """A history without what is hidden: user messages stay, an assistant message that would be empty does not."""
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


def hide_tools(names: Iterable[str]) -> Stage:
    """Drops the calls of some tools: start, arguments, end and result, also from snapshots of the conversation.

    The approval of such a call is still asked for: a person cannot approve what is not shown.
    """
    return _HiddenTools(frozenset(names))


class _HiddenTools:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._calls: set[str] = set()

    def __call__(self, batch: Batch) -> Iterator[Numbered]:
        for n, event in batch:
            shown = self._shown(event)
            if shown is not None:
                yield n, shown

    def _shown(self, event: e.Event) -> e.Event | None:
        plain = bare(event)
        if isinstance(plain, e.ToolCallStarted | e.ToolFinished) and plain.name in self._names:
            self._calls.add(plain.call_id)
        if isinstance(plain, e.ToolCallStarted | e.ToolArgumentsAdded | e.ToolCallEnded | e.ToolFinished):
            return None if plain.call_id in self._calls else event
        if isinstance(plain, e.MessagesReplaced):
            return _rewrapped(
                event, msgspec.structs.replace(plain, messages=tuple(self._without_calls(plain.messages)))
            )
        return event

    def _without_calls(self, messages: tuple[Message, ...]) -> Iterator[Message]:
        hidden = set(self._calls)
        for message in messages:
            if isinstance(message, AssistantMessage):
                hidden.update(call.id for call in message.tool_calls if call.name in self._names)
                kept = tuple(call for call in message.tool_calls if call.id not in hidden)
                if message.content or kept or not message.tool_calls:
                    yield msgspec.structs.replace(message, tool_calls=kept)
            elif not isinstance(message, ToolMessage) or message.call_id not in hidden:
                yield message


def throttle(limit: int = 2000) -> Stage:
    """Joins neighbouring deltas of one message or call, up to `limit` characters each.

    There is no clock in it: what is joined is what waits for the reader anyway, so nothing comes later than it would.
    """

    def stage(batch: Batch) -> Iterator[Numbered]:
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

    def stage(batch: Batch) -> Iterator[Numbered]:
        for n, event in batch:
            yield n, (WithMetadata(event, fixed) if type(bare(event)) in kinds else event)

    return stage


def own(function: Own, report: Report) -> Stage:
    """A user's function as a stage: it returns an event, several, or None to drop it.

    If its result would break the grammar, the event passes unchanged and `report` is called.
    """
    name = getattr(function, "__qualname__", repr(function))

    def stage(batch: Batch) -> Iterator[Numbered]:
        for n, event in batch:
            answer = _answer(function(event))
            if not _fits(event, answer):
                report(
                    f"middleware {name}: its answer to {type(bare(event)).__name__} was ignored, it breaks the grammar"
                )
                answer = (event,)
            last = len(answer) - 1
            for i, each in enumerate(answer):
                yield (n if i == last else None), each  # who comes back after half of an answer gets all of it again

    return stage


def _answer(answer: e.Event | Iterable[e.Event] | None) -> tuple[e.Event, ...]:
    if answer is None:
        return ()
    return (answer,) if isinstance(answer, e.Event) else tuple(answer)


def _fits(event: e.Event, answer: tuple[e.Event, ...]) -> bool:
    action, _, _ = TABLE[type(bare(event))]
    same = [i for i, each in enumerate(answer) if _place(each) == _place(event)]
    if len(same) + sum(_is_note(each) for i, each in enumerate(answer) if i not in same) != len(answer):
        return False
    if action in {Action.NOTE, Action.CONTINUE}:
        return True
    stays = {Action.BEGIN: same[:1] == [0], Action.END: same[-1:] == [len(answer) - 1]}
    return len(same) == 1 and stays.get(action, True)


def _place(event: e.Event) -> tuple[type[e.Event], str]:
    """What an event is to the grammar: its type and the id of its part."""
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
