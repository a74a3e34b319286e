"""REST: `POST /agent/{name}/chat` and its stream. The wire itself is `holodeck.wires.rest`."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.core.events import Ending, RunFinished
from holodeck.errors import AgentNotFound, InternalError
from holodeck.runs.runs import Run
from holodeck.server.chat_schemas import CHAT_BODY, CHAT_EVENTS, CHAT_RESPONSE
from holodeck.server.identity import check_approval, owner_of
from holodeck.server.options import ProtocolType
from holodeck.server.readers import milliseconds_of, named_event_readers_of
from holodeck.server.routes.request_input import repeat_key_of, server_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.server.sync_answer import ending_of
from holodeck.server.uploads import chat_of, fingerprint_of
from holodeck.telemetry.context import current
from holodeck.wires import sse
from holodeck.wires.encoder import Encoder
from holodeck.wires.named_events import NamedEventEncoder
from holodeck.wires.reply import failure_of
from holodeck.wires.rest.request import run_request
from holodeck.wires.rest.response import ChatResponse, chat_response
from holodeck.wires.rest.stream import RestEventMapper

routes = Routes("/agent", tag="REST", responses=PROBLEMS)


@routes.post(
    "/{name}/chat",
    "Ask, and get the whole answer",
    access=needs(CHAT),
    parameters=(REPEAT_KEY,),
    body=CHAT_BODY,
    responses=CHAT_RESPONSE,
)
async def chat(request: Request) -> Response:
    """A model that fails is 502, 503 or 504; a tool that fails is in `tool_calls`, and the model knows of it."""
    run = await _start(request)
    named_event_readers_of(request).remember(run, _encoder)
    ending = await ending_of(server_of(request).runs, run, request.receive)
    return Response(sse.json_bytes(_answer(run, ending)), media_type="application/json")


@routes.post(
    "/{name}/chat/stream",
    "Ask, and watch",
    access=needs(CHAT),
    parameters=(REPEAT_KEY,),
    body=CHAT_BODY,
    responses=CHAT_EVENTS,
)
async def chat_stream(request: Request) -> Response:
    """The same, told while it happens. A client that comes back reads on at `/runs/{message_id}/events`."""
    return named_event_readers_of(request).begin(await _start(request), _encoder)


async def _start(request: Request) -> Run:
    server, owner, name = server_of(request), owner_of(request), request.path_params["name"]
    if name != server.agent.name:
        raise AgentNotFound(f"There is no agent {name!r} here, only {server.agent.name!r}.")
    key = repeat_key_of(request, ProtocolType.REST, owner)
    server.enter()
    if key is None:  # else it may be a repeat, which needs no room
        server.admit(owner)
    given, uploads = await chat_of(request)
    check_approval(request, given.resume)

    async def begin() -> Run:
        if key is not None:
            server.admit(owner)
        read = await server.files.read(uploads) if uploads else []
        return await server.runs.start(msgspec.structs.replace(run_request(given, read), owner=owner))

    fingerprint = b"" if key is None else await fingerprint_of(given, uploads)
    return await server.start_run(begin, conversation=given.session_id, key=key, fingerprint=fingerprint)


def _answer(run: Run, ending: Ending) -> ChatResponse:
    """The answer. A failure names the session that it left behind, so that the client can go on with it or delete it."""
    content = (run.response.final_response if run.response else None) or ""
    executions = run.response.executions if run.response else ()
    error = failure_of(ending, content, tools_ran=bool(executions))
    if error is not None or not isinstance(ending, RunFinished):
        error = error or InternalError("The run has no answer.")
        error.session_id = run.session_id
        raise error
    return chat_response(
        ending,
        content=content,
        executions=executions,
        files=run.request.files,
        milliseconds=milliseconds_of(run),
    )


def _encoder(run: Run) -> Encoder:
    mapper = RestEventMapper(
        run.run_id,
        elapsed=lambda: milliseconds_of(run),
        instance=current().request_id,
        files=run.request.files,
    )
    return NamedEventEncoder(run.run_id, mapper)
