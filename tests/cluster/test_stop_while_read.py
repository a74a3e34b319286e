"""A server that stops in the middle of a stream: a reader that reconnects by itself gets the rest at another server."""

import asyncio
import signal

import psycopg
import pytest

from tests.cluster.replicas import PATIENCE, WORDS, Client, Pace, replicas

SECONDS = 4  # take over within


async def begun(server, pace, run="r1"):
    """A run that has shown its first word; its client has left and reads it by its id now."""
    client = Client("slow", run=run, thread=run)
    posting = asyncio.create_task(client.post(server))
    pace.permit(1)
    await client.until("TEXT_MESSAGE_CONTENT")
    posting.cancel()
    await asyncio.wait({posting})
    return client


async def know_each_other(database):
    """Waits until each server has read the counters of all."""

    async def counters():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            return dict(await (await connection.execute("SELECT id, beats FROM holodeck.replicas")).fetchall())

    async with asyncio.timeout(PATIENCE):
        before = await counters()
        while not all(beats > before[name] for name, beats in (await counters()).items()):
            await asyncio.sleep(0.1)


async def read_by(server, count, run="r1"):
    async with asyncio.timeout(PATIENCE):
        while (await server.get(f"/runs/{run}"))["readers"] != count:
            await asyncio.sleep(0.02)


@pytest.mark.req("D14", "SRV-20", "C07")
@pytest.mark.parametrize("reads_at", ["its own server", "the other server"])
async def test_a_reader_that_comes_back_gets_the_rest_at_the_other_server(tmp_path, postgres_database, reads_at):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, seconds=SECONDS, drain=0.2) as (one, other):
        client = await begun(one, pace)
        await know_each_other(postgres_database)
        reading = asyncio.create_task(client.resume(one if reads_at == "its own server" else other))
        await read_by(one if reads_at == "its own server" else other, 1)
        await one.end(signal.SIGTERM)
        if reads_at == "its own server":
            await asyncio.wait_for(reading, PATIENCE)
            assert "RUN_ERROR" not in client.types, "its connection ends, its run does not"
            reading = asyncio.create_task(client.resume(other))
        pace.permit(50)
        await asyncio.wait_for(reading, PATIENCE)
        assert (client.types[-1], client.types.count("RUN_ERROR")) == ("RUN_FINISHED", 0)
        assert client.text.endswith(WORDS)
        assert client.ids == sorted(set(client.ids))
        assert (await other.messages("r1"))[-1]["content"] == WORDS
        assert pace.asked == 2


@pytest.mark.req("D14", "SRV-20")
async def test_one_that_posted_its_request_gets_an_ending(tmp_path, postgres_database):
    """Stock AG-UI clients do not reconnect: to them, a connection that ends in the middle would be an error without a reason."""
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, seconds=SECONDS, drain=0.2) as (one, _other):
        client, second = Client("slow", run="r1"), Client("slow", run="r1")
        posting = asyncio.create_task(client.post(one))
        pace.permit(1)
        await client.until("TEXT_MESSAGE_CONTENT")
        await know_each_other(postgres_database)
        reading = asyncio.create_task(second.resume(one))
        await read_by(one, 2)
        await one.end(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(posting, reading), PATIENCE)
        assert [each.events[-1].get("code") for each in (client, second)] == ["shutting-down"] * 2


@pytest.mark.req("SRV-20")
async def test_without_another_server_the_run_ends(tmp_path, postgres_database):
    pace = Pace()
    async with replicas(tmp_path, postgres_database, pace, count=1, seconds=SECONDS, drain=0.2) as (one,):
        client = await begun(one, pace)
        reading = asyncio.create_task(client.resume(one))
        await read_by(one, 1)
        await one.end(signal.SIGTERM)
        await asyncio.wait_for(reading, PATIENCE)
        assert client.events[-1]["code"] == "shutting-down"
