"""Stores answers to the interrupts of one step that arrive one by one, until all have arrived, or ends the wait for them.

They are stored with the step, so another replica, or the server after a restart, has them. Storing an answer does not
resume the run: a client does, with all answers.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

import msgspec
from msgspec import convert

from holodeck.agent.pending import decide
from holodeck.core.messages import KeptAnswer, PendingStep, ToolMessage
from holodeck.core.request import Resume
from holodeck.errors import LostClaim
from holodeck.runs.port import RunState
from holodeck.runs.run import Run, stopped
from holodeck.runs.runs import Runs

ATTEMPTS = 5  # two replicas that store answers to one step at the same time refuse each other's commit


async def kept_answers(runs: Runs, run: Run) -> tuple[Resume, ...]:
    """The answers so far to the pending step of this run."""
    stored = await runs.store.read(run.session_id, owner=run.owner, last=1)
    return () if stored is None else _answers_of(stored.pending, run)


async def keep_answers(
    runs: Runs, run: Run, decided: Sequence[Resume], withdrawn: Collection[str] = ()
) -> tuple[Resume, ...]:
    """Adds answers to the pending step, drops those that were withdrawn, and returns all answers that it has now.

    Stores and returns nothing if the run no longer waits.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(LostClaim):
            return await _keep(runs, run, decided, withdrawn)
    return await _keep(runs, run, decided, withdrawn)


async def withdraw(runs: Runs, run: Run) -> bool:
    """Ends the wait of a run without carrying out what it asked for. Returns whether the run was still waiting.

    Its calls get their results, so that the conversation can continue. Results and ending are stored in one
    transaction: after a crash, a task cannot wait for a question that is no longer open.
    """
    async with runs.queue.take((run.owner, run.session_id)):
        conversation = await runs.executor.open(run)
        try:
            pending = conversation.pending
            if pending is None or pending.run_id != run.run_id:
                return False
            refused = [
                ToolMessage(call_id=call.id, name=call.name, content=text, failed=True, run_id=run.run_id)
                for call, text in decide(pending, (), ()).refused
            ]
            ending = stopped(run)
            await conversation.commit([pending.assistant, *pending.results, *refused], None, ending=ending)
        finally:
            conversation.close()
    run.state = RunState.CANCELLED
    if runs.records is not None and run.record is not None:  # in memory, a commit does not store an ending
        await runs.records.end(run.record, ending)
    return True


async def _keep(runs: Runs, run: Run, decided: Sequence[Resume], withdrawn: Collection[str]) -> tuple[Resume, ...]:
    async with runs.queue.take((run.owner, run.session_id)):
        conversation = await runs.store.open(run.session_id, owner=run.owner, last=1)
        try:
            pending = conversation.pending
            if pending is None or pending.run_id != run.run_id:
                return ()
            answers = {id_: answer for id_, answer in pending.answers.items() if id_ not in withdrawn}
            answers |= {each.interrupt_id: convert(each, KeptAnswer, from_attributes=True) for each in decided}
            pending = msgspec.structs.replace(pending, answers=answers)
            await conversation.commit([], pending)
        finally:
            conversation.close()
    return _answers_of(pending, run)


def _answers_of(pending: PendingStep | None, run: Run) -> tuple[Resume, ...]:
    if pending is None or pending.run_id != run.run_id:
        return ()
    return tuple(Resume(interrupt_id=id_, **msgspec.structs.asdict(each)) for id_, each in pending.answers.items())
