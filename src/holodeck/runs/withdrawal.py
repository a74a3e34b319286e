"""Ends the wait of a run without carrying out what it asked a person for, and without asking the model again."""

from holodeck.agent.pending import decide
from holodeck.core.events import Outcome, RunFinished
from holodeck.core.messages import ToolMessage
from holodeck.runs.port import RunState
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs


async def withdraw(runs: Runs, run: Run) -> bool:
    """Withdraws the question and returns whether the run was still waiting.

    Its calls get their results, so that the conversation can continue. Results and ending are stored in one
    transaction: after a crash, a task cannot wait for a question that is no longer open.
    """
    async with runs.queue.take((run.owner, run.session_id)):
        conversation = await runs.open(run)
        try:
            pending = conversation.pending
            if pending is None or pending.run_id != run.run_id:
                return False
            refused = [
                ToolMessage(call_id=call.id, name=call.name, content=text, failed=True, run_id=run.run_id)
                for call, text in decide(pending, (), ()).refused
            ]
            ending = RunFinished(run.run_id, run.session_id, outcome=Outcome.CANCELLED, finish_reason="cancelled")
            await conversation.commit([pending.assistant, *pending.results, *refused], None, ending=ending)
        finally:
            conversation.close()
    run.state = RunState.CANCELLED
    if runs.records is not None and run.record is not None:  # in memory, a commit does not store an ending
        await runs.records.end(run.record, ending)
    return True
