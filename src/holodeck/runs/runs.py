"""Runs belong to the server, not to a connection: `Runs` starts them, attaches readers, and stops them on request.

A run without readers continues for `detach_grace` seconds, in which a reader may reconnect; then it is cancelled. A
finished run can be read again for `replay_window` seconds. `executor.py` has the task of a run. This module knows no wire:
readers get events.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Container, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import Any

import msgspec

from holodeck.agent.definition import AgentDefinition
from holodeck.agent.pending import decide
from holodeck.core.events import Ending, Observer
from holodeck.core.ids import new_ulid
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.errors import (
    HoloDeckError,
    InvalidRequest,
    RunInterrupted,
    RunNotFound,
    RunTimeout,
    SessionBusy,
    ShuttingDown,
)
from holodeck.runs.executor import PrepareRun, RunExecutor
from holodeck.runs.handover import hand_over, may_be_handed_over
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunExists, RunKey, RunRecord, RunState, RunStore, SharedRunStore
from holodeck.runs.resumed_parts import answered_with, check_continues
from holodeck.runs.run import Run, RunMeter, SessionFeeds, SessionQueue, ending_of, kept_of, size_of_request
from holodeck.runs.run_settings import RunSettings, WhenBusy
from holodeck.runs.shared_entry import SharedEntry
from holodeck.runs.unstored_endings import CLOSE_SECONDS, UnstoredEndings
from holodeck.sessions.port import SessionStore

log = logging.getLogger(__name__)

DETACHED_SECONDS = 600.0  # minimum replay window of a run that continued without readers
SWEEP_SECONDS = 0.25  # resolution of the expiry timer: runs that expire within this time are removed together
STOP_SECONDS = 5.0  # for a run to end after it was cancelled, when the server stops

_NO_REQUEST = Context()  # for timers: a copy of the current context would keep the request alive


class Runs:
    """All runs of one agent in this process.

    `observe` returns the observers of a new run. They are telemetry, which must not wake for each token.
    """

    def __init__(
        self,
        agent: AgentDefinition,
        store: SessionStore,
        settings: RunSettings | None = None,
        *,
        records: RunStore | None = None,
        observe: Callable[[Run], Sequence[Observer]] | None = None,
    ) -> None:
        self.agent = agent
        self.store, self.records = store, records
        self.settings = settings or RunSettings()
        self._shared = SharedEntry(records, self._refuse_behind) if isinstance(records, SharedRunStore) else None
        self.unstored = UnstoredEndings(records)
        self._observe = observe
        self._runs: dict[OwnedId, Run] = {}
        self.executor = RunExecutor(agent, store, records, self.settings, unstored=self.unstored, find=self._runs.get)
        self._beginning: set[OwnedId] = set()  # ids of runs that are being stored in a store shared by processes
        self._live: set[Run] = set()
        self._waiting: set[Run] = set()  # live runs that a crash interrupted and that no reader has reconnected to
        self._by_session: dict[OwnedId, list[Run]] = {}
        self.finished = FinishedRuns(self.settings, self.unstored.kept, self.forget)
        self.feeds = SessionFeeds()
        self.queue = SessionQueue()
        self.is_closing = False  # no more runs start

    @property
    def active(self) -> list[Run]:
        return [run for run in self._live if not run.log.ended]

    @property
    def busy(self) -> int:
        """The number of queued and active runs. Cheap: read on every request.

        Runs that wait for a reader after a crash do nothing and take no slot from new ones.
        """
        return len(self._live) - len(self._waiting)

    @property
    def finds_duplicates(self) -> bool:
        """Whether `start` finds a duplicate of another process's request before it changes anything.

        Not while runs wait for a reader after a crash: `start` would end one on the same session, perhaps the one that
        the duplicate is for.
        """
        return self._shared is not None and not self._waiting

    def use(self, agent: AgentDefinition) -> None:
        """Lets this agent execute the runs that start from now on."""
        self.agent = self.executor.agent = agent

    async def start(
        self,
        request: RunRequest,
        *,
        key: RunKey | None = None,
        fingerprint: bytes = b"",
        may_repeat: bool = False,
        meter: RunMeter | None = None,
    ) -> Run:
        """Starts a run. Its id must be new; `Idempotency` finds the run of a duplicate request.

        `key` is the request's idempotency key, which is stored with the run. `may_repeat`: its client may also send it
        again without one. Otherwise a run without a session is not stored. `meter` counts what the run spends.
        Raises RunExists if another process has started the same run.
        """
        self._refuse_at_end()
        session = (owner := request.owner, session_id := request.session_id or new_ulid())
        earlier = self._part_before(request, session)
        self._refuse_behind(session_id, self.queue.waiting(session))
        if request.resume and not self.queue.busy(session):  # refuses an answer to nothing before the first byte
            await self._check_answers(request, session)
            self._refuse_behind(session_id, self.queue.waiting(session))  # another request may have come meanwhile
            earlier = self._part_before(request, session) or earlier  # it may be past its replay window by now
        if earlier is not None:
            request = msgspec.structs.replace(request, answered=answered_with(earlier, fingerprint))
        others = self._by_session.get(session, ())
        watched = [each.run_id for each in others if each.readers and not each.log.ended] if others else ()
        run = Run(
            request=request,
            run_id=request.run_id,
            session_id=session_id,
            owner=owner,
            log=RunLog(self.settings.max_log_events),
            fingerprint=fingerprint,
            earlier=earlier,
            first_number=0 if earlier is None else earlier.next_number,
            behind=frozenset([each.run_id for each in others if not each.log.ended]),
            watched=frozenset(watched),
            meter=meter,
        )
        for other in others:
            self.give_up(other)
        self._register(run, key, may_repeat=may_repeat)
        run.slot = self.queue.take(session)
        if self._shared is not None and run.record is not None:
            await self._begin(run, run.record, self._shared)
        if self.records is not None and run.record is not None:
            if earlier is not None:
                self._copy_again(earlier, run.record, self.records)
            self.records.follow(run.record, run.log, run.first_number)
        self.launch(run, self.executor.prepare)
        if request.time_limit is not None:
            why = RunTimeout(f"The answer took longer than {request.time_limit:g} s.", "run_timeout")
            run.deadline = asyncio.get_running_loop().call_later(request.time_limit, self.stop, run, why)
        if request.detached and self.records is not None and run.record is not None:
            try:
                await self.records.stored(run.record)  # its client may get its id next
            except HoloDeckError as error:
                self.stop(run, error)
                raise
        return run

    async def _check_answers(self, request: RunRequest, session: OwnedId) -> None:
        """Raises InvalidRequest unless the session waits for these answers."""
        owner, session_id = session
        stored = await self.store.read(session_id, owner=owner, last=1)
        if stored is None:
            asked = request.resume[0].interrupt_id
            raise InvalidRequest(
                f"There is no open interrupt {asked!r}: the session is unknown, or has expired.", field="resume"
            )
        decide(stored.pending, request.resume, ())

    async def _begin(self, run: Run, record: RunRecord, shared: SharedEntry) -> None:
        """Adds a run to those of all processes. Meanwhile its id is taken here."""
        self._beginning.add((run.owner, run.run_id))
        try:
            await shared.begin(run, record)
        finally:
            self._beginning.discard((run.owner, run.run_id))

    def observe(self, run: Run) -> None:
        run.log.observers = self._observe(run) if self._observe else ()

    def launch(self, run: Run, prepare: PrepareRun) -> None:
        """Starts the task of a run, which begins with `prepare`."""
        self.observe(run)
        self._runs[run.owner, run.run_id] = run
        self._live.add(run)
        if run.reader_arrived is not None and not run.reader_arrived.is_set():
            self._waiting.add(run)
        session = (run.owner, run.session_id)
        self._by_session.setdefault(session, []).append(run)
        self.feeds.started(session, run)
        loop = asyncio.get_running_loop()
        run.task = loop.create_task(self.executor.execute(run, prepare), name=f"run {run.run_id}")
        run.task.add_done_callback(partial(self._ended, run))

    def _register(self, run: Run, key: RunKey | None, *, may_repeat: bool) -> None:
        may_repeat = may_repeat and self.records is not None and self.records.outlives_process  # else it is known here
        if self.records is None or (run.request.throw_away and key is None and not may_repeat):
            return
        run.record = RunRecord(
            run_id=run.run_id,
            owner=run.owner,
            session_id=run.session_id,
            wire=run.request.wire if key is None else key.wire,
            key=None if key is None else key.name,
            fingerprint=run.fingerprint,
            request=kept_of(run.request, self.agent.version),
            created_at=run.created_at,
        )
        if (run.owner, run.run_id) in self.unstored.kept:
            self.unstored.drop(run.run_id, owner=run.owner)
        self.records.register(run.record)

    def _copy_again(self, earlier: Run, record: RunRecord, records: RunStore) -> None:
        """Copies the parts that a run continues under its own id, if they ended so long ago that their copy may be gone.

        The copy of the new part alone would begin behind a gap, and could not be read.
        """
        age = math.inf if earlier.ended is None or earlier.is_rebuilt else time.monotonic() - earlier.ended
        if records.outlives_process and age >= self.settings.replay_window / 2:
            for part in earlier.parts:
                records.follow(record, part.log, part.first_number)

    def get(self, run_id: str, *, owner: Owner) -> Run:
        run = self._runs.get((owner, run_id))
        if run is None:
            raise RunNotFound(f"There is no run {run_id!r}, or it ended too long ago.")
        return run

    def find(self, run_id: str, *, owner: Owner) -> Run | None:
        return self._runs.get((owner, run_id))

    def knows(self, run: Run) -> bool:
        """Whether this run can still be read.

        Another run may have its id by now, if its session was forgotten before.
        """
        latest = self._runs.get((run.owner, run.run_id))
        return latest is run or (latest is not None and run in latest.parts)

    def latest(self, run: Run) -> Run:
        """The last part of a run that was continued under its own id; the run itself if it was not."""
        return run if run.is_remote else self._runs.get((run.owner, run.run_id), run)

    def of_session(self, session_id: str, *, owner: Owner) -> list[Run]:
        """The runs of a session that can still be read, oldest first."""
        return list(self._by_session.get((owner, session_id), ()))

    @contextmanager
    def attached(self, run: Run, *, returns: bool = False) -> Iterator[RunLog]:
        """Attaches a reader. A run with readers is not cancelled by `detach_grace`."""
        self.attach(run, returns=returns)
        try:
            yield run.log
        finally:
            self.detach(run, returns=returns)

    def attach(self, run: Run, *, returns: bool = False) -> None:
        """`returns`: the reader reconnects by itself if its connection ends without an ending."""
        run.attach(returns=returns)
        self._waiting.discard(run)

    def detach(self, run: Run, *, returns: bool = False) -> None:
        if run.detach(returns=returns):
            run.end_unless_read(self.settings.detach_grace, partial(self.stop, run))

    def note_reader_elsewhere(self, run: Run, seconds: float = 0.0) -> None:
        """Restarts the grace period of a run, as a reader that leaves at once would: another process has a reader.

        The next note of it comes within `seconds`, so the grace period is not shorter.
        """
        self.attach(run)
        if run.detach():
            run.end_unless_read(max(seconds, self.settings.detach_grace), partial(self.stop, run))

    def give_up(self, run: Run) -> None:
        """Ends a run that waits for a reader after a crash: the user has continued without it."""
        if run.reader_arrived is not None and not run.log.ended:
            self.stop(run, RunInterrupted("The conversation has continued without this run."))

    async def keep_going(self, run: Run) -> None:
        """Lets the run continue to its end without readers, also after a crash. This is stored when it returns."""
        is_here = not run.log.ended and not run.is_remote
        record = run.change_stored_request(detached=True) if is_here else None
        if self.records is not None and record is not None:
            await self.records.store_request(record)
        run.request = msgspec.structs.replace(run.request, detached=True)

    def stop(self, run: Run, why: HoloDeckError | None = None) -> bool:
        """Cancels a run immediately, and returns whether it was active. `why` is None for a client's stop."""
        if run.log.ended or run.task is None or run.task.done() or run.is_remote:
            return False
        run.stopped_by = run.stopped_by or why
        return run.task.cancel()

    async def close(self, drain: float) -> None:
        """Lets running streams finish for `drain` seconds, then ends the rest with a proper ending.

        Runs that wait for a reader end immediately: they have nothing to finish. Runs that no client of this process waits
        for are left to the next process, or to another one that shares the store.
        """
        self.is_closing = True
        self.feeds.close()
        for run in self._waiting:
            if not self._is_left(run):
                self.stop(run, self._shutdown_of(run))
        tasks = {run.task for run in self.active if run.task is not None and run not in self._waiting}
        if tasks:
            await asyncio.wait(tasks, timeout=drain)
        left = self._left_to_others()
        leaving = [asyncio.create_task(each) for each in left.values()]
        for run in self.active:
            if run not in left:
                self.stop(run, self._shutdown_of(run))
        remaining = {run.task: run for run in self._live if run.task is not None}
        if remaining:
            _, stuck = await asyncio.wait({*remaining, *leaving}, timeout=STOP_SECONDS)
            await self._end_stuck([remaining[task] for task in stuck if task in remaining])
        if self._shared is not None:
            await self._shared.close(STOP_SECONDS)
        await self.unstored.close()

    async def _end_stuck(self, runs: Sequence[Run]) -> None:
        """Ends runs that wait for the store, or in which something swallows their cancellation.

        An ending is stored before it is shown. If the store does not take it in time and another process is there, that
        process continues the run as after a crash, or has it already, so readers are shown no ending.
        """
        has_others = self.settings.continues and self._shared is not None and self._shared.records.has_others
        endings = {run: ending_of(run, run.stopped_by) for run in runs if not run.log.ended}
        storing = {asyncio.create_task(self._is_stored(run, ending)): run for run, ending in endings.items()}
        done = (await asyncio.wait(storing, timeout=CLOSE_SECONDS))[0] if storing else ()
        stored = {storing[task] for task in done if task.result()}
        for run, ending in endings.items():
            if has_others and run not in stored:
                run.log.cut()
                continue
            if run not in stored:
                self.executor.keep_ending(run, ending)
            self.executor.emit_ending(run, ending)
        for run in runs:
            run.abandon()

    async def _is_stored(self, run: Run, ending: Ending) -> bool:
        """Stores an ending. Returns whether readers may be shown it, since it is stored or the run is not."""
        try:
            return self.records is None or run.record is None or await self.records.end(run.record, ending)
        except HoloDeckError as error:
            log.warning("the end of run %s could not be stored: %s", run.run_id, error.message)
        except Exception:  # a bug of the store: it must not keep the server from stopping
            log.exception("the end of run %s could not be stored", run.run_id)
        return False

    def _shutdown_of(self, run: Run) -> ShuttingDown:
        """The error of a run that the server ends when it stops. It says how to continue, if its message is kept."""
        has_begun = run.state is not RunState.QUEUED and not run.request.throw_away
        kept = has_begun and self.records is not None and self.records.outlives_process
        then = " When it is back, a new message continues the conversation." if kept else ""
        return ShuttingDown(f"The server is shutting down.{then}")

    def _left_to_others(self) -> dict[Run, Coroutine[Any, Any, None]]:
        """The runs that are left to another process, with the work that does it."""
        if self.records is None:
            return {}
        return {run: hand_over(run, self.records) for run in self.active if self._is_left(run)}

    def _is_left(self, run: Run) -> bool:
        return self.settings.continues and may_be_handed_over(run, self.records, is_waiting=run in self._waiting)

    def stop_all(self, why: HoloDeckError, *, also_queued: bool = True) -> None:
        """A run that waits for its turn has written nothing, and cannot begin if another process has taken it over."""
        for run in self.active:
            if also_queued or run.is_first or run.state is not RunState.QUEUED:
                self.stop(run, why)

    def _part_before(self, request: RunRequest, session: OwnedId) -> Run | None:
        """The run that a resume under its own id continues. Raises InvalidRequest if any other run has the id.

        CopilotKit resumes this way. It is accepted once: from then on the id belongs to the continuation.
        """
        name = request.owner, request.run_id
        if name in self._beginning:
            raise RunExists(f"Run {request.run_id!r} is being started by another request.")
        run = self._runs.get(name)
        if run is None:
            return None
        check_continues(run, request, session, is_idle=not self.queue.busy(session))
        return run

    def adopt(self, run: Run) -> None:
        """Makes a run that ended in another process readable here, and replaces the older entry."""
        known = self._runs.get((run.owner, run.run_id))
        if known is not None and known in self.finished:
            self.forget(known)
        self._runs[run.owner, run.run_id] = run
        self._by_session.setdefault((run.owner, run.session_id), []).append(run)
        run.release()
        self.finished.add(run, self._by_session.get((run.owner, run.session_id), ()))

    def _refuse_at_end(self) -> None:
        if self.is_closing:
            raise ShuttingDown("The server is shutting down; try again in a moment.")

    def _refuse_behind(self, session_id: str, ahead: int) -> None:
        """Raises SessionBusy if the queue of the session is full, ShuttingDown if the server is closing."""
        self._refuse_at_end()
        if self.settings.when_busy is WhenBusy.REJECT and ahead:
            raise SessionBusy(f"Session {session_id!r} has a run in progress; wait for it or stop it.")
        if ahead > self.settings.max_queued:
            raise SessionBusy(
                f"Session {session_id!r} has {self.settings.max_queued} runs waiting; let them end first."
            )

    def _ended(self, run: Run, _task: "asyncio.Task[None]") -> None:
        """Cleans up when the task of a run ends.

        A task that was cancelled before its first step has not ended its run, so this does.
        """
        self._live.discard(run)  # first: a defect below must not keep a slot of `max_concurrent`
        self._waiting.discard(run)
        slot = run.slot
        try:
            if run.deadline is not None:
                run.deadline.cancel()
            if not run.log.ended:
                self.executor.end_at_once(run)
            if run.record is not None:
                self.executor.release_record(run.record)
            run.release()
            if self.knows(run):
                self.finished.add(run, self._by_session.get((run.owner, run.session_id), ()))
            else:  # `adopt` has replaced it
                self.forget(run)
        finally:
            if slot is not None:  # last: the next run of the session reads this one's record
                slot.release()

    async def delete_session(self, session_id: str, *, owner: Owner) -> bool:
        """Deletes a session, and stops its runs. Returns whether it existed.

        If the store does not delete it, it keeps the rows of these runs, so their endings are kept for it as well.
        """
        unstored = self.unstored.of_session(session_id, owner=owner)
        records = {run: run.record for run in self.of_session(session_id, owner=owner) if not run.log.ended}
        self.forget_session(session_id, owner=owner)
        try:
            return await self.store.delete(session_id, owner=owner)
        except HoloDeckError:
            ended = [(record, run.log.ending or ending_of(run, None)) for run, record in records.items() if record]
            for record, ending in [*unstored, *ended]:
                self.unstored.keep(record, ending)
            raise

    def forget_session(self, session_id: str, *, owner: Owner) -> None:
        """Stops the runs of a session: clients can no longer read them, and nothing more of them is stored."""
        self.feeds.end((owner, session_id))
        self.unstored.drop_session(session_id, owner=owner)
        for run in self.of_session(session_id, owner=owner):
            self.stop(run)
            self.forget(run)
            if self.records is not None and run.record is not None:
                self.records.release(run.record)
                run.record = None

    async def remove(self, run: Run | RunRecord) -> None:
        """Deletes everything about a run that has ended. Its session keeps its messages.

        If the store does not delete it, it keeps the run's row, so an ending that is not stored yet is kept for it as well.
        """
        name = run.owner, run.run_id
        known, unstored = self._runs.get(name), self.unstored.kept.get(name)
        if known is not None:
            self.forget(known)
        self.unstored.drop(run.run_id, owner=run.owner)
        try:
            if self.records is not None:
                await self.records.remove(run.run_id, owner=run.owner)
        except HoloDeckError:
            if unstored is not None and unstored.ending is not None:
                self.unstored.keep(unstored, unstored.ending)
            raise

    def forget(self, run: Run) -> None:
        self.finished.discard(run)
        if self._runs.get((run.owner, run.run_id)) is run:
            del self._runs[run.owner, run.run_id]
        session = (run.owner, run.session_id)
        remaining = [other for other in self._by_session.get(session, ()) if other is not run]
        if remaining:
            self._by_session[session] = remaining
        else:
            self._by_session.pop(session, None)


