"""What MCP clients call: the tools `ask`, `continue` and `wait`, and runs as tasks.

A client that closes its own request cancels the run, as the protocol demands (2026-07-28). Runs that it takes as tasks
continue without it. Clients of the older protocol may lose their connection: their runs get the usual grace period.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from holodeck._version import __version__
from holodeck.access.principal import APPROVE, RUNS_READ, RUNS_STOP
from holodeck.core.encoder import Encoder
from holodeck.core.events import interrupts_of
from holodeck.core.request import Resume, RunRequest
from holodeck.errors import HoloDeckError, InvalidRequest, RunNotFound
from holodeck.runs.kept_answers import keep_answers, kept_answers, withdraw
from holodeck.runs.port import RunKey, RunState
from holodeck.runs.run import Run
from holodeck.runs.runs import DETACHED_SECONDS
from holodeck.server.agent_server import AgentServer, slot_of
from holodeck.server.identity import owner_of, require
from holodeck.server.intake import Arrival, begin, json_answer, server_of
from holodeck.server.streaming_response import Cursor, EventStream
from holodeck.server.sync_answer import has_left
from holodeck.wires import sse
from holodeck.wires.body import table, valid_id
from holodeck.wires.jsonrpc import INVALID_PARAMS, RpcError, error_message, error_object, result_message
from holodeck.wires.mcp import call_progress
from holodeck.wires.mcp.agent_tools import (
    ASK,
    CONTINUE,
    WAIT,
    ask_request,
    continue_request,
    run_to_wait_for,
)
from holodeck.wires.mcp.approvals import form_answers
from holodeck.wires.mcp.envelope import TASKS, Caller, McpCall, missing_capability

NAME = "mcp"
WITHOUT_HEADERS = "holodeck.without_headers"  # marks the scope of a message that arrived over standard input
QUICK_SECONDS = 1.0  # seconds: a faster answer is sent directly, also to clients that accept tasks


def server_info(server: AgentServer) -> dict[str, str]:
    return {"name": server.agent.name, "version": __version__}


def result_answer(call: McpCall, result: Mapping[str, Any]) -> Response:
    return json_answer(result_message(call.id, result))


def marked_answer(request: Request, call: McpCall, result: dict[str, Any]) -> Response:
    """As `result_answer`, with what clients of the newer era expect of every result."""
    return result_answer(call, call_progress.marked(result, call.caller, server_info(server_of(request))))


# tools


async def ask(request: Request, call: McpCall, given: dict[str, Any]) -> Response:
    """Sends a new message. With `requestState`, it is the same call again, with a person's decisions."""
    if call.caller.is_modern and call.params.get("requestState") is not None:
        return await _decided(request, call)
    wanted = ask_request(given, server_of(request).settings.block.limits.message_characters)
    return await _answer(request, call, await begin(Arrival(request, NAME, wanted, _fingerprint(given))))


async def _decided(request: Request, call: McpCall) -> Response:
    """Continues the run that asked for approvals. The request's other arguments are not read again."""
    server = server_of(request)
    state = valid_id(call.params["requestState"], "requestState")
    try:
        run = await server.stored_runs.find_settled(state, owner=owner_of(request))
    except RunNotFound as error:
        raise RpcError(INVALID_PARAMS, "There is no call with this requestState.") from error
    interrupts = interrupts_of(run.log.ending)
    answers = form_answers(call.params.get("inputResponses") or {}, interrupts)
    if not interrupts:
        raise InvalidRequest("The call with this requestState is not waiting for input.", field="requestState")
    if answers.dismissed:
        undecided = msgspec.structs.replace(call.caller, capabilities={})  # as to a client that cannot show forms
        return result_answer(call, _result_of(server, run, msgspec.structs.replace(call, caller=undecided)))
    if len(answers.decided) < len(interrupts):
        return result_answer(call, _result_of(server, run, call))
    return await _answer(request, call, await _resumed(request, run, answers.decided))


async def _resumed(request: Request, run: Run, decisions: tuple[Resume, ...], *, detached: bool = False) -> Run:
    """Returns the run that continues where this one waits. The same decisions, sent again, join that run."""
    wanted = RunRequest(session_id=run.session_id, parent_run_id=run.run_id, resume=decisions, detached=detached)
    key = RunKey(NAME, run.owner, f"decided:{run.run_id}", "requestState")
    return await begin(Arrival(request, NAME, wanted, _fingerprint(decisions), run.owner, key))


