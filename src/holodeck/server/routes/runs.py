"""Runs by their id: look, read again from any event, stop."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from holodeck.errors import InvalidRequest
from holodeck.runs.runs import Run
from holodeck.server.places import take_place
from holodeck.server.readers import named_event_readers_of
from holodeck.server.routes.agui import readers_of
from holodeck.server.routes.asking import server_of, user_of
from holodeck.server.schemas import EVENT_STREAM, PROBLEMS, RunResponse, StopResponse
from holodeck.wires.sse import position_after

# Ids are the client's own and may hold a slash, hence `:path`; the bare id comes last, since it matches all.
router = APIRouter(prefix="/runs", tags=["Runs"], responses=PROBLEMS)

MAX_NUMBER = 10**15


@router.get("/{run_id:path}/events", summary="Read a run again, then follow it", responses={200: EVENT_STREAM, 204: {}})
async def events(
    request: Request,
    run_id: str,
    after: Annotated[int | None, Query(ge=-1, le=MAX_NUMBER, description="The last event that is known")] = None,
    last_event_id: Annotated[str | None, Header(max_length=200, description="`<run>:<number>`")] = None,
) -> Response:
    """204 when there is nothing more to come: a browser's EventSource then stops asking."""
    run = server_of(request).runs.get(run_id, user_id=user_of(request))
    first = _first(run, after, last_event_id)
    if run.log.ended and first == len(run.log):
        return Response(status_code=204)
    take_place()
    again = named_event_readers_of(request).follow(run, first)
    return again or readers_of(request).follow(run, request.headers.get("accept"), first=first)


def _first(run: Run, after: int | None, last_event_id: str | None) -> int:
    """The event to begin with. `Last-Event-ID` wins: a browser repeats the address of its first request."""
    if last_event_id:
        after = position_after(last_event_id, run.run_id)
        if after is None:
            raise InvalidRequest("Last-Event-ID is not an event of this run.", field="Last-Event-ID")
    first = 0 if after is None else after + 1
    if first > len(run.log):
        raise InvalidRequest(f"The run has only {len(run.log)} events so far.", field="after")
    return first


@router.post("/{run_id:path}/stop", summary="Stop a run at once")
async def stop(request: Request, run_id: str) -> StopResponse:
    runs = server_of(request).runs
    return StopResponse(stopped=runs.stop(runs.get(run_id, user_id=user_of(request))))


@router.get("/{run_id:path}", summary="How a run is getting on")
async def show(request: Request, run_id: str) -> RunResponse:
    run = server_of(request).runs.get(run_id, user_id=user_of(request))
    return RunResponse(
        run_id=run.run_id,
        session_id=run.session_id,
        state=run.state.value,
        created_at=run.created_at,
        finished_at=run.finished_at,
        events=len(run.log),
        readers=run.readers,
    )
