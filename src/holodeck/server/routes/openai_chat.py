"""OpenAI's Chat Completions: `POST /v1/chat/completions` and the list of models. The wire is `holodeck.wires.openai_chat`."""

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
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import owner_of
from holodeck.server.intake import Arrival, begin, with_files
from holodeck.server.openai_schemas import (
    COMPLETION,
    COMPLETION_BODY,
    CONVERSATION_HEADER,
    SESSION_HEADER,
    SESSION_PARAMETERS,
)
from holodeck.server.routes import openai_models
from holodeck.server.routes.openai_models import OWN_PREFIX, answer_error, check_model, own_tools
from holodeck.server.routes.request_input import json_answer, json_body, repeat_key_of, server_of, text_header
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.server.stream import follow
from holodeck.server.sync_answer import ending_of
from holodeck.server.wire import Wire
from holodeck.wires.body import foreign_id
from holodeck.wires.openai_chat.completion_pieces import CompletionReader
from holodeck.wires.openai_chat.request import decode, run_request
from holodeck.wires.openai_chat.response import PREFIX, CompletionHead, completion
from holodeck.wires.openai_chat.stream import ChunkEncoder

NAME = "openai"


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
    check_model(server, chat.model)
    named = _session_of(request) or chat.session_id
    new_reader = partial(
        CompletionReader, client_tools=own_tools(server, chat.tool_names, chat.options), throw_away=named is None
    )
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


def _session_of(request: Request) -> str | None:
    for header in (SESSION_HEADER, CONVERSATION_HEADER):
        given = text_header(request, header)
        if given:
            return foreign_id(given, header)
    return None


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
    routes=(routes, openai_models.routes),
    open_encoder=partial(_encoder, model=OWN_PREFIX.rstrip("/"), new_reader=CompletionReader, include_usage=False),
)
