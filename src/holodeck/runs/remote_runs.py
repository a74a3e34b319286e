"""Runs of other processes, which this process reads from the growing copies of their logs.

A reader sees no difference: it reads a `RunLog`. If the other process dies and a third continues the run, the log is
cut. A later part follows it, whose event numbers begin at the next multiple of `PART_STRIDE`.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextvars import Context
from typing import TypeAlias

from holodeck.core.events import Event, MessagesReplaced, RunFailed, failure
from holodeck.core.messages import INTERRUPTED, Message, now
from holodeck.core.owner import OwnedId
from holodeck.errors import HoloDeckError, InternalError
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord, SharedRunStore
from holodeck.runs.recovery import PART_STRIDE, correction, log_of, remains_of, result_of, shown_ending
from holodeck.runs.resumed_parts import is_continued_elsewhere, lacks_part
from holodeck.runs.run import Run, cancel_all
from holodeck.runs.run_settings import RunSettings
from holodeck.sessions.port import SessionStore

log = logging.getLogger(__name__)

NOT_FOLLOWED = "The server cannot show more of this run, which continues on another server; read it again."
STATE_SECONDS = 1.0  # between two reads of the run's record
NOTE_SECONDS = 2.0  # between two notes that readers follow the run here
LAST_SECONDS = 10.0  # seconds for the copy to receive what the run's process wrote last
SEPARATE_SECONDS = 30.0  # after its end, until its parts no longer lead to later ones, unless they have readers
_NO_REQUEST = Context()  # for timers: a copy of the current context would keep the request alive

Pieces: TypeAlias = Sequence[tuple[int, list[Event]]]
"""Lists of events, each with the number of its first event, as a store returns them."""


class RemoteRuns:
    def __init__(self, store: SessionStore, records: SharedRunStore, settings: RunSettings) -> None:
        self.records = records
        self._store, self._settings = store, settings
        self._followed: dict[OwnedId, Run] = {}

    async def open(self, record: RunRecord) -> Run:
        """The run, with the part of its log that is copied by now."""
        key = record.owner, record.run_id
        if key in self._followed and is_continued_elsewhere(self._followed[key], record):
            del self._followed[key]  # its readers have read what the run asked; this one reads on
        if key not in self._followed:
            try:
                pieces = await self.records.events(record)
                history = await self._history(record)
            except BaseException:
                if key not in self._followed:
                    self.records.stop_waiting(record)  # the store notes each run whose copy it reads
                raise
            if key not in self._followed:
                run = parts_of(record, pieces, history, self._settings.max_log_events)[-1]
                for part in run.parts:
                    part.is_remote, part.state = True, record.state
                self._followed[key] = run = self._part_after(run, record) if lacks_part(run) else run
                run.task = asyncio.create_task(
                    self._follow(run, record), name=f"copy of run {record.run_id}", context=Context()
                )
        run = self._followed[key]
        if not run.log.ended:  # its turn may have come since it was opened
            run.state = record.state
        return run

    def may_be_copied_yet(self, record: RunRecord) -> bool:
        """Whether a run has ended so recently that its process may still be copying its last events.

        By the clock of the store, which also dated its end: the clocks of two machines may differ.
        """
        ended = record.finished_at
        return ended is not None and abs(self.records.clock() - ended.timestamp()) < LAST_SECONDS

    async def close(self) -> None:
        await cancel_all([run.task for run in self._followed.values()])

    async def _history(self, record: RunRecord) -> Sequence[Message]:
        stored = await self._store.read(record.session_id, owner=record.owner)
        return () if stored is None else stored.messages

    async def _follow(self, run: Run, record: RunRecord) -> None:
        """Fills the log until the run has ended."""
        key, noted, looked, ended = (record.owner, record.run_id), 0.0, 0.0, 0.0
        try:
            while not run.log.ended:
                moment = time.monotonic()
                try:
                    if moment - noted >= NOTE_SECONDS and any(part.readers for part in run.parts):
                        noted = moment
                        await self.records.note_followed([key])
                    pieces = await self.records.events(record, run.next_number)
                    run = await self._add(run, record, pieces)
                    if not pieces and moment - looked >= STATE_SECONDS:
                        looked = moment
                        current = await self.records.find(record.run_id, owner=record.owner)
                        if current is None or current.ending is not None:
                            ended = ended or moment
                        if ended and (current is None or moment - ended >= LAST_SECONDS):
                            await self._end(run, current or record)
                    if not run.log.ended:
                        await self.records.wait_for_more(record, run.next_number)
                except HoloDeckError as error:  # its readers wait: the run has to continue
                    log.warning("the copy of run %s cannot be read: %s", record.run_id, error.message)
                    await asyncio.sleep(STATE_SECONDS)
            await self._complete(run, record)
        except Exception:  # a defect: readers must not wait for events that never come
            log.exception("the copy of run %s cannot be followed any further", record.run_id)
            if not run.log.ended:
                run.emit(failure(record.run_id, record.session_id, InternalError(NOT_FOLLOWED)))
        finally:
            self._leave(run, record)

    def _leave(self, run: Run, record: RunRecord) -> None:
        key = record.owner, record.run_id
        if run.earlier is not None:
            self._separate_later(run)
        if self._followed.get(key) is run:  # else it was opened again, since it continues under its own id
            del self._followed[key]
            self.records.stop_waiting(record)

    def _separate_later(self, run: Run) -> None:
        """Drops the links from a run's parts to later ones. With those to earlier ones they are cycles, which keep all logs."""
        loop = asyncio.get_running_loop()
        loop.call_later(SEPARATE_SECONDS, self._separate, run, context=_NO_REQUEST)

    def _separate(self, run: Run) -> None:
        if any(part.readers for part in run.parts):
            self._separate_later(run)
            return
        for part in run.parts:
            part.later = None

    async def _add(self, run: Run, record: RunRecord, pieces: Pieces) -> Run:
        """Adds new events. Returns the part with which the log continues."""
        has_snapshot = any(MessagesReplaced in map(type, events) for _, events in pieces)
        history = await self._history(record) if has_snapshot else ()  # may fail, so before anything is added
        for first, events in pieces:
            if first // PART_STRIDE > run.first_number // PART_STRIDE and first % PART_STRIDE == 0:
                part = self._part_after(run, record, first)
                run.log.cut()
                run = part
            if first != run.next_number or run.log.ended:
                break  # a gap: missing events may still come; or the run continues under its own id, for other readers
            for event in events:
                run.emit(_filled(event, history) if isinstance(event, MessagesReplaced) else event)
            if lacks_part(run):
                run = self._part_after(run, record)
        return run

    def _part_after(self, run: Run, record: RunRecord, first: int | None = None) -> Run:
        """The part with which the log continues: after a crash, or under its own id."""
        number = run.next_number if first is None else first
        part = run_of(record, RunLog(self._settings.max_log_events), earlier=run, first_number=number)
        part.is_remote, part.task, part.state = True, run.task, run.state
        key = record.owner, record.run_id
        if self._followed.get(key) is run:
            self._followed[key] = part
        run.later = part
        return part

    async def _end(self, run: Run, record: RunRecord) -> None:
        """Ends a log whose copy was never completed, with the ending from the record."""
        history, events = await self._history(record), [event for part in run.parts for event in part.log.kept]
        closings = remains_of(record, events, None).closings if events else log_of(record, history)
        deleted = RunFailed(record.run_id, record.session_id, INTERRUPTED, "This run was deleted with its session.")
        ending = deleted if record.ending is None else shown_ending(record, record.ending, history)
        for event in (*closings, correction(events, history), ending):
            run.emit(event)

    async def _complete(self, run: Run, record: RunRecord) -> None:
        """Sets the result for clients that wait for the whole answer."""
        current = await self.records.find(record.run_id, owner=record.owner)
        if current is not None:
            result = result_of(current, await self._history(current))
            for part in run.parts:
                part.end_as(current, result)


