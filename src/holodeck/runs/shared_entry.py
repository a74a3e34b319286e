"""Adds runs to those of all processes that share a store. A run that does not start leaves no row there."""

import asyncio
import logging
from collections.abc import Callable

from holodeck.errors import HoloDeckError
from holodeck.runs.port import Begun, RunRecord, SharedRunStore
from holodeck.runs.run import Run

log = logging.getLogger(__name__)


class SharedEntry:
    def __init__(self, records: SharedRunStore, refuse_behind: Callable[[str, int], None]) -> None:
        """`refuse_behind` raises SessionBusy for a run with too many others of its session ahead of it."""
        self.records, self._refuse_behind = records, refuse_behind
        self._undoing: set[asyncio.Task[None]] = set()

    async def begin(self, run: Run, record: RunRecord) -> None:
        seen = None if run.earlier is None else run.earlier.log.ending
        beginning = asyncio.ensure_future(self.records.begin(record, continues=seen))
        try:
            begun = await asyncio.shield(beginning)
            self._refuse_behind(run.session_id, len(begun.ahead))
        except BaseException:  # also if the request is cancelled: other runs of the session would wait for the row
            if run.slot is not None:
                run.slot.release()
            undoing = asyncio.create_task(self._undo(run, record, beginning), name=f"undo the begin of {run.run_id}")
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)
            await asyncio.wait({undoing})
            raise
        run.is_first, run.behind = begun.is_first, run.behind | begun.ahead

    async def _undo(self, run: Run, record: RunRecord, beginning: "asyncio.Future[Begun]") -> None:
        """Removes the row of a run that does not start. The part that it would have continued gets its ending back."""
        await asyncio.wait({beginning})
        try:
            if beginning.cancelled() or beginning.exception() is not None:
                return
            earlier = run.earlier
            ending = None if earlier is None else earlier.log.ending
            if earlier is None or ending is None:
                await self.records.withdraw(record)
            else:
                await self.records.end(earlier.record or record, ending)
        except HoloDeckError as error:  # when the store works again, the row is taken over from this process
            log.warning("run %s did not start and is still stored: %s", run.run_id, error.message)
        finally:
            self.records.release(record)
            run.log.cut()  # breaks the reference cycle between the log and its copier

    async def close(self, seconds: float) -> None:
        if self._undoing:
            await asyncio.wait(self._undoing, timeout=seconds)
