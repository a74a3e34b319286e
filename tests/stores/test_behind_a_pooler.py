"""Servers behind one pooler in transaction mode, with two server connections for all. `tests.contracts` has the rest."""

import asyncio

import psycopg
import pytest

from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.request import RunRequest
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord, RunState
from holodeck.stores.postgres_database import PREPARE_AFTER, PostgresDatabase
from tests.contracts.session_stores import ADA, Clock, postgres_with_runs
from tests.postgres_server import socket_of
from tests.stores.pooling_proxy import PoolingProxy


@pytest.fixture
async def pooler(postgres_database):
    async with PoolingProxy(socket_of(postgres_database)) as proxy:
        yield proxy


async def test_the_pooler_finds_what_a_client_keeps_in_a_session(pooler):
    async with await psycopg.AsyncConnection.connect(pooler.url, autocommit=True) as client:
        await client.execute("SET application_name = 'mine'")
        seen = [(await (await client.execute("SHOW application_name")).fetchone())[0] for _ in range(2)]
        assert sorted(seen) == ["", "mine"], "the second transaction runs elsewhere"
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            await client.execute("SELECT %s::text", ("x",), prepare=True)
    assert pooler.used == {0, 1}


async def test_sessions_and_runs_are_stored_and_claimed_behind_a_pooler(pooler):
    async with (
        postgres_with_runs(pooler.url, Clock()) as (store, runs),
        postgres_with_runs(pooler.url, Clock()) as other,
    ):
        record = RunRecord(
            run_id="r", owner=ADA, session_id="s", wire="rest", key="k", request=RunRequest(run_id="r", wire="rest")
        )
        runs.register(record)
        log = RunLog()
        runs.follow(record, log)
        assert (await runs.begin(record)).is_first
        conversation = await store.open("s", owner=ADA, run_id="r", create=True)
        await conversation.commit([UserMessage(content="hi", run_id="r")])
        assert (await other[1].by_key("rest", "k", owner=ADA)).run_id == "r"
        assert await other[1].want_stop(record)
        assert (await runs.beat()).stops == [(ADA, "r")]
        waiting = RunRecord(run_id="q", owner=ADA, session_id="s", request=RunRequest(run_id="q"))
        other[1].register(waiting)
        assert not (await other[1].begin(waiting)).is_first
        turn = asyncio.create_task(other[1].turn(waiting))
        await conversation.commit([AssistantMessage(content="ho", run_id="r")], ending=RunFinished("r", "s"))
        conversation.close()
        runs.release(record)
        await asyncio.wait_for(turn, 30)
        assert (await other[1].find("r", owner=ADA)).state is RunState.FINISHED
        assert [message.content for message in (await other[0].read("s", owner=ADA)).messages] == ["hi", "ho"]
    assert pooler.used == {0, 1}


async def test_many_at_once_share_two_connections(pooler):
    async with postgres_with_runs(pooler.url, Clock()) as (store, _):

        async def talk(name):
            await store.create(name, owner=ADA)
            conversation = await store.open(name, owner=ADA)
            for number in range(3):
                await conversation.commit([UserMessage(content=str(number))])
            conversation.close()

        await asyncio.gather(*(talk(f"s{number}") for number in range(12)))
        for number in range(12):
            stored = await store.read(f"s{number}", owner=ADA)
            assert [message.content for message in stored.messages] == ["0", "1", "2"]


async def test_statements_are_prepared_on_direct_connections_only(postgres_database, pooler):
    async def names(url):
        database = PostgresDatabase(url, connections=1)
        await database.open()
        try:
            for _ in range(PREPARE_AFTER + 1):
                await database.rows("SELECT %(n)s::int", {"n": 1})
            return await database.rows("SELECT name FROM pg_prepared_statements")
        finally:
            await database.close()

    assert len(await names(postgres_database)) == 1
    assert await names(pooler.url) == []
