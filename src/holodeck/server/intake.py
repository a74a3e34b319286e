"""What an endpoint does with its request: reads its body and its server, begins a run, answers in JSON.

Every wire begins a run here, by one function that reads top to bottom.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holodeck.access.principal import APPROVE
from holodeck.core.ids import MAX_FOREIGN_ID, is_foreign_id
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.core.text import clean
from holodeck.errors import HoloDeckError, InvalidRequest, RunNotFound, SessionNotFound, UnsupportedMediaType
from holodeck.files.reader import Progress
from holodeck.runs.client_history import first_of_use
from holodeck.runs.port import RunExists, RunKey
from holodeck.runs.run import OpenEncoder, Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import api_key_of, note_approvals, owner_of, require
from holodeck.server.quota import slot_of
from holodeck.server.schemas import REPEAT_HEADER
from holodeck.telemetry.log_context import current
from holodeck.telemetry.logs import event_log
from holodeck.wires import sse
from holodeck.wires.body import foreign_id

T = TypeVar("T")

DECODED_AT_ONCE = 65_536  # bytes of a body; a thousand messages, at most
_MAX_LOGGED = 12_000
_NUMBER = re.compile(r"-?[0-9]{1,18}")
ATTEMPT_HEADER = "x-stainless-retry-count"
_ATTEMPT = re.compile(r"[0-9]{1,4}")


def server_of(request: Request) -> AgentServer:
    server: AgentServer = request.app.state.server
    return server


def repeat_key_of(request: Request, wire: str, owner: Owner) -> RunKey | None:
    """What the client calls this request, so that posting it twice asks once. The value is opaque, quotes included."""
    given = request.headers.getlist(REPEAT_HEADER)
    return RunKey(wire, owner, foreign_id(", ".join(given), REPEAT_HEADER), REPEAT_HEADER) if given else None


def attempt_of(request: Request) -> int | None:
    """Which attempt at a request this is, as SDKs that Stainless generates count them."""
    given = request.headers.get(ATTEMPT_HEADER, "")
    return int(given) if _ATTEMPT.fullmatch(given) else None


def text_header(request: Request, name: str) -> str | None:
    """A header that may hold any text: browsers write it in UTF-8, others as HTTP has it, in Latin-1."""
    given = request.headers.get(name)
    try:
        return None if given is None else given.encode("latin-1").decode()
    except UnicodeDecodeError:
        return given


def media_type_of(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def json_body(request: Request) -> bytes:
    """The body of a request that says it is JSON: a form or a plain text could come from any page (T07)."""
    media_type = media_type_of(request)
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise UnsupportedMediaType("The body has to be JSON: Content-Type: application/json.")
    body = await _whole_body(request)
    if server_of(request).settings.debug:
        event_log.debug("request_received", details={"body": body[:_MAX_LOGGED].decode("utf-8", "replace")})
    return body


async def decoded(decode: Callable[[bytes, int], T], body: bytes, limit: int) -> T:
    """Decodes a body that may hold many messages. A large one is decoded by a thread, so that other clients get their turn.

    `limit` is the number of characters that a message may have.
    """
    return decode(body, limit) if len(body) <= DECODED_AT_ONCE else await asyncio.to_thread(decode, body, limit)


async def _whole_body(request: Request) -> bytes:
    """As `request.body()`, without its generators."""
    pieces: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def json_answer(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(sse.json_bytes(body), status, headers, media_type="application/json")


def whole_number(request: Request, name: str, allowed: range) -> int | None:
    """A number in the query, if there is one."""
    given = request.query_params.get(name)
    if given is None:
        return None
    if not _NUMBER.fullmatch(given) or int(given) not in allowed:
        raise InvalidRequest(f"{name} has to be a whole number from {allowed[0]} to {allowed[-1]}.", field=name)
    return int(given)


def session_of(request: Request) -> tuple[AgentServer, str, Owner]:
    """The session that the path names, between the server that has it and its owner."""
    return server_of(request), session_id(request.path_params["id"]), owner_of(request)


def no_session(key: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {key!r}, or its time has run out.")


def session_id(text: str) -> str:
    """An id in a path: ours are ULIDs, clients bring their own."""
    if not is_foreign_id(text) or clean(text) != text:
        raise InvalidRequest(
            f"A session id has 1 to {MAX_FOREIGN_ID} printable characters.", status=400, field="session_id"
        )
    current().conversation_id = text
    return text


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request for a run, as a wire hands it over.

    `prepare` reads files and makes the `RunRequest`. It is called only if a run has to be started: a duplicate, found by
    `key` and `fingerprint`, joins the run that is there. `conversation` is what the client calls it, for the log.
    """

    request: Request
    wire: str
    owner: Owner
    prepare: Callable[[], Awaitable[RunRequest]]
    open_encoder: OpenEncoder
    conversation: str | None = None
    key: RunKey | None = None
    fingerprint: bytes = b""
    is_cheap: bool = False  # `prepare` has no files to read: the run is started before a duplicate is looked for
    attempt: int | None = None  # counted from 0, by clients that repeat requests themselves and say so

    @property
    def as_sent(self) -> tuple[str, Owner, bytes]:
        return self.wire, self.owner, self.fingerprint


