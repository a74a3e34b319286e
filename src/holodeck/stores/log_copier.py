"""Copies the logs of runs to a store, as one more reader of each.

It checks for new events a few times a second, never per token, and a run does not wait for it. All new events go to the
store in one write. A write that fails is repeated together with later events: the log itself is the buffer.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from weakref import WeakValueDictionary

from holodeck.core.events import Event, MessagesReplaced
from holodeck.core.owner import OwnedId
from holodeck.errors import HoloDeckError, StoreRefused
from holodeck.runs.log import ReplayGone, RunLog
from holodeck.stores import records

log = logging.getLogger(__name__)

COPY_SECONDS = 0.25
HURRIED_SECONDS = 0.02
RETRY_SECONDS = 1.0
MAX_ENDED = 1000  # logs that have ended and wait for a store that cannot be used


@dataclass(slots=True)
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
"""Stores pieces. Returns the runs whose copy is gone, so that it must be made again from its beginning."""

WriteAtOnce: TypeAlias = Callable[[list[LogPiece], Callable[[bool], None]], bool]
"""Stores pieces without a task, and calls back with whether they are stored. False if that is not possible now."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class _Copy:
    run: OwnedId
    log: RunLog
    first_number: int
    position: int
    session: str
    is_hurried: bool = False  # the run is read elsewhere


_Batch: TypeAlias = list[tuple[_Copy, LogPiece]]


class LogCopier:
    def __init__(self, write: Write, at_once: WriteAtOnce | None = None) -> None:
        self._write, self._at_once = write, at_once
        self.seconds = COPY_SECONDS  # seconds between two copies of one log
        self.news_seconds = COPY_SECONDS  # seconds until other processes learn of a run that begins or has ended
        self.hurried_seconds = HURRIED_SECONDS  # least seconds between two copies of a log that is read elsewhere
        self._copies: WeakValueDictionary[OwnedId, _Copy] = WeakValueDictionary()  # their logs hold them
        self._due: dict[_Copy, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0  # when it rings. uvloop's handle of a timer that is due at once has no `when`
        self._is_writing = False
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None  # for `close`
        self._begun = -math.inf  # when the last copy began, by the clock of the loop
        self._is_failing = False  # the store refused the last copy
        self._closed = False

    def follow(self, run: OwnedId, log: RunLog, first_number: int = 0, *, session: str = "") -> None:
        """Copies a log from its beginning. Its first event has this number."""
        self._copies[run] = copy = _Copy(run, log, first_number, 0, session)
        if len(log):
            self._is_due(copy)
        else:
            log.call_at_next(partial(self._is_due, copy))

    def follows(self, run: OwnedId) -> bool:
        """Whether something of this run's log is still to be copied, or may be added to it."""
        return run in self._copies

    def hurry(self, run: OwnedId) -> None:
        """Copies this run more often from now on: another process has a reader of it. It may have ended meanwhile."""
        copy = self._copies.get(run)
        if copy is not None:
            copy.is_hurried = True
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
        if self._is_writing:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        self._closed = True
        if self._due:
            await self._copy(self._take_due())

    def _is_due(self, copy: _Copy) -> None:
        self._due[copy] = None
        if not (self._is_writing or self._closed):
            self._copy_within(self._seconds_for(copy))

    def _seconds_for(self, copy: _Copy) -> float:
        if copy.is_hurried:
            since = asyncio.get_running_loop().time() - self._begun
            return max(0.0, min(self.seconds, self.hurried_seconds) - since)
        return min(self.seconds, self.news_seconds) if copy.position == 0 or copy.log.ended else self.seconds

    def _pause(self) -> float:
        return min(map(self._seconds_for, self._due), default=self.seconds)

    def _copy_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time() + seconds
        if self._timer is not None:
            if self._is_failing or self._due_at <= due_at:
                return
            self._timer.cancel()
        self._timer, self._due_at = loop.call_later(seconds, self._begin, context=Context()), due_at

    def _begin(self) -> None:
        self._timer, self._begun, self._is_writing = None, asyncio.get_running_loop().time(), True
        batch = self._take_due()
        is_begun = False
        if self._at_once is not None:
            with suppress(Exception):  # `_copy` tries again, and reports which log failed
                is_begun = self._at_once([piece for _, piece in batch if piece.events], partial(self._answered, batch))
        if not is_begun:
            self._answered(batch, is_stored=False)

    def _answered(self, batch: _Batch, is_stored: bool) -> None:  # noqa: FBT001  a callback
        if is_stored:
            self._is_failing = False
            self._end_copy()
        else:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._copy(batch), name="copy of run logs", context=Context())

    async def _copy(self, batch: _Batch) -> None:
        """Writes all that is due at once; if that fails because of a defect, each log by itself."""
        batches, self._is_failing = [batch], False
        for some in batches:
            try:
                gone = await self._write([piece for _, piece in some if piece.events])
            except StoreRefused as error:  # another attempt would not help, and the other runs must not wait for it
                batches += _apart(some, error)
            except HoloDeckError:  # the store reports it; the run does not depend on it
                self._is_failing = True
                for copy, piece in some:
                    copy.position = piece.first - copy.first_number
                self._due = {**dict.fromkeys([copy for copy, _ in some]), **self._due}
                self._drop_oldest()
            except Exception as error:  # noqa: BLE001  a defect, or an event that cannot be written: likewise
                batches += _apart(some, error)
            else:
                for copy, _ in some:
                    if copy.run in gone:
                        copy.position = 0
                        self._due[copy] = None
        self._end_copy()

    def _drop_oldest(self) -> None:
        """Each attempt encodes all logs that wait. Without a limit, a store that is away for hours would block the loop."""
        ended = [copy for copy in self._due if copy.log.ended]
        for copy in ended[: max(0, len(ended) - MAX_ENDED)]:
            del self._due[copy]

    def _end_copy(self) -> None:
        self._is_writing = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        elif self._due and not self._closed:
            self._copy_within(RETRY_SECONDS if self._is_failing else self._pause())

    def _take_due(self) -> _Batch:
        due, self._due = self._due, {}
        taken: _Batch = []
        for copy in due:
            latest = self._copies.get(copy.run)
            if latest is not None and latest is not copy and latest.first_number <= copy.first_number:
                continue  # the run was not stored, and has begun again under its id
            try:
                events = copy.log.since(copy.position)
            except ReplayGone:  # it writes faster than it can be copied: the beginning is enough
                continue
            first, is_beginning = copy.first_number + copy.position, copy.position == 0
            taken.append((copy, LogPiece(copy.run, first, events, is_beginning, copy.session)))
            copy.position += len(events)
            if not copy.log.ended:  # a cut log has ended too: following it would form a reference cycle
                copy.log.call_at_next(partial(self._is_due, copy))
        return taken


def _apart(batch: _Batch, error: Exception) -> list[_Batch]:
    """Returns each log of a batch that failed by itself. One that failed alone is logged and not copied."""
    if len(batch) > 1:
        return [[one] for one in batch]
    is_defect = not isinstance(error, HoloDeckError)
    name = batch[0][0].run[1] if batch else ""
    log.error("a piece of the log of run %s cannot be copied: %s", name, error, exc_info=is_defect)
    return []


def _emptied(snapshot: MessagesReplaced) -> MessagesReplaced:
    return MessagesReplaced((), snapshot.messages[-1].id if snapshot.messages else "", snapshot.corrects)
