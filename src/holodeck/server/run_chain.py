"""A task as other protocols mean it: a run, and the runs that answered its questions. Its id is the first run's."""

from holodeck.core.owner import Owner
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer


async def last_of_chain(server: AgentServer, root: str, *, owner: Owner) -> Run:
    """Returns the newest run of a chain. Raises RunNotFound, also for runs of other owners."""
    run = await server.stored_runs.find_settled(root, owner=owner)
    records = server.runs.records
    if records is not None:
        newest = await records.runs_of(owner=owner, root=root, limit=1)
        if newest and newest[0].run_id != root:
            run = await server.stored_runs.find_settled(newest[0].run_id, owner=owner)
    return _follower(server, run)


def _follower(server: AgentServer, run: Run) -> Run:
    """Returns the run that answers this one, if it started a moment ago and has not joined the chain yet."""
    for other in reversed(server.runs.of_session(run.session_id, owner=run.owner)):
        if other.request.parent_run_id == run.run_id and other is not run:
            return other
    return run
