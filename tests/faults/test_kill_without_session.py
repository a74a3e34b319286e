"""`kill -9` of a real server in runs without a session: the same request again makes no tool act twice, and no text stays."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing

import aiohttp
import pytest

from tests.faults.test_kill_and_restart import PATIENCE, ServerProcess, by_the_prompt, hangs, served_from

KEY, ATTEMPT = {"Idempotency-Key": "k1"}, "x-stainless-retry-count"


def chat_stream(text: str) -> tuple[str, dict]:
    return "/chat/stream", {"input": text}


def completion(text: str, **more) -> tuple[str, dict]:
    return "/v1/chat/completions", {"model": "tester", "messages": [{"role": "user", "content": text}], **more}


def response(text: str) -> tuple[str, dict]:
    return "/v1/responses", {"model": "tester", "input": text, "store": False}


ASKED = {
    "chat-stream": (chat_stream, KEY, KEY),
    "Chat Completions": (completion, KEY, KEY),
    "Chat Completions, repeated by an SDK": (completion, {ATTEMPT: "0"}, {ATTEMPT: "1"}),
    "Responses, not stored": (response, KEY, KEY),
    "Responses, not stored, repeated by an SDK": (response, {ATTEMPT: "0"}, {ATTEMPT: "1"}),
}


async def posted(server: ServerProcess, request: tuple[str, dict], headers: dict) -> tuple[int, str]:
    path, body = request
    try:
        async with (
            aiohttp.ClientSession() as client,
            client.post(server.url + path, json=body, headers=headers) as answer,
        ):
            return answer.status, (await answer.read()).decode()
    except aiohttp.ClientError:
        return 0, ""


def file_of(server: ServerProcess) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(server.folder / ".holodeck" / "sessions.db", timeout=PATIENCE))


def stored_bytes(server: ServerProcess) -> bytes:
    """Everything that the tables have, except the copies of logs: those are kept for the replay window."""
    with file_of(server) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for name in names if name != "pieces" for row in file.execute(f"SELECT * FROM {name}")]
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)


def same(answer: tuple[int, str]) -> tuple[int, str]:
    """Without the id of the HTTP request, which each one has for itself."""
    return answer[0], re.sub(r"req_\w+", "", answer[1])


@pytest.mark.req("C08", "D03", "DUR-02")
@pytest.mark.parametrize(("asked", "first", "again"), ASKED.values(), ids=ASKED)
async def test_killed_while_a_tool_runs_the_same_request_does_not_call_it_again(tmp_path, asked, first, again):
    async with served_from(tmp_path) as server:
        request = asked("act slowly a")
        asking = asyncio.create_task(posted(server, request, first))
        await server.acted(2)
        await server.restart()
        await asking
        (tmp_path / "go").touch()
        status, text = await asyncio.wait_for(posted(server, request, again), PATIENCE)
        assert "interrupted" in text, (status, text)
        assert len(server.acts) == 2
        assert b"act slowly" not in stored_bytes(server)
        assert (await server.get("/sessions"))["sessions"] == []


@pytest.mark.req("C08", "D03")
@pytest.mark.parametrize(("asked", "first", "again"), ASKED.values(), ids=ASKED)
async def test_killed_before_a_tool_was_called_the_same_request_is_answered(tmp_path, asked, first, again):
    async with served_from(tmp_path, hangs) as server:
        asking = asyncio.create_task(posted(server, asked("act a"), first))
        await server.stored("SELECT 1 FROM pieces WHERE instr(body, ' answer')")
        await server.kill()
        await asking
        (server.folder / "go").touch()
        server.endpoint.responses = [by_the_prompt]
        await server.start()
        status, text = await asyncio.wait_for(posted(server, asked("act a"), again), PATIENCE)
        assert (status, "all" in text, len(server.acts)) == (200, True, 2), text


@pytest.mark.req("C08", "SRV-12")
@pytest.mark.parametrize("asked", [chat_stream, completion, response])
async def test_the_answer_is_the_same_after_a_restart_and_gone_with_the_copy_of_its_log(tmp_path, asked):
    async with served_from(tmp_path) as server:
        first = await posted(server, asked("act 1"), KEY)
        assert first[0] == 200
        await server.stored("SELECT 1 FROM pieces WHERE instr(body, 'RunFinished')")
        assert b"all is well" not in stored_bytes(server)
        await server.restart()
        assert same(await asyncio.wait_for(posted(server, asked("act 1"), KEY), PATIENCE)) == same(first)
        await server.kill()
        with file_of(server) as file, file:
            file.execute("DELETE FROM pieces")  # as the clean-up does after the replay window
        await server.start()
        status, text = await asyncio.wait_for(posted(server, asked("act 1"), KEY), PATIENCE)
        assert (asked is chat_stream or status == 410, "replay-gone" in text or "replay_gone" in text) == (
            True,
            True,
        ), text
        assert len(server.acts) == 2


@pytest.mark.req("C08")
async def test_it_is_found_and_cannot_become_a_session(tmp_path):
    async with served_from(tmp_path) as server:
        _, text = await posted(server, completion("hello"), KEY)
        run = json.loads(text)["id"].removeprefix("chatcmpl-")
        await server.restart()
        assert (await server.get(f"/runs/{run}"))["state"] == "finished"
        session = (await server.get(f"/runs/{run}"))["session_id"]
        assert (await server.get(f"/sessions/{session}"))["status"] == 404
        assert (await posted(server, (f"/runs/{run}/continue", {}), {}))[0] == 422
        following = {"model": "tester", "input": "and?", "previous_response_id": f"resp_{run}"}
        assert (await posted(server, ("/v1/responses", following), {}))[0] in (400, 404)