def parts_of(record: RunRecord, pieces: Pieces, history: Sequence[Message], limit: int) -> list[Run]:
    """The copied log of a run, oldest part first; at least one part.

    There is one part for each process that had the run, and one for each time that it continued under its own id after
    its ending. Copies are made without the messages of snapshots, so snapshots get them from the history. A piece
    behind a gap is left out.
    """
    parts = [run_of(record, RunLog(limit))]
    for first, events in pieces:
        if first // PART_STRIDE > parts[-1].first_number // PART_STRIDE and first % PART_STRIDE == 0:
            parts[-1].log.cut()
            parts.append(run_of(record, RunLog(limit), earlier=parts[-1], first_number=first))
        elif parts[-1].log.ended and first == parts[-1].next_number:
            parts.append(run_of(record, RunLog(limit), earlier=parts[-1], first_number=first))
        if first == parts[-1].next_number:
            for event in events:
                parts[-1].emit(_filled(event, history) if isinstance(event, MessagesReplaced) else event)
    return parts


def part_after_crash(record: RunRecord, pieces: Pieces, history: Sequence[Message], limit: int) -> Run:
    """Makes a run that continues this log, which may be empty.

    Its event numbers start beyond all that the dead process may have sent.
    """
    parts = parts_of(record, pieces, history, limit)
    parts[-1].log.cut()
    # a part may have been shown and never copied
    block = max(parts[-1].first_number // PART_STRIDE, record.recovered) + 1
    return run_of(record, RunLog(limit), earlier=parts[-1], first_number=block * PART_STRIDE)


def _filled(snapshot: MessagesReplaced, history: Sequence[Message]) -> MessagesReplaced:
    """A copied snapshot with its messages.

    It lacks the messages that were stored later: the log shows them in its next events.
    """
    ids = [message.id for message in history]
    if snapshot.last_id == "":
        return MessagesReplaced((), corrects=snapshot.corrects)
    end = ids.index(snapshot.last_id) + 1 if snapshot.last_id in ids else len(ids)
    return MessagesReplaced(tuple(history[:end]), corrects=snapshot.corrects)


def flattened(pieces: Pieces) -> list[Event]:
    """The events of all pieces, up to the first gap within a part."""
    events: list[Event] = []
    expected = 0
    for first, piece in pieces:
        if first == expected or (first % PART_STRIDE == 0 and first > expected):
            events += piece
            expected = first + len(piece)
    return events


def run_of(record: RunRecord, run_log: RunLog, *, earlier: Run | None = None, first_number: int = 0) -> Run:
    age = (now() - record.created_at).total_seconds()
    return Run(
        request=record.request,
        run_id=record.run_id,
        session_id=record.session_id,
        owner=record.owner,
        log=run_log,
        created_at=record.created_at,
        begun=time.monotonic() - max(0.0, age),
        is_new_session=record.request.new_session,
        fingerprint=record.fingerprint,
        record=record,
        earlier=earlier,
        first_number=first_number,
    )
