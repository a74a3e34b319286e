"""What a page needs to come back to a session: what goes on there, what waits, and a way to take words back."""

import pytest

from holodeck.models.scripted import Turn, calls, says
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, ask, read_to, served


async def session(s, key="t1"):
    async with s.get(f"/sessions/{key}") as answer:
        return await answer.json()


async def test_a_session_names_the_runs_that_continue():
    gate = Gate()
    async with served(Turn(text=["one", "two"], pause=gate)) as s, s.post(ask(run="r1")) as stream:
        await read_to(stream, "one")
        assert (await session(s))["active_runs"] == ["r1"]
        gate.open.set()
        await stream.read()
        assert (await session(s))["active_runs"] == []


async def test_a_session_reports_what_waits_for_a_person():
    tools = PlainTools(frozenset({"echo"}), echo=echo)
    async with served(calls(("echo", '{"a": 1}')), says("done"), tools=tools) as s:
        async with s.post(ask()) as stream:
            await stream.read()
        result = await session(s)
        (question,) = result["pending"]["questions"]
        assert (question["call_id"], question["tool"], question["arguments"]) == ("c1", "echo", '{"a": 1}')
        assert result["pending"]["message"]["tool_calls"][0]["id"] == "c1"
        assert result["pending"]["expires_at"]
        resume = [{"interruptId": question["interrupt_id"], "status": "resolved", "payload": {"approved": True}}]
        async with s.post(ask(resume=resume, messages=[])) as stream:
            await stream.read()
        assert (await session(s))["pending"] is None


async def test_the_end_of_a_conversation_is_taken_back():
    async with served(says("one"), says("two"), says("three")) as s:
        for name in ("m1", "m2"):
            async with s.post(ask(name, message=name)) as stream:
                await stream.read()
        async with s.client.delete(f"{s.url}/sessions/t1?from=m2") as answer:
            assert answer.status == 204
        assert [message["content"] for message in (await session(s))["messages"]] == ["m1", "one"]
        async with s.post(ask("m3", message="m3")) as stream:
            await stream.read()
        assert [message.content for message in s.model.prompts[-1].messages] == ["m1", "one", "m3"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/sessions/t1?from=none", 422),
        ("/sessions/t1?from=", 422),
        ("/sessions/unknown?from=m1", 404),
    ],
)
async def test_an_unknown_message_cannot_be_rewound_to(path, status):
    async with served() as s:
        async with s.post(ask("hi", message="m1")) as stream:
            await stream.read()
        async with s.client.delete(s.url + path) as answer:
            assert answer.status == status
        assert (await session(s))["message_count"] == 2


async def test_nothing_is_taken_back_while_a_run_continues():
    gate = Gate()
    async with served(Turn(text=["one", "two"], pause=gate)) as s, s.post(ask(message="m1")) as stream:
        await read_to(stream, "one")
        async with s.client.delete(f"{s.url}/sessions/t1?from=m1") as answer:
            assert answer.status == 409
        gate.open.set()
        await stream.read()
        assert (await session(s))["message_count"] == 2
