"""Runs by their id: look, replay from any event, stop."""

from functools import partial
from hashlib import sha256

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import CHAT, RUNS_READ, RUNS_STOP
from holodeck.access.route_access import needs
from holodeck.core.events import Outcome, RunFinished
from holodeck.core.request import RunRequest
from holodeck.errors import InvalidRequest, SessionBusy, ShuttingDown
from holodeck.runs.branches import check_waits_for_nothing
from holodeck.runs.port import RunKey, RunState
from holodeck.runs.run import Run
from holodeck.server import schemas
from holodeck.server.agent_server import AgentServer, slot_of
from holodeck.server.identity import owner_of, principal_of
from holodeck.server.intake import Arrival, begin, json_answer, repeat_key_of, server_of, text_header, whole_number
from holodeck.server.routing import Routes
from holodeck.server.streaming_response import follow
from holodeck.wires import sse
from holodeck.wires.sse import position_after

# Clients choose the ids, which may contain a slash. An unescaped slash works as far as possible, hence `:path`;
# the bare id comes last, since it matches all.
routes = Routes("/runs", tag="Runs", responses=schemas.PROBLEMS)

MAX_CHAIN = 1000  # continuations of one run, each cut as the one before
RECONNECT = b"retry: 1000\n\n"  # milliseconds
NUMBERS = range(-1, 10**15 + 1)
AFTER = schemas.parameter(
    "after", "query", "The last event that is known", type="integer", minimum=NUMBERS[0], maximum=NUMBERS[-1]
)
TICKET = schemas.parameter(
    "ticket",
    "query",
    "In place of a credential, for a browser's EventSource, which can send no header",
    maxLength=4096,
)


@routes.get(
    "/{run_id:path}/events",
    "Replay a run's events, then follow it",
    access=needs(RUNS_READ, takes_ticket=True),
    parameters=(AFTER, schemas.LAST_EVENT_ID, TICKET),
    responses={200: schemas.EVENT_STREAM, 204: {}},
)
async def events(request: Request) -> Response:
    """204 when there is nothing more to come: a browser's EventSource then stops asking.

    Readers of this route come back by their last event, so a server that stops need not end their runs.
    """
    after = whole_number(request, "after", NUMBERS)
    run = await _run_of(request)
    if server_of(request).runs.is_closing and (run.log.is_cut or run.is_remote):
        return _elsewhere(request)
    first = _first(run, after, text_header(request, "last-event-id"))
    if run.log.ended and first == run.next_number:
        return Response(status_code=204)
    await slot_of(request).take(request, owner_of(request))
    return follow(server_of(request), run, accept=request.headers.get("accept"), first=first, returns=True)


def _elsewhere(request: Request) -> Response:
    """Makes a reader reconnect: this server is stopping, and another one, or the next, has the rest of the run.

    An EventSource gives up for good after any status but 200, and reconnects after a stream that ends.
    """
    if sse.CONTENT_TYPE not in request.headers.get("accept", ""):
        raise ShuttingDown("The server is shutting down and another one continues the run; ask again in a moment.")
    return Response(RECONNECT, headers={**sse.HEADERS, "Content-Type": sse.CONTENT_TYPE})


def _first(run: Run, after: int | None, last_event_id: str | None) -> int:
    """Returns the first event to send. `Last-Event-ID` wins: a browser repeats the address of its first request."""
    if last_event_id:
        after = position_after(last_event_id, run.run_id)
        if after is None:
            raise InvalidRequest("Last-Event-ID is not an event of this run.", field="Last-Event-ID")
    first = 0 if after is None else after + 1
    if first > run.next_number and not (run.is_remote and not run.log.ended):
        raise InvalidRequest(f"The run has only {run.events} events so far.", field="after")
    return first


