"""Health that tells the truth (SRV-10): 503 when a run that starts now could not be served."""

from datetime import datetime
from typing import Any

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from holodeck.resilience.breaker import Phase
from holodeck.server.agent_server import AgentServer
from holodeck.server.routes.asking import server_of
from holodeck.server.schemas import AgentHealthResponse, HealthResponse, ToolServerHealth

UNHEALTHY: dict[int | str, dict[str, Any]] = {503: {"model": HealthResponse, "description": "The agent cannot serve"}}
router = APIRouter(tags=["Health"], responses=UNHEALTHY)


class BreakerHealth(BaseModel):
    """One circuit breaker. `retry_after` is in seconds, while it is open."""

    service: str
    state: Phase
    failure_count: int
    consecutive_successes: int
    last_error: str | None
    last_failure_time: datetime | None
    last_state_change: datetime
    retry_after: float | None


class DependenciesResponse(AgentHealthResponse):
    breakers: list[BreakerHealth]


@router.get("/health", summary="Whether the server is well")
async def health(request: Request, response: Response) -> HealthResponse:
    return await _told(server_of(request), response)


@router.get("/ready", summary="Whether to send requests here")
async def ready(request: Request, response: Response) -> HealthResponse:
    return await _told(server_of(request), response)


@router.get("/health/agent", summary="The same, with what the agent depends on")
async def agent_health(request: Request, response: Response) -> DependenciesResponse:
    server = server_of(request)
    told = await _told(server, response)
    return DependenciesResponse(
        **told.model_dump(),
        state=server.state.value,
        model=server.agent.model.name,
        active_runs=server.runs.busy,
        tool_servers=[
            ToolServerHealth(name=each.name, ready=each.ready, required=each.required, detail=each.detail)
            for each in server.tool_servers()
        ],
        breakers=[BreakerHealth(**msgspec.structs.asdict(state)) for state in server.agent.breakers.states()],
    )


async def _told(server: AgentServer, response: Response) -> HealthResponse:
    able = server.can_serve
    if not able:
        response.status_code = 503
        response.headers["Retry-After"] = "1"
    return HealthResponse(
        status="healthy" if able else "unhealthy",
        agent_name=server.agent.name,
        agent_ready=able,
        active_sessions=await server.store.count(),
        uptime_seconds=round(server.uptime, 3),
    )
