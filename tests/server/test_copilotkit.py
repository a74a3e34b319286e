"""CopilotKit's runtime contract by raw HTTP; the real client is tried elsewhere."""

import asyncio
import json

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.agent.settings import StateSettings
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.runs.middleware import EventMiddleware, hide_tools
from holodeck.server import copilotkit
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, ask, frames, read_to, served, server_block, types, until

BASE = "/copilotkit"


def legacy(**fields):
    body = ask(**fields)
    del body["protocolVersion"]  # CopilotKit's client is older than 1.0
    return body


async def test_info_names_the_agent_and_what_is_not_there():
    async with served() as s:
        async with s.get(BASE + "/info") as answer:
            result = await answer.json()
        assert set(result["agents"]) == {"tester", "default"}
        agent = result["agents"]["tester"]
        assert (agent["name"], agent["description"], agent["className"]) == ("tester", "For tests", "HttpAgent")
        assert agent["capabilities"]["transport"]["streaming"] is True
        assert result["mode"] == "sse"
        assert not any(result["threadEndpoints"].values())
        async with s.post({"method": "info"}, BASE) as answer:
            assert await answer.json() == result


@pytest.mark.parametrize("single", [False, True])
async def test_run_connect_and_stop_in_both_forms(single):
    def call(s, method, params, body):
        if single:
            return s.post({"method": f"agent/{method}", "params": params, "body": body}, BASE)
        thread = f"/{params['threadId']}" if method == "stop" else ""
        return s.post(body, f"{BASE}/agent/{params['agentId']}/{method}{thread}")

    async with served(calls(("echo", "{}")), says("well done"), tools=PlainTools(echo=echo)) as s:
        params = {"agentId": "default", "threadId": "t"}
        async with call(s, "run", params, legacy(thread="t", run="r")) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            ran = frames(await answer.read())
        assert (ran[0][1]["type"], ran[-1][1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
        assert "outcome" not in ran[-1][1]  # the older dialect
        async with call(s, "connect", params, legacy(thread="t")) as answer:
            replayed = frames(await answer.read())
        assert replayed[1:] == ran[1:]
        started = replayed[0][1]
        assert started["input"]["messages"][0]["content"] == "hi"
        assert started["input"]["threadId"] == "t"
        s.model.turns = [says("a b c", pause=Gate())]
        async with call(s, "run", params, legacy(thread="t", run="r2")) as answer:
            await read_to(answer, "TEXT_MESSAGE_CONTENT")
            async with call(s, "stop", params, {"runId": "other"}) as stopped:
                assert await stopped.json() == {"stopped": False}
            async with call(s, "stop", params, {}) as stopped:
                assert await stopped.json() == {"stopped": True}
            assert types(await answer.read())[-1] == "RUN_FINISHED"
        async with call(s, "stop", params, {}) as stopped:
            assert await stopped.json() == {"stopped": False}


async def test_connect_replays_several_runs_and_follows_the_one_that_continues():
    gate = Gate()
    async with served(says("first"), says("second one", pause=gate)) as s:
        async with s.post(legacy(thread="t", run="r1")) as answer:
            await answer.read()
        live = await s.post(legacy(thread="t", run="r2"))
        await read_to(live, "TEXT_MESSAGE_CONTENT")
        async with s.post(legacy(thread="t"), BASE + "/agent/tester/connect") as answer:
            so_far = await read_to(answer, "id: r2:3\n")
            gate.open.set()
            events = frames(so_far + await answer.read())
        await live.read()
        assert [data["runId"] for _, data in events if data["type"] == "RUN_STARTED"] == ["r1", "r2"]
        assert [data["type"] for _, data in events].count("RUN_FINISHED") == 2
        text = "".join(data["delta"] for _, data in events if data["type"] == "TEXT_MESSAGE_CONTENT")
        assert text == "firstsecond one"


async def test_the_text_before_the_kept_runs_comes_as_a_snapshot():
    async with served(says("one"), says("two"), replay_window=0) as s:
        async with s.post(legacy(thread="t", run="r1")) as answer:
            await answer.read()
        await until(lambda: not s.server.runs.of_session("t", owner=ANONYMOUS_OWNER))
        async with s.post(legacy(thread="t"), BASE + "/agent/tester/connect") as answer:
            events = [data for _, data in frames(await answer.read())]
        assert [data["type"] for data in events] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert [message["content"] for message in events[1]["messages"]] == ["hi", "one"]


async def test_a_kept_run_is_not_reported_twice():
    async with served(says("one"), says("two")) as s:
        for run in ("r1", "r2"):
            async with s.post(legacy(thread="t", run=run)) as answer:
                await answer.read()
        s.server.runs.forget(s.run("r1"))
        async with s.post(legacy(thread="t"), BASE + "/agent/tester/connect") as answer:
            events = [data for _, data in frames(await answer.read())]
        snapshot = next(data for data in events if data["type"] == "MESSAGES_SNAPSHOT")
        assert [message["content"] for message in snapshot["messages"]] == ["hi", "one"]
        assert "".join(data["delta"] for data in events if data["type"] == "TEXT_MESSAGE_CONTENT") == "two"


async def test_a_run_that_is_longer_than_its_log_is_reported_by_the_history():
    replies = says("one"), says("w " * 300), says("three")
    async with served(*replies, max_log_events=100) as s:
        for run in ("r1", "r2", "r3"):
            async with s.post(legacy(thread="t", run=run)) as answer:
                await answer.read()
            async with s.post(legacy(thread="t"), BASE + "/agent/tester/connect") as answer:
                assert answer.status == 200
                output = [data for _, data in frames(await answer.read())]
            snapshots = [data for data in output if data["type"] == "MESSAGES_SNAPSHOT"]
            assert [len(data["messages"]) for data in snapshots][:1] == ([] if run == "r1" else [4])
        assert "".join(data["delta"] for data in output if data["type"] == "TEXT_MESSAGE_CONTENT") == "three"


class LongTalk(Gate):
    """Lets 250 pieces pass, then waits for the test: by then a log for a hundred events has let go of the first."""

    def __init__(self):
        super().__init__()
        self.pieces = 0

    def __call__(self):
        self.pieces += 1
        return self.open.wait() if self.pieces == 250 else asyncio.sleep(0)


def contents(snapshot):
    return [message.get("content") for message in snapshot["messages"]]


async def test_who_connects_to_a_run_that_outgrew_its_log_learns_that_it_continues_and_how_it_ends():
    talk = LongTalk()
    turns = says("one"), Turn(text=["w "] * 300, pause=talk), says("three")
    often = server_block(keepalive=0.02)
    async with served(*turns, max_log_events=100, block=often) as s:
        async with s.post(legacy(thread="t", run="r1")) as answer:
            await answer.read()
        live, queued = [await s.post(legacy(thread="t", run=run)) for run in ("r2", "r3")]
        await until(lambda: talk.pieces == 250)
        assert not s.run("r2").log.is_whole
        async with s.post(legacy(thread="t"), BASE + "/agent/tester/connect") as answer:
            so_far = await read_to(answer, ": keepalive\n\n: keepalive")
            talk.open.set()
            rest = await answer.read()
        for each in (live, queued):
            await each.read()
        began, ended = ([data for _, data in frames(part)] for part in (so_far, rest))
        assert [data["type"] for data in began] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "MESSAGES_SNAPSHOT"]
        assert (began[0]["runId"], began[0]["input"]["messages"][0]["content"]) == ("r2", "hi")
        assert contents(began[-1]) == ["hi", "one", "hi"]
        assert [data["type"] for data in ended[:2]] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert contents(ended[0]) == ["hi", "one", "hi", "w " * 300]
        assert ended[1]["runId"] == "r2"
        assert [data["runId"] for data in ended[2:] if "runId" in data] == ["r3", "r3"], "which waited behind it"


async def test_the_end_of_such_a_run_shows_its_state_and_what_it_asks_the_page_for():
    talk = LongTalk()
    patch = '{"patch": [{"op": "replace", "path": "/count", "value": 2}]}'
    turns = calls(("update_state", patch)), Turn(text=["w "] * 300, calls=calls(("paint", "{}")).calls, pause=talk)
    agent = AgentDefinition(
        name="tester",
        model=ScriptedModel(turns),
        tools=Catalogue.of(PlainTools()),
        state=StateSettings(initial={"count": 1}),
    )
    async with served(agent=agent, max_log_events=100) as s:
        paint = {"name": "paint", "description": "Paints the page", "parameters": {"type": "object"}}
        live = await s.post(legacy(thread="t", run="r", tools=[paint]))
        await until(lambda: talk.pieces == 250)
        async with s.post(legacy(thread="t"), BASE + "/agent/tester/connect") as answer:
            await read_to(answer, "MESSAGES_SNAPSHOT")
            talk.open.set()
            *_, state, history, ending = [data for _, data in frames(await answer.read())]
        await live.read()
        assert (state["type"], state["snapshot"]) == ("STATE_SNAPSHOT", {"count": 2})
        assert history["messages"][-1]["toolCalls"][0]["function"]["name"] == "paint"
        assert (ending["type"], ending["result"]["status"]) == ("RUN_FINISHED", "client_tools")


@pytest.mark.req("SRV-21")
async def test_a_late_reader_does_not_see_what_a_middleware_hides():
    tools, talk = PlainTools(secret=echo), LongTalk()
    turns = calls(("secret", '{"hidden": 1}')), Turn(text=["w "] * 300, pause=talk)
    async with served(
        *turns, tools=tools, middleware=lambda: EventMiddleware([hide_tools(["secret"])]), max_log_events=100
    ) as s:
        live = await s.post(legacy(thread="t", run="r"))
        await until(lambda: talk.pieces == 250)
        async with s.post(legacy(thread="t"), BASE + "/agent/tester/connect") as answer:
            received = await read_to(answer, "MESSAGES_SNAPSHOT")
            s.server.runs.stop(s.run("r"))
            received += await answer.read()
        await live.read()
        assert types(received)[-2:] == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert contents(frames(received)[-2][1]) == ["hi", "w " * 250], "what was said until it was stopped"
        assert b"secret" not in received
        assert b"hidden" not in received


@pytest.mark.req("SRV-21")
async def test_what_a_middleware_hides_is_hidden_from_the_history_too():
    tools, middleware = PlainTools(echo=echo, secret=echo), lambda: EventMiddleware([hide_tools(["secret"])])
    turns = calls(("secret", '{"hidden": 1}'), ("echo", "{}")), says("done")
    async with served(*turns, tools=tools, middleware=middleware, replay_window=0) as s:
        async with s.post(legacy(thread="t")) as answer:
            await answer.read()
        await until(lambda: not s.server.runs.of_session("t", owner=ANONYMOUS_OWNER))
        async with s.post(legacy(thread="t"), BASE + "/agent/default/connect") as answer:
            received = await answer.read()
        (snapshot,) = [data for _, data in frames(received) if data["type"] == "MESSAGES_SNAPSHOT"]
        assert [each["role"] for each in snapshot["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert b"secret" not in received
        assert b"hidden" not in received


@pytest.mark.parametrize(("limit", "result"), [(10_000_000, True), (50_000, False)])
async def test_an_input_that_no_client_would_take_is_left_out_of_the_replay(monkeypatch, limit, result):
    """A frame of 10 MB ends a client's run; files in base64 make one."""
    monkeypatch.setattr(copilotkit, "MAX_FRAME_BYTES", limit)
    async with served() as s:
        async with s.post(legacy(text="x" * 60_000, thread="t", run="r")) as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"
        async with s.post(legacy(thread="t"), BASE + "/agent/default/connect") as answer:
            received = await answer.read()
        started = [data for _, data in frames(received) if data["type"] == "RUN_STARTED"]
        assert [each["runId"] for each in started][-1] == "r"
        assert ("input" in started[-1]) is result
        assert types(received)[-1] == "RUN_FINISHED"


async def test_a_page_that_has_messages_of_the_replay_begins_again_without_them():
    """CopilotKit's view, mounted again: its client appends replayed text to the messages that it has."""
    async with served(says("hello")) as s:
        async with s.post(legacy(text="hi", thread="t", run="r")) as answer:
            message = next(data["messageId"] for _, data in frames(await answer.read()) if "messageId" in data)
        known = [{"id": message, "role": "assistant", "content": "hel"}]
        async with s.post(legacy(thread="t") | {"messages": known}, BASE + "/agent/default/connect") as answer:
            received = [data for _, data in frames(await answer.read())]
        assert [data["type"] for data in received[:4]] == [
            "RUN_STARTED",
            "MESSAGES_SNAPSHOT",
            "RUN_FINISHED",
            "RUN_STARTED",
        ]
        assert (received[1]["messages"], received[3]["runId"]) == ([], "r")


async def test_connecting_to_nothing_is_an_empty_stream():
    async with served() as s, s.post(legacy(thread="new"), BASE + "/agent/default/connect") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
        assert answer.headers["Content-Type"] == "text/event-stream"


async def test_a_page_of_any_origin_may_use_it_by_default():
    async with served() as s:
        await asyncio.sleep(0)
        async with s.post(legacy(), BASE + "/agent/default/run", Origin="http://localhost:3000") as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
            assert json.dumps(types(await answer.read())[-1]) == '"RUN_FINISHED"'
