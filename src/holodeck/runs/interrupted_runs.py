"""Takes over runs that a crash interrupted, or that a server left when it stopped.

An interrupted run continues if that is safe and a reader reconnects in time. A crash is then no worse than a broken
connection. Otherwise the run ends as `interrupted`. `recovery` decides what remains of a run; this module acts on it.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from contextvars import Context
from functools import partial
from typing import Any

import msgspec

from holodeck.agent.definition import AgentContext
from holodeck.agent.tool_calls import server_tools
from holodeck.core.events import ENDINGS, Ending, RunStarted, WarningRaised, before_anything_is_stored, failure
from holodeck.core.messages import Message, PendingStep, UserMessage
from holodeck.core.owner import OwnedId
from holodeck.core.request import RunRequest
from holodeck.errors import (
    HoloDeckError,
    InvalidRequest,
    LostClaim,
    RunInterrupted,
    SessionDeleted,
    StorageFull,
    StoreUnavailable,
)
from holodeck.runs.client_history import Change, change_of, results_for
from holodeck.runs.executor import AGAIN_SECONDS, take_turn
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord, RunState, SharedRunStore
from holodeck.runs.recorded_transcript import LOST
from holodeck.runs.recovery import Remains, correction, remains_of
from holodeck.runs.remote_runs import Pieces, flattened, part_after_crash, run_of
from holodeck.runs.run import Run, cancel_all, stopped
from holodeck.runs.runs import Runs
from holodeck.sessions.port import KEEP, StoredSession
from holodeck.sessions.transcript import cut_before

log = logging.getLogger(__name__)

INTERRUPTED_TEXT = "The server was stopped in the middle of this run. The session has the part that was stored; a new message continues from there."
CHANGED_TEXT = "The agent file was changed while this run was in progress, so it does not continue; a new message continues the session."
UNKEPT_TEXT = "The server was stopped in the middle of this run, which cannot continue: its messages are not stored."
LONGEST_PAUSE = 5  # times `AGAIN_SECONDS`: between two attempts to recover a run
TAKEN_UP = "taken-up"  # the warning in the log of a run that continues after a crash


class InterruptedRuns:
    def __init__(
        self,
        runs: Runs,
        *,
        refusal: Callable[[RunRequest], HoloDeckError | None] = lambda _request: None,
    ) -> None:
        """`refusal` returns why an interrupted run may not continue: its credential is no longer valid."""
        self._runs, self._refusal = runs, refusal
        self._store, self._records = runs.store, runs.records
        self._shared = runs.records if isinstance(runs.records, SharedRunStore) else None
        # called with each run that another process left: it continues, or has ended
        self.on_taken_up: list[Callable[[Run], None]] = []
        self._waiting: set[asyncio.Task[None]] = set()  # for the turns of runs that were left, or for the store
        self._queued: dict[OwnedId, RunRecord] = {}  # runs that were left in a queue and wait for their turn here

    async def close(self) -> None:
        """Leaves the runs that wait for their turn to another process."""
        await cancel_all(self._waiting)

    async def recover(self) -> int:
        """Takes over the runs that a process left without an ending, and returns how many."""
        if self._shared is not None:
            return await self.take_up(await self._shared.take_over(math.inf))
        return await self.take_up([] if self._records is None else await self._records.unfinished())

    async def take_up(self, left: Sequence[RunRecord]) -> int:
        """Ends or continues the runs that other processes left, and returns how many.

        Does not wait for those that were left in a queue: a run of a living process may be before them.
        """
        if self._shared is not None:
            await self._shared.seal(left)
        by_session: dict[OwnedId, list[RunRecord]] = {}
        for record in left:
            by_session.setdefault((record.owner, record.session_id), []).append(record)
        at_once = []
        for records in by_session.values():
            work = self._recover_session(records)
            if self._shared is not None and any(each.state is RunState.QUEUED for each in records):
                self._in_background(work)
            else:
                at_once.append(work)
        await asyncio.gather(*at_once)
        return len(left)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._waiting.add(task := asyncio.create_task(work, name="recovery of a session", context=Context()))
        task.add_done_callback(self._waiting.discard)

    async def _recover_session(self, records: Sequence[RunRecord], failures: int = 0) -> None:
        """Recovers the runs of one session in their order. `failures`: how often the store has refused the first one."""
        if self._shared is not None:
            self._queued |= {(each.owner, each.run_id): each for each in records if each.state is RunState.QUEUED}
        for number, record in enumerate(records):
            try:
                current = await self._in_turn(record)
                if current is not None:
                    await self._recover(current, may_continue=record is records[-1] and _crashes_of(record) == 0)
            except (StoreUnavailable, StorageFull) as error:  # its message may be in its row only, so it is not ended
                tried = failures + 1 if number == 0 else 1
                if tried == 1:
                    log.info("run %s is recovered when the store works again: %s", record.run_id, error.message)
                self._in_background(self._recover_later(records[number:], tried))
                return
            except (LostClaim, SessionDeleted) as error:
                log.info("run %s is not recovered: %s", record.run_id, error.message)
                self._runs.executor.release_record(record)
            except Exception as error:  # an unreadable run stops neither the recovery of others nor the server's start
                is_defect = not isinstance(error, HoloDeckError)
                log.warning("run %s cannot be recovered: %s", record.run_id, error, exc_info=is_defect)
                await self._runs.executor.end(run_of(record, RunLog()), RunInterrupted(INTERRUPTED_TEXT))
                self._runs.executor.release_record(record)

    async def _recover_later(self, records: Sequence[RunRecord], failures: int) -> None:
        """Tries again. New runs of the session may have come meanwhile: here they take turns by this process's queue."""
        await asyncio.sleep(AGAIN_SECONDS * min(failures, LONGEST_PAUSE))
        session = records[0].owner, records[0].session_id
        async with nullcontext() if self._shared is not None else self._runs.queue.take(session):
            await self._recover_session(records, failures)

    async def _in_turn(self, record: RunRecord) -> RunRecord | None:
        """Waits for the turn of a run that was left in a queue, and reads it again: its client may have stopped it.

        None if it was deleted or taken over meanwhile, or if this process stops and leaves it to another one.
        """
        if self._shared is None or record.state is not RunState.QUEUED:
            return record
        found = None
        try:
            await take_turn(record, self._shared)
            if self._queued.pop((record.owner, record.run_id), None) is not None:
                found = await self._shared.find(record.run_id, owner=record.owner)
        except LostClaim:
            self._queued.pop((record.owner, record.run_id), None)
        if found is None:
            self._runs.executor.release_record(record)
        return None if self._runs.is_closing else found

    def stop_queued(self, runs: Sequence[OwnedId]) -> None:
        """Stops those of these runs that were left in a queue, before their turn. They have stored nothing."""
        for record in [self._queued[run] for run in runs if run in self._queued]:
            self._in_background(self._stop_queued(record))

    async def _stop_queued(self, record: RunRecord) -> None:
        """Does nothing if the turn of the run comes first: then `_recover` stops it."""
        try:
            pieces, stored = await self._left_of(record)  # it may continue a part under its own id
        except HoloDeckError as error:  # the next heartbeat names it again
            log.info("run %s is stopped when the store works again: %s", record.run_id, error.message)
            return
        if self._queued.pop((record.owner, record.run_id), None) is None:
            return
        history = () if stored is None else stored.messages
        run = part_after_crash(record, pieces, history, self._runs.settings.max_log_events)
        self._runs.observe(run)
        if self._records is not None:
            self._records.follow(record, run.log, run.first_number)
        run.emit(RunStarted(record.run_id, record.session_id, record.request.parent_run_id))
        await self._runs.executor.end(run, None)
        self._runs.executor.release_record(record)  # wakes the task that waits for the turn of this run
        self._runs.adopt(run)

    async def _left_of(self, record: RunRecord) -> tuple[Pieces, StoredSession | None]:
        """The copy of its log, and its session."""
        pieces = [] if self._records is None else await self._records.events(record)
        return pieces, await self._store.read(record.session_id, owner=record.owner)

    async def _recover(self, record: RunRecord, *, may_continue: bool) -> None:
        """Stores the remains of a run, then ends it or lets it wait for a reader that wants it to continue."""
        if record.request.throw_away:
            await self._end_without_session(record)
            return
        pieces, stored = await self._left_of(record)
        events, history = flattened(pieces), () if stored is None else stored.messages
        change = None if record.request.compared else self._change(record, stored)
        if change is not None:
            record = _compared(record, change, None if stored is None else stored.pending)
            if stored is not None and change.rewind_before is not None:
                stored = cut_before(stored, change.rewind_before)
        remains = remains_of(record, events, stored, self._is_repeatable)
        may_continue = may_continue and await self._is_last(record)
        ending = self._ending_of(record, remains, may_continue=may_continue)
        left, history_now = await self._store_remains(record, remains, change, ending)
        if ending is None and self._runs.is_closing:
            return  # the next process continues it
        run = part_after_crash(record, pieces, history, self._runs.settings.max_log_events)
        if not events or type(events[-1]) in ENDINGS:
            request = record.request
            new = request.new_session and not events
            run.emit(RunStarted(record.run_id, record.session_id, request.parent_run_id, is_new_session=new))
        for event in (*remains.closings, correction(events, history_now)):
            run.emit(event)
        if ending is None:
            if any(message.run_id == record.run_id for message in history):  # the session has the state since then
                run.request = msgspec.structs.replace(run.request, state=None)
            await self._let_continue(run, remains.steps, left)
        else:
            self._show_ended(run, record, ending)
        for call in self.on_taken_up:
            call(run)

    async def _end_without_session(self, record: RunRecord) -> None:
        """Ends a run whose messages only its client has. If it was about to call no tool, its request may run again."""
        pieces = [] if self._records is None else await self._records.events(record)
        ending = (
            stopped(record)
            if record.stop_wanted
            else failure(record.run_id, record.session_id, RunInterrupted(UNKEPT_TEXT))
        )
        if not record.request.acted:
            ending = before_anything_is_stored(ending)
        if self._records is not None and not await self._records.end(record, ending):
            raise LostClaim(LOST)
        run, events = part_after_crash(record, pieces, (), self._runs.settings.max_log_events), flattened(pieces)
        if not events or type(events[-1]) in ENDINGS:
            run.emit(RunStarted(record.run_id, record.session_id))
        for event in remains_of(record, events, None).closings:
            run.emit(event)
        self._show_ended(run, record, ending)

    async def _is_last(self, record: RunRecord) -> bool:
        """Whether no other run of its session is in progress. One that waits elsewhere for this one's end goes first."""
        if self._shared is None:
            return True
        others = await self._shared.open_runs(owner=record.owner, session_id=record.session_id)
        return not others or others[-1].run_id == record.run_id

    def _ending_of(self, record: RunRecord, remains: Remains, *, may_continue: bool) -> Ending | None:
        """The ending of an interrupted run. None if it continues."""
        if record.stop_wanted:
            return stopped(record)
        why = self._why_not_continued(record, remains, may_continue=may_continue)
        return None if why is None else failure(record.run_id, record.session_id, why)

    def _why_not_continued(self, record: RunRecord, remains: Remains, *, may_continue: bool) -> HoloDeckError | None:
        refusal = self._refusal(record.request)
        if refusal is not None:
            return refusal
        is_safe = remains.is_certain and not remains.has_moved_on and not record.request.shortened
        if not (may_continue and is_safe and self._runs.settings.continues):
            return RunInterrupted(INTERRUPTED_TEXT)
        if record.request.agent_version not in ("", self._runs.agent.version):
            return RunInterrupted(CHANGED_TEXT)
        return None

    async def _store_remains(
        self, record: RunRecord, remains: Remains, change: Change | None, ending: Ending | None
    ) -> tuple[Sequence[Message], Sequence[Message]]:
        """Stores the remains of a run. Returns the messages that wait, and the history as it is then stored.

        Messages wait if the run continues with a pending step: they come after its results.
        """
        conversation = await self._store.open(record.session_id, owner=record.owner, run_id=record.run_id, create=True)
        try:
            if change is not None and change.rewind_before is not None:
                await conversation.rewind(change.rewind_before)
            waits = ending is None and conversation.pending is not None and not remains.settles_step
            if change is not None and self._records is not None:
                self._records.register(record)
            pending = None if remains.settles_step else KEEP
            await conversation.commit(() if waits else remains.messages, pending, ending=ending)
            return remains.messages if waits else (), await conversation.history()
        finally:
            conversation.close()

    def _show_ended(self, run: Run, record: RunRecord, ending: Ending) -> None:
        self._runs.observe(run)  # not earlier: the dead process has logged and counted the events before
        run.emit(ending)
        if self._records is not None:
            self._records.follow(record, run.log, run.first_number)
            self._records.release(record)
        self._runs.adopt(run)

    def _change(self, record: RunRecord, stored: StoredSession | None) -> Change:
        """The change of a request whose process ended before it compared the request with the session.

        It cannot be known which replies the client had seen, so only a message that the client edited causes a rewind.
        """
        request, messages = record.request, () if stored is None else stored.messages
        known, runs = {message.id for message in messages}, frozenset([message.run_id for message in messages])
        if record.run_id in runs:
            new = [each for each in request.messages if isinstance(each, UserMessage) and each.id not in known]
            return Change(append=new)
        try:
            return change_of(
                request,
                messages,
                None if stored is None else stored.pending,
                server_tools=server_tools(self._runs.agent),
                unknown=self._runs.settings.client_history,
                unseen=runs,
                elsewhere=runs,
            )
        except InvalidRequest:  # the run reports that when it continues
            return Change()

    def _is_repeatable(self, name: str) -> bool:
        return any(schema.repeatable for schema in self._runs.agent.tools.schemas() if schema.name == name)

    async def _let_continue(self, run: Run, steps: int, new: Sequence[Message]) -> None:
        """`new` are the messages of a run that completes a pending step first."""
        if self._records is not None and run.record is not None:
            await self._records.take_up(run.record)
            self._records.follow(run.record, run.log, run.first_number)
        run.state, run.reader_arrived = RunState.RUNNING, asyncio.Event()
        if run.request.detached:
            run.reader_arrived.set()
        self._runs.launch(run, partial(self._continued, steps=steps, new=new))

    async def _continued(self, run: Run, steps: int, new: Sequence[Message]) -> AgentContext:
        """Waits for a reader, and prepares the run to continue where it was interrupted."""
        try:
            await self._wait_for_reader(run)
            run.is_first = True  # its row is the running one; in this process others may wait before it
            run.slot = self._runs.queue.take((run.owner, run.session_id))
            await self._runs.executor.wait_for_turn(run)
            run.emit(WarningRaised(TAKEN_UP, "The server was restarted in the middle of this run; it continues."))
            run.conversation = await self._runs.executor.open(run)
        except (Exception, asyncio.CancelledError):
            await self._store_new(run, new)
            raise
        return self._runs.executor.context_of(run, run.request, Change(append=new), run.conversation, steps)

    async def _wait_for_reader(self, run: Run) -> None:
        try:
            if run.reader_arrived is not None:
                async with asyncio.timeout(self._runs.settings.detach_grace):
                    await run.reader_arrived.wait()
        except TimeoutError:
            raise RunInterrupted(INTERRUPTED_TEXT) from None
        finally:
            run.reader_arrived = None

    async def _store_new(self, run: Run, new: Sequence[Message]) -> None:
        """Stores the messages of a run that does not continue after all. The step before them still waits."""
        if not new or run.log.is_cut:
            return
        try:
            conversation = await self._runs.executor.open(run)
            try:
                await conversation.commit(new, KEEP)
            finally:
                conversation.close()
        except HoloDeckError as error:
            log.warning("the message of run %s is not stored: %s", run.run_id, error.message)


def _compared(record: RunRecord, change: Change, pending: PendingStep | None) -> RunRecord:
    """The record, marked as compared with the session, as the run's process would have stored it next."""
    messages = *results_for(pending, record.request.messages), *change.append
    request = msgspec.structs.replace(record.request, messages=messages, compared=True)
    return msgspec.structs.replace(record, request=request)


def _crashes_of(record: RunRecord) -> int:
    """How often a process has taken the run over after a crash. Runs that a stopping server had left do not count."""
    return max(0, record.recovered - record.request.handovers)
