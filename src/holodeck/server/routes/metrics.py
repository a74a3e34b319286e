"""`/metrics`: counters and gauges in the Prometheus text format."""

import asyncio
import os
import time
from pathlib import Path

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
from holodeck.telemetry.exposition import CONTENT_TYPE, Labels, Series, gauge, page

_SELF = Path("/proc/self")
_COUNT_SECONDS = 0.5  # shorter than a worker waits for the figures of another
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
    return [*server.metrics.figures(), *await _present(server), *_process_figures(server.uptime)]


async def _present(server: AgentServer) -> list[Series]:
    about: dict[Labels, float] = {(__version__, server.agent.name, server.state.value): 1}
    drops = server.metrics.log_drops()
    found = [
        gauge("holodeck_info", "The server", about, ("version", "agent", "state"), together="max"),
        gauge("holodeck_workers", "Server processes", 1),
        gauge("holodeck_active_runs", "Runs that are queued or active", server.runs.busy),
        gauge("holodeck_open_streams", "Responses in progress, streamed or not", server.answering),
        gauge(
            "holodeck_open_connections", "Connections, including those over the limit", server.connection_limit.present
        ),
        gauge("holodeck_event_loop_tasks", "Tasks, including the one that serves this page", len(asyncio.all_tasks())),
        *await _sessions(server),
        gauge(
            "holodeck_circuit_breaker_state",
            "1 for the breaker's current state, else 0; with workers, how many are in the state",
            _breakers(server),
            ("service", "state"),
        ),
        gauge(
            "holodeck_log_lines_dropped_total",
            "Log lines dropped because the output was too slow",
            drops,
            kind="counter",
        ),
    ]
    if ages := server.access.key_ages:
        meaning = "Age of the issuers' keys, of the oldest ones"
        found.append(gauge("holodeck_jwks_age_seconds", meaning, max(ages), together="max"))
    if (is_up := server.quotas.store_up) is not None:
        meaning = "1 while limits.store responds, else 0"
        found.append(gauge("holodeck_limits_store_up", meaning, float(is_up), together="min"))
    if (is_up := server.carrier_is_up) is not None:
        meaning = "1 while cluster.valkey responds, else 0"
        found.append(gauge("holodeck_cluster_valkey_up", meaning, float(is_up), together="min"))
    return found


async def _sessions(server: AgentServer) -> list[Series]:
    """Leaves the gauge out while the store does not answer: the other figures are needed most then."""
    try:
        async with asyncio.timeout(_COUNT_SECONDS):
            count = await server.store_health.sessions()
    except TimeoutError:
        return []
    meaning = "Conversations in the session store"
    return [gauge("holodeck_active_sessions", meaning, count, together="max")] if isinstance(count, int) else []


def _breakers(server: AgentServer) -> dict[Labels, float]:
    states = server.agent.breakers.states()
    return {(each.service, phase.value): float(each.state is phase) for each in states for phase in Phase}


def _process_figures(uptime: float) -> list[Series]:
    """The resources of the process, under the names that every Prometheus client uses. Read from /proc if it exists."""
    cpu = gauge("process_cpu_seconds_total", "CPU time, user and system", time.process_time(), kind="counter")
    started = gauge(
        "process_start_time_seconds", "Start time, in seconds since 1970", round(time.time() - uptime), together="min"
    )
    return [cpu, started, *_of_linux()]


def _of_linux() -> list[Series]:
    if not _SELF.exists():
        return []
    resident = int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    descriptors = len(os.listdir(_SELF / "fd"))  # noqa: PTH208  a count needs no paths
    return [
        gauge("process_resident_memory_bytes", "Memory in use", resident),
        gauge("process_open_fds", "Open files and sockets", descriptors),
    ]
