"""Finds runs wherever they are: in this process, in another one that shares the store, or in the store alone.

A run that has ended is made readable again from the copy of its log, or from its messages. `interrupted_runs` takes over
those that a crash interrupted.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import NamedTuple

import msgspec

from holodeck.core.events import ENDINGS, Ending, RunFailed, says_not_stored
from holodeck.core.ids import is_valid_id
from holodeck.core.messages import Message, UserMessage, can_be_answered
from holodeck.core.owner import OwnedId, Owner
from holodeck.errors import (
    HoloDeckError,
    RunInterrupted,
    RunNotFound,
    ShuttingDown,
    StoreUnavailable,
)
from holodeck.runs.port import RunRecord, RunState, RunStore, SharedRunStore
from holodeck.runs.recovery import correction, log_of, remains_of, result_of, shown_ending
from holodeck.runs.remote_runs import Pieces, RemoteRuns, flattened, part_after_crash, parts_of
from holodeck.runs.resumed_parts import is_continued_elsewhere, lacks_part
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs
from holodeck.runs.session_news import FEED_RUNS, Announce, SessionNews
from holodeck.sessions.port import SessionStore, StoredSession

log = logging.getLogger(__name__)

CUT = (RunInterrupted.code, ShuttingDown.code)  # the server ended, not the agent
STOP_SECONDS = 5.0  # for a run to end after a client has stopped it, before the client is answered


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
    def __init__(self, runs: Runs, store: SessionStore, records: RunStore | None) -> None:
        self._runs, self._store, self._records = runs, store, records
        self.remote = RemoteRuns(store, records, runs.settings) if isinstance(records, SharedRunStore) else None
        self._news = SessionNews(records, self.restored) if isinstance(records, SharedRunStore) else None

    async def close(self) -> None:
        """Ends the reading of runs of other processes."""
        if self.remote is not None:
            await self.remote.close()

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

    async def last_of_chain(self, root: str, *, owner: Owner) -> Run:
        """The newest run of a task as other protocols mean it: a run, and those that answered its questions.

        The task's id is that of the first run, `root`. Raises RunNotFound.
        """
        run = await self.find_settled(root, owner=owner)
        newest = [] if self._records is None else await self._records.runs_of(owner=owner, root=root, limit=1)
        if newest and newest[0].run_id != root:
            run = await self.find_settled(newest[0].run_id, owner=owner)
        others = reversed(self._runs.of_session(run.session_id, owner=owner))
        # A run that started a moment ago has not joined the chain yet.
        return next((each for each in others if each.request.parent_run_id == run.run_id and each is not run), run)

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

    def announced(self, session: OwnedId, call: Announce) -> AbstractAsyncContextManager[None]:
        """Calls `call` with each run of a session that another process starts, until the block ends. See `Announce`."""
        return nullcontext() if self._news is None else self._news.announced(session, call)

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

    async def elsewhere(self, wire: str, owner: Owner, fingerprint: bytes, seconds: float) -> Run | None:
        """The newest run of the same request in another process, or in this one before a crash.

        One that has not ended, or did so in the last seconds.
        """
        if self._records is None:
            return None
        for found in reversed(await self._records.equal_runs(fingerprint, owner=owner, seconds=seconds)):
            record = self._runs.unstored.seen(found)
            if record.wire == wire and not says_not_stored(record.ending):
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
            run = part_after_crash(record, pieces, history, self._runs.settings.max_log_events)
            run.is_rebuilt = not events
            closings = remains_of(record, events, None).closings if events else log_of(record, (*history, *waiting))
            ending = shown_ending(record, record.ending, (*history, *waiting))
            for event in (*closings, correction(events, history), ending):
                run.emit(event)
        run.end_as(record, result_of(record, history))
        if run.finished_at is not None:
            run.ended = run.begun + (run.finished_at - run.created_at).total_seconds()
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


def _joined(stored: Sequence[RunRecord], here: Sequence[str]) -> list[str]:
    ids = [each.run_id for each in stored]
    return [*ids, *(run_id for run_id in here if run_id not in ids)]
