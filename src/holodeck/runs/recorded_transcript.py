"""The conversation of a run without a session, whose request may come again: the store has the run's row, no message.

The client has the messages, and sends all of them with each request. The row has the idempotency key, whether the run was
about to call tools, and its ending. That is enough for a duplicate of the request to start no second run, in any process
and after a crash.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep
from holodeck.errors import LostClaim, SessionDeleted
from holodeck.runs.port import Begun, RunRecord, RunStore
from holodeck.runs.run import Run, ending_kept
from holodeck.sessions.port import KEEP
from holodeck.sessions.transcript import SessionChange, Transcript

LOST = "Another process has ended this run."


class RecordedTranscript(Transcript):
    def __init__(self, run: Run, records: RunStore, *, is_begun: bool) -> None:
        """`is_begun`: the store has the run's row already."""
        super().__init__()
        self._run, self._records, self._is_begun = run, records, is_begun
        self._beginning: asyncio.Future[Begun] | None = None
        self._calls: tuple[str, ...] = ()  # those that were about to be made when the row was last written

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> "asyncio.Future[Any] | None":
        """Stores the run's row while the model is asked."""
        super().accept(messages, state=state)
        if self._is_begun:
            return None
        self._is_begun = True
        self._beginning = asyncio.ensure_future(self._records.begin(self._record))
        return self._beginning

    async def begin_calls(self, step: PendingStep, *, state: Any = KEEP) -> None:
        """Notes in the row that tools are about to be called, unless another process has the run by now."""
        await super().begin_calls(step, state=state)
        if step.begun == self._calls:
            return
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        self._run.change_stored_request(acted=True)
        if not await asyncio.shield(asyncio.ensure_future(self._records.store_request(self._record))):
            raise LostClaim(LOST)
        self._calls = step.begun

    def _begin_commit(self, change: SessionChange, ending: Ending | None) -> "asyncio.Future[Any] | None":
        super()._begin_commit(change, ending)
        return None if ending is None else asyncio.ensure_future(self._end(ending))

    async def _end(self, ending: Ending) -> None:
        if self._beginning is not None:
            await asyncio.wait({self._beginning})
        record, kept = self._record, ending_kept(self._run.request, ending)
        if await self._records.end(record, kept):
            return
        stored = await self._records.find(record.run_id, owner=record.owner)
        if stored is None:
            raise SessionDeleted
        if stored.ending != kept:  # else it was stored before a connection broke
            raise LostClaim(LOST)

    @property
    def _record(self) -> RunRecord:
        if self._run.record is None:  # `Runs.forget_session`
            raise SessionDeleted
        return self._run.record
