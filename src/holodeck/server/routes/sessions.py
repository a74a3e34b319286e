"""Sessions by their id: read, forget all or the end of one (SRV-11)."""

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import SESSIONS_DELETE, SESSIONS_READ
from holodeck.access.route_access import needs
from holodeck.core.events import HistoryCompacted, MessagesReplaced, StateReplaced
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.owner import Owner
from holodeck.errors import SessionBusy, SessionNotFound
from holodeck.runs.middleware import Chain
from holodeck.server.agent_server import AgentServer
from holodeck.server.audit import decided
from holodeck.server.identity import owner_of
from holodeck.server.routes.request_input import json_answer, server_of, session_id
from holodeck.server.routing import Routes
from holodeck.server.schemas import PROBLEMS, PendingResponse, Question, SessionResponse, SummaryResponse

# Ids are the client's own and may hold a slash, hence `:path`.
routes = Routes("/sessions", tag="Sessions", responses=PROBLEMS)

FROM = {
    "name": "from",
    "in": "query",
    "description": "Only this message of the user, and what followed it",
    "schema": {"type": "string"},
}


@routes.get("/{id:path}", "A conversation", access=needs(SESSIONS_READ), responses={200: SessionResponse})
async def show(request: Request) -> Response:
    server, key, owner = server_of(request), session_id(request.path_params["id"]), owner_of(request)
    stored = await server.store.read(key, owner=owner)
    if stored is None:
        raise SessionNotFound(f"There is no session {key!r}, or its time has run out.")
    session, chain, summary = stored.session, server.chain() or Chain(), stored.summary
    response = SessionResponse(
        session_id=key,
        created_at=session.created_at,
        last_activity=session.last_activity,
        message_count=session.message_count,
        messages=[_shown(message) for message in shown_messages(stored.messages, chain)],
        pending=None if stored.pending is None else _waiting(stored.pending, chain),
        summary=_summary(summary) if summary and chain.shown(HistoryCompacted(summary.messages)) else None,
        state=stored.state if chain.shown(StateReplaced(stored.state)) else None,
        active_runs=_active_runs(server, key, owner),
    )
    return json_answer(response)


@routes.delete(
    "/{id:path}", "Forget a conversation", access=needs(SESSIONS_DELETE), parameters=(FROM,), responses={204: {}}
)
async def forget(request: Request) -> Response:
    """Stops what runs on it. It is no error if there is nothing to forget."""
    server, key, owner = server_of(request), session_id(request.path_params["id"]), owner_of(request)
    since = request.query_params.get("from")
    if since is not None:
        if _active_runs(server, key, owner):
            raise SessionBusy(f"Session {key!r} has a run in progress; stop it first.")
        await server.store.rewind(key, since, owner=owner)
        return Response(status_code=204)
    server.runs.forget_session(key, owner=owner)
    await server.store.delete(key, owner=owner)
    decided("session_deleted", owner, session_id=key)
    return Response(status_code=204)


def _active_runs(server: AgentServer, key: str, owner: Owner) -> list[str]:
    return [run.run_id for run in server.runs.of_session(key, owner=owner) if not run.log.ended]


def _summary(summary: Summary) -> SummaryResponse:
    return SummaryResponse(
        content=summary.content, until=summary.until, messages=summary.messages, timestamp=summary.timestamp
    )


def shown_messages(messages: Sequence[Message], chain: Chain) -> list[Message]:
    """What the agent's middleware lets through of a history, as on every wire."""
    events = chain.shown(MessagesReplaced(tuple(messages)))
    return [message for event in events if isinstance(event, MessagesReplaced) for message in event.messages]


def _waiting(pending: PendingStep, chain: Chain) -> PendingResponse:
    """The questions are always shown: a person cannot approve a call that is hidden."""
    calls = {call.id: call for call in pending.assistant.tool_calls}
    shown = {message.id: message for message in shown_messages((pending.assistant, *pending.results), chain)}
    empty = msgspec.structs.replace(pending.assistant, content="", reasoning="", tool_calls=())
    return PendingResponse(
        message=_shown(shown.get(pending.assistant.id, empty)),
        results=[_shown(result) for result in pending.results if result.id in shown],
        questions=[
            Question(interrupt_id=id_, call_id=call_id, tool=calls[call_id].name, arguments=calls[call_id].arguments)
            for id_, call_id in pending.approvals.items()
        ],
        client_calls=list(pending.client_calls),
        expires_at=pending.expires_at,
    )


def _shown(message: Message) -> dict[str, Any]:
    """Without `extra`, which holds a provider's opaque signatures."""
    shown: dict[str, Any] = msgspec.to_builtins(message)
    shown.pop("extra", None)
    for call in shown.get("tool_calls", ()):
        call.pop("extra", None)
    return shown
