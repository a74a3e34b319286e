"""Two servers on one PostgreSQL: any of them serves any request, and one that dies is taken over."""

import asyncio
import signal
import tempfile
from pathlib import Path

import aiohttp
import psycopg
import pytest

from tests.cluster.replicas import (
    PATIENCE,
    UNKNOWN,
    WORDS,
    Client,
    Feed,
    Pace,
    reads_on_at_the_other,
    replicas,
    stops_approves_and_deletes,
)
from tests.limits.valkey_server import valkey


@pytest.mark.req("C07", "DUR-03")
@pytest.mark.parametrize("cluster", ["", "valkey"])
async def test_a_client_reads_on_at_the_other_server_and_gets_every_word_once(
    tmp_path, postgres_database, cluster, request
):
    pace, more = Pace(), cluster and f", valkey: '{request.getfixturevalue('valkey_url')}'"
    async with replicas(tmp_path, postgres_database, pace, cluster=more) as (one, other):
        await reads_on_at_the_other(one, other, pace)


@pytest.mark.req("C08")
async def test_the_same_request_at_both_servers_is_one_run(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace) as servers:
        clients = [Client("slow", run="r1") for _ in servers]
        reading = [asyncio.create_task(client.post(server)) for client, server in zip(clients, servers, strict=True)]
        for client in clients:  # both are in before the run can end
            await asyncio.wait_for(client.changed.wait(), PATIENCE)
        pace.permit(50)
        await asyncio.wait_for(asyncio.gather(*reading), PATIENCE)
        assert [client.text for client in clients] == [WORDS, WORDS]
        assert pace.asked == 1
        asked = [server.post("/agent/tester/chat", {"message": "hi"}, Idempotency_Key="k") for server in servers]
        first, second = await asyncio.wait_for(asyncio.gather(*asked), PATIENCE)
        assert (first["content"], first["message_id"]) == (second["content"], second["message_id"])
        assert first["content"] == "all is well"
        other = await servers[1].post("/agent/tester/chat", {"message": "ho"}, Idempotency_Key="k")
        assert other["status"] == 422


@pytest.mark.req("C09b", "C09b")
async def test_runs_of_one_session_take_turns_whichever_server_they_came_to(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace) as (one, other):
        first, second = Client("slow", run="r1"), Client("hello", run="r2")
        reading = asyncio.create_task(first.post(one))
        pace.permit(1)
        await first.until("TEXT_MESSAGE_CONTENT")
        waiting = asyncio.create_task(second.post(other))
        await other.in_state("r2", "queued")
        assert (await one.get("/sessions/t"))["active_runs"] == ["r1", "r2"]
        assert (await one.delete("/sessions/t?from=m-r1")) == 409
        async with Feed(one, "t") as feed:
            await feed.until("TEXT_MESSAGE_CONTENT")
            pace.permit(50)
            await asyncio.wait_for(asyncio.gather(reading, waiting), PATIENCE)
            await feed.until("RUN_FINISHED", 2)
            assert [feed.of(run)[-1] for run in ("r1", "r2")] == ["RUN_FINISHED"] * 2
        assert (first.types[-1], second.types[-1]) == ("RUN_FINISHED", "RUN_FINISHED")
        texts = [message["content"] for message in await one.messages()]
        assert texts == ["slow", WORDS, "hello", "all is well"]


async def test_a_busy_session_is_refused_at_the_other_server_too(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, busy="reject") as (one, other):
        first, second = Client("slow", run="r1"), Client("hello", run="r2")
        reading = asyncio.create_task(first.post(one))
        pace.permit(1)
        await first.until("TEXT_MESSAGE_CONTENT")
        await asyncio.wait_for(second.post(other), PATIENCE)
        assert second.status == 409
        pace.permit(50)
        await asyncio.wait_for(reading, PATIENCE)
        await asyncio.wait_for(second.post(other), PATIENCE)
        assert second.types[-1] == "RUN_FINISHED", "its id is free: the request was refused"


@pytest.mark.req("SRV-11", "DUR-03")
async def test_a_run_is_stopped_approved_and_deleted_at_the_other_server(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, seconds=8, approval="always") as (one, other):
        await stops_approves_and_deletes(one, other, pace, tmp_path)


