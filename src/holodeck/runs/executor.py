"""Executes runs: prepares what the loop needs, calls it, and makes sure that the log gets an ending.

A run waits for its turn, opens its conversation, and compares its request with what is stored there. Whatever the loop
or the store raises becomes the run's ending, which is stored before it is shown, if the store takes it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run_once
from holodeck.agent.tool_calls import server_tools
from holodeck.core.events import Ending, RunStarted
from holodeck.core.messages import Message, PendingStep, ToolMessage
from holodeck.core.owner import OwnedId
from holodeck.core.request import RunRequest
from holodeck.core.zones import is_zone, local_zone
from holodeck.errors import HoloDeckError, InternalError, StoreUnavailable
from holodeck.runs.branches import check_head, check_waits_for_nothing
from holodeck.runs.client_history import (
    Change,
    ClientHistory,
    answers_step,
    change_of,
    first_of_use,
    results_for,
)
from holodeck.runs.port import RunRecord, RunResult, RunState, RunStore, SharedRunStore
from holodeck.runs.recorded_transcript import RecordedTranscript
from holodeck.runs.run import Run, ending_of, kept_after_end
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.unstored_endings import UnstoredEndings
from holodeck.sessions.port import Conversation, SessionStore
from holodeck.sessions.transcript import Transcript

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0  # until a run that waits for its turn asks a store again that cannot be used

PrepareRun: TypeAlias = Callable[[Run], Awaitable[AgentContext]]
"""Waits until a run may begin, opens its conversation, and returns the loop's inputs."""


