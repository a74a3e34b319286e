"""Runs of processes before this one: those that a crash cut are taken up, those that ended can be read again.

A run that was cut goes on if that is safe and a reader comes back in time: a crash is then no more than a connection that
was cut. Otherwise it ends as `interrupted`. `recovery` decides what is left of a run; this acts on it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from holodeck.agent.loop import run as run_loop
from holodeck.core.events import ENDINGS, Ending, Event, MessagesReplaced, RunStarted, WarningRaised, failure
from holodeck.core.messages import Message, UserMessage
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.request import RunRequest
from holodeck.errors import HoloDeckError, RunInterrupted
from holodeck.runs.client_history import Change, context_of
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunKey, RunRecord, RunState, RunStore
from holodeck.runs.recovery import HOLE, log_of, remains_of, response_of
from holodeck.runs.runs import CertainEnding, Run, Runs
from holodeck.sessions.port import KEEP, SessionStore

log = logging.getLogger(__name__)

INTERRUPTED_TEXT = "The server was stopped in the middle of this run. The session has what is stored of it; ask again."
TAKEN_UP = "taken-up"  # the warning in the log of a run that goes on after a crash


class StoredRuns:
    def __init__(
        self,
        runs: Runs,
        store: SessionStore,
        records: RunStore | None,
        *,
        refusal: Callable[[RunRequest], HoloDeckError | None] = lambda _request: None,
    ) -> None:
        """`refusal` says why a run that was cut may not go on: its credential is no longer valid."""
        self._runs, self._store, self._records, self._refusal = runs, store, records, refusal

    # reading

    async def find(self, run_id: str, *, owner: Owner) -> Run:
        """The run, read from the store if this process has none of that id. RunNotFound."""
        found = self._runs.find(run_id, owner=owner)
        record = await self._records.find(run_id, owner=owner) if found is None and self._records is not None else None
        return self._runs.get(run_id, owner=owner) if record is None else await self._restored(record)

    async def session_of(self, run_id: str, *, owner: Owner) -> str | None:
        """The session of a run, also if its log is gone."""
        found: Run | RunRecord | None = self._runs.find(run_id, owner=owner)
        if found is None and self._records is not None:
            found = await self._records.find(run_id, owner=owner)
        return None if found is None else found.session_id

    async def ending_of(self, run_id: str, *, owner: Owner) -> Ending | None:
        """How a run ended, also if its log is gone."""
        found = self._runs.find(run_id, owner=owner)
        if found is not None:
            last = found.log.since(max(0, len(found.log) - 1)) if found.log.ended else ()
            return next((event for event in last if isinstance(event, Ending)), None)
        record = None if self._records is None else await self._records.find(run_id, owner=owner)
        return None if record is None else record.ending

    async def with_key(self, key: RunKey) -> Run | None:
        """The run that was started for this idempotency key, and the fingerprint of its request in its record."""
        if self._records is None or key.part:  # a resume under a run's own id is not the request that began the run
            return None
        record = await self._records.by_key(key.wire, key.name, owner=key.owner)
        return None if record is None else await self._restored(record)

    async def _restored(self, record: RunRecord) -> Run:
        """A run to be read again: from the copy of its log, or from its messages."""
        events, history, waiting = await self._left_of(record)
        found = self._runs.find(record.run_id, owner=record.owner)  # another request may have restored it meanwhile
        if found is not None or record.ending is None:
            return found or self._runs.get(record.run_id, owner=record.owner)
        if events and type(events[-1]) in ENDINGS:
            run = self._log_again(record, events, history)
        else:
            run = self._behind(record, events, history)
            run.is_rebuilt = not events
            closings = remains_of(record, events, None).closings if events else log_of(record, (*history, *waiting))
            _emit(run, (*closings, MessagesReplaced(tuple(history)), record.ending))
        run.state, run.finished_at = record.state, record.finished_at
        run.response = response_of(record, history)
        if not run.request.messages:  # they are stored once, in the session
            asked = tuple(each for each in history if isinstance(each, UserMessage) and each.run_id == record.run_id)
            run.request = msgspec.structs.replace(run.request, messages=asked)
        self._runs.adopt(run)
        return run

    async def _left_of(self, record: RunRecord) -> tuple[list[Event], Sequence[Message], Sequence[Message]]:
        """The copy of its log, its session's messages, and those of its step that waits."""
        events = [] if self._records is None else await self._records.events(record)
        stored = await self._store.read(record.session_id, owner=record.owner)
        if stored is None:
            return events, (), ()
        step = stored.pending if stored.pending is not None and stored.pending.run_id == record.run_id else None
        return events, stored.messages, () if step is None else (step.assistant, *step.results)

    def _log_again(self, record: RunRecord, events: Sequence[Event], history: Sequence[Message]) -> Run:
        """A run with these events; a snapshot shows the history as it is now, since copies are made without it."""
        run = _run_of(record, RunLog(self._runs.settings.max_log_events))
        _emit(run, [MessagesReplaced(tuple(history)) if type(each) is MessagesReplaced else each for each in events])
        return run

    def _behind(self, record: RunRecord, events: Sequence[Event], history: Sequence[Message]) -> Run:
        """A run that continues this log, which may be empty.

        Its event numbers start beyond all that the dead process may have sent.
        """
        run = _run_of(record, RunLog(self._runs.settings.max_log_events))
        run.earlier, run.first_number = self._log_again(record, events, history), HOLE
        run.earlier.log.cut()
        return run

    # taking up

    async def recover(self) -> int:
        """Takes up the runs that a process left without an ending; returns how many."""
        left = [] if self._records is None else await self._records.unfinished()
        by_session: dict[OwnedId, list[RunRecord]] = {}
        for record in left:
            by_session.setdefault((record.owner, record.session_id), []).append(record)
        await asyncio.gather(*map(self._recover_session, by_session.values()))
        return len(left)

    async def _recover_session(self, records: Sequence[RunRecord]) -> None:
        for record in records:
            try:
                await self._recover(record, may_go_on=record is records[-1] and record.recovered == 0)
            except Exception:  # one that cannot be read must not keep the others, nor the server, from starting
                log.exception("run %s cannot be recovered", record.run_id)
                await self._runs.end(_run_of(record, RunLog()), RunInterrupted(INTERRUPTED_TEXT))

    async def _recover(self, record: RunRecord, *, may_go_on: bool) -> None:
        """Stores what is left of a run, and ends it or lets it wait for a reader that wants it to go on."""
        events, history, _ = await self._left_of(record)
        stored = await self._store.read(record.session_id, owner=record.owner)
        remains = remains_of(record, events, stored, self._is_repeatable)
        refusal = self._refusal(record.request)
        may_go_on = may_go_on and not record.request.shortened and refusal is None
        goes_on = may_go_on and remains.is_certain and self._runs.settings.continues
        why = refusal or RunInterrupted(INTERRUPTED_TEXT)
        ending = None if goes_on else failure(record.run_id, record.session_id, why)
        conversation = await self._store.open(record.session_id, owner=record.owner, run_id=record.run_id, create=True)
        try:
            pending = None if remains.settles_step else KEEP
            await conversation.commit(remains.messages, pending, ending=ending)
            snapshot = MessagesReplaced(tuple(await conversation.history()))
        finally:
            conversation.close()
        run = self._behind(record, events, history)
        started = RunStarted(record.run_id, record.session_id, record.request.parent_run_id)
        _emit(run, (*(() if events else (started,)), *remains.closings, snapshot))
        if ending is None:
            await self._wait_to_go_on(run, remains.steps)
        else:
            run.emit(ending)
            self._runs.adopt(run)

    def _is_repeatable(self, name: str) -> bool:
        return any(schema.repeatable for schema in self._runs.agent.tools.schemas() if schema.name == name)

    async def _wait_to_go_on(self, run: Run, steps: int) -> None:
        if self._records is not None and run.record is not None:
            await self._records.take_up(run.record)
            self._records.follow(run.record, run.log)
        run.state, run.wanted = RunState.RUNNING, asyncio.Event()
        if run.request.detached:
            run.wanted.set()
        self._runs.launch(run, self._go_on(run, run.wanted, steps))

    async def _go_on(self, run: Run, wanted: asyncio.Event, steps: int) -> None:
        """Waits for a reader, then goes on where the run was cut."""
        async with CertainEnding(self._runs, run):
            try:
                async with asyncio.timeout(self._runs.settings.detach_grace):
                    await wanted.wait()
            except TimeoutError:
                raise RunInterrupted(INTERRUPTED_TEXT) from None
            finally:
                run.wanted = None
            async with self._runs.queue.take((run.owner, run.session_id)):
                run.emit(WarningRaised(TAKEN_UP, "The server was restarted in the middle of this run; it goes on."))
                run.conversation = await self._runs.open(run)
                try:
                    context = context_of(
                        run.request, Change(), run.conversation, run.session_id, why_stopped=lambda: run.stopped_by
                    )
                    context = replace(context, steps_before=steps, client_ids=None, resume=())
                    run.response = await run_loop(self._runs.agent, context, run.emit)
                finally:
                    run.conversation.close()


def _run_of(record: RunRecord, run_log: RunLog) -> Run:
    return Run(
        request=record.request,
        run_id=record.run_id,
        session_id=record.session_id,
        owner=record.owner,
        log=run_log,
        created_at=record.created_at,
        fingerprint=record.fingerprint,
        record=record,
    )


def _emit(run: Run, events: Sequence[Event]) -> None:
    for event in events:
        run.emit(event)