@pytest.mark.req("SRV-11")
async def test_every_protocol_stops_a_run_of_the_other_server(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, seconds=8, approval="always") as (one, other):
        ways = {
            "a2a": lambda run: other.post("/a2a", _rpc("CancelTask", {"id": run}), A2A_Version="1.0"),
            "mcp": lambda run: other.post("/mcp", _cancel_of_mcp(run), **MCP_CANCEL, Mcp_Name=run),
            "ai-sdk": lambda run: other.post(f"/ai-sdk/chat/of-{run}/stop"),
        }
        for run, stop in ways.items():
            slow = Client("slow", run=run, thread=f"of-{run}")
            reading = asyncio.create_task(slow.post(one))
            pace.permit(1)
            await slow.until("TEXT_MESSAGE_CONTENT")
            if run == "ai-sdk":
                async with (
                    aiohttp.ClientSession() as client,
                    client.get(f"{other.url}/ai-sdk/chat/of-{run}/stream") as on,
                ):
                    assert on.status == 200, "a page that is loaded again follows the run"
            answer = await asyncio.wait_for(stop(run), PATIENCE)
            assert answer["status"] == 200
            assert "error" not in answer, answer
            await asyncio.wait_for(reading, PATIENCE)
            await one.in_state(run, "cancelled")


@pytest.mark.req("SRV-27")
async def test_a_task_that_waits_is_cancelled_for_every_server_and_what_is_not_an_id_is_unknown(
    tmp_path, postgres_database
):
    async with replicas(tmp_path, postgres_database, approval="always") as (one, other):
        await asyncio.wait_for(Client("act quickly", run="r1").post(one), PATIENCE)

        async def state(server, method="GetTask"):
            answer = await server.post("/a2a", _rpc(method, {"id": "r1"}), A2A_Version="1.0")
            return answer["result"]["status"]["state"]

        async with asyncio.timeout(PATIENCE):
            while await state(other) != "TASK_STATE_INPUT_REQUIRED":
                await asyncio.sleep(0.05)
        assert await state(one, "CancelTask") == "TASK_STATE_CANCELED"
        assert [await state(one), await state(other)] == ["TASK_STATE_CANCELED"] * 2
        for path in ("/runs/a%00b", "/v1/responses/resp_a%00b"):
            assert (await other.get(path))["status"] == 404
        assert (await other.get("/sessions?after=MSAAYg"))["status"] == 422
        await one.end(signal.SIGTERM)
        await one.start()
        assert await state(one) == "TASK_STATE_CANCELED"


