"""REST: `POST /agent/{name}/chat` and its stream. The wire itself is `holodeck.wires.rest`."""

from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.core.encoder import Encoder
from holodeck.core.events import Ending, RunFinished
from holodeck.core.request import RunRequest
from holodeck.errors import AgentNotFound, InternalError
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.chat_schemas import CHAT_BODY, CHAT_EVENTS, CHAT_RESPONSE, CHAT_SCHEMAS
from holodeck.server.identity import owner_of
from holodeck.server.intake import Arrival, begin, json_answer, server_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.server.streaming_response import follow
from holodeck.server.sync_answer import answer_of, ending_of
from holodeck.server.uploads import ChatBody
from holodeck.server.wire import Wire
from holodeck.telemetry.log_context import current
from holodeck.wires import sse
from holodeck.wires.reply import failure_of
from holodeck.wires.rest.request import run_request
from holodeck.wires.rest.response import ChatResponse, chat_response
from holodeck.wires.rest.stream import RestEventMapper

NAME = "rest"
NEW_SESSION = {"X-HoloDeck-Session": "new"}  # the session that the client named has expired or is unknown
routes = Routes("/agent", tag="REST", responses=PROBLEMS, schemas=CHAT_SCHEMAS, takes_files=True)


@routes.post(
    "/{name}/chat",
    "Send a message and get the whole answer",
    access=needs(CHAT),
    parameters=(REPEAT_KEY,),
    body=CHAT_BODY,
    responses=CHAT_RESPONSE,
)
async def chat(request: Request) -> Response:
    """A model that fails is 502, 503 or 504; a tool that fails is in `tool_calls`, and the model knows of it."""
    server = _server_of_agent(request)
    run = await _start(server, request)
    ending = await ending_of(server.runs, run, request.receive)
    headers = NEW_SESSION if run.is_new_session else None
    return json_answer(_answer(server, run, ending), headers=headers)


@routes.post(
    "/{name}/chat/stream",
    "Ask, and watch",
    access=needs(CHAT),
    parameters=(REPEAT_KEY,),
    body=CHAT_BODY,
    responses=CHAT_EVENTS,
)
async def chat_stream(request: Request) -> Response:
    """Streams the answer as server-sent events. A client that reconnects continues at `/runs/{message_id}/events`."""
    server = _server_of_agent(request)
    return follow(server, await _start(server, request))  # `stream_start` says if the session is new


async def _start(server: AgentServer, request: Request) -> Run:
    owner, body = owner_of(request), ChatBody(request, server.settings.files)

    async def prepare() -> RunRequest:
        chat, uploads = await body.posted()
        return run_request(chat, await server.files.read(uploads, tenant=owner.tenant) if uploads else [])

    return await begin(Arrival(request, NAME, prepare, body.fingerprint, owner))


def _server_of_agent(request: Request) -> AgentServer:
    server, name = server_of(request), request.path_params["name"]
    if name != server.agent.name:
        raise AgentNotFound(f"There is no agent {name!r} here, only {server.agent.name!r}.")
    return server


def _answer(server: AgentServer, run: Run, ending: Ending) -> ChatResponse:
    """Returns the answer. A failure names the session, so that the client can continue or delete it."""
    content, executions = answer_of(run, ending, server.middleware())
    error = failure_of(ending, content)
    if error is not None or not isinstance(ending, RunFinished):
        error = error or InternalError("The run has no answer.")
        error.session_id = run.session_id
        raise error
    return chat_response(
        ending,
        content=content,
        executions=executions,
        files=run.request.files,
        milliseconds=_milliseconds(run),
        is_new_session=run.is_new_session,
    )


def _encoder(_server: AgentServer, run: Run, _accept: str | None) -> Encoder:
    mapper = RestEventMapper(
        run.run_id,
        elapsed=lambda: _milliseconds(run),
        instance=current().request_id,
        files=run.request.files,
        is_new_session=lambda: run.is_new_session,
    )
    return sse.NamedEventEncoder(run.run_id, mapper.read)


def _milliseconds(run: Run) -> int:
    return round(run.seconds * 1000)


WIRE = Wire(
    name=NAME,
    title="question and answer in JSON or a form with files, whole or streamed",
    is_default=True,
    endpoints=(("REST", "/agent/{name}/chat"), ("REST, streamed", "/agent/{name}/chat/stream")),
    example='{"message":"Hello"}',
    routes=(routes,),
    open_encoder=_encoder,
    response_headers=tuple(NEW_SESSION),
)
