"""The log of one run: the run appends, and any number of readers read, each from its own position.

An append is a plain call that never waits: a slow reader gets more events per wake-up, a dead one costs nothing. The log
is bounded: it evicts its oldest events, which then cannot be replayed. It interprets no event; it only knows the endings,
and the deltas, which are not shown to observers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from holodeck.core.events import DELTAS, ENDINGS, Ending, Event, MessagesReplaced, Observer, ToolFinished
from holodeck.core.messages import Content, History, Message, TextPart
from holodeck.errors import RequestError

MAX_EVENTS = 100_000
_BYTES_OF_AN_EVENT, _BYTES_OF_A_MESSAGE = 160, 500  # without their texts

_Long: TypeAlias = ToolFinished | MessagesReplaced
_LONG = frozenset({ToolFinished, MessagesReplaced})


class ReplayGone(RequestError):
    code, status, title = "replay-gone", 410, "These events are no longer stored"


class RunLog:
    """Events of one run, numbered from 0. The last one is the run's ending."""

    __slots__ = (
        "_dropped",
        "_events",
        "_limit",
        "_waiting",
        "call_at_next",
        "ended",
        "is_cut",
        "observers",
        "on_ending",
    )

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self.ended = False
        self.is_cut = False  # without an ending
        self.observers: Sequence[Observer] = ()  # called for every event but deltas
        self.on_ending: Callable[[Any], None] | None = None  # called with the ending
        self._events: list[Event] = []
        self._dropped = 0
        self._limit = limit
        self._waiting: list[Callable[[], object]] = []
        # Calls back once, with the next event, from inside the run: callbacks have to be short. This is the list's own
        # method because readers call it for each token.
        self.call_at_next = self._waiting.append

    def __len__(self) -> int:
        """How many events were written, including evicted ones."""
        return self._dropped + len(self._events)

    @property
    def has_ending(self) -> bool:
        return self.ended and not self.is_cut

    @property
    def ending(self) -> Ending | None:
        """The last event of a run that has ended. None if the log was cut before it."""
        last = self._events[-1] if self.ended and self._events else None
        return last if isinstance(last, Ending) else None

    @property
    def is_whole(self) -> bool:
        """Whether it can still be read from its beginning."""
        return self._dropped == 0

    @property
    def kept(self) -> Sequence[Event]:
        return self.since(self._dropped)

    def size(self) -> int:
        """The approximate size of the events in bytes.

        Deltas are small; results and histories are as long as their text.
        """
        size = _BYTES_OF_AN_EVENT * len(self._events)
        if _LONG.isdisjoint(map(type, self._events)):  # most logs, at a tenth of the cost of measuring each event
            return size
        return size + sum([_length_of(event) for event in self._events if isinstance(event, _Long)])

    def append(self, event: Event) -> None:
        """Appends an event: the run's `emit`. A log that has ended, or was cut, ignores it."""
        if self.ended:
            return
        self._events.append(event)
        kind = type(event)
        is_rare = kind not in DELTAS
        is_ending = is_rare and kind in ENDINGS
        if is_ending:
            self.ended = True
        if len(self._events) > self._limit:
            self._shorten()
        if self._waiting:
            waiting = self._waiting.copy()
            self._waiting.clear()
            for call in waiting:
                call()
        if is_rare:
            if is_ending and self.on_ending is not None:
                self.on_ending(event)
            for observer in self.observers:  # avoids a call if there is no handler
                handle = observer.handlers.get(kind)
                if handle is not None:
                    handle(observer, event)

    def cut(self) -> None:
        """Ends the log without an ending event: the process that wrote it is gone, or is about to stop."""
        self.ended = self.is_cut = True
        waiting = self._waiting.copy()
        self._waiting.clear()
        for call in waiting:
            call()

    def since(self, number: int, limit: int | None = None) -> Sequence[Event]:
        """The existing events from `number` on, at most `limit` of them."""
        if number < self._dropped:
            raise ReplayGone(f"Only the events from number {self._dropped} on are still stored.")
        start = number - self._dropped
        return self._events[start : None if limit is None else start + limit]

    def do_not_call(self, call: Callable[[], object]) -> None:
        """Removes a callback that is no longer needed: the log would hold it until the next event."""
        if call in self._waiting:
            self._waiting.remove(call)

    def _shorten(self) -> None:
        half = self._limit // 2  # evicts half, so that the cost per event stays constant
        del self._events[:half]
        self._dropped += half


async def follow(log: RunLog) -> AsyncIterator[Event]:
    """Yields all events of a log as they are written, up to its ending."""
    position = 0
    while not (log.ended and position == len(log)):
        if position == len(log):
            await next_event(log)
        for event in log.since(position):
            position += 1
            yield event


async def next_event(log: RunLog) -> None:
    """Waits for the next event of a run that has not ended."""
    woken = asyncio.Event()
    log.call_at_next(woken.set)
    try:
        await woken.wait()
    finally:
        log.do_not_call(woken.set)


def _length_of(event: _Long) -> int:
    if isinstance(event, ToolFinished):
        return _length(event.content)
    history = event.messages
    return history.size if type(history) is History else size_of_messages(history)


def size_of_messages(messages: Iterable[Message]) -> int:
    """The approximate size of messages in bytes, from their texts and files."""
    contents = [message.content for message in messages]
    texts = [len(content) if isinstance(content, str) else _length(content) for content in contents]
    return _BYTES_OF_A_MESSAGE * len(texts) + sum(texts)


def _length(content: Content) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(part.text) if isinstance(part, TextPart) else len(part.data or "") for part in content)