async def begin(server: AgentServer, arrival: Arrival) -> Run:
    """Starts the run of a request, or joins the one that a duplicate started.

    The application has checked that the server is ready, before it read the body. From here on the request's lines in
    the log name its conversation, also if it is refused.
    """
    context, owner = current(), arrival.owner
    context.conversation_id, context.user_id = arrival.conversation, owner.user
    await slot_of(arrival.request).take(owner)
    looks = not (arrival.is_cheap and server.runs.finds_duplicates)
    async with server.idempotency.claim(arrival.key, arrival.fingerprint, looks=looks) as claim:
        run = claim.run
        if run is None and arrival.attempt is not None:
            run = server.idempotency.retried.run_of(arrival.attempt, arrival.as_sent)
            if run is None and arrival.attempt > 0:
                run = await server.stored_runs.elsewhere(*arrival.as_sent)
        if run is None:
            try:
                run = await _started(server, arrival)
            except HoloDeckError as refusal:
                run = await _started_elsewhere(server, arrival, refusal, looked=looks)
            claim.run = run
    context.conversation_id = arrival.conversation or run.session_id
    return run


async def with_files(
    server: AgentServer, wanted: RunRequest, owner: Owner, progress: Progress | None = None
) -> RunRequest:
    """The request with its files read, in those of its messages that a run uses.

    These are the newest or, where the client's history is adopted, all of them. `progress` is called before each scanned page.
    """
    if not [each for each in wanted.messages if not isinstance(each.content, str)]:
        return wanted
    first = first_of_use(wanted.messages)
    if first and (wanted.throw_away or await server.will_adopt(wanted.session_id or "", owner=owner)):
        first = 0
    messages, notes = await server.files.resolve(wanted.messages, first=first, tenant=owner.tenant, progress=progress)
    return msgspec.structs.replace(wanted, messages=messages, files=notes)


async def _started(server: AgentServer, arrival: Arrival) -> Run:
    async with server.admission(arrival.owner):
        wanted = msgspec.structs.replace(
            await arrival.prepare(), owner=arrival.owner, api_key_id=api_key_of(arrival.request), wire=arrival.wire
        )
        if wanted.resume:  # answers to approvals: a credential that may chat need not be allowed to decide
            require(arrival.request, APPROVE)
        key = arrival.key
        if key is not None and key.part:  # it continues a run under its own id, which another process may have begun
            with suppress(RunNotFound):
                await server.stored_runs.find(key.name, owner=arrival.owner)
        run = await server.runs.start(wanted, arrival.open_encoder, key=key, fingerprint=arrival.fingerprint)
        if arrival.attempt is not None:
            server.idempotency.retried.note(arrival.as_sent, run)
        if wanted.resume:
            note_approvals(arrival.owner, wanted.resume)
    return run


async def _started_elsewhere(server: AgentServer, arrival: Arrival, refusal: HoloDeckError, *, looked: bool) -> Run:
    """The run that another process has started for the same request. Raises `refusal` if there is none."""
    may_be_there = not looked or isinstance(refusal, RunExists)  # it may also have come after the look
    run = None
    if arrival.key is not None and may_be_there:
        run = await server.idempotency.stored(arrival.key, arrival.fingerprint)
    if run is None:
        raise refusal
    return run
