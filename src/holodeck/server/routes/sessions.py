"""Sessions by their id: read, forget (SRV-11)."""

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holodeck.core.messages import Message
from holodeck.errors import SessionNotFound
from holodeck.server.routes.asking import server_of, session_id, user_of
from holodeck.server.schemas import PROBLEMS, SessionResponse

# Ids are the client's own and may hold a slash, hence `:path`.
router = APIRouter(prefix="/sessions", tags=["Sessions"], responses=PROBLEMS)


@router.get("/{id:path}", summary="A conversation")
async def show(request: Request, id: str) -> SessionResponse:  # noqa: A002  the name in the address
    store, key, user = server_of(request).store, session_id(id), user_of(request)
    session = await store.get(key, user_id=user)
    if session is None:
        raise SessionNotFound(f"There is no session {key!r}, or its time has run out.")
    conversation = await store.open(key, user_id=user)
    return SessionResponse(
        session_id=key,
        created_at=session.created_at,
        last_activity=session.last_activity,
        message_count=session.message_count,
        messages=[_shown(message) for message in conversation.messages],
    )


@router.delete("/{id:path}", summary="Forget a conversation", status_code=204)
async def forget(request: Request, id: str) -> Response:  # noqa: A002  the name in the address
    """Stops what runs on it. It is no error if there is nothing to forget."""
    server, key, user = server_of(request), session_id(id), user_of(request)
    server.runs.forget_session(key, user_id=user)
    await server.store.delete(key, user_id=user)
    return Response(status_code=204)


def _shown(message: Message) -> dict[str, Any]:
    """Without `extra`, which holds a provider's opaque signatures."""
    shown: dict[str, Any] = msgspec.to_builtins(message)
    shown.pop("extra", None)
    for call in shown.get("tool_calls", ()):
        call.pop("extra", None)
    return shown
