"""Chat-stream: `POST /chat/stream`. The wire itself is `holodeck.wires.chat_stream`."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import needs
from holodeck.runs.runs import Run
from holodeck.server.chat_schemas import CHAT_STREAM_BODY, CHAT_STREAM_EVENTS
from holodeck.server.chat_streams import ChatStreams
from holodeck.server.identity import owner_of
from holodeck.server.options import ProtocolType
from holodeck.server.readers import named_event_readers_of
from holodeck.server.routes.request_input import json_body, repeat_key_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, REPEAT_KEY
from holodeck.telemetry.context import current
from holodeck.wires.chat_stream.request import decode
from holodeck.wires.chat_stream.stream import ChatStreamEventMapper
from holodeck.wires.encoder import Encoder
from holodeck.wires.named_events import NamedEventEncoder

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
    """Nothing is kept between two requests, unless the agent file names a session store.

    `Prefer: return=minimal` leaves out `accumulated`.
    """
    streams: ChatStreams = request.app.state.chat_streams
    chat = decode(await json_body(request))
    owner = owner_of(request, chat.user_id)
    run = await streams.start(chat, owner, repeat_key_of(request, ProtocolType.CHAT_STREAM, owner))
    make = partial(_encoder, request_id=current().request_id or run.run_id, minimal=_prefers_minimal(request))
    return named_event_readers_of(request).begin(run, make)


def _encoder(run: Run, *, request_id: str, minimal: bool) -> Encoder:
    return NamedEventEncoder(run.run_id, ChatStreamEventMapper(request_id, minimal=minimal))


def _prefers_minimal(request: Request) -> bool:
    wishes = ",".join(request.headers.getlist("prefer")).lower().split(",")
    return any(wish.partition(";")[0].replace(" ", "") in {"return=minimal", 'return="minimal"'} for wish in wishes)