def _rpc(method, params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


MCP = "io.modelcontextprotocol/"
MCP_CANCEL = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tasks/cancel"}


def _cancel_of_mcp(task):
    capabilities = {"extensions": {f"{MCP}tasks": {}}}
    meta = {f"{MCP}protocolVersion": "2026-07-28", f"{MCP}clientCapabilities": capabilities}
    return _rpc("tasks/cancel", {"taskId": task, "_meta": meta})


@pytest.mark.req("D03b", "DUR-03")
@pytest.mark.parametrize("cluster", ["", "valkey"])
async def test_a_run_continues_at_another_server_when_its_own_is_killed(tmp_path, postgres_database, cluster, request):
    pace, more = Pace(), cluster and f", valkey: '{request.getfixturevalue('valkey_url')}'"
    async with replicas(tmp_path, postgres_database, pace, seconds=8, cluster=more) as (one, other):
        client = Client("slow", run="r1")
        reading = asyncio.create_task(client.post(one))
        pace.permit(5)
        await client.until("TEXT_MESSAGE_CONTENT")
        watching = Client("slow", run="r1")
        watched = asyncio.create_task(watching.resume(other))
        await watching.until("TEXT_MESSAGE_CONTENT")
        await one.end(signal.SIGKILL)
        await reading
        pace.permit(50)
        await asyncio.gather(client.resume(other), watched)
        for each in (client, watching):
            assert each.types[-1] == "RUN_FINISHED"
            assert each.ids == sorted(set(each.ids))
            assert each.types.count("RUN_STARTED") == 1
            assert each.types.count("MESSAGES_SNAPSHOT") == 1, (each.ids, each.types)
        stored = await other.messages()
        assert [message["content"] for message in stored if message["role"] == "user"] == ["slow"]
        assert stored[-1]["content"] == WORDS
        assert (await other.get("/runs/r1"))["state"] == "finished"


@pytest.mark.req("D03b", "D08")
async def test_a_server_that_was_paused_past_its_time_writes_nothing_more(tmp_path, postgres_database):
    async with replicas(tmp_path, postgres_database, seconds=8) as (one, other):
        client = Client("act slowly", run="r1")
        reading = asyncio.create_task(client.post(one))
        async with asyncio.timeout(PATIENCE):
            while not (tmp_path / "acts").exists():
                await asyncio.sleep(0.02)
        one.process.send_signal(signal.SIGSTOP)
        try:
            state = await other.in_state("r1", "interrupted")
            (tmp_path / "go").touch()
        finally:
            one.process.send_signal(signal.SIGCONT)
        await asyncio.wait_for(reading, PATIENCE)
        assert client.types[-1] == "RUN_ERROR"
        assert client.events[-1]["code"] in ("session-taken", "interrupted")
        assert await other.get("/runs/r1") == state
        results = [message["content"] for message in await other.messages() if message["role"] == "tool"]
        assert len(results) == 1
        assert UNKNOWN in results[0]
        assert len((tmp_path / "acts").read_text().split()) == 1
        again = Client("and now?", run="r2")
        await asyncio.wait_for(again.post(one), PATIENCE)
        assert again.types[-1] == "RUN_FINISHED", "it serves again"


@pytest.mark.req("D14")
async def test_a_server_that_stops_leaves_its_waiting_run_to_the_other(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, seconds=8) as (one, other):
        asking = Client("hello", run="r1")
        await asyncio.wait_for(asking.post(one), PATIENCE)
        await one.end(signal.SIGTERM)
        again = Client("hello", run="r1")
        await again.resume(other)
        assert again.types[-1] == "RUN_FINISHED"
        assert again.text == "all is well"
        await asyncio.wait_for(Client("more", run="r2").post(other), PATIENCE)
        assert len(await other.messages()) == 4
        await one.start()
        asked = asyncio.create_task(answered_by_any((one, other), 6))
        await other.end(signal.SIGTERM)
        assert await asyncio.wait_for(asked, PATIENCE) == ["all is well"] * 6
        assert pace.asked == 8, "no run was carried out twice"


@pytest.mark.req("D14", "SRV-20")
async def test_a_server_that_stops_leaves_its_background_run_to_the_other(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, seconds=8, drain=0.2) as (one, other):
        begun = await one.post("/v1/responses", {"model": "tester", "input": "slow", "background": True})
        run_id = begun["id"].removeprefix("resp_")
        pace.permit(5)
        async with asyncio.timeout(PATIENCE):
            while not pace.asked:
                await asyncio.sleep(0.02)
        await one.end(signal.SIGTERM)
        pace.permit(50)
        assert (await other.in_state(run_id, "finished", "failed"))["state"] == "finished"
        assert pace.asked == 2
        stored = await other.messages(begun["conversation"]["id"])
        assert stored[-1]["content"] == WORDS


async def know_each_other(database: str) -> None:
    """Waits until each server has raised its counter twice since the other one is there."""
    async with (
        asyncio.timeout(PATIENCE),
        await psycopg.AsyncConnection.connect(database, autocommit=True) as connection,
    ):
        before = dict(await (await connection.execute("SELECT id, beats FROM holodeck.replicas")).fetchall())
        assert len(before) == 2
        while True:
            now = dict(await (await connection.execute("SELECT id, beats FROM holodeck.replicas")).fetchall())
            if all(now[replica] >= beats + 2 for replica, beats in before.items()):
                return
            await asyncio.sleep(0.05)


async def has_readers(server, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await server.get("/runs/r1"))["readers"] != count:
            await asyncio.sleep(0.02)


class Browser(Client):
    """An EventSource that reconnects at once: to its server as long as that one answers, then to the other.

    It gives up after any status but 200, as the standard demands.
    """

    async def read_on(self, server, other) -> None:
        while self.types[-1] != "RUN_FINISHED":
            headers = {"Accept": "text/event-stream", "Last-Event-ID": self.last_id}
            try:
                async with (
                    aiohttp.ClientSession() as client,
                    client.get(f"{server.url}/runs/{self.run_id}/events", headers=headers) as answer,
                ):
                    await self._read(answer)
            except aiohttp.ClientConnectorError:
                server = other
                continue
            except aiohttp.ClientError:
                continue  # the connection broke
            assert self.status == 200, "it gives up"


@pytest.mark.req("D14", "SRV-20")
async def test_a_browser_that_reconnects_to_the_server_that_stops_gets_the_rest_from_the_other(
    tmp_path, postgres_database
):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, seconds=4, drain=0.2) as (one, other):
        browser = Browser("slow", run="r1")
        asking = asyncio.create_task(browser.post(one))
        pace.permit(3)
        await browser.until("TEXT_MESSAGE_CONTENT", 2)
        asking.cancel()
        await asyncio.wait({asking})
        await has_readers(one, 0)
        await know_each_other(postgres_database)
        reading = asyncio.create_task(browser.read_on(one, other))
        await has_readers(one, 1)
        await one.end(signal.SIGTERM)
        pace.permit(50)
        await asyncio.wait_for(reading, PATIENCE)
        assert [kind for kind in browser.types if kind in ("RUN_FINISHED", "RUN_ERROR")] == ["RUN_FINISHED"]
        assert (await other.in_state("r1", "finished"))["status"] == 200
        assert browser.text.endswith(WORDS)
        assert browser.ids == sorted(set(browser.ids))


