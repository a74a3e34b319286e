"""A file with 100,000 kept sessions: the server's memory does not grow with them."""

import asyncio
import sqlite3
from contextlib import closing

import psutil
import pytest

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.cluster.replicas import Client
from tests.models.endpoint import ModelEndpoint, text_frames
from tests.store_faults.fault_rig import ExecutedNode

SESSIONS = 100_000
MOST_MIB = 100
AGENT = """\
name: tester
model: {{provider: openai_compatible, name: m, api_key: none, endpoint: '{endpoint}'}}
"""


async def says_hello(wire):
    await wire.head()
    await wire.send(*text_frames("hello"))
    await wire.end()


async def store_many(path):
    """One session by the store itself, and copies of its rows."""
    store = SqliteSessionStore(SqliteFile(path, durable=False), "tester")
    await store.start()
    conversation = await store.open("s0", owner=ME, create=True)
    for number in range(5):
        await conversation.commit(
            [UserMessage(content=f"question {number}"), AssistantMessage(content="an answer " * 20)]
        )
    conversation.close()
    await store.close()
    with closing(sqlite3.connect(path)) as file, file:
        names = [name for _, name, *_ in file.execute("PRAGMA table_info(sessions)") if name not in ("key", "id")]
        columns = ", ".join(names)
        numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {SESSIONS - 1})"
        file.execute(
            f"INSERT INTO sessions (id, {columns}) {numbers} SELECT 's' || i, {columns} FROM n, sessions WHERE id = 's0'"
        )
        file.execute(
            "INSERT INTO steps (session, seq, messages, by_user, v, body)"
            " SELECT s.key, seq, t.messages, by_user, t.v, body FROM sessions s, steps t WHERE s.id <> 's0' AND t.seq = 0"
        )
        file.execute("UPDATE sessions SET steps = 1, messages = 2 WHERE id <> 's0'")


@pytest.mark.timeout(180)
async def test_a_hundred_thousand_kept_sessions_take_no_memory(tmp_path):
    (tmp_path / ".holodeck").mkdir()
    await store_many(tmp_path / ".holodeck" / "sessions.db")
    async with ModelEndpoint(says_hello) as endpoint:
        (tmp_path / "agent.yaml").write_text(AGENT.format(endpoint=endpoint.url))
        server = ExecutedNode(tmp_path, HOLODECK_BANNER="1")
        try:
            await server.start()
            listed = await server.get("/sessions?limit=100")
            assert len(listed["sessions"]) == 100
            for number in range(0, SESSIONS, SESSIONS // 100):
                assert len(await server.messages(f"s{number}")) >= 2
            client = Client("and now?", run="r1", thread=f"s{SESSIONS - 1}")
            await asyncio.wait_for(client.post(server), 60)
            assert client.text == "hello"
            assert len(await server.messages(f"s{SESSIONS - 1}")) == 4
            used = psutil.Process(server.executed.pid).memory_info().rss / 2**20
            assert used <= MOST_MIB, f"{used:.0f} MiB"
        finally:
            await server.kill()
