"""Leaves runs as a crash would when the server stops, so that another process continues them.

Their logs are cut without an ending, because clients would take an ending for a failure. That is right only where no
client takes the end of its connection for the end of the run: see `may_be_handed_over`.
"""

import asyncio
import logging

from holodeck.errors import HoloDeckError
from holodeck.runs.port import RunStore, SharedRunStore
from holodeck.runs.run import Run

log = logging.getLogger(__name__)

HANDOVER_SECONDS = 3.0  # for the store to note that a run was left on purpose; otherwise that counts as its one crash


def may_be_handed_over(run: Run, records: RunStore | None, *, is_waiting: bool) -> bool:
    """Whether a process that stops leaves this run to another one.

    A client that would see its connection end in the middle gets an ending instead, unless it reconnects by itself
    (an EventSource does) and another process is there to show it the rest. A run that `is_waiting` for a reader after a
    crash has nothing to finish. One without a session cannot continue elsewhere: only this process has its messages.
    """
    if records is None or run.record is None or run.request.throw_away or not records.outlives_process:
        return False
    has_others = isinstance(records, SharedRunStore) and records.has_others
    return (run.request.detached and not is_waiting) or (has_others and run.readers == run.returning)


async def hand_over(run: Run, records: RunStore) -> None:
    if run.record is None or run.is_being_stopped:
        return
    run.change_stored_request(handovers=run.record.request.handovers + 1)
    noting = asyncio.create_task(_note(run, records), name=f"leave {run.run_id}")
    done, _ = await asyncio.wait({noting}, timeout=HANDOVER_SECONDS)  # a cancelled statement may wait for the store
    if not done:
        log.warning("run %s is handed over as after a crash: the session store does not answer", run.run_id)
    if not run.log.ended and run.task is not None and not run.is_being_stopped:
        run.log.cut()
        run.task.cancel()
        log.info("run_left", extra={"details": {"run_id": run.run_id}})


async def _note(run: Run, records: RunStore) -> None:
    try:
        if run.record is not None:
            await records.store_request(run.record)
    except HoloDeckError as error:
        log.warning("run %s is handed over as after a crash: %s", run.run_id, error.message)
