"""A runId that is posted again stands for the run that it started, as an `Idempotency-Key` does on the other wires."""

import asyncio
import json
from typing import Any

import pytest

from holodeck.config.limit_schema import ServerLimits, SubjectLimits
from holodeck.models.scripted import says
from holodeck.server.options import ServerSettings
from tests.server.serving import Gate, Served, ask, served, server_block, types, until

ROUTES = ("/awp", "/copilotkit/agent/default/run", "/copilotkit")
FILE = {"type": "document", "source": {"type": "data", "value": "eHl6enk=", "mimeType": "text/plain"}}

pytestmark = pytest.mark.req("C08")
every_route = pytest.mark.parametrize("path", ROUTES)


async def post(s: Served, given: dict[str, Any], path: str = "/awp") -> tuple[int, bytes]:
    body = {"method": "agent/run", "body": given} if path == "/copilotkit" else given
    async with s.post(body, path) as answer:
        return answer.status, await answer.read()


@every_route
async def test_a_repeat_needs_no_room_of_its_own(path: str) -> None:
    gate = Gate()
    async with served(says("one two", pause=gate), settings=ServerSettings(block=server_block(max_concurrent=1))) as s:
        given = ask(run="r")
        first = asyncio.create_task(post(s, given, path))
        await until(lambda: s.model.prompts)
        assert (await post(s, ask(run="another", thread="t2"), path))[0] == 503
        again = asyncio.create_task(post(s, given, path))
        await until(lambda: [run.readers for run in s.server.runs.active] == [2])
        gate.open.set()
        status, received = await first
        assert (status, types(received)[-1]) == (200, "RUN_FINISHED")
        assert await again == await first
        assert len(s.model.prompts) == 1


@every_route
async def test_a_repeat_of_what_is_over_needs_none_either(path: str) -> None:
    gate = Gate()
    async with served(
        says("first"), says("one two", pause=gate), settings=ServerSettings(block=server_block(max_concurrent=1))
    ) as s:
        given = ask(run="r")
        first = await post(s, given, path)
        other = asyncio.create_task(post(s, ask(run="other", thread="t2"), path))
        await until(lambda: s.server.runs.busy == 1)
        assert await post(s, given, path) == first
        gate.open.set()
        assert (await other)[0] == 200


async def test_a_repeat_counts_for_no_quota() -> None:
    async with served(
        settings=ServerSettings(block=server_block(limits=ServerLimits(user=SubjectLimits(requests_per_minute=1))))
    ) as s:
        given = ask(run="r")
        first = await post(s, given)
        assert await post(s, given) == first
        assert (await post(s, ask(run="another")))[0] == 429


async def test_one_run_is_joined_over_either_of_the_two_protocols() -> None:
    async with served() as s:
        given = ask(run="r")
        answers = [await post(s, given, path) for path in ROUTES]
        assert answers == [answers[0]] * 3
        assert len(s.model.prompts) == 1


async def test_two_that_come_together_read_their_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as s:
        read = []
        resolve = s.server.files.resolve

        async def counted(sent: Any, **more: Any) -> Any:
            read.append(sent)
            return await resolve(sent, **more)

        monkeypatch.setattr(s.server.files, "resolve", counted)
        given = ask([{"type": "text", "text": "Read it"}, FILE], run="r")
        one, two = await asyncio.gather(post(s, given), post(s, given))
        assert one == two
        assert one[0] == 200
        assert (len(read), len(s.model.prompts)) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"thread": "t2"},
        {"message": "m-2"},
        {"text": "something else"},
        {"resume": [{"interruptId": "x", "status": "resolved", "payload": True}]},
    ],
    ids=["another thread", "another message", "another text", "a decision"],
)
async def test_another_request_under_the_same_id_is_refused(other: dict[str, Any]) -> None:
    async with served() as s:
        first = {"run": "r", "thread": "t1", "message": "m-1"}
        assert (await post(s, ask(**first)))[0] == 200
        status, received = await post(s, ask(**{**first, **other}))
        problem = json.loads(received)
        assert (status, problem["field"]) == (422, "runId")
        assert "send a new one with each message" in problem["detail"]
        assert len(s.model.prompts) == 1


async def test_an_id_that_was_refused_is_free() -> None:
    gate = Gate()
    async with served(
        says("one two", pause=gate), says("well"), settings=ServerSettings(block=server_block(max_concurrent=1))
    ) as s:
        first = asyncio.create_task(post(s, ask(run="r", thread="t1")))
        await until(lambda: s.model.prompts)
        later = ask(run="later", thread="t2")
        assert (await post(s, later))[0] == 503
        gate.open.set()
        await first
        await until(lambda: s.server.runs.busy == 0)
        assert (await post(s, later))[0] == 200


async def test_a_client_that_reconnects_while_the_server_closes_gets_the_rest() -> None:
    gate = Gate()
    async with served(says("one two", pause=gate)) as s:
        given = ask(run="r")
        first = asyncio.create_task(post(s, given))
        await until(lambda: s.model.prompts)
        closing = asyncio.create_task(s.server.drain(5))
        await until(lambda: s.server.state == "shutting_down")
        assert (await post(s, ask(run="new")))[0] == 503
        again = asyncio.create_task(post(s, given))
        await until(lambda: [run.readers for run in s.server.runs.active] == [2])
        gate.open.set()
        assert await again == await first
        await closing
