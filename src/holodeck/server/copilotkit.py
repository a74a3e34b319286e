"""CopilotKit's runtime contract, so that its front ends talk to the agent without a Node process.

Each route exists twice, as its own path and as a `method` of a single route; clients use either. The contract was read
from `@copilotkit/runtime` 1.75. `run` is the run of AG-UI, and `connect` is a cursor: this module
starts no runs in any other way.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holodeck._version import __version__
from holodeck.access.principal import CHAT, RUNS_READ, RUNS_STOP
from holodeck.access.route_access import SIGNED_IN, needs
from holodeck.core import events as e
from holodeck.core.ids import new_ulid
from holodeck.core.json_schema import object_of, string
from holodeck.core.messages import Message
from holodeck.errors import AgentNotFound, InvalidRequest
from holodeck.runs.middleware import EventMiddleware, Numbered
from holodeck.runs.run import Run
from holodeck.server import schemas
from holodeck.server.agent_server import AgentServer, slot_of
from holodeck.server.agui_run import AGENT_INPUT_BODY, capabilities_of, start
from holodeck.server.identity import owner_of, require
from holodeck.server.intake import decoded, json_body, server_of, session_id
from holodeck.server.routing import ResponseSchemas, Routes
from holodeck.server.streaming_response import Cursor, EventStream
from holodeck.wires import sse
from holodeck.wires.agui.decode import AguiInput, decode
from holodeck.wires.agui.encode import MAX_FRAME_BYTES, SseEncoder, translate
from holodeck.wires.agui.profile import Profile
from holodeck.wires.body import MAX_NAME, parse, refuse_repeated_names

routes = Routes("/copilotkit", tag="CopilotKit", responses=schemas.PROBLEMS)

DEFAULT = "default"  # the agent that a front end asks for when it names none
_STREAM: ResponseSchemas = {200: schemas.SSE_STREAM}
_ANY_OF_THEM = schemas.json_response("What that route answers", {}, streams=True)
_RUN_ID = string("Only this run of the thread", maxLength=MAX_NAME)
_STOP_BODY = schemas.json_request(object_of({"runId": _RUN_ID})) | {"required": False}
_CALL_BODY = schemas.json_request(
    object_of(
        {
            "method": {"enum": ["info", "agent/run", "agent/connect", "agent/stop"]},
            "params": object_of({"agentId": string(maxLength=MAX_NAME), "threadId": string(maxLength=MAX_NAME)}),
            "body": {"type": "object", "description": "What that route takes"},
        },
        required=["method"],
    )
)


@routes.get("/info", "Which agents there are", access=needs(CHAT, open_as="capabilities"), responses=schemas.ANYTHING)
async def info(request: Request) -> JSONResponse:
    return JSONResponse(_info(server_of(request)))


@routes.post("/agent/{agent_id}/run", "Run the agent", access=needs(CHAT), body=AGENT_INPUT_BODY, responses=_STREAM)
async def run(request: Request) -> Response:
    return await _run(request, request.path_params["agent_id"], await json_body(request))


@routes.post("/agent/{agent_id}/connect", "Replay", access=needs(RUNS_READ), body=AGENT_INPUT_BODY, responses=_STREAM)
async def connect(request: Request) -> Response:
    """Streams the runs of a thread that the server still has, then the run in progress."""
    return await _connect(request, request.path_params["agent_id"], await json_body(request))


@routes.post(
    "/agent/{agent_id}/stop/{thread_id:path}",
    "Stop the thread's run",
    access=needs(RUNS_STOP),
    body=_STOP_BODY,
    responses=schemas.ANYTHING,
)
async def stop(request: Request) -> Response:
    body, params = await request.body(), request.path_params
    return await _stop(request, params["agent_id"], params["thread_id"], parse(body) if body else {})


@routes.post("", "All of the above in one route", access=SIGNED_IN, body=_CALL_BODY, responses=_ANY_OF_THEM)
async def single(request: Request) -> Response:
    whole = await json_body(request)
    call = parse(whole)
    given = call.get("params")
    params = given if isinstance(given, dict) else {}
    agent_id = str(params.get("agentId", DEFAULT))
    body = call.get("body") or {}
    match call.get("method"):
        case "info":
            require(request, CHAT)
            return JSONResponse(_info(server_of(request)))
        case "agent/run":
            require(request, CHAT)
            if isinstance(body, dict) and body.get("resume"):
                refuse_repeated_names(whole)
            return await _run(request, agent_id, sse.json_bytes(body))
        case "agent/connect":
            require(request, RUNS_READ)
            return await _connect(request, agent_id, sse.json_bytes(body))
        case "agent/stop":
            require(request, RUNS_STOP)
            return await _stop(
                request, agent_id, str(params.get("threadId", "")), body if isinstance(body, dict) else {}
            )
    raise InvalidRequest("method must be info, agent/run, agent/connect or agent/stop.", field="method")


def _info(server: AgentServer) -> dict[str, Any]:
    agent = server.agent
    described = {
        "name": agent.name,
        "description": agent.description,
        "className": "HttpAgent",
        "capabilities": capabilities_of(server),
    }
    return {
        "version": __version__,
        "agents": {agent.name: described, DEFAULT: described},
        "mode": "sse",
        "threadEndpoints": {"list": False, "inspect": False, "mutations": False, "realtimeMetadata": False},
        "audioFileTranscriptionEnabled": False,
        "a2uiEnabled": False,
    }


def _check(server: AgentServer, agent_id: str) -> None:
    if agent_id not in (server.agent.name, DEFAULT):
        raise AgentNotFound(f"There is no agent {agent_id!r} here, only {server.agent.name!r}.")


async def _run(request: Request, agent_id: str, body: bytes) -> Response:
    _check(server_of(request), agent_id)
    return await start(request, body)


async def _stop(request: Request, agent_id: str, thread_id: str, body: dict[str, Any]) -> JSONResponse:
    server, wanted = server_of(request), body.get("runId")
    _check(server, agent_id)
    found = await server.stored_runs.of_session(session_id(thread_id), owner=owner_of(request))
    results = await server.stop_runs(*(each for each in found if wanted in (None, each.run_id)))
    return JSONResponse({"stopped": any(each.is_stopping for each in results)})


async def _connect(request: Request, agent_id: str, body: bytes) -> Response:
    server = server_of(request)
    _check(server, agent_id)
    given = await decoded(decode, body, server.settings.block.limits.message_characters)
    await slot_of(request).take(request, owner_of(request))
    found = _readable(await server.stored_runs.of_session(given.thread_id, owner=owner_of(request)))
    cursors = [cursor for each in found for cursor in await _cursors(each, given.profile, server.middleware())]
    if cursors and isinstance(cursors[0], LateCursor):
        prefix = cursors[0].so_far()
    else:
        history = await server.history(given.thread_id, owner=owner_of(request))
        prefix = _before(history, found, given, server.middleware())
    return EventStream(server.runs, cursors, server.settings.block, content_type=sse.CONTENT_TYPE, prefix=prefix)


def _is_whole(run: Run) -> bool:
    return all(part.log.is_whole for part in run.request_parts)


def _readable(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs from the newest truncated one on. A truncated run that has ended is skipped; the stored history contains it."""
    cut = next((i for i in reversed(range(len(runs))) if not _is_whole(runs[i])), None)
    if cut is None:
        return runs
    return runs[cut + 1 :] if runs[cut].log.ended else runs[cut:]


