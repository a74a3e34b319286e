"""Runs belong to the server, not to a connection: `Runs` starts them, attaches readers, and stops them on request.

A run without readers continues for `detach_grace` seconds, in which a reader may reconnect; then it is cancelled. A
finished run can be read again for `replay_window` seconds. This module knows no wire: readers get events.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import Any, TypeAlias

import msgspec

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run_once
from holodeck.agent.pending import decide
from holodeck.agent.tool_calls import server_tools
from holodeck.core.events import Ending, Observer, RunStarted
from holodeck.core.ids import new_ulid
from holodeck.core.messages import Message, PendingStep, ToolMessage
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.core.zones import is_zone, local_zone
from holodeck.errors import (
    HoloDeckError,
    InternalError,
    RunInterrupted,
    RunNotFound,
    RunTimeout,
    SessionBusy,
    ShuttingDown,
    StoreUnavailable,
)
from holodeck.runs.branches import check_head
from holodeck.runs.client_history import (
    Change,
    ClientHistory,
    answers_step,
    change_of,
    first_of_use,
    results_for,
)
from holodeck.runs.handover import hand_over, may_be_handed_over
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunExists, RunKey, RunRecord, RunResult, RunState, RunStore, SharedRunStore
from holodeck.runs.resumed_parts import answered_with, check_continues
from holodeck.runs.run import Run, RunMeter, SessionFeeds, SessionQueue, ending_of, kept_of, size_of_request
from holodeck.runs.run_settings import RunSettings, WhenBusy
from holodeck.runs.shared_entry import SharedEntry
from holodeck.runs.unstored_endings import UnstoredEndings
from holodeck.sessions.port import Conversation, SessionStore
from holodeck.sessions.transcript import Transcript

log = logging.getLogger(__name__)

DETACHED_SECONDS = 600.0  # minimum replay window of a run that continued without readers
SWEEP_SECONDS = 0.25  # resolution of the expiry timer: runs that expire within this time are removed together
STOP_SECONDS = 5.0  # for a run to end after it was cancelled, when the server stops
AGAIN_SECONDS = 1.0  # until a run that waits for its turn asks a store again that cannot be used

_NO_REQUEST = Context()  # for timers: a copy of the current context would keep the request alive

PrepareRun: TypeAlias = Callable[[Run], Awaitable[AgentContext]]
"""Waits until a run may begin, opens its conversation, and returns the loop's inputs."""


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
        self._beginning: set[OwnedId] = set()  # ids of runs that are being stored in a store shared by processes
        self._live: set[Run] = set()
        self._waiting: set[Run] = set()  # live runs that a crash interrupted and that no reader has reconnected to
        self._by_session: dict[OwnedId, list[Run]] = {}
        self._finished: dict[Run, float] = {}  # until when each can be read; the first to end comes first
        self._finished_bytes = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0  # when it rings. uvloop's handle of a timer that is due at once has no `when`
        self.feeds: SessionFeeds[Run] = SessionFeeds()
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

    async def start(
        self,
        request: RunRequest,
        *,
        key: RunKey | None = None,
        fingerprint: bytes = b"",
        meter: RunMeter | None = None,
    ) -> Run:
        """Starts a run. Its id must be new; `Idempotency` finds the run of a duplicate request.

        `key` is the request's idempotency key, which is stored with the run. `meter` counts what the run spends.
        Raises RunExists if another process has started the same run.
        """
        self._refuse_at_end()
        owner = request.owner
        session_id = request.session_id or new_ulid()
        session = (owner, session_id)
        earlier = self._part_before(request, session)
        self._refuse_behind(session_id, self.queue.waiting(session))
        if request.resume and not self.queue.busy(session):  # refuses an answer to nothing before the first byte
            stored = await self.store.read(session_id, owner=owner, last=1)
            decide(None if stored is None else stored.pending, request.resume, ())
            self._refuse_behind(session_id, self.queue.waiting(session))  # another request may have come meanwhile
            earlier = self._part_before(request, session) or earlier  # it may be past its replay window by now
        if earlier is not None:
            request = msgspec.structs.replace(request, answered=answered_with(earlier, fingerprint))
        others = self._by_session.get(session, ())
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
            meter=meter,
        )
        for other in others:
            self.give_up(other)
        self._register(run, key)
        run.slot = self.queue.take(session)
        if self._shared is not None and run.record is not None:
            self._beginning.add((owner, run.run_id))
            try:
                await self._shared.begin(run, run.record)
            finally:
                self._beginning.discard((owner, run.run_id))
        self.launch(run, self._prepared)
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
        run.task = loop.create_task(self._execute(run, prepare), name=f"run {run.run_id}")
        run.task.add_done_callback(partial(self._ended, run))

    def _register(self, run: Run, key: RunKey | None) -> None:
        if self.records is None or run.request.throw_away:
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
        self.records.follow(run.record, run.log, run.first_number)

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
        run.readers += 1
        run.returning += returns
        if run.reader_arrived is not None:
            run.reader_arrived.set()
            self._waiting.discard(run)
        if run.grace is not None:
            run.grace.cancel()
            run.grace = None

    def detach(self, run: Run, *, returns: bool = False) -> None:
        run.readers -= 1
        run.returning -= returns
        if not run.is_remote:
            self._end_unless_read(run)

    def note_reader_elsewhere(self, run: Run) -> None:
        """Restarts the grace period of a run: another process has a reader that follows it."""
        if run.reader_arrived is not None:
            run.reader_arrived.set()
            self._waiting.discard(run)
        if run.grace is not None:
            run.grace.cancel()
        self._end_unless_read(run)

    def give_up(self, run: Run) -> None:
        """Ends a run that waits for a reader after a crash: the user has continued without it."""
        if run.reader_arrived is not None and not run.log.ended:
            self.stop(run, RunInterrupted("The conversation has continued without this run."))

    def _end_unless_read(self, run: Run) -> None:
        if run.readers == 0 and not run.log.ended and not run.request.detached:
            loop = asyncio.get_running_loop()
            run.grace = loop.call_later(self.settings.detach_grace, self.stop, run)

    async def keep_going(self, run: Run) -> None:
        """Lets the run continue to its end without readers, also after a crash. This is stored when it returns."""
        if self.records is not None and run.record is not None and not run.log.ended and not run.is_remote:
            request = msgspec.structs.replace(run.record.request, detached=True)
            run.record = msgspec.structs.replace(run.record, request=request)
            await self.records.store_request(run.record)
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
        why = ShuttingDown("The server is shutting down.")
        for run in self._waiting:
            if not self._is_left(run):
                self.stop(run, why)
        tasks = {run.task for run in self.active if run.task is not None and run not in self._waiting}
        if tasks:
            await asyncio.wait(tasks, timeout=drain)
        left = self._left_to_others()
        leaving = [asyncio.create_task(each) for each in left.values()]
        for run in self.active:
            if run not in left:
                self.stop(run, why)
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
        process continues the run as after a crash, so readers are shown no ending.
        """
        has_others = self.settings.continues and self._shared is not None and self._shared.records.has_others
        endings = {run: ending_of(run, run.stopped_by) for run in runs if not run.log.ended}
        for run, ending in endings.items():
            self.keep_ending(run, ending)
        if endings:
            await self.unstored.close()
        for run, ending in endings.items():
            if has_others and (run.owner, run.run_id) in self.unstored.kept:
                run.log.cut()
            else:
                self._emit_ending(run, ending)
        for run in runs:
            if run.abandoned is not None and not run.abandoned.done():
                run.abandoned.set_result(None)

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
        if known is not None and known in self._finished:
            self._forget(known)
        self._runs[run.owner, run.run_id] = run
        self._by_session.setdefault((run.owner, run.session_id), []).append(run)
        run.release()
        self._keep_finished(run)

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

    async def _execute(self, run: Run, prepare: PrepareRun) -> None:
        """The task of a run. However it ends, the log gets its ending."""
        try:
            try:
                response = await run_once(self.agent, await prepare(run), run.emit)
                run.result = RunResult(response.final_response, response.executions, response.output)
            finally:
                if run.conversation is not None:
                    run.conversation.close()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  a store that breaks must not leave readers waiting
            await self.end_after(run, error)
        finally:
            if run.slot is not None:
                run.slot.release()
                run.slot = None

    async def _prepared(self, run: Run) -> AgentContext:
        """Prepares a run for its first step. From then on it keeps only the part of its request that it still needs."""
        await self.wait_for_turn(run)
        run.state = RunState.RUNNING
        change, run.conversation = await self._opened(run)
        request, new = run.request, change.append
        run.request = msgspec.structs.replace(request, messages=tuple(new[first_of_use(new) :]))
        await self._register_compared(run, request, run.conversation.pending)
        return self.context_of(run, request, change, run.conversation)

    async def wait_for_turn(self, run: Run) -> None:
        """Waits until it is the run's turn on its session: in this process, or among all that share the store."""
        if self._shared is not None and run.record is not None:
            if not run.is_first:
                await take_turn(run.record, self._shared.records)
        elif run.slot is not None and not run.slot.is_free:
            await self.store_record(run)
            await run.slot.__aenter__()

    async def _opened(self, run: Run) -> tuple[Change, Conversation]:
        """Opens the conversation, rewound to the client's position if it went back. Returns the new messages with it.

        The store is rewound in the transaction that stores the new messages.
        """
        request = run.request
        conversation = Transcript() if request.throw_away else await self.open(run)
        is_empty = not conversation.messages and conversation.pending is None
        run.is_new_session = is_empty and request.session_id is not None
        try:
            if request.follows is not None:
                check_head(request.follows, conversation)
            change = await self._change(run, conversation)
            await self._join_chain(run, conversation.pending)
            if change.rewind_before is not None:
                await conversation.rewind(change.rewind_before)
        except BaseException:
            conversation.close()
            raise
        return change, conversation

    async def _change(self, run: Run, conversation: Conversation) -> Change:
        """The change that the request makes to the conversation.

        Messages that the client cannot know never cause a rewind.
        """
        request = run.request
        stored = await conversation.history() if request.keeps_history or request.rewind_to else conversation.messages
        change = partial(
            change_of,
            request,
            stored,
            conversation.pending,
            server_tools=self.server_tools() if request.client_tools else (),
            unknown=ClientHistory.ADOPT if request.throw_away else self.settings.client_history,
            unseen=run.behind,
        )
        found = change()
        if found.rewind_before is None or request.rewind_to is not None:
            return found
        return change(elsewhere=await self._of_other_wires(run, stored))

    async def _of_other_wires(self, run: Run, stored: Sequence[Message]) -> frozenset[str]:
        """The runs since the last one of a client like this run's. Each run shows such clients the whole history.

        AG-UI's terminal keeps no history, so it is not like a page. The runs of a local terminal have no record.
        """
        if self.records is None:
            return frozenset()
        records = await self.records.runs_of(owner=run.owner, session_id=run.session_id)
        shown = {record.run_id: (record.wire, record.request.keeps_history) for record in records}
        own = run.request.wire, run.request.keeps_history
        others: set[str] = set()
        for message in reversed(stored):
            if not message.run_id or shown.get(message.run_id) == own:
                break
            others.add(message.run_id)
        return frozenset(others)

    async def _join_chain(self, run: Run, pending: PendingStep | None) -> None:
        """Adds a run that answers what another one waits for to the chain of that run."""
        waited = "" if pending is None else pending.run_id
        if not waited or (run.request.parent_run_id != waited and not answers_step(run.request, pending)):
            return
        if waited == run.run_id:  # resumed under its own id
            run.root = run.root if run.earlier is None else run.earlier.root
            return
        if run.request.parent_run_id is None:
            run.request = msgspec.structs.replace(run.request, parent_run_id=waited)
        known: Run | RunRecord | None = self._runs.get((run.owner, waited))
        if known is None and self.records is not None:
            known = await self.records.find(waited, owner=run.owner)
        run.root = waited if known is None else known.root or waited

    async def open(self, run: Run) -> Conversation:
        shown = self.agent.max_messages
        return await self.store.open(run.session_id, owner=run.owner, run_id=run.run_id, last=shown, create=True)

    async def store_record(self, run: Run) -> None:
        """Stores the record of this run. A shared store has it already, from the run's start."""
        if self.records is not None and self._shared is None and run.record is not None:
            await self.records.begin(run.record)

    async def _register_compared(self, run: Run, request: RunRequest, pending: PendingStep | None) -> None:
        """Registers the record again, now that the request was compared with the conversation.

        It has the new messages only: the session has the rest, or the server does not take it from a client.
        """
        if self.records is None or run.record is None:
            return
        kept = msgspec.structs.replace(
            run.record.request,
            messages=(*results_for(pending, request.messages), *run.request.messages),
            compared=True,
            parent_run_id=request.parent_run_id,
            new_session=run.is_new_session,
        )
        root = "" if run.root == run.run_id else run.root
        run.record = msgspec.structs.replace(run.record, request=kept, root=root)
        self.records.register(run.record)
        if pending is not None:  # then something is shown before the user's message is stored
            await self.store_record(run)

    def context_of(
        self, run: Run, request: RunRequest, change: Change, conversation: Conversation, steps_before: int | None = None
    ) -> AgentContext:
        """The loop's inputs. `steps_before` is how many steps were shown before a crash."""
        knows_ids = request.keeps_history and steps_before is None
        zone = request.properties.get("timezone")  # the client's word for it
        return AgentContext(
            conversation=conversation,
            input=change.append,
            history_note=change.note,
            is_new_session=run.is_new_session,
            client_results=[message for message in request.messages if isinstance(message, ToolMessage)],
            resume=request.resume,
            client_tools=request.client_tools,
            notes=request.context,
            files=request.files,
            options=request.options,
            warnings=request.warnings,
            state=request.state,
            client_ids=frozenset([message.id for message in request.messages]) if knows_ids else None,
            run_id=run.run_id,
            session_id=run.session_id,
            parent_run_id=request.parent_run_id,
            user_id=run.owner.user,
            tenant=run.owner.tenant,
            timezone=zone if isinstance(zone, str) and is_zone(zone) else local_zone(),
            steps_before=steps_before,
            why_stopped=lambda: run.stopped_by,
            is_over=lambda: run.log.ended,
            not_stored=partial(self.keep_ending, run),
            reserve=None if run.meter is None else run.meter.reserve,
        )

    def server_tools(self) -> set[str]:
        """The names that a client's own tools cannot have."""
        return server_tools(self.agent)

    def _ended(self, run: Run, _task: "asyncio.Task[None]") -> None:
        """Cleans up when the task of a run ends.

        A task that was cancelled before its first step has neither ended its run nor released its slot, so this does.
        """
        self._live.discard(run)  # first: a defect below must not keep a slot of `max_concurrent`
        self._waiting.discard(run)
        if run.slot is not None:
            run.slot.release()
        if run.deadline is not None:
            run.deadline.cancel()
        if not run.log.ended:
            self._end_without_store(run)
        if run.record is not None:
            self.release_record(run.record)
        run.release()
        if self.knows(run):
            self._keep_finished(run)
        else:  # `adopt` has replaced it
            self._forget(run)

    def _keep_finished(self, run: Run) -> None:
        """Keeps the run to be read again, and drops the oldest finished runs beyond the limits."""
        limits = self.settings
        window = max(limits.replay_window, DETACHED_SECONDS) if run.request.detached else limits.replay_window
        self._finished[run] = asyncio.get_running_loop().time() + window
        self._sweep_by(self._finished[run])  # set first: if the code below fails, the run still expires
        run.size = run.log.size() + size_of_request(run.request)
        self._finished_bytes += run.size
        same_session = self._by_session.get((run.owner, run.session_id), ())
        if len(same_session) > limits.max_finished_of_session:
            for old in [each for each in same_session if each in self._finished][: -limits.max_finished_of_session]:
                self._forget(old)
        while len(self._finished) > limits.max_finished or self._finished_bytes > limits.max_finished_bytes:
            self._forget(next(iter(self._finished)))

    def _sweep_by(self, when: float) -> None:
        """Sets the one timer for all finished runs: thousands would make every timer of the event loop slower."""
        if self._sweeper is None or self._sweep_at > when:
            if self._sweeper is not None:
                self._sweeper.cancel()
            self._sweep_at = when
            self._sweeper = asyncio.get_running_loop().call_at(when, self._sweep, context=_NO_REQUEST)

    def _sweep(self) -> None:
        """Forgets the runs whose replay window is over, except those whose endings only this process knows."""
        now, self._sweeper = asyncio.get_running_loop().time(), None
        for run in [run for run, until in self._finished.items() if until <= now]:
            if (run.owner, run.run_id) in self.unstored.kept:
                self._finished[run] = now + SWEEP_SECONDS
            else:
                self._forget(run)
        if self._finished:
            self._sweep_by(min(self._finished.values()) + SWEEP_SECONDS)

    async def end(self, run: Run, error: HoloDeckError | None) -> None:
        """Ends a run that did not end itself. If the store still works, the ending is stored before it is shown."""
        if run.log.ended:
            return
        ending = ending_of(run, error)
        try:
            if self.records is not None and run.record is not None:
                await self.records.end(run.record, ending)
        except HoloDeckError as failed:
            log.warning("the end of run %s could not be stored: %s", run.run_id, failed.message)
            self.keep_ending(run, ending)
        except BaseException:  # cancelled, or a bug of the store: readers get the ending now, the store later
            self.keep_ending(run, ending)
            raise
        finally:
            if not run.log.ended:
                self._emit_ending(run, ending)

    async def end_after(self, run: Run, error: BaseException) -> None:
        """Ends a run with the exception that its task raised, whatever it is."""
        if isinstance(error, asyncio.CancelledError):
            await self.end(run, run.stopped_by)
        elif isinstance(error, HoloDeckError):
            await self.end(run, error)
        else:
            log.error("run %s failed with an unexpected error", run.run_id, exc_info=error)
            await self.end(run, InternalError("The run failed because of an internal error; see the server's log."))

    def keep_ending(self, run: Run, ending: Ending) -> None:
        """Keeps an ending that is shown although the store has not taken it, until it does."""
        if run.record is not None:
            self.unstored.keep(run.record, ending)

    def release_record(self, record: RunRecord) -> None:
        """Releases the record of a run that has ended. One whose ending is not stored yet is released after that."""
        if self.records is not None and (record.owner, record.run_id) not in self.unstored.kept:
            self.records.release(record)

    def _end_without_store(self, run: Run) -> None:
        """Shows the ending of a run that does not end itself, at once. It is stored afterwards."""
        ending = ending_of(run, run.stopped_by)
        if not run.log.ended:
            self.keep_ending(run, ending)
        self._emit_ending(run, ending)

    def _emit_ending(self, run: Run, ending: Ending) -> None:
        if len(run.log) == 0 and run.earlier is None:
            run.emit(RunStarted(run.run_id, run.session_id))
        run.emit(ending)

    def forget_session(self, session_id: str, *, owner: Owner) -> None:
        """Stops the runs of a session: clients can no longer read them, and nothing more of them is stored."""
        self.feeds.end((owner, session_id))
        self.unstored.drop_session(session_id, owner=owner)
        for run in self.of_session(session_id, owner=owner):
            self.stop(run)
            self._forget(run)
            if self.records is not None and run.record is not None:
                self.records.release(run.record)
                run.record = None

    async def remove(self, run: Run) -> None:
        """Deletes everything about a run that has ended. Its session keeps its messages."""
        self._forget(run)
        self.unstored.drop(run.run_id, owner=run.owner)
        if self.records is not None:
            await self.records.remove(run.run_id, owner=run.owner)

    def _forget(self, run: Run) -> None:
        if self._finished.pop(run, None) is not None:
            self._finished_bytes -= run.size
        if self._runs.get((run.owner, run.run_id)) is run:
            del self._runs[run.owner, run.run_id]
        session = (run.owner, run.session_id)
        remaining = [other for other in self._by_session.get(session, ()) if other is not run]
        if remaining:
            self._by_session[session] = remaining
        else:
            self._by_session.pop(session, None)


async def take_turn(record: RunRecord, records: SharedRunStore) -> None:
    """Waits until it is a run's turn among the runs of all processes.

    The store has the message already, so the run also waits for a store that cannot be used at the moment.
    """
    while True:
        try:
            return await records.turn(record)
        except StoreUnavailable as error:
            log.info("run %s still waits for its turn: %s", record.run_id, error.message)
            await asyncio.sleep(AGAIN_SECONDS)
