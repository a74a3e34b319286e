"""What a reader of AG-UI gets to see: stages between the run's log and the encoder (SRV-21).

A stage takes a batch of numbered events and gives one back; a chain is stages in a row. They belong to one reader and see
its whole story from the first event on: a reader that comes back in the middle feeds its chain what it has already
seen and drops the answer.

Whatever a chain does, the grammar of the story holds. So filters remove whole parts, and an own function may change,
drop or add deltas and notes, but neither remove nor move the frame that they stand in.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from holodeck.core import events as e
from holodeck.core.grammar import TABLE, Action
from holodeck.core.messages import AssistantMessage, Message, ToolMessage
from holodeck.wires.agui.translate import Annotated

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
"""What can be hidden: events that stand or fall together. The run and its steps are always told."""


class Chain:
    """Stages, applied in order."""

    def __init__(self, stages: Iterable[Stage] = ()) -> None:
        self._stages = tuple(stages)

    def __call__(self, batch: Batch) -> Batch:
        for stage in self._stages:
            batch = stage(batch)
        return batch


def log(report: Callable[[int | None, e.Event], None], *, deltas: bool = False) -> Stage:
    """Tells `report` of every event that passes; of deltas only on request, since they are nearly all of them."""

    def stage(batch: Batch) -> Iterator[Numbered]:
        for n, event in batch:
            if deltas or not isinstance(_bare(event), e.DELTAS):
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

    def stage(batch: Batch) -> Iterator[Numbered]:
        return ((n, event) for n, event in batch if type(_bare(event)) not in hidden)

    return stage


def hide_tools(names: Iterable[str]) -> Stage:
    """Drops the calls of some tools: start, arguments, end and result, also from snapshots of the conversation.

    A question whether such a tool may run is still asked: nobody can approve what is not shown.
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
        bare = _bare(event)
        if isinstance(bare, e.ToolCallStarted | e.ToolFinished) and bare.name in self._names:
            self._calls.add(bare.call_id)
        if isinstance(bare, e.ToolCallStarted | e.ToolArgumentsAdded | e.ToolCallEnded | e.ToolFinished):
            return None if bare.call_id in self._calls else event
        if isinstance(bare, e.MessagesReplaced):
            return _rewrapped(event, msgspec.structs.replace(bare, messages=tuple(self._without_calls(bare.messages))))
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
            yield n, (Annotated(event, fixed) if type(_bare(event)) in kinds else event)

    return stage


def own(function: Own, report: Report) -> Stage:
    """A user's function as a stage: it answers with an event, several, or None to drop it.

    An answer that would break the grammar is not used; the event passes as it was, and `report` is told.
    """
    name = getattr(function, "__qualname__", repr(function))

    def stage(batch: Batch) -> Iterator[Numbered]:
        for n, event in batch:
            answer = _answer(function(event))
            if not _fits(event, answer):
                report(
                    f"middleware {name}: its answer to {type(_bare(event)).__name__} was ignored, it breaks the story"
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
    action, _, _ = TABLE[type(_bare(event))]
    same = [i for i, each in enumerate(answer) if _place(each) == _place(event)]
    if len(same) + sum(_is_note(each) for i, each in enumerate(answer) if i not in same) != len(answer):
        return False
    if action in {Action.NOTE, Action.CONTINUE}:
        return True
    stays = {Action.BEGIN: same[:1] == [0], Action.END: same[-1:] == [len(answer) - 1]}
    return len(same) == 1 and stays.get(action, True)


def _place(event: e.Event) -> tuple[type[e.Event], str]:
    """What an event is to the grammar: its type and the id of its part."""
    bare = _bare(event)
    _, _, key = TABLE.get(type(bare), (None, None, None))
    return type(bare), key(bare) if key else ""


def _is_note(event: e.Event) -> bool:
    row = TABLE.get(type(_bare(event)))
    return row is not None and row[0] is Action.NOTE


def _bare(event: e.Event) -> e.Event:
    while isinstance(event, Annotated):
        event = event.event
    return event


def _rewrapped(event: e.Event, bare: e.Event) -> e.Event:
    return Annotated(_rewrapped(event.event, bare), event.metadata) if isinstance(event, Annotated) else bare
