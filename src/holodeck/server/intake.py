"""How a request becomes a run. Every wire enters here, by one function that reads top to bottom."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from starlette.requests import Request

from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.errors import RunNotFound
from holodeck.files.reader import Progress
from holodeck.runs.client_history import first_of_use
from holodeck.runs.port import RunExists, RunKey
from holodeck.runs.run import OpenEncoder, Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import api_key_of, check_approval, note_approval
from holodeck.server.quota import slot_of
from holodeck.telemetry.log_context import current


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


async def begin(server: AgentServer, arrival: Arrival) -> Run:
    """Starts the run of a request, or joins the one that a duplicate started.

    The application has checked that the server is ready, before it read the body. From here on the request's lines in
    the log name its conversation, also if it is refused.
    """
    context, owner = current(), arrival.owner
    context.conversation_id, context.user_id = arrival.conversation, owner.user
    await slot_of(arrival.request).take(owner)
    async with server.idempotency.claim(arrival.key, arrival.fingerprint) as claim:
        if claim.run is not None:
            run = claim.run
        else:
            async with server.admission(owner):
                key_id = api_key_of(arrival.request)
                wanted = msgspec.structs.replace(
                    await arrival.prepare(), owner=owner, api_key_id=key_id, wire=arrival.wire
                )
                check_approval(arrival.request, wanted.resume)
                run = claim.run = await _started(server, arrival, wanted)
                note_approval(owner, wanted.resume)
    context.conversation_id = arrival.conversation or run.session_id
    return run


async def with_files(
    server: AgentServer, wanted: RunRequest, owner: Owner, progress: Progress | None = None
) -> RunRequest:
    """The request with its files read, in those of its messages that a run uses.

    These are the newest or, where the client's history is adopted, all of them. `progress` is called before each scanned page.
    """
    first = first_of_use(wanted.messages)
    if first and (wanted.throw_away or await server.will_adopt(wanted.session_id or "", owner=owner)):
        first = 0
    messages, notes = await server.files.resolve(wanted.messages, first=first, tenant=owner.tenant, progress=progress)
    return msgspec.structs.replace(wanted, messages=messages, files=notes)


async def _started(server: AgentServer, arrival: Arrival, wanted: RunRequest) -> Run:
    """Starts the run, or joins the one that another process has started for the same request in this moment."""
    key = arrival.key
    if key is not None and key.part:  # it continues a run under its own id, which another process may have begun
        with suppress(RunNotFound):
            await server.stored_runs.find(key.name, owner=arrival.owner)
    try:
        return await server.runs.start(wanted, arrival.open_encoder, key=key, fingerprint=arrival.fingerprint)
    except RunExists:
        other = None if key is None else await server.idempotency.stored(key, arrival.fingerprint)
        if other is None:
            raise
        return other
