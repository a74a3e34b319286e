"""Responses after a restart of the server: read, streamed again from the copy of the log, continued."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from holodeck.core.events import RunFinished
from holodeck.models.scripted import Turn, says
from holodeck.server.options import ServerSettings
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.server.serving import Served, served

RESPONSES = ServerSettings(protocols=("responses",))


@asynccontextmanager
async def on_file(path: Path, *turns: Turn) -> AsyncIterator[tuple[AsyncOpenAI, Served]]:
    file = SqliteFile(path)
    records = SqliteRunStore(file, "tester")
    store = SqliteSessionStore(file, "tester", runs=records)
    async with (
        served(*turns, settings=RESPONSES, store=store, records=records) as s,
        AsyncOpenAI(base_url=f"{s.url}/v1", api_key="none", max_retries=0, timeout=60) as client,
    ):
        yield client, s


@pytest.mark.req("SRV-24")
async def test_a_response_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    async with on_file(path, says("one two three")) as (client, s):
        stream: Any = await client.responses.create(model="tester", input="1", stream=True)
        events = [event async for event in stream]
        first = events[-1].response
        run = s.run(first.id.removeprefix("resp_"))
        async with asyncio.timeout(30):
            while not await _is_copied(s, run.record):
                await asyncio.sleep(0.05)
    async with on_file(path, says("four")) as (client, s):
        found = await client.responses.retrieve(first.id)
        assert (found.status, found.output, found.conversation) == (first.status, first.output, first.conversation)
        again = await client.responses.retrieve(first.id, stream=True)
        assert [(event.type, event.sequence_number) async for event in again] == [
            (event.type, event.sequence_number) for event in events
        ]
        then = await client.responses.create(model="tester", input="2", previous_response_id=first.id)
        assert (then.output_text, then.conversation) == ("four", first.conversation)
        assert [message.content for message in s.model.prompts[0].messages] == ["1", "one two three", "2"]


@pytest.mark.req("SRV-24")
async def test_a_response_in_the_background_is_stored_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, opened = asyncio.Event(), SqliteSessionStore.open

    async def open_later(*args: Any, **more: Any) -> Any:
        await may_open.wait()
        return await opened(*args, **more)

    monkeypatch.setattr(SqliteSessionStore, "open", open_later)
    async with on_file(tmp_path / "sessions.db", says("one")) as (client, _):
        response = await client.responses.create(model="tester", input="1", background=True)
        with closing(
            sqlite3.connect(tmp_path / "sessions.db")
        ) as connection:  # as another process finds it after a crash
            found = connection.execute("SELECT id, state, ended FROM runs").fetchall()
        assert found == [(response.id.removeprefix("resp_"), "running", None)]
        may_open.set()
        async with asyncio.timeout(30):
            while response.status in ("queued", "in_progress"):
                response = await client.responses.retrieve(response.id)
        assert (response.status, response.output_text) == ("completed", "one")


async def _is_copied(s: Served, record: Any) -> bool:
    records = s.server.runs.records
    assert records is not None
    return any(isinstance(event, RunFinished) for _, events in await records.events(record) for event in events)