async def _cursors(run: Run, profile: Profile, middleware: EventMiddleware) -> Sequence[Cursor]:
    """One for each part of the run's request: after a crash, only the first part has its start."""
    encoder = ReplayEncoder(run, profile)
    if _is_whole(run):
        return [Cursor(part, encoder, middleware=middleware) for part in run.request_parts]
    return [await LateCursor(run, encoder, middleware=middleware).with_history()]


def _before(history: Sequence[Message], kept: Sequence[Run], given: AguiInput, middleware: EventMiddleware) -> bytes:
    """The messages before the oldest run in the log, as a run that holds only a snapshot.

    It is sent without messages too if the client has some of those that follow: it would append their text to what it has.
    """
    shown = set().union(*(_ids_of(each) for each in kept))
    older: list[Message] = []
    for message in history:
        if message.id in shown:
            break
        older.append(message)
    if not older and shown.isdisjoint(message.id for message in given.run.messages):
        return b""
    encoder, run_id, thread_id = SseEncoder("", given.profile), new_ulid(), given.thread_id
    events = (e.RunStarted(run_id, thread_id), e.MessagesReplaced(tuple(older)), e.RunFinished(run_id, thread_id))
    return encoder.encode_many(middleware((None, event) for event in events))


def _ids_of(run: Run) -> set[str]:
    """The messages that a reader of the run gets: those of its request, and those that it produced."""
    made = {
        event.message_id
        for part in run.request_parts
        for event in part.log.since(0)
        if isinstance(event, e.TextStarted | e.ToolCallStarted | e.ToolFinished)
    }
    return made | {message.id for message in run.request.messages[-1:]}


