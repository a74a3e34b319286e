"""`/metrics`: counters and gauges in the Prometheus text format."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from holodeck._version import __version__
from holodeck.access.principal import METRICS
from holodeck.access.route_access import needs
from holodeck.resilience.breaker import Phase
from holodeck.server.agent_server import AgentServer
from holodeck.server.intake import server_of
from holodeck.server.routing import Routes
from holodeck.server.schemas import REFUSALS
from holodeck.telemetry.exposition import CONTENT_TYPE, Figure, Gauge, Labels, Series, page
from holodeck.telemetry.process import process_figures

routes = Routes(tag="Health", before_ready=True, is_probe=True)


@routes.get(
    "/metrics",
    "Metrics",
    access=needs(METRICS, open_as="metrics"),
    responses={**REFUSALS, 200: {"content": {"text/plain": {}}, "description": "In Prometheus' text format"}},
)
async def metrics(request: Request) -> Response:
    server = server_of(request)
    workers = server.worker_figures
    figures = await (own_series(server) if workers is None else workers.all())
    return Response(page(figures), headers={"Content-Type": CONTENT_TYPE})


async def own_series(server: AgentServer) -> list[Series]:
    figures = [*server.metrics.figures(), *await _present(server), *process_figures(server.uptime)]
    return [figure.series() for figure in figures]


async def _present(server: AgentServer) -> list[Figure]:
    about: dict[Labels, float] = {(__version__, server.agent.name, server.state.value): 1}
    drops = server.metrics.log_drops()
    ages = server.access.key_ages
    store_up = server.quotas.store_up
    return [
        Gauge("holodeck_info", "The server", about, ("version", "agent", "state"), together="max"),
        Gauge("holodeck_workers", "Server processes", 1),
        Gauge("holodeck_active_runs", "Runs that are queued or active", server.runs.busy),
        Gauge("holodeck_open_streams", "Responses in progress, streamed or not", server.slots.taken),
        Gauge(
            "holodeck_open_connections", "Connections, including those over the limit", server.connection_limit.present
        ),
        Gauge("holodeck_event_loop_tasks", "Tasks, including the one that serves this page", len(asyncio.all_tasks())),
        *[
            Gauge(
                "holodeck_jwks_age_seconds",
                "Age of the issuers' keys, of the oldest ones",
                max(ages),
                together="max",
            )
            for _ in ages[:1]
        ],
        *(
            []
            if store_up is None
            else [
                Gauge(
                    "holodeck_limits_store_up", "1 while limits.store responds, else 0", float(store_up), together="min"
                )
            ]
        ),
        Gauge(
            "holodeck_active_sessions",
            "Conversations in the session store",
            await server.store.count(),
            together="max",
        ),
        Gauge(
            "holodeck_circuit_breaker_state",
            "1 for the breaker's current state, else 0; with workers, how many are in the state",
            _breakers(server),
            ("service", "state"),
        ),
        Gauge(
            "holodeck_log_lines_dropped_total",
            "Log lines dropped because the output was too slow",
            drops,
            kind="counter",
        ),
    ]


def _breakers(server: AgentServer) -> dict[Labels, float]:
    states = server.agent.breakers.states()
    return {(each.service, phase.value): float(each.state is phase) for each in states for phase in Phase}