class FinishedRuns:
    """Finished runs that can be read again: for a time, and within limits of their number and size."""

    def __init__(self, limits: RunSettings, unstored: Container[OwnedId], forget: Callable[[Run], None]) -> None:
        """Runs in `unstored` stay: only this process knows their endings. `forget` drops a run, also from here."""
        self._limits, self._unstored, self._forget = limits, unstored, forget
        self.until: dict[Run, float] = {}  # until when each can be read; the first to end comes first
        self.size = 0  # approximate bytes
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0  # when it rings. uvloop's handle of a timer that is due at once has no `when`

    def __contains__(self, run: Run) -> bool:
        return run in self.until

    def add(self, run: Run, same_session: Sequence[Run]) -> None:
        """Keeps the run to be read again, and drops the oldest finished runs beyond the limits."""
        limits = self._limits
        window = max(limits.replay_window, DETACHED_SECONDS) if run.request.detached else limits.replay_window
        self.until[run] = asyncio.get_running_loop().time() + window
        self._sweep_by(self.until[run])  # set first: if the code below fails, the run still expires
        run.size = run.log.size() + size_of_request(run.request)
        self.size += run.size
        if len(same_session) > limits.max_finished_of_session:
            for old in [each for each in same_session if each in self.until][: -limits.max_finished_of_session]:
                self._forget(old)
        while len(self.until) > limits.max_finished or self.size > limits.max_finished_bytes:
            self._forget(next(iter(self.until)))

    def discard(self, run: Run) -> None:
        if self.until.pop(run, None) is not None:
            self.size -= run.size

    def _sweep_by(self, when: float) -> None:
        """Sets the one timer for all finished runs: thousands would make every timer of the event loop slower."""
        if self._sweeper is None or self._sweep_at > when:
            if self._sweeper is not None:
                self._sweeper.cancel()
            self._sweep_at = when
            self._sweeper = asyncio.get_running_loop().call_at(when, self.sweep, context=_NO_REQUEST)

    def sweep(self) -> None:
        """Forgets the runs whose replay window is over."""
        now, self._sweeper = asyncio.get_running_loop().time(), None
        for run in [run for run, until in self.until.items() if until <= now]:
            if (run.owner, run.run_id) in self._unstored:
                self.until[run] = now + SWEEP_SECONDS
            else:
                self._forget(run)
        if self.until:
            self._sweep_by(min(self.until.values()) + SWEEP_SECONDS)
