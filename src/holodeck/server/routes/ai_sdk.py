"""Vercel's AI SDK: `POST /ai-sdk/chat` and the other requests of `useChat`. The wire is `holodeck.wires.ai_sdk`."""

from hashlib import sha256
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT, RUNS_READ, RUNS_STOP, SESSIONS_READ
from holodeck.access.route_access import needs
from holodeck.agent.tool_calls import server_tools
from holodeck.core.encoder import Encoder
from holodeck.core.ids import MAX_ID_LENGTH
from holodeck.core.json_schema import array, nullable, object_of, string
from holodeck.core.messages import Message, PendingStep
from holodeck.runs.middleware import EventMiddleware
from holodeck.runs.port import RunKey
from holodeck.runs.run import Run
from holodeck.server import intake
from holodeck.server.agent_server import AgentServer, slot_of
from holodeck.server.identity import owner_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import OBJECT, PROBLEMS, REPEAT_KEY, SSE_STREAM, StopResponse, json_request, json_response
from holodeck.server.streaming_response import EventStream, follow
from holodeck.server.wire import Wire
from holodeck.sessions.port import StoredSession
from holodeck.wires.ai_sdk.history import chunks_of, last_turn, not_in, turn_id, turn_parts, ui_messages
from holodeck.wires.ai_sdk.request import MAX_CONTEXT, MAX_PARTS, MAX_TOOLS, UiAnswer, UiRequest, decode
from holodeck.wires.ai_sdk.stream import HEADERS, UiMessageEncoder
from holodeck.wires.body import MAX_NAME

_OWN_TOOLS = "Tools that the client carries out: name, description, parameters"
UI_MESSAGE = object_of(
    {
        "id": string(maxLength=MAX_NAME),
        "role": {"enum": ["user", "assistant", "system"]},
        "parts": array(OBJECT, maxItems=MAX_PARTS),
    },
    required=["id", "role", "parts"],
)
_EXAMPLE = {"id": "chat-1", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]}
_UI_REQUEST = object_of(
    {
        "id": string("The session", minLength=1, maxLength=MAX_ID_LENGTH),
        "messages": array(UI_MESSAGE, minItems=1, maxItems=10_000),
        "trigger": {"enum": ["submit-message", "regenerate-message", None]},
        "messageId": nullable(string(maxLength=MAX_NAME)),
        "tools": nullable(array(OBJECT, _OWN_TOOLS, maxItems=MAX_TOOLS)),
        "context": nullable(array(OBJECT, maxItems=MAX_CONTEXT)),
        "state": {},
        "timezone": nullable(string(maxLength=MAX_NAME)),
    },
    required=["id", "messages"],
)
_SENT_BY = "As DefaultChatTransport sends it; tools, context, state and timezone come from its `body`"
UI_BODY = json_request({**_UI_REQUEST, "description": _SENT_BY}, _EXAMPLE)
UI_MESSAGES = json_response("The conversation, for `useChat({messages})`", array(UI_MESSAGE))


NAME = "ai-sdk"

# Clients choose the ids, which may contain a slash, hence `:path`.
routes = Routes("/ai-sdk/chat", tag="AI SDK", responses=PROBLEMS)


@routes.post(
    "",
    "Send the messages of `useChat`",
    access=needs(CHAT),
    parameters=(REPEAT_KEY,),
    body=UI_BODY,
    responses={200: SSE_STREAM},
)
async def chat(request: Request) -> Response:
    """Streams the chunks of one assistant message. The chat id is the session, on every wire."""
    server, owner, body = intake.server_of(request), owner_of(request), await intake.json_body(request)
    ui = await intake.decoded(decode, body, server.settings.block.limits.message_characters)
    sent, wanted = sha256(body).digest(), msgspec.structs.replace(ui.run, encoding=_encoding(server, ui))
    key = intake.repeat_key_of(request, NAME, owner)
    if key is None and ui.new_message is not None:  # the same new message again is the same request
        key = RunKey(NAME, owner, sent.hex(), "messages")
    run = await intake.begin(intake.Arrival(request, NAME, wanted, sent, owner=owner, key=key))
    return _with_headers(follow(server, run))


