"""REST: `POST /agent/{name}/chat` and its stream. The wire itself is `holodeck.wires.rest`."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holodeck.core.events import Ending, RunFailed
from holodeck.errors import AgentNotFound
from holodeck.runs.runs import Run
from holodeck.server.chat_schemas import CHAT_BODY, CHAT_EVENTS, CHAT_RESPONSE
from holodeck.server.readers import milliseconds_of, named_event_readers_of
from holodeck.server.routes.asking import server_of, user_of
from holodeck.server.schemas import PROBLEMS
from holodeck.server.uploads import chat_of
from holodeck.server.waiting import ending_of
from holodeck.telemetry.context import current
from holodeck.wires import sse
from holodeck.wires.encoder import Encoder
from holodeck.wires.named_events import NamedEventEncoder
from holodeck.wires.reply import error_of, failure_of
from holodeck.wires.rest.request import run_request
from holodeck.wires.rest.response import ChatResponse, chat_response
from holodeck.wires.rest.stream import RestTeller

router = APIRouter(prefix="/agent", tags=["REST"], responses=PROBLEMS)


@router.post("/{name}/chat", summary="Ask, and get the whole answer", openapi_extra=CHAT_BODY, responses=CHAT_RESPONSE)
async def chat(request: Request, name: str) -> Response:
    """A model that fails is 502, 503 or 504; a tool that fails is in `tool_calls`, and the model knows of it."""
    run = await _start(request, name)
    named_event_readers_of(request).remember(run, _encoder)
    ending = await ending_of(server_of(request).runs, run, request.receive)
    return Response(sse.json_bytes(_answer(run, ending)), media_type="application/json")


@router.post("/{name}/chat/stream", summary="Ask, and watch", openapi_extra=CHAT_BODY, responses=CHAT_EVENTS)
async def chat_stream(request: Request, name: str) -> Response:
    """The same, told while it happens. A client that comes back reads on at `/runs/{message_id}/events`."""
    return named_event_readers_of(request).begin(await _start(request, name), _encoder)


async def _start(request: Request, name: str) -> Run:
    server = server_of(request)
    if name != server.agent.name:
        raise AgentNotFound(f"There is no agent {name!r} here, only {server.agent.name!r}.")
    server.admit(user_of(request))
    given, read = await chat_of(request)
    return await server.start_run(run_request(given, user_id=user_of(request), read=read))


def _answer(run: Run, ending: Ending) -> ChatResponse:
    if isinstance(ending, RunFailed):
        raise error_of(ending)
    content = (run.response.final_response if run.response else None) or ""
    error = failure_of(ending, content)
    if error is not None:
        raise error
    return chat_response(
        ending,
        content=content,
        executions=run.response.executions if run.response else (),
        files=run.request.files,
        milliseconds=milliseconds_of(run),
    )


def _encoder(run: Run) -> Encoder:
    teller = RestTeller(
        run.run_id,
        elapsed=lambda: milliseconds_of(run),
        instance=current().request_id,
        files=run.request.files,
    )
    return NamedEventEncoder(run.run_id, teller)
