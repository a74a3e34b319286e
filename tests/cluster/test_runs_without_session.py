"""Runs without a session at several servers: one request is one run, which any of them shows and stops."""

import asyncio
import json
import re
import signal
from contextlib import suppress

import aiohttp
import pytest

from tests.cluster.replicas import PATIENCE, WORDS, Pace, replicas
from tests.cluster.siblings import siblings

KEY, ATTEMPT = {"Idempotency-Key": "k"}, "x-stainless-retry-count"
CHAT_STREAM, COMPLETIONS = "/chat/stream", "/v1/chat/completions"


@pytest.fixture(params=["database", "database and Valkey", "workers"])
async def two(request, tmp_path):
    """Two servers that share a PostgreSQL, also with a Valkey, or two workers on one file."""
    pace = Pace()
    if request.param == "workers":
        opened = siblings(tmp_path, pace)
    else:
        valkey = f", valkey: '{request.getfixturevalue('valkey_url')}'" if "Valkey" in request.param else ""
        opened = replicas(tmp_path, request.getfixturevalue("postgres_database"), pace, seconds=8, cluster=valkey)
    async with opened as (one, other):
        yield one, other, pace, tmp_path


class Asked:
    """A request whose answer is read as far as it has come."""

    def __init__(self, server, path, text, headers):
        body = {"input": text} if path == CHAT_STREAM else {"messages": [{"role": "user", "content": text}]}
        self._given, self.lines, self.status = (server.url + path, {"stream": True, **body}, headers), [], 0
        if path == CHAT_STREAM:
            del self._given[1]["stream"]
        self._changed, self.task = asyncio.Event(), asyncio.create_task(self._read())

    async def _read(self):
        address, body, headers = self._given
        with suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as client, client.post(address, json=body, headers=headers) as answer:
                self.status = answer.status
                async for line in answer.content:
                    self.lines.append(line.decode())
                    self._changed.set()
        self._changed.set()

    async def until(self, text):
        async with asyncio.timeout(PATIENCE):
            while not any(text in line for line in self.lines):
                self._changed.clear()
                await self._changed.wait()

    async def whole(self):
        await asyncio.wait_for(self.task, PATIENCE)
        return re.sub(r"req_\w+", "", "".join(self.lines))

    @property
    def run_id(self):
        return json.loads(next(line for line in self.lines if "chatcmpl-" in line)[6:])["id"].removeprefix("chatcmpl-")


def acts(folder):
    file = folder / "acts"
    return len(file.read_text().split()) if file.exists() else 0


async def acted(folder, times):
    async with asyncio.timeout(PATIENCE):
        while acts(folder) < times:
            await asyncio.sleep(0.01)


@pytest.mark.req("C08", "D08")
async def test_one_key_at_both_is_one_run(two):
    one, other, _, folder = two
    for number, path in enumerate((CHAT_STREAM, COMPLETIONS), 1):
        both = [Asked(server, path, "act", KEY) for server in (one, other)]
        first, second = [await each.whole() for each in both]
        assert first == second
        assert "all " in first
        assert acts(folder) == number


@pytest.mark.req("C08", "D08", "SRV-11")
async def test_a_request_that_an_sdk_repeats_joins_its_run_which_any_server_shows_and_stops(two):
    one, other, pace, _ = two
    asking = Asked(one, COMPLETIONS, "slow", {ATTEMPT: "0"})
    pace.permit(1)
    await asking.until("0 ")
    again = Asked(other, COMPLETIONS, "slow", {ATTEMPT: "1"})
    await again.until("0 ")
    assert (await other.get(f"/runs/{asking.run_id}"))["state"] == "running"
    pace.permit(19)
    assert await asking.whole() == await again.whole()
    assert await Asked(other, COMPLETIONS, "slow", {ATTEMPT: "2"}).whole() == await asking.whole(), "it has just ended"
    assert pace.asked == 1

    another = Asked(one, COMPLETIONS, "slow", {ATTEMPT: "0"})
    pace.permit(1)
    await another.until("0 ")
    assert pace.asked == 2, "a first attempt is a request of its own"
    for server in (one, other):
        assert (await server.get("/sessions"))["sessions"] == []
    await other.post(f"/runs/{another.run_id}/stop")  # answers before the run has ended if that takes 5 seconds
    assert WORDS not in await another.whole()
    await other.in_state(another.run_id, "cancelled")


@pytest.mark.req("C08", "D03", "D08")
async def test_a_tool_of_a_server_that_was_killed_is_not_called_again_at_the_other(two):
    one, other, _, folder = two
    paths = (CHAT_STREAM, COMPLETIONS)
    asking = [Asked(one, path, "act slowly", KEY) for path in paths]
    await acted(folder, len(paths))
    await one.end(signal.SIGKILL)
    for each in asking:
        await each.whole()
    (folder / "go").touch()
    for again in [Asked(other, path, "act slowly", KEY) for path in paths]:
        assert "interrupted" in await again.whole()
    assert acts(folder) == len(paths)