@routes.post(
    "/{run_id:path}/continue",
    "Continue a run that was interrupted",
    access=needs(CHAT),
    parameters=(schemas.REPEAT_KEY,),
    responses={200: schemas.EVENT_STREAM},
)
async def continue_run(request: Request) -> Response:
    """Starts a run without a new message on the session of one that was interrupted, failed or stopped.

    The same request again joins that run. If it was cut as well, the request continues it.
    """
    cut, server, owner = await _cut_run_of(request), server_of(request), owner_of(request)
    fingerprint = sha256(cut.run_id.encode()).digest()
    key = repeat_key_of(request, cut.request.wire, owner)
    if key is None:
        cut, key = await _last_cut(server, cut)
        fingerprint = key.name.encode()
    wanted = partial(_continuation_of, server, cut)
    run = await begin(Arrival(request, cut.request.wire, wanted, fingerprint, owner, key, conversation=cut.session_id))
    return follow(server, run, accept=request.headers.get("accept"))


async def _continuation_of(server: AgentServer, cut: Run) -> RunRequest:
    stored = await server.store.read(cut.session_id, owner=cut.owner, last=1)
    check_waits_for_nothing(None if stored is None else stored.pending)
    return RunRequest(session_id=cut.session_id, parent_run_id=cut.run_id, encoding=cut.request.encoding)


async def _cut_run_of(request: Request) -> Run:
    """The run that the path names. Raises SessionBusy if it has not ended."""
    run = await server_of(request).stored_runs.find_settled(request.path_params["run_id"], owner=owner_of(request))
    if not run.log.ended:
        raise SessionBusy(f"Run {run.run_id!r} has not ended.")
    _refuse_if_whole(run)
    return run


def _refuse_if_whole(run: Run) -> None:
    """Refuses to continue a run that has its answer, or waits for one of the client: its question would be withdrawn.

    Also one without a session: only its client has the messages.
    """
    if run.request.throw_away:
        raise InvalidRequest(f"Run {run.run_id!r} has no session: send the whole conversation again.", field="run_id")
    outcome = run.log.ending.outcome if isinstance(run.log.ending, RunFinished) else None
    if outcome is Outcome.COMPLETED:
        raise InvalidRequest(f"Run {run.run_id!r} is complete; send a message instead.", field="run_id")
    if outcome in (Outcome.INTERRUPTED, Outcome.CLIENT_TOOLS):
        raise InvalidRequest(f"Run {run.run_id!r} waits for an answer; send that answer.", field="run_id")


async def _last_cut(server: AgentServer, run: Run) -> tuple[Run, RunKey]:
    """The run to continue, and the key of its continuation. A run that was continued and cut again leads to the next."""
    for _ in range(MAX_CHAIN):
        key = RunKey(run.request.wire, run.owner, f"continue:{run.run_id}", schemas.REPEAT_HEADER)
        later = await server.idempotency.stored(key, key.name.encode())
        if later is None or not later.log.ended or later.state is RunState.FINISHED:
            break
        run = later
    return run, key


@routes.post(
    "/{run_id:path}/ticket",
    "A ticket to read a run with EventSource",
    access=needs(RUNS_READ),
    responses={200: schemas.TicketResponse},
)
async def ticket(request: Request) -> Response:
    """It reads this run alone, for fifteen minutes, as often as a browser reconnects."""
    run = await _run_of(request)
    text, expires = server_of(request).gate.tickets.issue(principal_of(request), run.owner, run.run_id)
    return json_answer(schemas.TicketResponse(ticket=text, expires=expires))


@routes.post(
    "/{run_id:path}/stop", "Stop a run at once", access=needs(RUNS_STOP), responses={200: schemas.RunStopResponse}
)
async def stop(request: Request) -> Response:
    """Answers when the run has ended. A run that ended in another way first was not stopped."""
    (result,) = await server_of(request).stop_runs(await _run_of(request))
    return json_answer(schemas.RunStopResponse(stopped=result.by_this, state=result.state.value))


@routes.get("/{run_id:path}", "The status of a run", access=needs(RUNS_READ), responses={200: schemas.RunResponse})
async def show(request: Request) -> Response:
    return json_answer(msgspec.convert(await _run_of(request), schemas.RunResponse, from_attributes=True))


async def _run_of(request: Request) -> Run:
    return await server_of(request).stored_runs.find(request.path_params["run_id"], owner=owner_of(request))
