"""Scans over AG-UI: the stream begins with the first page that is read, and shows each; the run follows in the same stream."""

import asyncio
import json

import aiohttp
import pytest

from holodeck.errors import InvalidRequest
from holodeck.models.scripted import says
from holodeck.runs.middleware import EventMiddleware, annotate
from tests.files.slow_scan import SlowScan
from tests.server.serving import PATIENCE, ask, frames, served

FILE = {"type": "binary", "mimeType": "text/plain", "data": "SGVsbG8="}
QUESTION = [{"type": "text", "text": "What is in it?"}, FILE]


async def events_of(answer: aiohttp.ClientResponse, number: int) -> list[dict]:
    """The next events of a stream that is open."""
    found = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < number:
            line = await answer.content.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
    return found


@pytest.mark.parametrize(
    "middleware", [None, lambda: EventMiddleware([annotate({"a": 1})])], ids=["plain", "middleware"]
)
async def test_each_page_is_an_activity_and_the_run_follows_in_the_same_stream(middleware):
    reader = SlowScan()
    async with served(says("A greeting.")) as s:
        s.server.files, s.server._middleware = reader, middleware
        async with s.post(ask(QUESTION)) as answer:
            assert answer.status == 200
            started, first = await events_of(answer, 2)
            assert (started["type"], started["metadata"]["model"]) == ("RUN_STARTED", s.model.name)
            assert (first["type"], first["activityType"]) == ("ACTIVITY_SNAPSHOT", "file")
            assert first["content"] == {"name": "scan.pdf", "status": "page 1 of 2", "progress": 0, "total": 2}
            reader.second.set()
            (second,) = await events_of(answer, 1)
            assert (second["messageId"], second["content"]["status"]) == (first["messageId"], "page 2 of 2")
            reader.over.set()
            rest = frames((await answer.read()).lstrip(b"\n"))
        types = [data["type"] for _, data in rest]
        assert "RUN_STARTED" not in types
        assert (types.count("RUN_FINISHED"), types[-1]) == (1, "RUN_FINISHED")
        assert "".join(data["delta"] for _, data in rest if "delta" in data) == "A greeting."
        async with s.client.get(f"{s.url}/runs/{started['runId']}/events") as again:
            replayed = frames(await again.read())
        assert [data for _, data in replayed if data["type"] != "RUN_STARTED"] == [data for _, data in rest]


async def test_a_scan_that_is_refused_ends_the_stream_with_its_error():
    reader = SlowScan(InvalidRequest("scan.pdf is a scan, and text recognition found no text on its pages"))
    async with served(says("never")) as s:
        s.server.files = reader
        async with s.post(ask(QUESTION)) as answer:
            started, _ = await events_of(answer, 2)
            reader.second.set()
            reader.over.set()
            events = [data for _, data in frames((await answer.read()).lstrip(b"\n"))]
        assert started["type"] == "RUN_STARTED"
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "invalid-request")
        assert s.model.prompts == []


async def test_a_file_that_is_refused_before_any_page_is_read_has_a_status():
    async with (
        served(says("never")) as s,
        s.post(ask([{"type": "text", "text": "x"}, {**FILE, "data": "!"}])) as answer,
    ):
        assert answer.status == 422


async def test_a_client_that_leaves_while_pages_are_read_leaves_a_run_that_ends():
    reader = SlowScan()
    async with served(says("Too late.")) as s:
        s.server.files = reader
        answer = await s.post(ask(QUESTION))
        started, _ = await events_of(answer, 2)
        answer.close()
        reader.second.set()
        reader.over.set()
        async with asyncio.timeout(PATIENCE):
            while s.server.runs.active or not s.model.prompts:
                await asyncio.sleep(0.01)
        async with s.client.get(f"{s.url}/runs/{started['runId']}") as state:
            assert state.status == 200
