"""Health that tells the truth (SRV-10): 503 when a run that starts now could not be served."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holodeck.server.agent_server import AgentServer
from holodeck.server.routes.asking import server_of
from holodeck.server.schemas import AgentHealthResponse, HealthResponse, ToolServerHealth

UNHEALTHY: dict[int | str, dict[str, Any]] = {503: {"model": HealthResponse, "description": "The agent cannot serve"}}
router = APIRouter(tags=["Health"], responses=UNHEALTHY)


@router.get("/health", summary="Whether the server is well")
async def health(request: Request, response: Response) -> HealthResponse:
    return await _told(server_of(request), response)


@router.get("/ready", summary="Whether to send requests here")
async def ready(request: Request, response: Response) -> HealthResponse:
    return await _told(server_of(request), response)


@router.get("/health/agent", summary="The same, with what the agent depends on")
async def agent_health(request: Request, response: Response) -> AgentHealthResponse:
    server = server_of(request)
    told = await _told(server, response)
    return AgentHealthResponse(
        **told.model_dump(),
        state=server.state.value,
        model=server.agent.model.name,
        active_runs=server.runs.busy,
        tool_servers=[
            ToolServerHealth(name=each.name, ready=each.ready, required=each.required, detail=each.detail)
            for each in server.tool_servers()
        ],
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