@routes.get(
    "/{id:path}/stream",
    "Resume the stream of the run in progress",
    access=needs(RUNS_READ),
    responses={200: SSE_STREAM, 204: {"description": "No run is in progress"}},
)
async def resume(request: Request) -> Response:
    """From the beginning of the assistant message, on whichever wire the run was started."""
    server, key, owner = intake.session_of(request)
    stored = await server.store.read(key, owner=owner)
    runs = await server.stored_runs.of_session(key, owner=owner)
    run = next((each for each in runs if not each.log.ended), None)
    if run is None:
        return Response(status_code=204)
    await slot_of(request).take(request, owner)
    messages, pending = _shown(stored, server.middleware())
    turn = last_turn(messages, pending)
    parts = turn_parts(not_in(run.log.kept, turn), pending, server_tools=server_tools(server.agent))
    encoder = _encoder_of(run) if run.request.wire == NAME else UiMessageEncoder(turn_id(turn) if turn else run.run_id)
    encoder.before = list(chunks_of(parts))
    return _with_headers(follow(server, run, encoder=encoder))


@routes.get("/{id:path}/messages", "The messages of a chat", access=needs(SESSIONS_READ), responses=UI_MESSAGES)
async def show_messages(request: Request) -> Response:
    """What `useChat` is given as `messages` when a page is loaded."""
    server, stored = await intake.stored_of(request)
    messages, pending = _shown(stored, server.middleware())
    return intake.json_answer(ui_messages(messages, pending, server_tools=server_tools(server.agent)))


@routes.post("/{id:path}/stop", "Stop the runs of a chat", access=needs(RUNS_STOP), responses={200: StopResponse})
async def stop(request: Request) -> Response:
    """`stop()` of `useChat` only closes the connection, and a run outlives its connection."""
    server, key, owner = intake.session_of(request)
    runs = await server.stored_runs.of_session(key, owner=owner)
    results = await server.stop_runs(*runs)
    return intake.json_answer(StopResponse(stopped=any(each.is_stopping for each in results)))


def _shown(stored: StoredSession | None, middleware: EventMiddleware) -> tuple[list[Message], PendingStep | None]:
    """The messages that the agent's middleware lets through.

    Questions to a person are always included: a person cannot approve a hidden call.
    """
    if stored is None:
        return [], None
    messages, pending = middleware.shown_messages(stored.messages), stored.pending
    if pending is None:
        return messages, None
    kept = {message.id for message in middleware.shown_messages((pending.assistant, *pending.results))}
    asked = set(pending.approvals.values()) | set(pending.client_calls)
    assistant = pending.assistant
    if assistant.id not in kept:
        calls = tuple(call for call in assistant.tool_calls if call.id in asked)
        assistant = msgspec.structs.replace(assistant, content="", reasoning="", tool_calls=calls)
    results = tuple(result for result in pending.results if result.id in kept)
    return messages, msgspec.structs.replace(pending, assistant=assistant, results=results)


def _with_headers(stream: EventStream) -> EventStream:
    stream.raw_headers += [(header.encode(), value.encode()) for header, value in HEADERS.items()]
    return stream


def _encoding(server: AgentServer, ui: UiRequest) -> dict[str, Any]:
    """What the encoder has to know. If the agent has a tool of the name of a client's tool, the agent's is used."""
    names = {tool.name for tool in ui.run.client_tools}
    own = sorted(names - server_tools(server.agent)) if names else ()
    encoding: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(ui.answer, client_tools=tuple(own)))
    return encoding


def _encoder_of(run: Run) -> UiMessageEncoder:
    answer = msgspec.convert(run.request.encoding, UiAnswer)
    return UiMessageEncoder(answer.continued or run.run_id, answer)


def _encoder(_server: AgentServer, run: Run, _accept: str | None) -> Encoder:
    return _encoder_of(run)


WIRE = Wire(
    name=NAME,
    title="the UI message stream of Vercel's AI SDK, for `useChat`",
    endpoints=(("AI SDK", "/ai-sdk/chat"),),
    example="""{"id":"t1","messages":[{"id":"m'$RANDOM'","role":"user","parts":[{"type":"text","text":"Hello"}]}]}""",
    routes=(routes,),
    open_encoder=_encoder,
    response_headers=tuple(HEADERS),
)
