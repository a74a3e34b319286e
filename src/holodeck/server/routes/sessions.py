"""Routes of sessions: list, read, follow, delete, rewind (SRV-11)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import RUNS_READ, SESSIONS_DELETE, SESSIONS_READ
from holodeck.access.route_access import needs
from holodeck.core.events import HistoryCompacted, StateReplaced, failure, questions_of
from holodeck.core.ids import is_valid_id
from holodeck.core.messages import Message, PendingStep, UserMessage, text_of
from holodeck.core.owner import OwnedId, Owner
from holodeck.core.text import one_line
from holodeck.errors import HoloDeckError, InvalidRequest, SessionBusy
from holodeck.runs.middleware import EventMiddleware
from holodeck.runs.run import Run
from holodeck.server import schemas
from holodeck.server.agent_server import AgentServer, slot_of
from holodeck.server.audit import decided
from holodeck.server.identity import owner_of
from holodeck.server.intake import json_answer, no_session, server_of, session_of, stored_of, text_header, whole_number
from holodeck.server.routing import Routes
from holodeck.server.run_feed import RunFeed
from holodeck.server.streaming_response import Cursor, first_position
from holodeck.sessions.port import ServerSession
from holodeck.sessions.transcript import MAX_TITLE
from holodeck.wires import sse
from holodeck.wires.agui.encode import encoder_for
from holodeck.wires.agui.profile import Profile
from holodeck.wires.body import MAX_NAME
from holodeck.wires.sse import event_of

MAX_SHOWN = 50  # runs whose events are counted


class SessionFeed(RunFeed):
    """Sends AG-UI events with ids `<run>:<n>`.

    It begins with the events so far of the session's runs in progress. A reader that reconnects begins after the event
    that it names, as long as that run can be replayed.
    """

    def __init__(self, server: AgentServer, session: OwnedId, after: tuple[str, int] | None = None) -> None:
        beginning = sse.KEEPALIVE  # the server sends the head of an answer with its first bytes
        super().__init__(server, session, prefix=beginning)
        self._after = after
        self._shown: dict[str, int] = {}  # the number of the next event, by run

    def _error(self, error: HoloDeckError) -> bytes:
        _, session_id = self._session
        return encoder_for(None, Profile.FULL, "").encode(failure("", session_id, error))

    async def _first(self) -> list[tuple[Run, int]]:
        owner, session_id = self._session
        stored = self._server.stored_runs
        if self._after is not None:
            run_id, number = self._after
            found = await stored.since(run_id, session_id, owner=owner)
            if found:
                return [(run, number + 1 if run.run_id == run_id else 0) for run in found]
        runs = await stored.of_session(session_id, owner=owner)
        return [(run, 0) for run in runs if not run.log.ended]

    async def _show(self, run: Run, first: int) -> bool:
        """Shows a run from event `first` on, with all of its parts, and no event twice.

        A run may be announced twice: it is known here, or this process takes it over, while its copy is being followed.
        """
        encoder = encoder_for(None, Profile.FULL, run.run_id)
        parts: Sequence[Run] = run.parts if run.is_remote or first else run.request_parts
        while parts:
            for part in parts:
                first = max(first, self._shown.get(run.run_id, 0))
                with self._runs.attached(part, returns=True):
                    cursor = Cursor(part, encoder, first_position(part, first, encoder), self._server.middleware())
                    await self._follow(cursor, last=False)
                self._shown[run.run_id] = max(self._shown.get(run.run_id, 0), part.first_number + cursor.position)
            later = parts[-1].later
            parts = () if later is None or self._left else (later,)
        while len(self._shown) > MAX_SHOWN:
            del self._shown[next(iter(self._shown))]
        return False


LISTED, MAX_LISTED = 50, 200
_EPOCH, _MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)
_NO_CURSOR = "after must be the `next` of another page."

# Clients choose the ids, which may contain a slash, hence `:path`. The bare id comes last, since it matches all.
routes = Routes("/sessions", tag="Sessions", responses=schemas.PROBLEMS)

FROM = schemas.parameter("from", "query", "Only this message of the user, and what followed it", maxLength=MAX_NAME)
LIMIT = schemas.parameter(
    "limit",
    "query",
    f"How many, at most {MAX_LISTED}",
    type="integer",
    minimum=1,
    maximum=MAX_LISTED,
    default=LISTED,
)
AFTER = schemas.parameter("after", "query", "The `next` of the page before", maxLength=MAX_NAME)


@routes.get(
    "",
    "Your conversations, most recently used first",
    access=needs(SESSIONS_READ),
    parameters=(LIMIT, AFTER),
    responses={200: schemas.SessionList},
)
async def listed(request: Request) -> Response:
    """The sessions without their messages. `next` is set if there may be more."""
    server, owner = server_of(request), owner_of(request)
    limit = whole_number(request, "limit", range(1, MAX_LISTED + 1)) or LISTED
    given = request.query_params.get("after")
    after = None if given is None else _session_at(given, owner)
    found = await server.store.sessions_of(owner=owner, limit=limit, after=after)
    active = await server.stored_runs.active_in([each.session_id for each in found], owner=owner)
    middleware = server.middleware()
    entries = [
        schemas.SessionEntry(
            session_id=each.session_id,
            created_at=each.created_at,
            last_activity=each.last_activity,
            message_count=each.message_count,
            title=_title(each.title, middleware),
            active_runs=runs,
        )
        for each, runs in zip(found, active, strict=True)
    ]
    return json_answer(schemas.SessionList(sessions=entries, next=_cursor(found[-1]) if len(found) == limit else None))


def _title(title: str, middleware: EventMiddleware) -> str:
    """Returns the title, if the agent's middleware lets it through: it is a message of the user."""
    shown = middleware.shown_messages((UserMessage(content=title),)) if title else ()
    return one_line(text_of(shown[0].content), MAX_TITLE) if shown else ""


