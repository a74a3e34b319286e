"""OpenAI's Conversations: a session, with its messages as items. `conversation` of a response is its id.

Only responses create items. A client cannot add any, since the history of a session is what its runs stored.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT, SESSIONS_DELETE, SESSIONS_READ
from holodeck.access.route_access import needs
from holodeck.agent.tool_calls import server_tools
from holodeck.core.events import questions_of
from holodeck.core.messages import Message
from holodeck.core.owner import Owner
from holodeck.errors import InvalidRequest, NotFound
from holodeck.server.agent_server import RATE_LIMIT, AgentServer
from holodeck.server.audit import decided
from holodeck.server.identity import owner_of, spender_of
from holodeck.server.intake import json_answer, json_body, no_session, server_of, session_of, stored_of, whole_number
from holodeck.server.openai_schemas import CONVERSATION, CONVERSATION_BODY, DELETED, INPUT_ITEMS, INPUT_PARAMETERS
from holodeck.server.routes.openai_models import answer_error
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS
from holodeck.sessions.port import ServerSession, StoredSession
from holodeck.sessions.values import KeptValue
from holodeck.wires import sse
from holodeck.wires.body import parse
from holodeck.wires.openai_chat.error_form import unsupported
from holodeck.wires.openai_responses.echo import metadata_of
from holodeck.wires.openai_responses.input_list import conversation_items

KIND, NAME = "conversation", "metadata"
MAX_CONVERSATIONS = 10_000  # conversations of one owner that have metadata
LISTED, MAX_LISTED = 20, 100

# Clients of other wires choose the ids, which may contain a slash, hence `:path`. The bare id comes last.
routes = Routes("/v1/conversations", tag="OpenAI Responses", responses=PROBLEMS, answer_error=answer_error)


@routes.post("", "Begin a conversation", access=needs(CHAT), body=CONVERSATION_BODY, responses=CONVERSATION)
async def create(request: Request) -> Response:
    server, owner, metadata = server_of(request), owner_of(request), await _given(request)
    request.scope[RATE_LIMIT] = await server.quotas.count(spender_of(request, owner))
    session = await server.store.create(owner=owner)
    await _keep(server, owner, session.session_id, metadata)
    return _shown(session, metadata)


@routes.get(
    "/{id:path}/items/{item_id}", "An item of a conversation", access=needs(SESSIONS_READ), responses=CONVERSATION
)
async def show_item(request: Request) -> Response:
    wanted = request.path_params["item_id"]
    item = next((each for each in items_of(*await stored_of(request)) if each["id"] == wanted), None)
    if item is None:
        raise NotFound("There is no item of this id in the conversation.")
    return json_answer(item)


@routes.get(
    "/{id:path}/items",
    "The items of a conversation",
    access=needs(SESSIONS_READ),
    parameters=INPUT_PARAMETERS,
    responses=INPUT_ITEMS,
)
async def items(request: Request) -> Response:
    return item_page(request, items_of(*await stored_of(request)))


@routes.get("/{id:path}", "A conversation", access=needs(SESSIONS_READ), responses=CONVERSATION)
async def show(request: Request) -> Response:
    server, key, owner = session_of(request)
    session = await _session(server, key, owner)
    return _shown(session, await _metadata(server, owner, key))


@routes.post(
    "/{id:path}", "Change a conversation's metadata", access=needs(CHAT), body=CONVERSATION_BODY, responses=CONVERSATION
)
async def update(request: Request) -> Response:
    server, key, owner = session_of(request)
    metadata = await _given(request)
    session = await _session(server, key, owner)
    await _keep(server, owner, key, metadata)
    return _shown(session, metadata)


@routes.delete("/{id:path}", "Delete a conversation", access=needs(SESSIONS_DELETE), responses=DELETED)
async def delete(request: Request) -> Response:
    """Stops what runs on it."""
    server, key, owner = session_of(request)
    await _session(server, key, owner)
    await server.runs.delete_session(key, owner=owner)
    decided("session_deleted", owner, session_id=key)
    return json_answer({"id": key, "object": "conversation.deleted", "deleted": True})


def item_page(request: Request, every: Sequence[dict[str, Any]]) -> Response:
    """Returns the part of a list, oldest first, that the query asks for."""
    limit = whole_number(request, "limit", range(1, MAX_LISTED + 1)) or LISTED
    order, after = request.query_params.get("order", "desc"), request.query_params.get("after")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc.", field="order")
    left = every if order == "asc" else every[::-1]
    if after is not None:
        place = next((place for place, item in enumerate(left) if item["id"] == after), len(left))
        left = left[place + 1 :]
    page = left[:limit]
    body = {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(left) > limit,
    }
    return json_answer(body)


async def _given(request: Request) -> dict[str, Any]:
    """Reads the metadata of a request. Items are refused by name."""
    raw = parse(await json_body(request))
    if raw.get("items"):
        raise unsupported("items", "items cannot be added: send them as `input` of the first response.")
    return metadata_of(raw.get("metadata"))


async def _session(server: AgentServer, key: str, owner: Owner) -> ServerSession:
    session = await server.store.get(key, owner=owner)
    if session is None:
        raise no_session(key)
    return session


def items_of(server: AgentServer, stored: StoredSession) -> list[dict[str, Any]]:
    """The messages that the agent's middleware lets through."""
    waiting: tuple[Message, ...] = () if stored.pending is None else (stored.pending.assistant, *stored.pending.results)
    messages = server.middleware().shown_messages((*stored.messages, *waiting))
    rows = server.agent.tools.rows()
    labels = {name: rows[name].label if name in rows else "holodeck" for name in server_tools(server.agent)}
    questions = {each.call_id: each.id for each in questions_of(stored.pending)}
    return conversation_items(messages, labels=labels, questions=questions)


def _shown(session: ServerSession, metadata: dict[str, Any]) -> Response:
    created = int(session.created_at.timestamp())
    body = {"id": session.session_id, "object": "conversation", "created_at": created, "metadata": metadata}
    return json_answer(body)


async def _metadata(server: AgentServer, owner: Owner, key: str) -> dict[str, Any]:
    found = await server.store.values.of_topic(KIND, key, owner=owner)
    kept: dict[str, Any] = msgspec.json.decode(found[-1].body) if found else {}
    return kept


async def _keep(server: AgentServer, owner: Owner, key: str, metadata: dict[str, Any]) -> None:
    if not metadata:
        await server.store.values.remove(KIND, key, NAME, owner=owner)
        return
    value = KeptValue(kind=KIND, topic=key, name=NAME, body=sse.json_bytes(metadata), session_id=key)
    await server.store.values.put(value, owner=owner, at_most=MAX_CONVERSATIONS)
