"""Tasks of A2A: a chain of runs as one object, and the updates of its newest run as a stream.

A task's id is the id of its first run, and its context is the session. Every run of the caller can be read as a task,
on whichever wire it was started.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from holodeck.core.events import Outcome, RunFinished, interrupts_of
from holodeck.core.json_values import JsonObject
from holodeck.core.messages import Message, UserMessage
from holodeck.core.owner import Owner
from holodeck.errors import HoloDeckError, RunNotFound
from holodeck.runs.port import RunRecord, RunState
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.run_feed import RunFeed
from holodeck.server.streaming_response import Cursor, EventStream
from holodeck.wires import sse
from holodeck.wires.a2a.error_form import task_not_found
from holodeck.wires.a2a.task import CANCELED, SUBMITTED, WORKING, TaskEncoder, TaskReader, message_json, task_json
from holodeck.wires.reply import time_text

MAX_CHAIN = 50
MAX_LISTED = 1_000  # tasks that a list looks at, newest first


@dataclass(frozen=True, slots=True)
class UpdateForm:
    """The encoding of task updates, and of an error between updates, for one binding."""

    update: Callable[[JsonObject], Any]
    error: Callable[[Exception], Response]


async def chain_of(server: AgentServer, task_id: str, owner: Owner) -> list[Run]:
    """Returns the runs of a task, oldest first. Raises TaskNotFound, also for tasks of other owners."""
    try:
        last = await server.stored_runs.last_of_chain(task_id, owner=owner)
        records = server.runs.records
        known = [] if records is None else await records.runs_of(owner=owner, root=task_id, limit=MAX_CHAIN)
        ids = dict.fromkeys([task_id, *(each.run_id for each in reversed(known))])
        chain = [await server.stored_runs.find(each, owner=owner) for each in ids]
    except RunNotFound as error:
        raise task_not_found(task_id) from error
    return chain if last in chain else [*chain, last]


async def task_of(
    server: AgentServer, chain: Sequence[Run], *, history_length: int | None = None, artifacts: bool = True
) -> JsonObject:
    first, last = chain[0], chain[-1]
    found: dict[str, JsonObject] = {}
    history: list[JsonObject] = []
    stored = await _messages(server, chain) if history_length != 0 else {}
    status: JsonObject = {}
    metadata: JsonObject = {}
    for run in chain:
        reader = _reader(first.run_id, run)
        for event in server.shown_events(run):
            reader.read(event)
        found |= reader.artifacts
        status, metadata = reader.status, metadata or reader.metadata
        if status["state"] == SUBMITTED and (run.state is not RunState.QUEUED or run.earlier is not None):
            status = {**status, "state": WORKING}  # it began in a part of the log that is not copied, or of a crash
        history += [message_json(each, first.run_id, first.session_id) for each in stored.get(run.run_id, ())]
        ending = run.log.ending
        if run is not last and isinstance(ending, RunFinished) and "message" in status:
            history.append(status["message"])
    if last.state is RunState.CANCELLED and status["state"] != CANCELED:
        status = {"state": CANCELED, "timestamp": time_text(last.finished_at or last.created_at)}
    return task_json(
        task_id=first.run_id,
        context_id=first.session_id,
        status=status,
        artifacts=list(found.values()) if artifacts else (),
        history=history,
        history_length=history_length,
        metadata=metadata,
    )


async def _messages(server: AgentServer, chain: Sequence[Run]) -> dict[str, list[UserMessage]]:
    """Returns the user's message of each run: from the run's request or, if that is gone, from the session."""
    found = {run.run_id: _users(run.request.messages) for run in chain}
    gone = {run_id for run_id, messages in found.items() if not messages}
    if gone:
        for message in _users(await server.history(chain[0].session_id, owner=chain[0].owner)):
            if message.run_id in gone:
                found[message.run_id].append(message)
    return found


def _users(messages: Sequence[Message]) -> list[UserMessage]:
    return [each for each in messages if isinstance(each, UserMessage)]


def _reader(task_id: str, run: Run) -> TaskReader:
    """Reader for a task as it is: its times are those of the run."""
    return TaskReader(task_id, run.session_id, run.run_id, clock=lambda: changed_at(run))


def changed_at(run: Run | RunRecord) -> datetime:
    return run.finished_at or run.created_at


def state_of(record: RunRecord, run: Run | None) -> str | None:
    """The state of the task whose newest run has this record. `run` is that run, if this process has it.

    None if the text of the run decides.
    """
    is_going = run is not None and not run.log.ended
    state = run.state if run is not None and is_going else record.state
    if state is RunState.CANCELLED:
        return CANCELED
    if is_going or record.ending is None:
        is_first = run is None or run.earlier is None
        return SUBMITTED if state is RunState.QUEUED and is_first else WORKING
    if isinstance(record.ending, RunFinished) and record.ending.outcome is Outcome.MAX_ITERATIONS:
        return None
    reader = TaskReader(record.root, record.session_id, record.run_id)
    reader.read(record.ending)
    return str(reader.status["state"])


async def task_stream(server: AgentServer, chain: Sequence[Run], form: UpdateForm) -> Response:
    """The task as it is, then the updates of its newest run, to its end."""
    run = chain[-1]
    encoder = TaskEncoder(TaskReader(chain[0].run_id, run.session_id, run.run_id), form.update)
    prefix = sse.frame(form.update({"task": await task_of(server, chain)}))
    cursor = Cursor(run, encoder, 0, server.middleware())
    return EventStream(server.runs, (cursor,), server.settings.block, content_type=encoder.content_type, prefix=prefix)


class TaskSubscription(RunFeed):
    """The task as it is, then its updates until it ends, across all runs that answer its questions.

    Events that arrive while the task is being assembled are sent again rather than lost.
    """

    def __init__(
        self, server: AgentServer, chain: Sequence[Run], position: int, task: JsonObject, form: UpdateForm
    ) -> None:
        """`position` is the index of the first event of the newest run to send."""
        newest = chain[-1]
        super().__init__(server, (newest.owner, newest.session_id), prefix=sse.frame(form.update({"task": task})))
        self._form, self._task_id, self._newest, self._place = form, chain[0].run_id, newest, position
        self._taken: set[str] = set()

    async def _first(self) -> Sequence[tuple[Run, int]]:
        return [(self._newest, self._place)]

    def _error(self, error: HoloDeckError) -> bytes:
        return b"data: %b\n\n" % bytes(self._form.error(error).body)

    async def _show(self, run: Run, first: int) -> bool:
        """Sends the updates of a run. Returns whether the task ended with it."""
        self._newest = run
        encoder = TaskEncoder(TaskReader(self._task_id, run.session_id, run.run_id), self._form.update)
        with self._runs.attached(run):
            await self._follow(Cursor(run, encoder, first, self._server.middleware()), last=False)
        return run.state is RunState.CANCELLED or not interrupts_of(run.log.ending)

    async def _more(self) -> None:
        """Waits for the run that answers. While idle, checks whether the task was canceled, and sends a comment."""
        await self._woken()
        if self._silent:
            await self._look_elsewhere()
        if self._newest.state is RunState.CANCELLED:
            ids = {"taskId": self._task_id, "contextId": self._newest.session_id}
            status = {"state": CANCELED, "timestamp": time_text(changed_at(self._newest))}
            await self._write(sse.frame(self._form.update({"statusUpdate": {**ids, "status": status}})))
            self._next.append(None)
        elif self._silent:
            await self._write(sse.KEEPALIVE)

    async def _look_elsewhere(self) -> None:
        """Records that another process has canceled the task."""
        newest, stored = self._newest, self._server.stored_runs
        if stored.remote is not None:
            with suppress(RunNotFound):
                newest.state = (await stored.find(newest.run_id, owner=newest.owner)).state

    def _takes(self, run: Run) -> bool:
        """Skips a run that is announced twice: it starts here, or is taken over, while its copy is being followed."""
        answers = run.request.parent_run_id == self._newest.run_id and run.run_id not in self._taken
        if answers:
            self._taken.add(run.run_id)
        return answers
