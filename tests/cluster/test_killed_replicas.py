"""Servers that share a database are killed at random under load: nothing acknowledged is lost, and no tool acts twice."""

import asyncio
import random
import signal

import pytest

from tests.cluster.replicas import PATIENCE, UNKNOWN, Client, Server, replicas
from tests.cluster.siblings import siblings

KILLS = 3
THREADS = 3


@pytest.mark.req("D03", "D03b")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
async def test_killed_at_random_nothing_acknowledged_is_lost_and_no_tool_acts_twice(tmp_path, request, store):
    seed = random.Random(15)
    if store == "sqlite":
        started = siblings(tmp_path)
    else:
        more = f", valkey: '{request.getfixturevalue('valkey_url')}'"
        started = replicas(tmp_path, request.getfixturevalue("postgres_database"), seconds=5, cluster=more)
    async with started as servers:
        clients: list[Client] = []

        async def talk(thread: str) -> None:
            while True:
                number = len(clients)
                client = Client(f"{seed.choice(['act', 'hello'])} {number}", run=f"r{number}", thread=thread)
                clients.append(client)
                await client.post(seed.choice(servers))
                await asyncio.sleep(0.05)

        talking = [asyncio.create_task(talk(f"t{number}")) for number in range(THREADS)]
        for kill in range(KILLS):
            started = sum("RUN_STARTED" in client.types for client in clients)
            async with asyncio.timeout(PATIENCE):
                while sum("RUN_STARTED" in client.types for client in clients) <= started + 2:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(seed.uniform(0, 0.3))
            victim = servers[kill % len(servers)]
            await victim.end(signal.SIGKILL)
            await victim.start()
        for task in talking:
            task.cancel()
        await asyncio.wait(talking)

        for client in clients:
            await see_its_end(client, seed.choice(servers))
        await all_end(seed.choice(servers))
        acts = (tmp_path / "acts").read_text().split() if (tmp_path / "acts").exists() else []
        acknowledged = 0
        for number in range(THREADS):
            acknowledged += await check(servers[0], clients, f"t{number}")
        assert acknowledged >= KILLS
        done, unknown = await outcomes(servers[0])
        assert done <= len(acts) <= done + unknown, "a tool acted twice, or without a trace"


async def see_its_end(client: Client, server: Server) -> None:
    """Reads a run that a kill has cut: without a reader it would wait for a minute before it ends."""
    if client.types[-1:] in (["RUN_FINISHED"], ["RUN_ERROR"]):
        return
    await Client("", run=client.run_id).resume(server)
    if "RUN_STARTED" in client.types:
        await server.in_state(client.run_id, "finished", "failed", "cancelled", "interrupted")


async def all_end(server: Server) -> None:
    """Runs whose clients have left before they got anything may still go on."""
    async with asyncio.timeout(PATIENCE):
        for number in range(THREADS):
            while (await server.get(f"/sessions/t{number}")).get("active_runs"):
                await asyncio.sleep(0.05)


async def check(server: Server, clients: list[Client], thread: str) -> int:
    """What one conversation must hold; returns how many of its messages were acknowledged."""
    messages, acknowledged = await server.messages(thread), 0
    stored = [message["id"] for message in messages if message["role"] == "user"]
    assert len(stored) == len(set(stored)), "a message is stored twice"
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    results = [message["call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(calls) == sorted(results), "a call without a result"
    for client in (each for each in clients if each.body["threadId"] == thread):
        if "RUN_STARTED" in client.types:
            acknowledged += 1
            assert f"m-{client.run_id}" in stored, "an acknowledged message is lost"
        if "RUN_FINISHED" in client.types:
            assert (await server.get(f"/runs/{client.run_id}"))["state"] == "finished"
    return acknowledged


async def outcomes(server: Server) -> tuple[int, int]:
    """How many calls have acted, and of how many that is not known, by the histories."""
    messages = [message for number in range(THREADS) for message in await server.messages(f"t{number}")]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    return sum(text == "acted" for text in results), sum(UNKNOWN in text for text in results)
