"""Runs of earlier processes: takes over those that a crash interrupted, and makes those that ended readable again.

An interrupted run continues if that is safe and a reader reconnects in time. A crash is then no worse than a broken
connection. Otherwise the run ends as `interrupted`. `recovery` decides what remains of a run; this module acts on it.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holodeck.agent.definition import AgentContext
from holodeck.core.events import ENDINGS, Ending, Event, RunFailed, RunStarted, WarningRaised, failure
from holodeck.core.ids import is_valid_id
from holodeck.core.messages import Message, PendingStep, UserMessage, can_be_answered
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.errors import (
    HoloDeckError,
    InvalidRequest,
    LostClaim,
    RunInterrupted,
    RunNotFound,
    SessionDeleted,
    ShuttingDown,
    StorageFull,
    StoreUnavailable,
)
from holodeck.runs.client_history import Change, change_of, results_for
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord, RunState, RunStore, SharedRunStore
from holodeck.runs.recovery import PART_STRIDE, Remains, correction, log_of, remains_of, result_of
from holodeck.runs.remote_runs import Pieces, RemoteRuns, flattened, parts_of, run_of
from holodeck.runs.resumed_parts import is_continued_elsewhere, lacks_part
from holodeck.runs.run import Run, stopped
from holodeck.runs.runs import AGAIN_SECONDS, Runs, take_turn
from holodeck.runs.session_news import FEED_RUNS, Announce, SessionNews
from holodeck.sessions.port import KEEP, SessionStore, StoredSession
from holodeck.sessions.transcript import cut_before

log = logging.getLogger(__name__)

INTERRUPTED_TEXT = "The server was stopped in the middle of this run. The session has the part that was stored; a new message continues from there."
CHANGED_TEXT = "The agent file was changed while this run was in progress, so it does not continue; a new message continues the session."
CUT = (RunInterrupted.code, ShuttingDown.code)  # the server ended, not the agent
STOP_SECONDS = 5.0  # for a run to end after a client has stopped it, before the client is answered
CLOSE_SECONDS = 1.0
TAKEN_UP = "taken-up"  # the warning in the log of a run that continues after a crash


class Stopped(NamedTuple):
    """The result of a client's stop: whether the run was in progress when the stop arrived, and its state afterwards."""

    was_active: bool
    state: RunState

    @property
    def by_this(self) -> bool:
        """Whether the stop has ended the run. The run may end in another way first, or need longer to end."""
        return self.was_active and self.state is RunState.CANCELLED

    @property
    def is_stopping(self) -> bool:
        """Whether the stop has ended the run, or will: the run has not ended yet."""
        return self.by_this or (self.was_active and not self.has_ended)

    @property
    def has_ended(self) -> bool:
        return self.state not in (RunState.QUEUED, RunState.RUNNING)