async def answered_by_any(servers, count):
    """The answers to so many requests, by a client that goes to the next server, under the same id, until one has answered."""
    texts = []
    for number in range(count):
        client, servers = Client("hello", run=f"again{number}", thread="again"), (*servers[1:], servers[0])
        while client.types[-1:] != ["RUN_FINISHED"]:
            server, servers = servers[0], (*servers[1:], servers[0])
            client = Client("hello", run=f"again{number}", thread="again")
            await client.post(server)
        texts.append(client.text)
    return texts


async def test_with_valkey_a_stop_does_not_wait_for_the_next_beat(tmp_path, postgres_database, valkey_url):
    pace = Pace()
    more = f", valkey: '{valkey_url}'"
    async with replicas(tmp_path, postgres_database, pace, seconds=300, cluster=more) as (one, other):  # a beat in 75 s
        for run, stop in (("r1", lambda: other.post("/runs/r1/stop")), ("r2", lambda: other.delete("/sessions/t"))):
            slow = Client("slow", run=run)
            reading = asyncio.create_task(slow.post(one))
            pace.permit(1)
            await slow.until("TEXT_MESSAGE_CONTENT")
            await stop()
            await asyncio.wait_for(reading, PATIENCE)


async def test_without_valkey_in_the_middle_of_a_run_the_database_carries_it(tmp_path, postgres_database):
    pace = Pace()
    with tempfile.TemporaryDirectory() as folder:
        with valkey(Path(folder)) as url:
            started = replicas(tmp_path, postgres_database, pace, cluster=f", valkey: '{url}'")
            one, other = await started.__aenter__()
            client = Client("slow", run="r1")
            reading = asyncio.create_task(client.post(one))
            pace.permit(5)
            await client.until("TEXT_MESSAGE_CONTENT")
        try:
            pace.permit(50)
            await asyncio.wait_for(reading, PATIENCE)
            assert client.text == WORDS
            later = Client("hello", run="r2")
            await asyncio.wait_for(later.post(other), PATIENCE)
            assert later.types[-1] == "RUN_FINISHED"
            again = Client("slow", run="r1")
            await again.resume(other)
            assert again.types[-1] == "RUN_FINISHED"
            assert again.events[-2]["type"] == "MESSAGES_SNAPSHOT" or again.text == WORDS
            assert len(await other.messages()) == 4
            for server in (one, other):
                await _is_degraded(server)
        finally:
            await started.__aexit__(None, None, None)


async def _is_degraded(server):
    """Waits until the server reports that Valkey is away. It stays ready."""
    async with aiohttp.ClientSession(server.url) as http, asyncio.timeout(PATIENCE):
        async with http.get("/metrics") as answer:
            assert "\nholodeck_cluster_valkey_up " in await answer.text()
        health = {}
        while health.get("status") != "degraded":
            async with http.get("/ready") as answer:
                health = await answer.json()
                assert answer.status == 200
        assert health["agent_ready"]
        assert "cluster.valkey does not respond" in health["reasons"][0]
        async with http.get("/metrics") as answer:
            assert "\nholodeck_cluster_valkey_up 0\n" in await answer.text()
