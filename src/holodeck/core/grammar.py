"""Which event may follow which: one table, and a checker that walks it.

Rules, stated first:

1. RunStarted is the first event, RunFinished or RunFailed the last; nothing follows.
2. A part (step, reasoning, text, call) is opened before it is continued or closed, and an id is opened once; only a
   text may be opened again, since models continue to write after they asked for a tool.
3. At most one step, one reasoning and one text are open at a time; calls may overlap.
4. Reasoning, text and calls live inside a step; a step is finished when they are closed.
5. A tool's result comes after the end of its call, and once.
6. At the ending nothing is open.

The checker knows nothing about where events go. Tests run it over the events of every run; encoders rely on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from holodeck.core import events as e


class GrammarError(Exception):
    """An event came where the table does not allow it: a bug in HoloDeck, never a user's mistake."""


class RunPart(Enum):
    STEP = auto()
    REASONING = auto()
    TEXT = auto()
    CALL = auto()


class Action(Enum):
    BEGIN = auto()  # the run's first event
    OPEN = auto()
    CONTINUE = auto()
    CLOSE = auto()
    RESULT = auto()
    NOTE = auto()
    END = auto()  # the run's ending


KeyOf = Callable[[Any], str]

MESSAGE: KeyOf = lambda event: event.message_id  # noqa: E731  a column of the table below
CALL: KeyOf = lambda event: event.call_id  # noqa: E731  a column of the table below
NUMBER: KeyOf = lambda event: str(event.number)  # noqa: E731  a column of the table below

TABLE: dict[type[e.Event], tuple[Action, RunPart | None, KeyOf | None]] = {
    e.RunStarted: (Action.BEGIN, None, None),
    e.StepStarted: (Action.OPEN, RunPart.STEP, NUMBER),
    e.StepFinished: (Action.CLOSE, RunPart.STEP, NUMBER),
    e.ReasoningStarted: (Action.OPEN, RunPart.REASONING, MESSAGE),
    e.ReasoningAdded: (Action.CONTINUE, RunPart.REASONING, MESSAGE),
    e.ReasoningEnded: (Action.CLOSE, RunPart.REASONING, MESSAGE),
    e.TextStarted: (Action.OPEN, RunPart.TEXT, MESSAGE),
    e.TextAdded: (Action.CONTINUE, RunPart.TEXT, MESSAGE),
    e.TextEnded: (Action.CLOSE, RunPart.TEXT, MESSAGE),
    e.ToolCallStarted: (Action.OPEN, RunPart.CALL, CALL),
    e.ToolArgumentsAdded: (Action.CONTINUE, RunPart.CALL, CALL),
    e.ToolCallEnded: (Action.CLOSE, RunPart.CALL, CALL),
    e.ToolFinished: (Action.RESULT, RunPart.CALL, CALL),
    e.StateReplaced: (Action.NOTE, None, None),
    e.StatePatched: (Action.NOTE, None, None),
    e.ActivityShown: (Action.NOTE, None, None),
    e.ActivityPatched: (Action.NOTE, None, None),
    e.CustomSent: (Action.NOTE, None, None),
    e.RawReceived: (Action.NOTE, None, None),
    e.WarningRaised: (Action.NOTE, None, None),
    e.MessagesReplaced: (Action.NOTE, None, None),
    e.HistoryCompacted: (Action.NOTE, None, None),
    e.RunFinished: (Action.END, None, None),
    e.RunFailed: (Action.END, None, None),
}

ONE_AT_A_TIME = frozenset({RunPart.STEP, RunPart.REASONING, RunPart.TEXT})
REOPENED = frozenset({RunPart.TEXT})


@dataclass
class GrammarChecker:
    """Follows one run; `check` raises GrammarError at the first event that does not fit."""

    started: bool = False
    ended: bool = False
    open: dict[RunPart, set[str]] = field(default_factory=lambda: {part: set() for part in RunPart})
    seen: dict[RunPart, set[str]] = field(default_factory=lambda: {part: set() for part in RunPart})
    awaiting: set[str] = field(default_factory=set)  # calls of earlier runs that may be answered in this one
    answered: set[str] = field(default_factory=set)

    def check(self, event: e.Event) -> None:
        action, part, key = TABLE[type(event)]
        if self.ended or self.started == (action is Action.BEGIN):
            raise self._misplaced(event)
        if part is not None and key is not None:
            self._move(event, action, part, key(event))
        elif action is Action.END and self._anything_open():
            raise self._misplaced(event)
        self.started = True
        self.ended = action is Action.END

    def _move(self, event: e.Event, action: Action, part: RunPart, key: str) -> None:
        opened = self.open[part]
        fits = {
            Action.OPEN: self._may_open(part, key),
            Action.CONTINUE: key in opened,
            Action.CLOSE: key in opened and not (part is RunPart.STEP and self._anything_open(besides=RunPart.STEP)),
            Action.RESULT: key not in opened | self.answered and key in self.seen[part] | self.awaiting,
        }[action]
        if not fits:
            raise self._misplaced(event)
        if action is Action.OPEN:
            opened.add(key)
            self.seen[part].add(key)
        elif action is Action.CLOSE:
            opened.remove(key)
        elif action is Action.RESULT:
            self.answered.add(key)

    def _may_open(self, part: RunPart, key: str) -> bool:
        fresh = key not in self.seen[part] or part in REOPENED
        alone = not (part in ONE_AT_A_TIME and self.open[part]) and key not in self.open[part]
        inside_step = part is RunPart.STEP or bool(self.open[RunPart.STEP])
        return fresh and alone and inside_step

    def _anything_open(self, besides: RunPart | None = None) -> bool:
        return any(keys for part, keys in self.open.items() if part is not besides)

    def _misplaced(self, event: e.Event) -> GrammarError:
        open_parts = {part.name.lower(): sorted(keys) for part, keys in self.open.items() if keys}
        return GrammarError(
            f"{type(event).__name__} does not fit here: {event!r}; open: {open_parts}, ended: {self.ended}"
        )


def check(events: "list[e.Event]", awaiting: frozenset[str] = frozenset()) -> None:
    """Raises GrammarError unless the events are one complete run."""
    checker = GrammarChecker(awaiting=set(awaiting))
    for event in events:
        checker.check(event)
    if not checker.ended:
        raise GrammarError("the run has no ending")
