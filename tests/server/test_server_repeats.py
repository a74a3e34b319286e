"""`Idempotency-Key`: the same request under the same key asks the model once, and gets the same answer (C08)."""

import asyncio
import gc
import json
from typing import Any

import aiohttp
import pytest

from holodeck.errors import ModelRejected
from holodeck.models.scripted import Turn, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.sessions.memory import MemorySessionStore
from tests.scenarios.uploading import CHAT
from tests.scenarios.wire_clients import named
from tests.server.serving import Gate, Served, ask, read_to, served, server_block, until

ALL = ServerSettings(protocols=tuple(WIRES))
STREAM, CHAT_STREAM = f"{CHAT}/stream", "/chat/stream"
QUESTION = {CHAT: {"message": "Hello"}, STREAM: {"message": "Hello"}, CHAT_STREAM: {"input": "Hello"}}
OTHER = {CHAT: {"message": "Bye"}, STREAM: {"message": "Bye"}, CHAT_STREAM: {"input": "Bye"}}
PAIRS = 70  # on each address: 210 in all, where the row asks for 200

pytestmark = pytest.mark.req("C08")
every_address = pytest.mark.parametrize("path", QUESTION)


async def post(s: Served, path: str, body: Any = None, key: str | None = "k1") -> tuple[int, Any]:
    """Status, and the JSON or the events; the events of chat-stream without the id of the request."""
    headers = {} if key is None else {"Idempotency-Key": key}
    async with s.post(QUESTION[path] if body is None else body, path, **headers) as answer:
        received = await answer.read()
        if answer.content_type != "text/event-stream":
            return answer.status, json.loads(received)
    return answer.status, [
        (event, {k: v for k, v in data.items() if k != "request_id"}) for event, data in named(received)
    ]


def turns(*texts: str) -> list[Turn]:
    return [says(text) for text in texts]


@every_address
async def test_a_repeated_request_gets_the_same_answer(path: str) -> None:
    async with served(*turns("first", "second"), settings=ALL) as s:
        first = await post(s, path)
        assert first[0] == 200
        assert await post(s, path) == first
        assert len(s.model.prompts) == 1


@every_address
async def test_without_a_key_or_with_another_it_is_another_request(path: str) -> None:
    async with served(*turns("1", "2", "3", "4"), settings=ALL) as s:
        answers = [await post(s, path, key=key) for key in (None, None, "a", "b")]
        assert len({str(each) for each in answers}) == len(s.model.prompts) == 4


@every_address
async def test_two_that_come_together_ask_once(path: str) -> None:
    async with served(*turns(*map(str, range(PAIRS))), settings=ALL) as s:
        keys = [f"key {i}" for i in range(PAIRS)]
        answers = await asyncio.gather(*(post(s, path, key=key) for key in (*keys, *keys)))
        assert answers[:PAIRS] == answers[PAIRS:]
        assert {status for status, _ in answers} == {200}
        assert len(s.model.prompts) == PAIRS


@every_address
async def test_a_client_that_reconnects_in_the_middle_gets_it_from_the_start(path: str) -> None:
    gate = Gate()
    async with served(says("Once upon a time", pause=gate), settings=ALL) as s:
        first = asyncio.create_task(post(s, path))
        await until(lambda: s.model.prompts)
        again = asyncio.create_task(post(s, path))
        await until(lambda: [run.readers for run in s.server.runs.active] == [2])
        gate.open.set()
        assert await first == await again
        assert len(s.model.prompts) == 1


@every_address
async def test_a_repeat_needs_no_room_of_its_own(path: str) -> None:
    gate = Gate()
    full = ServerSettings(protocols=tuple(WIRES), block=server_block(max_concurrent=1))
    async with served(says("Once upon a time", pause=gate), settings=full) as s:
        first = asyncio.create_task(post(s, path))
        await until(lambda: s.model.prompts)
        assert (await post(s, path, key="another"))[0] == 503
        again = asyncio.create_task(post(s, path))
        await until(lambda: [run.readers for run in s.server.runs.active] == [2])
        gate.open.set()
        assert await first == await again
        assert (await first)[0] == 200