def _cursor(session: ServerSession) -> str:
    """Encodes the end of a page for the request of the next one: opaque to clients."""
    microseconds = (session.last_activity - _EPOCH) // _MICROSECOND
    return urlsafe_b64encode(f"{microseconds} {session.session_id}".encode()).rstrip(b"=").decode()


def _session_at(cursor: str, owner: Owner) -> ServerSession:
    try:
        given = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode()
        microseconds, _, session_id = given.partition(" ")
        used = _EPOCH + int(microseconds) * _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(_NO_CURSOR, field="after") from error
    if not is_valid_id(session_id):
        raise InvalidRequest(_NO_CURSOR, field="after")
    return ServerSession(session_id=session_id, owner=owner, created_at=used, last_activity=used)


@routes.get(
    "/{id:path}/events",
    "Follow a conversation: every run, as it starts",
    access=needs(RUNS_READ),
    parameters=(schemas.LAST_EVENT_ID,),
    responses={200: schemas.SSE_STREAM},
)
async def events(request: Request) -> Response:
    """Follows the session's runs, on whatever wire they start. The stream does not end; the server sends a comment when idle."""
    server, key, owner = session_of(request)
    if not await server.stored_runs.active(key, owner=owner) and await server.store.get(key, owner=owner) is None:
        raise no_session(key)
    await slot_of(request).take(request, owner)
    after = event_of(text_header(request, "last-event-id") or "")
    return SessionFeed(server, (owner, key), after)


@routes.get("/{id:path}", "A conversation", access=needs(SESSIONS_READ), responses={200: schemas.SessionResponse})
async def show(request: Request) -> Response:
    server, stored = await stored_of(request)
    session, middleware, summary = stored.session, server.middleware(), stored.summary
    shows_summary = summary is not None and middleware.shown(HistoryCompacted(summary.messages))
    active = await server.stored_runs.active(session.session_id, owner=session.owner)
    response = schemas.SessionResponse(
        session_id=session.session_id,
        created_at=session.created_at,
        last_activity=session.last_activity,
        message_count=session.message_count,
        messages=[_shown(message) for message in middleware.shown_messages(stored.messages)],
        pending=None if stored.pending is None else _waiting(stored.pending, middleware),
        summary=msgspec.convert(summary, schemas.SummaryResponse, from_attributes=True) if shows_summary else None,
        state=stored.state if middleware.shown(StateReplaced(stored.state)) else None,
        active_runs=active,
        cut_run=None if active else await server.stored_runs.cut_run(stored),
    )
    return json_answer(response)


@routes.delete(
    "/{id:path}", "Delete a conversation", access=needs(SESSIONS_DELETE), parameters=(FROM,), responses={204: {}}
)
async def forget(request: Request) -> Response:
    """Stops the session's runs. Succeeds also if the session does not exist."""
    server, key, owner = session_of(request)
    since = request.query_params.get("from")
    if since is not None:
        if await server.stored_runs.active(key, owner=owner):
            raise SessionBusy(f"Session {key!r} has a run in progress; stop it first.")
        await server.store.rewind(key, since, owner=owner)
        return Response(status_code=204)
    await server.runs.delete_session(key, owner=owner)
    decided("session_deleted", owner, session_id=key)
    return Response(status_code=204)


def _waiting(pending: PendingStep, middleware: EventMiddleware) -> schemas.PendingResponse:
    """Questions to a person are always shown: a person cannot approve a hidden call."""
    shown = {message.id: message for message in middleware.shown_messages((pending.assistant, *pending.results))}
    empty = msgspec.structs.replace(pending.assistant, content="", reasoning="", tool_calls=())
    return schemas.PendingResponse(
        message=_shown(shown.get(pending.assistant.id, empty)),
        results=[_shown(result) for result in pending.results if result.id in shown],
        questions=[
            schemas.Question(interrupt_id=each.id, call_id=each.call_id, tool=each.tool, arguments=each.arguments)
            for each in questions_of(pending)
        ],
        client_calls=list(pending.client_calls),
        expires_at=pending.expires_at,
    )


def _shown(message: Message) -> dict[str, Any]:
    """Leaves out `extra`, which holds a provider's opaque signatures."""
    shown: dict[str, Any] = msgspec.to_builtins(message)
    shown.pop("extra", None)
    for call in shown.get("tool_calls", ()):
        call.pop("extra", None)
    return shown
