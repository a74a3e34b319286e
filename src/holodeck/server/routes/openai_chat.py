"""OpenAI's Chat Completions: `POST /v1/chat/completions` and the list of models. The wire is `holodeck.wires.openai_chat`."""

from hashlib import sha256
from time import time
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.core.encoder import Encoder
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.runs.run import Run
from holodeck.server import completion_sessions as sessions
from holodeck.server import intake
from holodeck.server import openai_schemas as schemas
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import owner_of
from holodeck.server.routes import openai_models
from holodeck.server.routes.openai_models import SDK_HEADERS, answer_error, check_model, own_tools
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.server.streaming_response import follow
from holodeck.server.sync_answer import ending_of
from holodeck.server.wire import Wire
from holodeck.wires.body import valid_id
from holodeck.wires.openai_chat.completion_pieces import CompletionReader
from holodeck.wires.openai_chat.error_form import DO_NOT_RETRY
from holodeck.wires.openai_chat.request import ChatCompletionRequest, decode
from holodeck.wires.openai_chat.response import PREFIX, ChunkEncoder, CompletionHead, completion

NAME = "openai"


class ChunkOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a completion has to know of its request: `RunRequest.encoding` of this wire's runs."""

    created: int = 0  # seconds since 1970; a store has the time at which it stored the run
    client_tools: tuple[str, ...] = ()
    include_usage: bool = False
    names_session: bool = False


routes = Routes("/v1", tag="OpenAI", responses=PROBLEMS, schemas=schemas.COMPLETION_SCHEMAS, answer_error=answer_error)


@routes.post(
    "/chat/completions",
    "Create a chat completion, whole or streamed",
    access=needs(CHAT),
    parameters=(*schemas.SESSION_PARAMETERS, REPEAT_KEY),
    body=schemas.COMPLETION_BODY,
    responses=schemas.COMPLETION,
)
async def chat_completions(request: Request) -> Response:
    """Without a session and without `store`, `messages` is the whole conversation, and none of them is stored."""
    server, owner, body = intake.server_of(request), owner_of(request), await intake.json_body(request)
    chat = await intake.decoded(decode, body, server.settings.block.limits.message_characters)
    check_model(server, chat.model)
    named = _named(request) or chat.session_id
    means, encoding = await _session_of(request, owner, chat, named), _encoding(server, chat, named)

    async def prepare() -> RunRequest:
        branch = await sessions.branch_of(server, owner, means)
        wanted = replace(chat.run, session_id=branch.session_id, throw_away=not means.is_kept, encoding=encoding)
        return sessions.without_stored(wanted, branch) if means.only_new else wanted

    sent, attempt = sha256(body + (_named(request) or "").encode()).digest(), intake.attempt_of(request)
    arrival = intake.Arrival(request, NAME, prepare, sent, owner, conversation=means.session_id, attempt=attempt)
    run = await intake.begin(arrival)
    if chat.store:
        await sessions.note_answer(server.store.values, owner, chat.run.messages, run)
    try:
        answer = follow(server, run) if chat.stream else await _whole(request, run)
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, the client must not start a second run by itself
        answer = answer_error(error, begun=True)
    if means.is_kept:
        answer.raw_headers.append((schemas.SESSION_HEADER.lower().encode(), run.session_id.encode()))
    return answer


def _encoding(server: AgentServer, chat: ChatCompletionRequest, named: str | None) -> dict[str, Any]:
    tools = tuple(sorted(own_tools(server, chat.run)))
    options = ChunkOptions(
        created=int(time()),
        client_tools=tools,
        include_usage=chat.include_usage,
        names_session=named is not None,
    )
    encoding: dict[str, Any] = msgspec.to_builtins(options)
    return encoding


async def _session_of(
    request: Request, owner: Owner, chat: ChatCompletionRequest, named: str | None
) -> sessions.CompletionSession:
    server = intake.server_of(request)
    if named is not None:
        return sessions.CompletionSession(session_id=named, is_kept=True)
    if hint := intake.text_header(request, schemas.HINT_HEADER):
        return await sessions.hinted(
            server, owner, valid_id(hint, schemas.HINT_HEADER), chat.run.messages, streams=chat.stream
        )
    if not chat.store:
        return sessions.THROW_AWAY
    return await sessions.recognised(server, owner, chat.run.messages)


def _named(request: Request) -> str | None:
    for header in (schemas.SESSION_HEADER, schemas.CONVERSATION_HEADER):
        given = intake.text_header(request, header)
        if given:
            return valid_id(given, header)
    return None


async def _whole(request: Request, run: Run) -> Response:
    """The non-streamed answer, from the same pieces as the stream."""
    server, options = intake.server_of(request), _options(run)
    reader = _reader(run, options)
    await ending_of(server.runs, run, request.receive)
    pieces = (piece for event in server.shown_events(*run.request_parts) for piece in reader.read(event))
    return intake.json_answer(completion(_head(run, server, options), pieces))


def _head(run: Run, server: AgentServer, options: ChunkOptions) -> CompletionHead:
    created = options.created or int(run.created_at.timestamp())
    return CompletionHead(id=PREFIX + run.run_id, created=created, model=server.agent.name)


def _options(run: Run) -> ChunkOptions:
    return msgspec.convert(run.request.encoding, ChunkOptions)


def _reader(run: Run, options: ChunkOptions) -> CompletionReader:
    return CompletionReader(
        client_tools=options.client_tools, names_session=options.names_session, throw_away=run.request.throw_away
    )


def _encoder(server: AgentServer, run: Run, _accept: str | None) -> Encoder:
    options = _options(run)
    return ChunkEncoder(_head(run, server, options), _reader(run, options), include_usage=options.include_usage)


WIRE = Wire(
    name=NAME,
    title="OpenAI's Chat Completions, whole or streamed; the agent as a model",
    is_default=True,
    base=routes.prefix,
    endpoints=(("OpenAI", "/v1/chat/completions"), ("OpenAI, models", "/v1/models")),
    example='{"messages":[{"role":"user","content":"Hello"}]}',
    routes=(routes, openai_models.routes),
    open_encoder=_encoder,
    request_headers=(schemas.SESSION_HEADER, schemas.CONVERSATION_HEADER, schemas.HINT_HEADER, *SDK_HEADERS),
    response_headers=(schemas.SESSION_HEADER, *DO_NOT_RETRY),
)