async def test_a_duplicate_does_not_change_what_the_first_client_receives_when_it_comes_back() -> None:
    gate = Gate()
    async with served(says("one two", pause=gate), settings=ALL) as s:
        key = {"Idempotency-Key": "k1"}
        async with s.post(QUESTION[CHAT_STREAM], CHAT_STREAM, **key) as first:
            await read_to(first, "one")
            (run,) = s.server.runs.active
            async with s.post(QUESTION[CHAT_STREAM], CHAT_STREAM, **key, Prefer="return=minimal") as duplicate:
                await read_to(duplicate, "one")
                gate.open.set()
                assert b"accumulated" not in await duplicate.read()
        async with s.get(f"/runs/{run.run_id}/events") as back:
            assert b"accumulated" in await back.read()


@every_address
async def test_another_request_under_the_key_is_refused(path: str) -> None:
    async with served(settings=ALL) as s:
        first = await post(s, path)
        status, problem = await post(s, path, OTHER[path])
        assert (status, problem["field"]) == (422, "Idempotency-Key")
        assert await post(s, path) == first
        assert len(s.model.prompts) == 1


async def test_another_request_is_refused_also_while_the_first_is_read() -> None:
    async with served(settings=ALL) as s:
        answers = await asyncio.gather(post(s, CHAT), post(s, CHAT, OTHER[CHAT]))
        assert sorted(status for status, _ in answers) == [200, 422]
        assert len(s.model.prompts) == 1


@every_address
@pytest.mark.parametrize("key", ["", "x" * 129, "a\tb", "caf\u00e9\u0085"])
async def test_a_key_has_1_to_128_printable_characters(path: str, key: str) -> None:
    async with served(settings=ALL) as s:
        status, problem = await post(s, path, key=key)
        assert (status, problem["field"]) == (422, "Idempotency-Key")
        assert (await post(s, path, key="x" * 128))[0] == 200
        assert len(s.model.prompts) == 1


@every_address
async def test_when_the_run_can_no_longer_be_read_its_key_is_free(path: str) -> None:
    store = MemorySessionStore()  # without a registry of runs, which keeps a key for as long as the session
    async with served(*turns("first", "second"), settings=ALL, replay_window=0.01, store=store) as s:
        first = await post(s, path)
        await until(lambda: not s.server.runs._runs, what="the run to be forgotten")
        assert await post(s, path, OTHER[path]) != first
        assert len(s.model.prompts) == 2
        async with s.get("/health") as answer:  # a connection remembers its last answer until the next
            assert answer.status == 200
        await until(lambda: not s.server.runs._runs, what="the second run to be forgotten")
        gc.collect()
        assert not s.server.idempotency.started


async def test_a_key_is_forgotten_with_the_session() -> None:
    async with served(*turns("first", "second"), settings=ALL) as s:
        _, first = await post(s, CHAT)
        async with s.client.delete(f"{s.url}/sessions/{first['session_id']}") as answer:
            assert answer.status == 204
        _, second = await post(s, CHAT)
        assert (first["content"], second["content"]) == ("first", "second")


async def test_the_id_in_the_answer_is_the_runs_and_the_key_is_none() -> None:
    async with served(settings=ALL) as s:
        _, received = await post(s, CHAT)
        async with s.get(f"/runs/{received['message_id']}") as answer:
            assert (await answer.json())["run_id"] == received["message_id"]
        async with s.get("/runs/k1") as answer:
            assert answer.status == 404
        async with s.post(ask(run="k1")) as answer:
            assert answer.status == 200
        assert len(s.model.prompts) == 2


async def test_a_duplicate_joins_the_session_that_the_first_began() -> None:
    async with served(settings=ALL) as s:
        (_, one), (_, other) = await asyncio.gather(post(s, CHAT), post(s, CHAT))
        assert one["session_id"] == other["session_id"]
        async with s.get(f"/sessions/{one['session_id']}") as answer:
            assert (await answer.json())["message_count"] == 2
        assert await s.server.store.count() == 1