def _fingerprint(content: object) -> bytes:
    return sha256(sse.json_bytes(content)).digest()


async def continue_run(request: Request, call: McpCall, given: dict[str, Any]) -> Response:
    """The tool `continue`: a person's decisions, for clients that cannot show a form."""
    wanted = continue_request(given)
    return await _answer(request, call, await begin(Arrival(request, NAME, wanted, _fingerprint(given))))


async def wait(request: Request, call: McpCall, given: dict[str, Any]) -> Response:
    """Returns the answer of a run that was unfinished when its call ended. Closing this request stops nothing."""
    require(request, RUNS_READ)
    run = await _run_named(request, run_to_wait_for(given))
    await slot_of(request).take(request, owner_of(request))
    return await _answer(request, call, run, owns=False)


async def _run_named(request: Request, run_id: str) -> Run:
    """Returns the newest run of a chain. The chain has to belong to the caller."""
    try:
        return await server_of(request).stored_runs.last_of_chain(run_id, owner=owner_of(request))
    except RunNotFound as error:
        raise RpcError(INVALID_PARAMS, error.message) from error


McpTool = Callable[[Request, McpCall, dict[str, Any]], Awaitable[Response]]
TOOLS: dict[str, McpTool] = {ASK: ask, CONTINUE: continue_run, WAIT: wait}


async def call_tool(request: Request, call: McpCall) -> Response:
    name = call.params.get("name")
    tool = TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {name!r}. tools/list lists the known tools.")
    given = call.params.get("arguments")
    return await tool(request, call, {} if given is None else table(given, "arguments"))


# answers


async def _answer(request: Request, call: McpCall, run: Run, *, owns: bool = True) -> Response:
    """Sends the result of a run: directly, as a task, or at the end of a stream.

    `owns`: this request started the run, so closing the request cancels the run.
    """
    server, caller = server_of(request), call.caller
    stop = partial(server.runs.stop, run) if owns and caller.is_modern else None
    if not caller.takes_tasks and _takes_stream(request):
        return _stream(server, call, run, stop)
    seconds = QUICK_SECONDS if caller.takes_tasks else server.settings.mcp_wait
    with server.runs.attached(run):
        try:
            ended = await ends_within(run, seconds, request.receive)
        except ClientDisconnect:
            if stop is not None:
                stop()
            raise
        if not ended:  # before the client gets its id, so that the run can be found by it after a crash
            await server.runs.keep_going(run)
    if ended:
        return result_answer(call, _result_of(server, run, call))
    if caller.takes_tasks:
        return marked_answer(request, call, {**_task(run, run.root), "resultType": "task"})
    return result_answer(call, call_progress.still_working(run.session_id, run.root, caller, server_info(server)))


def _takes_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "*/*").lower()
    return any(wanted in accepted for wanted in ("text/event-stream", "text/*", "*/*"))


def _stream(server: AgentServer, call: McpCall, run: Run, stop: Callable[[], object] | None) -> Response:
    async def late() -> bytes:
        try:
            await server.runs.keep_going(run)
        except HoloDeckError as error:
            return sse.frame(error_message(call.id, error_object(error)))
        result = call_progress.still_working(run.session_id, run.root, call.caller, server_info(server))
        return sse.frame(result_message(call.id, result))

    encoder = call_progress.ProgressEncoder(call.id, _reader(server, call.caller), call.progress_token)
    cursor = Cursor(run, encoder, 0, server.middleware())
    return TimedStream(server, cursor, seconds=server.settings.mcp_wait, late=late, on_leave=stop)


def _result_of(server: AgentServer, run: Run, call: McpCall) -> dict[str, Any]:
    reader = _reader(server, call.caller)
    for event in server.shown_events(*run.request_parts):
        reader.read(event)
    if reader.result is None:
        raise InvalidRequest("The stored events of this run have no end.")
    return reader.result


def open_encoder(server: AgentServer, run: Run, _accept: str | None) -> Encoder:
    """Encodes a run of this wire for readers that follow it by its id, which is the id of the message that they get.

    In the answer to a call, the message has the id of the call.
    """
    return call_progress.ProgressEncoder(run.run_id, _reader(server, Caller()), run.run_id)


def _reader(server: AgentServer, caller: Caller) -> call_progress.AnswerReader:
    return call_progress.AnswerReader(caller, server_info(server))


# tasks


