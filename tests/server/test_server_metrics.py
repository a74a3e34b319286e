"""/metrics over real sockets, and of a real process."""

import asyncio
import os
import signal

import aiohttp
import pytest

from holodeck._version import __version__
from holodeck.errors import StoreUnavailable
from holodeck.models.scripted import calls, says
from tests.agent.agent_fixture import PlainTools, broken, echo
from tests.ports import free_port
from tests.server.serving import Gate, ask, read_to, served, until
from tests.server.test_server_process import holodeck
from tests.telemetry.test_metrics import samples


async def shown(client, url) -> dict[str, float]:
    async with client.get(url + "/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return samples(await answer.read())


@pytest.mark.req("ORC-11")
async def test_the_metrics_page_counts_what_happened():
    tools = PlainTools(echo=echo, broken=broken)
    turns = [calls(("echo", "{}"), ("broken", "{}"), ("made_up", "{}")), says("all is done now")]
    async with served(*turns, tools=tools) as s:
        async with s.post(ask(thread="t1")) as answer:
            await answer.read()
        async with s.get("/nowhere/at/all") as answer:
            assert answer.status == 404
        async with s.get("/runs/never-was") as answer:
            assert answer.status == 404
        page = await shown(s.client, s.url)
    for name, value in {
        'holodeck_http_requests_total{method="POST",route="/awp",status="200"}': 1,
        'holodeck_http_requests_total{method="GET",route="none",status="404"}': 1,
        'holodeck_http_requests_total{method="GET",route="/runs/{run_id:path}",status="404"}': 1,
        'holodeck_http_request_seconds_count{route="/awp"}': 1,
        'holodeck_runs_total{outcome="completed",code="none"}': 1,
        'holodeck_model_calls_total{model="scripted"}': 2,
        "holodeck_time_to_first_token_seconds_count": 1,
        "holodeck_inter_token_seconds_count": 3,
        'holodeck_tool_calls_total{tool="echo",status="success"}': 1,
        'holodeck_tool_calls_total{tool="broken",status="failed"}': 1,
        'holodeck_tool_calls_total{tool="other",status="failed"}': 1,
        "holodeck_active_sessions": 1,
        "holodeck_active_runs": 0,
        "holodeck_open_streams": 0,
        "holodeck_log_lines_dropped_total": 0,
    }.items():
        assert page.get(name) == value, name
    assert page["process_resident_memory_bytes"] > 10e6
    assert page["process_open_fds"] > 3


@pytest.mark.parametrize("hangs", [False, True])
async def test_the_metrics_page_is_there_while_the_store_is_not(monkeypatch, hangs):
    """It was 503 during an outage of the database: the alert on failing runs reads this page."""

    async def count():
        if hangs:
            await asyncio.Event().wait()
        raise StoreUnavailable("The database cannot be used.")

    async with served(says("fine")) as s:
        async with s.post(ask(thread="t1")) as answer:
            await answer.read()
        monkeypatch.setattr(s.server.store, "count", count)
        page = await shown(s.client, s.url)
    assert page['holodeck_runs_total{outcome="completed",code="none"}'] == 1
    assert "holodeck_active_sessions" not in page


async def test_open_streams_and_the_loops_lag_are_seen_while_they_last():
    gate = Gate()
    async with served(says("a b", pause=gate)) as s:
        answer = await s.post()
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        page = await shown(s.client, s.url)
        assert (page["holodeck_open_streams"], page["holodeck_active_runs"]) == (1, 1)
        assert page["holodeck_open_connections"] == 2
        gate.open.set()
        await answer.read()
        later = await shown(s.client, s.url)
        assert later["holodeck_event_loop_tasks"] < page["holodeck_event_loop_tasks"], "the run's task is gone"
        lag = s.server.metrics.loop_lag
        await until(lambda: lag._series[()][-1] > 0)


async def test_the_page_is_there_before_the_agent_is():
    async with served(ready=False) as s:
        about = f'holodeck_info{{version="{__version__}",agent="tester",state="initializing"}}'
        assert (await shown(s.client, s.url))[about] == 1


@pytest.mark.req("ORC-10")
async def test_a_breaker_that_opens_is_measured(tmp_path):
    agent = f"""\
name: talker
model: {{provider: openai_compatible, name: m, endpoint: "http://127.0.0.1:{free_port()}/v1", api_key: k-123456}}
circuit_breakers: {{model: {{failure_threshold: 1}}}}
server: {{shutdown_timeout: 0.2}}
"""
    async with holodeck(tmp_path, agent=agent) as server, aiohttp.ClientSession() as client:
        await server.until_ready()
        async with client.post(server.url + "/awp", json=ask()) as answer:
            assert b"RUN_ERROR" in await answer.read()
        page = await shown(client, server.url)
        (changes,) = [key for key in page if key.startswith("holodeck_circuit_breaker_changes_total")]
        assert changes.endswith('state="open"}')
        assert page[changes] == 1
        states = {
            key.rpartition("state=")[2]: page[key] for key in page if key.startswith("holodeck_circuit_breaker_state{")
        }
        assert states == {'"closed"}': 0, '"open"}': 1, '"half_open"}': 0}
        assert page['holodeck_runs_total{outcome="failed",code="model-error"}'] == 1


@pytest.mark.req("D10")
async def test_a_server_whose_log_is_on_a_full_disk_serves_and_counts_what_it_could_not_say(tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    async with holodeck(tmp_path, stdout=full) as server, aiohttp.ClientSession() as client:
        os.close(full)
        await server.until_ready()
        async with client.post(server.url + "/awp", json=ask()) as answer:
            assert b"RUN_FINISHED" in await answer.read()
        dropped = 0.0
        while not dropped:  # the writer gathers lines for a moment
            dropped = (await shown(client, server.url))["holodeck_log_lines_dropped_total"]
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0


@pytest.mark.req("D10")
async def test_a_banner_that_cannot_be_shown_does_not_stop_the_server(tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    async with holodeck(tmp_path, stderr=full) as server, aiohttp.ClientSession() as client:
        os.close(full)
        while True:
            try:
                async with client.get(server.url + "/ready") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientConnectionError:
                assert server.process.returncode is None
            await asyncio.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
