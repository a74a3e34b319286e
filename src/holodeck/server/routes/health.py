"""Health routes (SRV-10): 503 whenever a run that starts now could not be served. A degraded server serves it."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from holodeck.access.principal import METRICS
from holodeck.access.route_access import needs, signed_in
from holodeck.resilience.breaker import CircuitBreakerState
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import PRINCIPAL
from holodeck.server.intake import json_answer, server_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import REFUSALS, HealthResponse, ToolServerHealth

_HEALTH = signed_in(open_as="health")
routes = Routes(tag="Health", responses={**REFUSALS, 503: HealthResponse}, before_ready=True, is_probe=True)


class DependenciesResponse(HealthResponse, frozen=True, kw_only=True):
    """The health of the agent, with what it depends on."""

    state: str
    model: str
    active_runs: int
    tool_servers: list[ToolServerHealth]
    breakers: list[CircuitBreakerState]


@routes.get("/health", "Health of the server", access=_HEALTH, responses={200: HealthResponse})
async def health(request: Request) -> Response:
    return _shown(request, await _health(server_of(request)))


@routes.get(
    "/ready", "Readiness: whether to send requests to this server", access=_HEALTH, responses={200: HealthResponse}
)
async def ready(request: Request) -> Response:
    """Also 503 while the keys of a token's issuer are not known."""
    server = server_of(request)
    lacking = [] if server.access.ready else ["The keys of a token issuer are not known yet."]
    return _shown(request, await _health(server, lacking))


@routes.get(
    "/health/agent",
    "Health of the agent, its model and its tool servers",
    access=needs(METRICS, open_as="metrics"),
    responses={200: DependenciesResponse},
)
async def agent_health(request: Request) -> Response:
    """Names the breakers of tools that the middleware hides only to a credential with the scope `metrics`."""
    server = server_of(request)
    hidden = set() if _is_operator(request) else _hidden_breakers(server)
    health = DependenciesResponse(
        **msgspec.structs.asdict(await _health(server)),
        state=server.state.value,
        model=server.agent.model.name,
        active_runs=server.runs.busy,
        tool_servers=msgspec.convert(server.agent.tools.health(), list[ToolServerHealth], from_attributes=True),
        breakers=[state for state in server.agent.breakers.states() if state.service not in hidden],
    )
    return _answer(server, health)


def _is_operator(request: Request) -> bool:
    """Returns whether a credential with the scope `metrics` was sent."""
    principal = request.scope[PRINCIPAL]
    return principal is not None and principal.via != "none" and principal.may(METRICS)


def _hidden_breakers(server: AgentServer) -> set[str]:
    """The breakers of tools that the middleware hides from clients."""
    rows = server.agent.tools.rows()
    shown = {tool.name for tool in server.middleware().shown_tools(entry.schema for entry in rows.values())}
    breakers = [entry.breakers.tool for name, entry in rows.items() if entry.breakers is not None and name not in shown]
    return {breaker.service for breaker in breakers if breaker is not None}


async def _health(server: AgentServer, lacking: Sequence[str] = ()) -> HealthResponse:
    sessions = await server.store_health.sessions()
    lacks = [*server.lacks(), *lacking, *([] if isinstance(sessions, int) else [sessions.message])]
    weakened = server.weakened()
    return HealthResponse(
        status="unhealthy" if lacks else "degraded" if weakened else "healthy",
        reasons=[*lacks, *weakened] or UNSET,
        agent_name=server.agent.name,
        agent_ready=not lacks,
        active_sessions=sessions if isinstance(sessions, int) else 0,
        uptime_seconds=round(server.uptime, 3),
    )


def _shown(request: Request, health: HealthResponse) -> Response:
    """Returns the status for everyone, and the rest for principals with the scope `metrics`."""
    principal = request.scope[PRINCIPAL]
    if principal is not None and principal.may(METRICS):
        return _answer(server_of(request), health)
    return _answer(server_of(request), HealthResponse(status=health.status))


def _answer(server: AgentServer, health: HealthResponse) -> Response:
    if health.status != "unhealthy":
        return json_answer(health)
    return json_answer(health, status=503, headers={"Retry-After": str(server.retry_after)})