async def get_task(request: Request, call: McpCall) -> Response:
    require(request, RUNS_READ)
    server, run = server_of(request), await _task_run(request, call)
    found = _task(run, call.params["taskId"])
    if run.log.has_ending:
        found |= await _outcome(server, run, call)
    return marked_answer(request, call, found)


async def _outcome(server: AgentServer, run: Run, call: McpCall) -> dict[str, Any]:
    """The members that a task has only after its run has ended."""
    if run.state is RunState.CANCELLED:  # its ending may still ask: then the task was cancelled while it waited
        return {"status": call_progress.CANCELLED}
    result = _result_of(server, run, call)
    if result.get("resultType") != call_progress.INPUT_REQUIRED:
        return {"status": call_progress.COMPLETED, "result": result}
    answered = {each.interrupt_id for each in await kept_answers(server.runs, run)}
    wanted = result["inputRequests"]
    left = {key: value for key, value in wanted.items() if key not in answered}
    # All are answered and the run has not continued: the server was full, or was killed. Any answer continues it.
    return {"status": call_progress.INPUT_REQUIRED, "inputRequests": left or wanted}


async def update_task(request: Request, call: McpCall) -> Response:
    """Takes decisions one by one and stores them with the step. The run continues after the last one.

    A form that a person closes withdraws the decision before it. The log names the decisions when the run continues.
    """
    server, run = server_of(request), await _task_run(request, call)
    interrupts = interrupts_of(run.log.ending)
    answers = form_answers(call.params.get("inputResponses") or {}, interrupts)
    if answers.decided or answers.dismissed:
        require(request, APPROVE)  # before a decision is stored: another client's request may complete them
        decided = await keep_answers(server.runs, run, answers.decided, answers.dismissed)
        if len(decided) == len(interrupts):
            await server.runs.keep_going(await _resumed(request, run, decided, detached=True))
    return marked_answer(request, call, {})


async def cancel_task(request: Request, call: McpCall) -> Response:
    """Idempotent: a task that has ended stays as it is. One that waits for decisions waits no more."""
    require(request, RUNS_STOP)
    server, run = server_of(request), await _task_run(request, call)
    await server.stop_runs(run)
    if interrupts_of(run.log.ending):
        await withdraw(server.runs, run)
    return marked_answer(request, call, {})


async def _task_run(request: Request, call: McpCall) -> Run:
    if not call.caller.takes_tasks:
        raise missing_capability({"extensions": {TASKS: {}}}, f"This method needs the capability {TASKS}.", call.id)
    return await _run_named(request, valid_id(call.params.get("taskId"), "taskId"))


def _task(run: Run, task_id: str) -> dict[str, Any]:
    return call_progress.task(
        task_id=task_id,
        status=call_progress.WORKING,
        created_at=run.created_at,
        updated_at=run.finished_at or run.created_at,
        ttl_seconds=DETACHED_SECONDS,
    )


class TimedStream(EventStream):
    """A stream for clients with short timeouts: after a while it ends with a last frame, and the run continues.

    `late` makes the last frame after `seconds`. `on_leave` is called if the client disconnects before the end.
    """

    def __init__(
        self,
        server: AgentServer,
        cursor: Cursor,
        *,
        seconds: float,
        late: Callable[[], Awaitable[bytes]],
        on_leave: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(server.runs, (cursor,), server.settings.block, content_type=cursor.encoder.content_type)
        self._seconds, self._late, self._on_leave = seconds, late, on_leave
        self._expired = False

    async def _stream(self) -> None:
        timer = self._loop.call_later(self._seconds, self._expire)
        try:
            await super()._stream()
        finally:
            timer.cancel()
        if self._expired:
            await self._write(await self._late(), final=True)

    async def _rest(self) -> bytes:
        return await self._late() if self._cursors[-1].run.log.is_cut else b""

    def _expire(self) -> None:
        self._expired = True
        super()._leave()

    def _leave(self) -> None:
        if not self._expired and not self._left and self._on_leave is not None:
            self._on_leave()
        super()._leave()


async def ends_within(run: Run, seconds: float, receive: Receive) -> bool:
    """Returns whether a run ends within `seconds` in this process. Raises ClientDisconnect."""
    if run.log.ended or run.task is None:
        return not run.log.is_cut
    if await has_left(receive, {run.task}, seconds) and not run.log.ended:
        raise ClientDisconnect
    return run.log.has_ending
