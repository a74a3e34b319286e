"""A store that is lost while a run ends, less long than it takes to be taken over: the ending that was shown is stored afterwards."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing

import msgspec
import psycopg
import pytest

from tests.cluster.replicas import PATIENCE, Client, Pace, Server, replicas
from tests.models.endpoint import ModelEndpoint
from tests.postgres_server import socket_of
from tests.store_faults.fault_proxy import FaultProxy

pytestmark = pytest.mark.req("D03", "D08")

AGENT = """\
name: tester
model: {{provider: openai_compatible, name: m, api_key: none, endpoint: '{endpoint}'}}
sessions: {{store: sqlite}}
server: {{runs: {{detach_grace: 60}}}}
"""
WORDS = 3


class Row:
    """The row of a run, read from the store itself."""

    def __init__(self, read):
        self._read = read

    async def ended(self):
        """Its state, and the code of its stored ending, as soon as it has one."""
        async with asyncio.timeout(PATIENCE):
            while (found := await asyncio.to_thread(self._read)) is None or found[1] is None:
                await asyncio.sleep(0.05)
        return found[0], msgspec.json.decode(bytes(found[1])).get("code")

    async def is_open(self):
        return (await asyncio.to_thread(self._read))[1] is None


@asynccontextmanager
async def on_file(folder, pace):
    """One server, and the lock that another process holds on its file."""
    file = folder / ".holodeck" / "sessions.db"

    def read():
        with closing(sqlite3.connect(file)) as connection:
            return connection.execute("SELECT state, ending FROM runs WHERE id = 'r1'").fetchone()

    async with ModelEndpoint(pace) as endpoint:
        (folder / "agent.yaml").write_text(AGENT.format(endpoint=endpoint.url))
        server = Server(folder)
        await server.start()
        try:
            with closing(sqlite3.connect(file, isolation_level=None)) as other:
                yield server, Row(read), lambda: other.execute("BEGIN IMMEDIATE"), lambda: other.execute("ROLLBACK")
        finally:
            if server.runs:
                await server.end()


@asynccontextmanager
async def on_database(folder, pace, database):
    """One replica, and a link to PostgreSQL that can be cut."""

    def read():
        with closing(psycopg.connect(database)) as connection:
            return connection.execute("SELECT state, ending FROM holodeck.runs WHERE id = 'r1'").fetchone()

    async with FaultProxy(socket_of(database)) as link:
        url = f"postgresql://postgres@127.0.0.1:{link.port}/postgres"
        async with replicas(folder, url, pace, count=1) as (server,):
            yield server, Row(read), link.cut, link.heal


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_the_ending_that_a_client_saw_is_stored_and_the_session_is_usable(tmp_path, request, store):
    pace = Pace(WORDS)
    opened = (
        on_file(tmp_path, pace)
        if store == "sqlite"
        else on_database(tmp_path, pace, request.getfixturevalue("postgres_database"))
    )
    async with opened as (server, row, lose, heal):
        client = Client("slow", run="r1")
        reading = asyncio.create_task(client.post(server))
        pace.permit(1)
        await client.until("TEXT_MESSAGE_CONTENT")
        lose()
        pace.permit(WORDS)
        await asyncio.wait_for(reading, PATIENCE)
        shown = client.events[-1]
        assert (shown["type"], shown["code"]) == ("RUN_ERROR", "store-unavailable")
        assert await row.is_open()
        assert (await server.get("/runs/r1"))["state"] == "failed"
        heal()
        assert await row.ended() == ("failed", "store-unavailable")
        again = Client("slow", run="r1")
        await asyncio.wait_for(again.post(server), PATIENCE)
        assert (again.types[-1], again.events[-1]["code"], pace.asked) == ("RUN_ERROR", "store-unavailable", 1)
        later = Client("hello", run="r2")
        await asyncio.wait_for(later.post(server), PATIENCE)
        assert later.types[-1] == "RUN_FINISHED"
        await server.end()
        await server.start()
        assert (await server.get("/runs/r1"))["state"] == "failed"
        assert (await server.get("/sessions/t"))["active_runs"] == []
        assert pace.asked == 2
