"""Ids are the clients' own: whatever is allowed in one, its run and its thread can be found under it."""

import asyncio
import json
from urllib.parse import quote

import pytest
from yarl import URL

from holodeck.models.scripted import says
from holodeck.wires.sse import position_after
from tests.server.serving import PATIENCE, Gate, Served, ask, frames, read_to, served, types

IDS = [
    "x/stop",
    "x/events",
    "/",
    "//",
    "events",
    "stop",
    "a/b/c",
    "a/",
    "/a",
    "/events/events",
    "a%2Fstop",
    "%",
    "100%25",
    "a?b=c#d&e",
    "..",
    "../runs",
    "a;b",
    "a\\b",
    "a b",
    " a ",
    ":",
    "r:1",
    'a"b',
    "a+b",
    "über",
    "東京",
    "👩‍🚀"[0],
    "e\u0301",
    "\ufffd",
    "{run_id}",
    "x" * 128,
]


def at(s: Served, *segments: str) -> URL:
    return URL("/".join([s.url, *(quote(each, safe="") for each in segments)]), encoded=True)


async def test_a_run_is_shown_and_read_again() -> None:
    async with served(*[says("one two")] * len(IDS)) as s:
        for name in IDS:
            async with s.post(ask(run=name, thread=name)) as answer:
                received = await answer.read()
                assert answer.status == 200, ascii(name)
            async with s.client.get(at(s, "runs", name)) as shown:
                assert (await shown.json())["run_id"] == name
            async with s.client.get(at(s, "runs", name, "events")) as again:
                assert await again.read() == received, ascii(name)
            last, _ = frames(received)[1]
            assert last == f"{name}:1"
            async with s.client.get(at(s, "runs", name, "events"), headers={"Last-Event-ID": last}) as rest:
                assert types(await rest.read()) == types(received)[2:], ascii(name)


async def test_a_run_is_stopped() -> None:
    async with served(*[says("a b", pause=Gate())] * len(IDS)) as s:
        for name in IDS:
            async with s.post(ask(run=name)) as answer:
                await read_to(answer, "TEXT_MESSAGE_CONTENT")
                async with s.client.post(at(s, "runs", name, "stop")) as stopped:
                    assert await stopped.json() == {"stopped": True, "state": "cancelled"}, ascii(name)
                assert types(await answer.read())[-1] == "RUN_FINISHED"


async def test_a_thread_is_stopped_and_shown() -> None:
    async with served(*[says("a b", pause=Gate())] * len(IDS)) as s:
        for name in IDS:
            async with s.post(ask(thread=name)) as answer:
                await read_to(answer, "TEXT_MESSAGE_CONTENT")
                async with s.client.post(at(s, "copilotkit", "agent", "default", "stop", name)) as stopped:
                    assert await stopped.json() == {"stopped": True}, ascii(name)
                assert types(await answer.read())[-1] == "RUN_FINISHED"
            async with s.client.get(at(s, "sessions", name)) as shown:
                assert (await shown.json())["session_id"] == name
            async with s.client.delete(at(s, "sessions", name)) as gone:
                assert gone.status == 204, ascii(name)


async def test_two_runs_that_differ_in_a_slash_are_two() -> None:
    async with served(says("one"), says("two", pause=Gate())) as s:
        async with s.post(ask(run="x", thread="t1")) as answer:
            await answer.read()
        async with s.post(ask(run="x/stop", thread="t2")) as answer:
            await read_to(answer, "TEXT_MESSAGE_CONTENT")
            for path, state in (("/runs/x", "finished"), ("/runs/x%2Fstop", "running"), ("/runs/x%2fstop", "running")):
                async with s.get(path) as shown:
                    assert (await shown.json())["state"] == state
            async with s.client.post(s.url + "/runs/x/stop") as stopped:
                assert await stopped.json() == {"stopped": False, "state": "finished"}
            async with s.client.post(URL(s.url + "/runs/x%2Fstop/stop", encoded=True)) as stopped:
                assert await stopped.json() == {"stopped": True, "state": "cancelled"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/%61wp/capabilities", 200),  # the same address, written otherwise
        ("/runs/a%2Fb/", 200),
        ("/runs/a/b", 200),  # a slash that is not escaped is understood where only one meaning is possible
        ("/awp%2Fcapabilities", 404),
        ("/runs%2Fa%2Fb", 404),
        ("/health%2Fagent", 404),
    ],
)
async def test_a_slash_that_is_escaped_is_none_between_segments(path: str, status: int) -> None:
    async with served() as s:
        async with s.post(ask(run="a/b")) as answer:
            await answer.read()
        async with s.get(path) as answer:
            result = json.loads(await answer.read())
            assert answer.status == status
            assert status == 200 or path in result["detail"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_browsers_and_others_write_the_last_event_each_in_its_way(encoding: str) -> None:
    async with served() as s:
        async with s.post(ask(run="café")) as answer:
            events = types(await answer.read())
        reader, writer = await s.connect()
        head = "GET /runs/caf%C3%A9/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nLast-Event-ID: café:1\r\n\r\n"
        writer.write(head.encode(encoding))
        rest = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        assert rest.startswith(b"HTTP/1.1 200")
        assert rest.count(b'"type":') >= len(events) - 2


def test_spaces_that_http_took_away_do_not_count() -> None:
    assert position_after("a:7", "  a") == 7
    assert position_after("a:7", "a ") is None
    assert position_after("b:7", "a") is None