class StoredRuns:
    def __init__(
        self,
        runs: Runs,
        store: SessionStore,
        records: RunStore | None,
        *,
        refusal: Callable[[RunRequest], HoloDeckError | None] = lambda _request: None,
    ) -> None:
        """`refusal` returns why an interrupted run may not continue: its credential is no longer valid."""
        self._runs, self._store, self._records, self._refusal = runs, store, records, refusal
        self.remote = RemoteRuns(store, records, runs.settings) if isinstance(records, SharedRunStore) else None
        self._news = SessionNews(records, self.restored) if isinstance(records, SharedRunStore) else None
        self.on_taken_up: list[
            Callable[[Run], None]
        ] = []  # called with each run that another process left: it continues, or has ended
        self._waiting: set[asyncio.Task[None]] = set()  # for the turns of runs that were left, or for the store
        self._queued: dict[OwnedId, RunRecord] = {}  # runs that were left in a queue and wait for their turn here

    async def close(self) -> None:
        """Leaves the runs that wait for their turn to another process, and ends the reading of those of others."""
        for task in self._waiting:
            task.cancel()
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=CLOSE_SECONDS)  # a cancelled statement waits for the store
        if self.remote is not None:
            await self.remote.close()

    # reading

    async def find(self, run_id: str, *, owner: Owner) -> Run:
        """The run, read from the store if this process does not have it. Raises RunNotFound."""
        found = self._runs.find(run_id, owner=owner)
        is_here = found is not None and (self.remote is None or not found.log.ended)
        # A database may reject a text that is not an id.
        if self._records is None or is_here or not is_valid_id(run_id):
            return self._runs.get(run_id, owner=owner)
        record = await self._found(run_id, owner)
        if record is None and found is not None and found.record is not None:  # deleted with its session, elsewhere
            await self._runs.remove(found)
        is_known = found is not None and record is not None and not is_continued_elsewhere(found, record)
        if record is None or (is_known and record.ending is not None):
            run = self._runs.get(run_id, owner=owner)
            if record is not None:  # another process may have taken it over, or withdrawn what it waited for
                run.state = record.state
            return run
        return await self.restored(record)

    async def find_settled(self, run_id: str, *, owner: Owner) -> Run:
        """Like `find`.

        If the run has just ended in another process, waits until the last events of its log are copied.
        """
        run = await self.find(run_id, owner=owner)
        if run.log.ended or not run.is_remote or self._records is None:
            return run
        record = await self._found(run_id, owner)
        if record is None or record.ending is None:
            return run
        await run.done()
        return await self.find(run_id, owner=owner)

    async def of_session(self, session_id: str, *, owner: Owner) -> list[Run]:
        """The runs of a session that can still be read, oldest first.

        Runs of other processes only while they are in progress.
        """
        found = self._runs.of_session(session_id, owner=owner)
        if self.remote is None:
            return found
        known = {run.run_id for run in found if not run.log.ended}
        others = [
            each
            for each in await self.remote.records.open_runs(owner=owner, session_id=session_id)
            if each.run_id not in known
        ]
        ids = {each.run_id for each in others}
        return [*(run for run in found if run.run_id not in ids), *[await self.restored(each) for each in others]]

    async def since(self, run_id: str, session_id: str, *, owner: Owner) -> list[Run]:
        """A run of a session and all later ones, oldest first, from all processes.

        Empty if the run cannot be read again.
        """
        if self.remote is None or self._runs.find(run_id, owner=owner) is not None:
            found = self._runs.of_session(session_id, owner=owner)
            first = next((place for place, run in enumerate(found) if run.run_id == run_id), len(found))
            here = found[first:]
            if self.remote is None or not here:
                return here
        newest_first = await self.remote.records.runs_of(owner=owner, session_id=session_id, limit=FEED_RUNS)
        ids = [each.run_id for each in reversed(newest_first)]
        runs: list[Run] = []
        for each in ids[ids.index(run_id) :] if run_id in ids else []:
            with suppress(RunNotFound):  # deleted a moment ago
                runs.append(await self.find(each, owner=owner))
        return runs

    @asynccontextmanager
    async def announced(self, session: OwnedId, call: Announce) -> AsyncIterator[None]:
        """Calls `call` with each run of a session that another process starts, until the block ends. See `Announce`."""
        if self._news is None:
            yield
        else:
            async with self._news.announced(session, call):
                yield

    async def active(self, session_id: str, *, owner: Owner) -> list[str]:
        """The ids of the session's runs that have not ended, in any process."""
        here = [run.run_id for run in self._runs.of_session(session_id, owner=owner) if not run.log.ended]
        if self.remote is None:
            return here
        return _joined(await self._open_runs(owner, session_id), here)

    async def _open_runs(self, owner: Owner, session_id: str | None = None) -> list[RunRecord]:
        """Runs without an ending. A run whose ending is not stored yet counts as ended."""
        if self.remote is None:
            return []
        found = await self.remote.records.open_runs(owner=owner, session_id=session_id)
        return [each for each in found if self._runs.unstored.seen(each).ending is None]

    async def active_in(self, session_ids: Sequence[str], *, owner: Owner) -> list[list[str]]:
        """Like `active`, for several sessions of one owner."""
        if self.remote is None:
            return [await self.active(session_id, owner=owner) for session_id in session_ids]
        found = await self._open_runs(owner)
        return [_joined([each for each in found if each.session_id == session_id], ()) for session_id in session_ids]

    async def stop(self, runs: Sequence[Run]) -> list[Stopped]:
        """Stops runs in any process, and waits for their endings, but at most `STOP_SECONDS`."""
        asked = [run for run in runs if await self._request_stop(run)]  # all, before the next of a session can begin
        tasks = {run.task for run in asked if run.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        return [Stopped(run in asked, await self._state_of(run)) for run in runs]

    async def _request_stop(self, run: Run) -> bool:
        if run.is_remote and self.remote is not None and run.record is not None:
            return await self.remote.records.want_stop(run.record)
        return self._runs.stop(run)

    async def _state_of(self, run: Run) -> RunState:
        record = None
        if run.is_remote and self._records is not None:  # its log may be behind
            record = await self._found(run.run_id, run.owner)
        return run.state if record is None else record.state

    async def session_of(self, run_id: str, *, owner: Owner) -> str | None:
        """The session of a run, even if its log is gone."""
        found: Run | RunRecord | None = self._runs.find(run_id, owner=owner)
        found = found or await self._found(run_id, owner)
        return None if found is None else found.session_id

    async def ending_of(self, run_id: str, *, owner: Owner) -> Ending | None:
        """The ending of a run, even if its log is gone."""
        found = self._runs.find(run_id, owner=owner)
        if found is not None:
            return found.log.ending
        record = await self._found(run_id, owner)
        return None if record is None else record.ending

    async def cut_run(self, stored: StoredSession) -> str | None:
        """The run that the server cut at the end of a conversation: its client can continue it."""
        last = stored.messages[-1] if stored.messages and stored.pending is None else None
        if last is None or not can_be_answered(stored.messages):
            return None
        try:
            record = await self._found(last.run_id, stored.session.owner)
        except HoloDeckError:  # it cannot be read, so it cannot be continued either
            return None
        ending = None if record is None else record.ending
        return last.run_id if isinstance(ending, RunFailed) and ending.code in CUT else None

    async def _found(self, run_id: str, owner: Owner) -> RunRecord | None:
        """The stored record of a run. One whose ending the store has not taken yet has the ending that was shown."""
        kept = self._runs.unstored.kept.get((owner, run_id))
        if kept is not None or self._records is None:
            return kept
        return await self._records.find(run_id, owner=owner)

    async def elsewhere(self, wire: str, owner: Owner, fingerprint: bytes) -> Run | None:
        """The newest run in progress that another process has begun for the same request."""
        if self.remote is None:
            return None
        records = self.remote.records
        for record in reversed(await records.open_runs(owner=owner, fingerprint=fingerprint)):
            if record.wire == wire and record.replica != records.replica:
                return await self.restored(record)
        return None

    async def restored(self, record: RunRecord) -> Run:
        """Makes a run readable again, from the copy of its log or from its messages."""
        record = self._runs.unstored.seen(record)
        is_ours = self._runs.unstored.kept.get((record.owner, record.run_id)) is record
        if record.ending is None and self.remote is not None:
            here = self._runs.find(record.run_id, owner=record.owner)
            return here if here is not None and not here.log.ended else await self.remote.open(record)
        pieces, history, waiting = await self._left_of(record)
        found = self._runs.find(record.run_id, owner=record.owner)  # another request may have restored it meanwhile
        is_known = found is not None and found.log.ended and not is_continued_elsewhere(found, record)
        if is_known or record.ending is None:
            if found is None:
                raise StoreUnavailable("This run can be read as soon as what is left of it can be stored.")
            return found
        events = flattened(pieces)
        run = parts_of(record, pieces, history, self._runs.settings.max_log_events)[-1]
        is_complete = bool(events) and type(events[-1]) in ENDINGS and not lacks_part(run)
        if self.remote is not None and not (is_complete or is_ours) and self.remote.may_be_copied_yet(record):
            return await self.remote.open(record)
        if not is_complete:
            run = self._behind(record, pieces, history)
            run.is_rebuilt = not events
            closings = remains_of(record, events, None).closings if events else log_of(record, (*history, *waiting))
            _emit(run, (*closings, correction(events, history), record.ending))
        run.state, run.finished_at = record.state, record.finished_at
        if run.finished_at is not None:
            run.ended = run.begun + (run.finished_at - run.created_at).total_seconds()
        run.result = result_of(record, history)
        if not run.request.messages:  # they are stored once, in the session
            asked = tuple(each for each in history if isinstance(each, UserMessage) and each.run_id == record.run_id)
            run.request = msgspec.structs.replace(run.request, messages=asked)
        self._runs.adopt(run)
        return run

    async def _left_of(self, record: RunRecord) -> tuple[Pieces, Sequence[Message], Sequence[Message]]:
        """The copy of its log, its session's messages, and those of its pending step."""
        pieces = [] if self._records is None else await self._records.events(record)
        stored = await self._store.read(record.session_id, owner=record.owner)
        if stored is None:
            return pieces, (), ()
        step = stored.pending if stored.pending is not None and stored.pending.run_id == record.run_id else None
        return pieces, stored.messages, () if step is None else (step.assistant, *step.results)

    def _behind(self, record: RunRecord, pieces: Pieces, history: Sequence[Message]) -> Run:
        """Makes a run that continues this log, which may be empty.

        Its event numbers start beyond all that the dead process may have sent.
        """
        limit = self._runs.settings.max_log_events
        parts = parts_of(record, pieces, history, limit)
        parts[-1].log.cut()
        # a part may have been shown and never copied
        block = max(parts[-1].first_number // PART_STRIDE, record.recovered) + 1
        return run_of(record, RunLog(limit), earlier=parts[-1], first_number=block * PART_STRIDE)

    # taking up

    async def recover(self) -> int:
        """Takes over the runs that a process left without an ending, and returns how many."""
        if self.remote is not None:
            return await self.take_up(await self.remote.records.take_over(math.inf))
        return await self.take_up([] if self._records is None else await self._records.unfinished())

    async def take_up(self, left: Sequence[RunRecord]) -> int:
        """Ends or continues the runs that other processes left, and returns how many.

        Does not wait for those that were left in a queue: a run of a living process may be before them.
        """
        if self.remote is not None:
            await self.remote.records.seal(left)
        by_session: dict[OwnedId, list[RunRecord]] = {}
        for record in left:
            by_session.setdefault((record.owner, record.session_id), []).append(record)
        at_once = []
        for records in by_session.values():
            work = self._recover_session(records)
            if self.remote is not None and any(each.state is RunState.QUEUED for each in records):
                self._in_background(work)
            else:
                at_once.append(work)
        await asyncio.gather(*at_once)
        return len(left)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._waiting.add(task := asyncio.create_task(work, name="recovery of a session", context=Context()))
        task.add_done_callback(self._waiting.discard)

    async def _recover_session(self, records: Sequence[RunRecord]) -> None:
        if self.remote is not None:
            self._queued |= {(each.owner, each.run_id): each for each in records if each.state is RunState.QUEUED}
        for number, record in enumerate(records):
            try:
                current = await self._in_turn(record)
                if current is not None:
                    await self._recover(current, may_continue=record is records[-1] and _crashes_of(record) == 0)
            except (StoreUnavailable, StorageFull) as error:  # its message may be in its row only, so it is not ended
                log.info("run %s is recovered when the store works again: %s", record.run_id, error.message)
                self._in_background(self._recover_later(records[number:]))
                return
            except (LostClaim, SessionDeleted) as error:
                log.info("run %s is not recovered: %s", record.run_id, error.message)
                self._runs.release_record(record)
            except Exception:  # an unreadable run stops neither the recovery of others nor the server's start
                log.exception("run %s cannot be recovered", record.run_id)
                await self._runs.end(run_of(record, RunLog()), RunInterrupted(INTERRUPTED_TEXT))
                self._runs.release_record(record)

    async def _recover_later(self, records: Sequence[RunRecord]) -> None:
        """Tries again. New runs of the session may have come meanwhile: here they take turns by this process's queue."""
        await asyncio.sleep(AGAIN_SECONDS)
        session = records[0].owner, records[0].session_id
        async with nullcontext() if self.remote is not None else self._runs.queue.take(session):
            await self._recover_session(records)

    async def _in_turn(self, record: RunRecord) -> RunRecord | None:
        """Waits for the turn of a run that was left in a queue, and reads it again: its client may have stopped it.

        None if it was deleted or taken over meanwhile, or if this process stops and leaves it to another one.
        """
        if self.remote is None or record.state is not RunState.QUEUED:
            return record
        found = None
        try:
            await take_turn(record, self.remote.records)
            if self._queued.pop((record.owner, record.run_id), None) is not None:
                found = await self.remote.records.find(record.run_id, owner=record.owner)
        except LostClaim:
            self._queued.pop((record.owner, record.run_id), None)
        if found is None:
            self._runs.release_record(record)
        return None if self._runs.is_closing else found

    def stop_queued(self, runs: Sequence[OwnedId]) -> None:
        """Stops those of these runs that were left in a queue, before their turn. They have stored nothing."""
        for record in [self._queued.pop(run) for run in runs if run in self._queued]:
            self._in_background(self._stop_queued(record))

    async def _stop_queued(self, record: RunRecord) -> None:
        run = run_of(record, RunLog())
        self._runs.observe(run)
        if self._records is not None:
            self._records.follow(record, run.log)
        await self._runs.end(run, None)
        self._runs.release_record(record)  # wakes the task that waits for the turn of this run
        self._runs.adopt(run)

    async def _recover(self, record: RunRecord, *, may_continue: bool) -> None:
        """Stores the remains of a run, then ends it or lets it wait for a reader that wants it to continue."""
        pieces, history, _ = await self._left_of(record)
        events = flattened(pieces)
        stored = await self._store.read(record.session_id, owner=record.owner)
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
        run = self._behind(record, pieces, history)
        if not events or type(events[-1]) in ENDINGS:
            run.emit(RunStarted(record.run_id, record.session_id, record.request.parent_run_id))
        _emit(run, (*remains.closings, correction(events, history_now)))
        if ending is None:
            await self._let_continue(run, remains.steps, left)
        else:
            self._show_ended(run, record, ending)
        for call in self.on_taken_up:
            call(run)

    async def _is_last(self, record: RunRecord) -> bool:
        """Whether no other run of its session is in progress. One that waits elsewhere for this one's end goes first."""
        if self.remote is None:
            return True
        others = await self.remote.records.open_runs(owner=record.owner, session_id=record.session_id)
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
                server_tools=self._runs.server_tools(),
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
            await self._runs.wait_for_turn(run)
            run.emit(WarningRaised(TAKEN_UP, "The server was restarted in the middle of this run; it continues."))
            run.conversation = await self._runs.open(run)
        except (Exception, asyncio.CancelledError):
            await self._store_new(run, new)
            raise
        return self._runs.context_of(run, run.request, Change(append=new), run.conversation, steps)

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
            conversation = await self._runs.open(run)
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


def _emit(run: Run, events: Sequence[Event]) -> None:
    for event in events:
        run.emit(event)


def _joined(stored: Sequence[RunRecord], here: Sequence[str]) -> list[str]:
    ids = [each.run_id for each in stored]
    return [*ids, *(run_id for run_id in here if run_id not in ids)]