class LateCursor(Cursor):
    """Reader of a live run whose first events were evicted: a snapshot of the history now, and one at its end.

    In between it sends nothing: the next events may belong to a message or a call whose start is gone.
    """

    def __post_init__(self) -> None:
        self.position = len(self.run.log)
        self._conversation = self.run.conversation
        self._older: Sequence[Message] = ()  # messages stored before those that the run has read

    async def with_history(self) -> Self:
        if self._conversation is not None:
            self._older = (await self._conversation.history())[: self._conversation.earlier]
        return self

    def so_far(self) -> bytes:
        run = self.run
        return self._encoded(
            (None, e.RunStarted(run.run_id, run.session_id, run.request.parent_run_id)), *self._history()
        )

    def take(self) -> bytes:
        log = self.run.log
        self.position = len(log)
        if not log.ended:
            return b""
        (ending,) = log.since(self.position - 1)
        return self._encoded(*self._state(), *self._history(), (self.run.next_number - 1, ending))

    def _encoded(self, *batch: Numbered) -> bytes:
        return self.encoder.encode_many(self.middleware(batch))

    def _state(self) -> Iterator[Numbered]:
        if self._conversation is not None and self._conversation.state is not None:
            yield None, e.StateReplaced(self._conversation.state)

    def _history(self) -> Iterator[Numbered]:
        """Includes the pending step, if there is one."""
        if self._conversation is not None:
            step = self._conversation.pending
            waiting: tuple[Message, ...] = () if step is None else (step.assistant, *step.results)
            yield None, e.MessagesReplaced((*self._older, *self._conversation.messages, *waiting))


class ReplayEncoder(SseEncoder):
    """SSE whose RUN_STARTED carries the input: a client that reconnects restores the user's messages from it."""

    def __init__(self, run: Run, profile: Profile) -> None:
        super().__init__(run.run_id, profile)
        self._run = run

    def _whole(self, event: e.Event, n: int | None) -> bytes:
        if not isinstance(event, e.RunStarted):
            return super()._whole(event, n)
        (wire,) = translate(event, self._profile)
        number = None if n is None else f"{self._run.run_id}:{n}"
        frame = sse.frame(wire | {"input": self._input()}, event_id=number)
        return frame if len(frame) <= MAX_FRAME_BYTES else sse.frame(wire, event_id=number)

    def _input(self) -> dict[str, Any]:
        request = self._run.request
        *_, snapshot = translate(e.MessagesReplaced(request.messages), self._profile)
        return {
            "threadId": self._run.session_id,
            "runId": self._run.run_id,
            "messages": snapshot["messages"],
            "state": {} if request.state is None else request.state,
            "tools": [],
            "context": [],
            "forwardedProps": msgspec.to_builtins(request.properties),
        }