async def test_a_stream_that_was_cut_may_be_asked_for_as_a_whole() -> None:
    async with served(settings=ALL) as s:
        _, events = await post(s, STREAM)
        _, whole = await post(s, CHAT)
        assert whole["message_id"] == events[0][1]["message_id"]
        assert len(s.model.prompts) == 1


async def test_two_users_may_have_the_same_key() -> None:
    users = ({}, {"user_id": "ann"}, {"user_id": "bob"})
    async with served(*turns("1", "2", "3"), settings=ALL) as s:
        bodies = [{"input": "Hello", **user} for user in users]
        answers = [await post(s, CHAT_STREAM, body) for body in bodies]
        assert [events[-1][1]["final_output"] for _, events in answers] == ["1", "2", "3"]
        assert [await post(s, CHAT_STREAM, body) for body in bodies] == answers
        assert len(s.model.prompts) == 3


async def test_two_wires_may_have_the_same_key() -> None:
    async with served(settings=ALL) as s:
        assert [(await post(s, path))[0] for path in (CHAT, CHAT_STREAM)] == [200, 200]
        assert len(s.model.prompts) == 2


async def test_a_failure_is_an_answer_too() -> None:
    """Whatever its tools did before, they did it: who wants to try again, takes a new key."""
    async with served(Turn(error=ModelRejected("no")), says("well"), settings=ALL) as s:
        (status, problem), (again, same) = await post(s, CHAT), await post(s, CHAT)
        assert (status, problem["detail"]) == (again, same["detail"])
        assert (status, len(s.model.prompts)) == (502, 1)
        assert (await post(s, CHAT, key="k2"))[1]["content"] == "well"


async def test_a_request_that_was_refused_takes_no_key() -> None:
    broken = {"message": "Hello", "files": [{"content": "AAAA", "mime_type": "application/pdf"}]}
    async with served(settings=ALL) as s:
        answers = await asyncio.gather(*(post(s, CHAT, broken) for _ in range(3)))
        assert {status for status, _ in answers} == {answers[0][0]} <= {415, 422}
        assert (await post(s, CHAT))[0] == 200


@pytest.mark.parametrize("at_once", [1, 2])
async def test_a_file_is_read_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(settings=ALL) as s:
        read, files = [], s.server.files
        original = files.read

        async def counted(uploads: Any, **more: Any) -> Any:
            read.append([upload.name for upload in uploads])
            return await original(uploads, **more)

        monkeypatch.setattr(files, "read", counted)
        received = [
            each for _ in range(2) for each in await asyncio.gather(*(post_form(s, b"xyzzy") for _ in range(at_once)))
        ]
        one = received[0]
        assert received == [one] * 2 * at_once
        assert [note["name"] for note in one[1]["files"]] == ["note.txt"]
        assert (read, len(s.model.prompts)) == ([["note.txt"]], 1)
        status, problem = await post_form(s, b"plugh")
        assert (status, problem["field"]) == (422, "Idempotency-Key")


async def post_form(s: Served, data: bytes) -> tuple[int, Any]:
    form = aiohttp.FormData({"message": "Read it"})
    form.add_field("files", data, filename="note.txt", content_type="text/plain")
    async with s.client.post(s.url + CHAT, data=form, headers={"Idempotency-Key": "k1"}) as answer:
        return answer.status, json.loads(await answer.read())


async def test_it_is_described_and_pages_may_send_it() -> None:
    asked = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,idempotency-key",
    }
    async with served(settings=ALL) as s:
        async with s.get("/openapi.json") as answer:
            paths = (await answer.json())["paths"]
        for path in ("/agent/{name}/chat", "/agent/{name}/chat/stream", "/chat/stream"):
            assert "Idempotency-Key" in [each["name"] for each in paths[path]["post"]["parameters"]]
        async with s.client.options(s.url + CHAT_STREAM, headers=asked) as answer:
            assert "idempotency-key" in answer.headers["Access-Control-Allow-Headers"]
