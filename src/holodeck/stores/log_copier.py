"""Copies the logs of runs to a store, as one more reader of each.

It checks for new events a few times a second, never per token, and a run does not wait for it. All new events go to the
store in one write. A write that fails is repeated together with later events: the log itself is the buffer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from holodeck.core.events import ENDINGS, Event, MessagesReplaced
from holodeck.core.owner import OwnedId
from holodeck.errors import HoloDeckError
from holodeck.runs.log import ReplayGone, RunLog
from holodeck.stores import records

log = logging.getLogger(__name__)

COPY_SECONDS = 0.25
HURRIED_SECONDS = 0.02
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Consecutive events of one run. `first` is the number of the first one."""

    run: OwnedId
    first: int
    events: Sequence[Event]
    is_beginning: bool = False  # nothing of this log was copied before
    session: str = ""  # the session of the run

    @property
    def body(self) -> bytes:
        """The piece as stored. Snapshots lack their messages: a reader of the copy adds them again from the session."""
        events = self.events
        if MessagesReplaced in map(type, events):
            events = [_emptied(event) if isinstance(event, MessagesReplaced) else event for event in events]
        return records.encode(events)


Write: TypeAlias = Callable[[list[LogPiece]], Awaitable[Collection[OwnedId]]]
"""Stores pieces. Returns the runs whose copy is gone, so that it has to be made again from its beginning."""


@dataclass(eq=False, slots=True)
class _Copy:
    run: OwnedId
    log: RunLog
    first_number: int
    place: int
    session: str


class LogCopier:
    def __init__(self, write: Write) -> None:
        self._write = write
        self.seconds = COPY_SECONDS  # between two copies of one log
        self.news_seconds = COPY_SECONDS  # until others learn of a run that begins or has ended
        self._hurried: set[OwnedId] = set()  # runs that are read elsewhere
        self._due: dict[_Copy, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_failing = False  # the store refused the last copy
        self._closed = False

    def follow(self, run: OwnedId, log: RunLog, first_number: int = 0, *, session: str = "") -> None:
        """Copies a log from its beginning. Its first event has this number."""
        copy = _Copy(run, log, first_number, 0, session)
        if len(log):
            self._is_due(copy)
        else:
            log.call_at_next(partial(self._is_due, copy))

    def hurry(self, run: OwnedId) -> None:
        """Copies this run more often from now on: another process has a reader of it."""
        self._hurried.add(run)
        if self._timer is not None:
            self._copy_within(self._pause())

    def has_ended(self) -> None:
        """Copies a run that has ended soon: others may wait for it."""
        if self._timer is not None:
            self._copy_within(min(self.seconds, self.news_seconds))

    async def close(self) -> None:
        """Copies all pending events once, then stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await asyncio.wait({self._writing})
        self._closed = True
        if self._due:
            await self._copy_due()

    def _is_due(self, copy: _Copy) -> None:
        self._due[copy] = None
        if self._writing is None and not self._closed:
            self._copy_within(self._seconds_for(copy))

    def _seconds_for(self, copy: _Copy) -> float:
        if copy.run in self._hurried:
            return min(self.seconds, HURRIED_SECONDS)
        return min(self.seconds, self.news_seconds) if copy.place == 0 or copy.log.ended else self.seconds

    def _pause(self) -> float:
        return min(map(self._seconds_for, self._due), default=self.seconds)

    def _copy_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._is_failing or self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.get_running_loop().create_task(self._copy_due(), name="copy of run logs")

    async def _copy_due(self) -> None:
        """Writes all that is due at once; if that fails because of a defect, each log by itself."""
        batches, self._is_failing = [self._take_due()], False
        for batch in batches:
            try:
                gone = await self._write([piece for _, piece in batch if piece.events])
            except HoloDeckError:  # the store reports it; the run does not depend on it
                self._is_failing = True
                for copy, piece in batch:
                    copy.place = piece.first - copy.first_number
                    self._due[copy] = None
            except Exception:  # a defect, or an event that cannot be written: the other runs are copied all the same
                if len(batch) > 1:
                    batches += [[one] for one in batch]
                else:
                    log.exception("a piece of the log of run %s cannot be copied", batch[0][0].run[1] if batch else "")
            else:
                for copy, _ in batch:
                    if copy.run in gone:
                        copy.place = 0
                        self._due[copy] = None
        self._writing = None
        if self._due and not self._closed:
            self._copy_within(RETRY_SECONDS if self._is_failing else self._pause())

    def _take_due(self) -> list[tuple[_Copy, LogPiece]]:
        due, self._due = self._due, {}
        taken: list[tuple[_Copy, LogPiece]] = []
        for copy in due:
            try:
                events = copy.log.since(copy.place)
            except ReplayGone:  # it writes faster than it can be copied: the beginning is enough
                continue
            first, is_beginning = copy.first_number + copy.place, copy.place == 0
            taken.append((copy, LogPiece(copy.run, first, events, is_beginning, copy.session)))
            copy.place += len(events)
            if events and type(events[-1]) in ENDINGS:
                self._hurried.discard(copy.run)
            else:
                copy.log.call_at_next(partial(self._is_due, copy))
        return taken


def _emptied(snapshot: MessagesReplaced) -> MessagesReplaced:
    return MessagesReplaced((), snapshot.messages[-1].id if snapshot.messages else "", snapshot.corrects)
