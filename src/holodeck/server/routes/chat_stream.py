"""Chat-stream: `POST /chat/stream`. The wire itself is `holodeck.wires.chat_stream`."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.core.encoder import Encoder
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.chat_schemas import CHAT_STREAM_BODY, CHAT_STREAM_EVENTS
from holodeck.server.identity import owner_of
from holodeck.server.intake import Arrival, begin, json_body, server_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.server.streaming_response import follow
from holodeck.server.wire import Wire
from holodeck.telemetry.log_context import current
from holodeck.wires import sse
from holodeck.wires.chat_stream.request import decode, run_request
from holodeck.wires.chat_stream.stream import ChatStreamEventMapper

NAME = "chat-stream"
_PREFER = "Prefer"
routes = Routes(tag="Chat-stream", responses=PROBLEMS)


@routes.post(
    "/chat/stream",
    "Ask, and watch",
    access=needs(CHAT),
    parameters=(REPEAT_KEY,),
    body=CHAT_STREAM_BODY,
    responses=CHAT_STREAM_EVENTS,
)
async def chat_stream(request: Request) -> Response:
    """The session is deleted with its run, unless the client names it and the agent file names a session store.

    `Prefer: return=minimal` leaves out `accumulated`.
    """
    server, chat = server_of(request), decode(await json_body(request))
    session = chat.conversation_id if server.settings.remember_conversations else None
    encoding = {"request_id": current().request_id, "minimal": _prefers_minimal(request)}
    wanted = run_request(chat, session, time_limit=server.settings.chat_stream_timeout, encoding=encoding)
    owner, sent = owner_of(request, chat.user_id), sse.json_bytes(chat)
    if session is None:  # nothing that a person wrote is stored
        sent = sha256(sent).digest()
    run = await begin(Arrival(request, NAME, wanted, sent, owner=owner, conversation=chat.conversation_id))
    return follow(server, run, encoder=_encoder_of(run, encoding))  # a duplicate may prefer another form


def _encoder(_server: AgentServer, run: Run, _accept: str | None) -> Encoder:
    return _encoder_of(run, run.request.encoding)


def _encoder_of(run: Run, encoding: Mapping[str, Any]) -> Encoder:
    mapper = ChatStreamEventMapper(encoding.get("request_id") or run.run_id, minimal=encoding.get("minimal", False))
    return sse.NamedEventEncoder(run.run_id, mapper.read)


def _prefers_minimal(request: Request) -> bool:
    preferences = ",".join(request.headers.getlist(_PREFER)).lower().split(",")
    return any(
        preference.partition(";")[0].replace(" ", "") in {"return=minimal", 'return="minimal"'}
        for preference in preferences
    )


WIRE = Wire(
    name=NAME,
    title="one request, five named events",
    endpoints=(("chat-stream", "/chat/stream"),),
    example='{"input":"Hello"}',
    routes=(routes,),
    open_encoder=_encoder,
    request_headers=(_PREFER,),
)