class RunExecutor:
    def __init__(
        self,
        agent: AgentDefinition,
        store: SessionStore,
        records: RunStore | None,
        settings: RunSettings,
        *,
        unstored: UnstoredEndings,
        find: Callable[[OwnedId], Run | None],
    ) -> None:
        """`find` returns the run of this process with that id."""
        self.agent, self._store, self._records, self._settings = agent, store, records, settings
        self._shared = records if isinstance(records, SharedRunStore) else None
        self._unstored, self._find = unstored, find

    async def execute(self, run: Run, prepare: PrepareRun) -> None:
        """The task of a run. However it ends, the log gets its ending."""
        try:
            try:
                response = await run_once(self.agent, await prepare(run), run.emit)
                run.result = RunResult(response.final_response, response.executions, response.output)
            finally:
                if run.conversation is not None:
                    run.conversation.close()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  a store that breaks must not leave readers waiting
            await self._end_after(run, error)

    async def prepare(self, run: Run) -> AgentContext:
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
                await take_turn(run.record, self._shared)
        elif run.slot is not None and not run.slot.is_free:
            await self._store_record(run)
            await run.slot.__aenter__()

    async def _opened(self, run: Run) -> tuple[Change, Conversation]:
        """Opens the conversation, rewound to the client's position if it went back. Returns the new messages with it.

        The store is rewound in the transaction that stores the new messages.
        """
        request = run.request
        conversation = self._without_session(run) if request.throw_away else await self.open(run)
        is_empty = not conversation.messages and conversation.pending is None
        run.is_new_session = is_empty and request.session_id is not None and not request.throw_away
        try:
            if request.follows is not None:
                check_head(request.follows, conversation)
            if not (request.messages or request.resume):
                check_waits_for_nothing(conversation.pending)
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

        Messages that the client cannot know never cause a rewind. Nor do those of a run in progress that a client reads:
        another one, on a second device. A client that edits its message has stopped reading the answer to it.
        """
        request = run.request
        stored = await conversation.history() if request.keeps_history or request.rewind_to else conversation.messages
        change = partial(
            change_of,
            request,
            stored,
            conversation.pending,
            server_tools=server_tools(self.agent) if request.client_tools else (),
            unknown=ClientHistory.ADOPT if request.throw_away else self._settings.client_history,
            unseen=run.behind,
        )
        found = change()
        if found.rewind_before is None or request.rewind_to is not None:
            return found
        return change(elsewhere=run.watched | await self._of_other_wires(run, stored))

    async def _of_other_wires(self, run: Run, stored: Sequence[Message]) -> frozenset[str]:
        """The runs since the last one of a client like this run's. Each run shows such clients the whole history.

        AG-UI's terminal keeps no history, so it is not like a page. The runs of a local terminal have no record.
        """
        if self._records is None:
            return frozenset()
        records = await self._records.runs_of(owner=run.owner, session_id=run.session_id)
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
        known: Run | RunRecord | None = self._find((run.owner, waited))
        if known is None and self._records is not None:
            known = await self._records.find(waited, owner=run.owner)
        run.root = waited if known is None else known.root or waited

    async def open(self, run: Run) -> Conversation:
        shown = self.agent.max_messages
        return await self._store.open(run.session_id, owner=run.owner, run_id=run.run_id, last=shown, create=True)

    def _without_session(self, run: Run) -> Conversation:
        if self._records is None or run.record is None:
            return Transcript()
        return RecordedTranscript(run, self._records, is_begun=self._shared is not None)

    async def _store_record(self, run: Run) -> None:
        """Stores the record of this run. A shared store has it already, from the run's start."""
        if self._records is not None and self._shared is None and run.record is not None:
            await self._records.begin(run.record)

    async def _register_compared(self, run: Run, request: RunRequest, pending: PendingStep | None) -> None:
        """Registers the record again, now that the request was compared with the conversation.

        It has the new messages only: the session has the rest, or the server does not take it from a client.
        """
        if self._records is None or run.record is None or request.throw_away:
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
        self._records.register(run.record)
        if pending is not None:  # then something is shown before the user's message is stored
            await self._store_record(run)

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

    async def end(self, run: Run, error: HoloDeckError | None) -> None:
        """Ends a run that did not end itself. If the store still works, the ending is stored before it is shown."""
        if run.log.ended:
            return
        ending = ending_of(run, error)
        try:
            if self._records is not None and run.record is not None:
                await self._records.end(run.record, ending)
        except HoloDeckError as failed:
            log.warning("the end of run %s could not be stored: %s", run.run_id, failed.message)
            self.keep_ending(run, ending)
        except BaseException:  # cancelled, or a bug of the store: readers get the ending now, the store later
            self.keep_ending(run, ending)
            raise
        finally:
            if not run.log.ended:
                self.emit_ending(run, ending)

    async def _end_after(self, run: Run, error: BaseException) -> None:
        """Ends a run with the exception that its task raised, whatever it is."""
        if isinstance(error, asyncio.CancelledError):
            await self.end(run, run.stopped_by)
        elif isinstance(error, HoloDeckError):
            await self.end(run, error)
        else:
            log.error("run %s failed with an unexpected error", run.run_id, exc_info=error)
            await self.end(run, InternalError("The run failed because of an internal error; see the server's log."))

    def keep_ending(self, run: Run, ending: Ending) -> None:
        """Keeps an ending that is shown although the store has not taken it, until it does.

        Without the run's messages: those of thousands of runs would fill the memory while the store is away.
        """
        if run.record is not None and self._records is not None and self._records.outlives_process:
            request = kept_after_end(run.record.request)
            run.record = msgspec.structs.replace(run.record, request=request)
            self._records.register(run.record)
            self._unstored.keep(run.record, ending)

    def release_record(self, record: RunRecord) -> None:
        """Releases the record of a run that has ended. One whose ending is not stored yet is released after that."""
        if self._records is not None and (record.owner, record.run_id) not in self._unstored.kept:
            self._records.release(record)

    def end_at_once(self, run: Run) -> None:
        """Shows the ending of a run that does not end itself, at once. It is stored afterwards."""
        ending = ending_of(run, run.stopped_by)
        self.keep_ending(run, ending)
        self.emit_ending(run, ending)

    def emit_ending(self, run: Run, ending: Ending) -> None:
        if len(run.log) == 0 and run.earlier is None:
            run.emit(RunStarted(run.run_id, run.session_id))
        run.emit(ending)


async def take_turn(record: RunRecord, records: SharedRunStore) -> None:
    """Waits until it is a run's turn among the runs of all processes.

    The store has the message already, so the run also waits for a store that cannot be used at the moment.
    """
    is_logged = False
    while True:
        try:
            return await records.turn(record)
        except StoreUnavailable as error:
            if not is_logged:
                log.info("run %s still waits for its turn: %s", record.run_id, error.message)
            is_logged = True
            await asyncio.sleep(AGAIN_SECONDS)
