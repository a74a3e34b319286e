"""OpenAI's Chat Completions: `POST /v1/chat/completions` and the list of models. The wire is `holodeck.wires.openai_chat`."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.core.encoder import Encoder, bare
from holodeck.core.events import Event
from holodeck.core.ids import new_ulid
from holodeck.runs.runs import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import owner_of
from holodeck.server.intake import Arrival, begin, with_files
from holodeck.server.openai_schemas import (
    COMPLETION,
    COMPLETION_BODY,
    CONVERSATION_HEADER,
    MODEL,
    MODELS,
    SESSION_HEADER,
    SESSION_PARAMETERS,
)
from holodeck.server.problems import known, problem_response
from holodeck.server.routes.request_input import json_answer, json_body, repeat_key_of, server_of, text_header
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.server.stream import follow
from holodeck.server.sync_answer import ending_of
from holodeck.server.wire import Wire
from holodeck.wires.body import foreign_id
from holodeck.wires.openai_chat.error_form import chat_problem, model_not_found, retry_headers
from holodeck.wires.openai_chat.pieces import CompletionReader
from holodeck.wires.openai_chat.request import ChatCompletionRequest, decode, run_request
from holodeck.wires.openai_chat.response import PREFIX, CompletionHead, Model, ModelList, completion
from holodeck.wires.openai_chat.stream import ChunkEncoder

log = logging.getLogger(__name__)

NAME = "openai"
OWN_PREFIX = "holodeck/"  # some clients want a provider before a model's name


def answer_error(error: Exception, *, begun: bool = False) -> Response:
    """The answer to an error. `begun`: a run was started, so the client must not ask again by itself."""
    failure = known(error)
    answer = problem_response(failure, chat_problem)
    answer.headers.update(retry_headers(failure, begun=begun))
    return answer


routes = Routes("/v1", tag="OpenAI", responses=PROBLEMS, answer_error=answer_error)


@routes.post(
    "/chat/completions",
    "Ask, and get a completion or its chunks",
    access=needs(CHAT),
    parameters=(*SESSION_PARAMETERS, REPEAT_KEY),
    body=COMPLETION_BODY,
    responses=COMPLETION,
)
async def chat_completions(request: Request) -> Response:
    """Without a session, `messages` is the whole conversation, and nothing of it is kept."""
    server, owner, body = server_of(request), owner_of(request), await json_body(request)
    chat = decode(body, server.settings.limits.message_characters)
    _check_model(server, chat.model)
    named = _session_of(request) or chat.session_id
    new_reader = partial(CompletionReader, client_tools=_own_tools(server, chat), throw_away=named is None)
    open_encoder = partial(_encoder, model=server.agent.name, new_reader=new_reader, include_usage=chat.include_usage)

    wanted = run_request(chat, session_id=named or new_ulid(), throw_away=named is None)
    arrival = Arrival(
        request=request,
        wire=NAME,
        owner=owner,
        conversation=named,
        key=repeat_key_of(request, NAME, owner),
        fingerprint=sha256(body + (named or "").encode()).digest(),
        prepare=partial(with_files, server, wanted, owner),
        open_encoder=open_encoder,
    )
    run = await begin(server, arrival)
    try:
        answer = follow(server, run, open_encoder) if chat.stream else await _whole(request, run, new_reader())
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, the client must not start a second run by itself
        answer = answer_error(error, begun=True)
    if named is not None:
        answer.raw_headers.append((SESSION_HEADER.lower().encode(), named.encode()))
    return answer


@routes.get("/models", "The agent, as a list of models", access=needs(CHAT), responses=MODELS)
async def models(request: Request) -> Response:
    return json_answer(ModelList(data=(_model(server_of(request)),)))


@routes.get("/models/{model:path}", "The agent, as a model", access=needs(CHAT), responses=MODEL)
async def model(request: Request) -> Response:
    server = server_of(request)
    _check_model(server, request.path_params["model"])
    return json_answer(_model(server))


def _check_model(server: AgentServer, wanted: str | None) -> None:
    """A request without a model means the agent that is served; there is no other."""
    name = server.agent.name
    if wanted is not None and wanted not in {name, OWN_PREFIX + name}:
        raise model_not_found(f"There is no model {wanted!r} here, only the agent {name!r}.")


def _model(server: AgentServer) -> Model:
    return Model(id=server.agent.name, created=0)


def _session_of(request: Request) -> str | None:
    for header in (SESSION_HEADER, CONVERSATION_HEADER):
        given = text_header(request, header)
        if given:
            return foreign_id(given, header)
    return None


def _own_tools(server: AgentServer, chat: ChatCompletionRequest) -> frozenset[str]:
    """The names of the tools that the client carries out. Where the agent has one of the same name, the agent's is used."""
    if not chat.tools:
        return frozenset()
    ours = {schema.name for schema in server.agent.tools.schemas()}
    for name in sorted(ours & chat.tool_names):
        log.warning("a client's tool %r is not used: the agent has one of this name", name)
    return chat.tool_names - ours


async def _whole(request: Request, run: Run, reader: CompletionReader) -> Response:
    """The plain answer, from the same pieces as the stream."""
    server = server_of(request)
    await ending_of(server.runs, run, request.receive)
    pieces = (piece for event in _events(server, run) for piece in reader.read(event))
    return json_answer(completion(_head(run, server.agent.name), pieces))


def _events(server: AgentServer, run: Run) -> Iterator[Event]:
    """What this client may see of a run. Of one with more events than are kept, the oldest are missing."""
    chain, kept = server.chain(), run.log.kept
    return iter(kept) if chain is None else (bare(event) for _, event in chain(enumerate(kept)))


def _head(run: Run, model: str) -> CompletionHead:
    return CompletionHead(id=PREFIX + run.run_id, created=int(run.created_at.timestamp()), model=model)


def _encoder(
    run: Run,
    _accept: str | None,
    *,
    model: str,
    new_reader: Callable[[], CompletionReader],
    include_usage: bool,
) -> Encoder:
    return ChunkEncoder(_head(run, model), new_reader(), include_usage=include_usage)


WIRE = Wire(
    name=NAME,
    title="OpenAI's Chat Completions, whole or streamed; the agent as a model",
    endpoints=(("OpenAI", "/v1/chat/completions"), ("OpenAI, models", "/v1/models")),
    example='{"messages":[{"role":"user","content":"Hello"}]}',
    routes=(routes,),
    open_encoder=partial(_encoder, model=OWN_PREFIX.rstrip("/"), new_reader=CompletionReader, include_usage=False),
)
