"""Chat-stream over real sockets: stateless, in time, `done` last whatever happens."""

import asyncio
import json

import pytest

from holodeck.config.load import load_config
from holodeck.config.serving import ServeOptions
from holodeck.core.messages import UserMessage
from holodeck.core.tools import ToolResult
from holodeck.errors import ModelUnavailable
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.process import settings_of
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, read_to, served, until
from tests.wires.sse_parsers import whatwg

PATH = "/chat/stream"


def settings(**fields):
    return ServerSettings(protocols=("chat-stream",), **fields)


def named(body: bytes):
    return [(frame.event, json.loads(frame.data)) for frame in whatwg(body)]


async def say(s, text="hi", *, headers=None, **fields):
    async with s.post({"input": text, **fields}, PATH, **(headers or {})) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        return named(await answer.read())


@pytest.mark.req("ORC-02", "ORC-09")
async def test_the_five_events_with_the_id_of_the_request():
    async def fails(arguments, context):
        return ToolResult.failure("The list is full.")

    turns = (calls(("fails", '{"title": "eggs"}'), reasoning=["Hm."]), says("It is full."))
    async with served(*turns, tools=PlainTools(fails=fails), settings=settings()) as s:
        frames = await say(s, headers={"X-Request-ID": "req_0123456789ab"})
    call = {"tool_name": "fails", "arguments": {"title": "eggs"}, "request_id": "req_0123456789ab"}
    assert {data["request_id"] for _, data in frames} == {"req_0123456789ab"}
    assert [name for name, _ in frames] == ["thinking", "tool_call", "tool_call", "error"] + ["response_delta"] * 3 + ["done"]  # fmt: skip
    assert frames[0][1]["content"] == "Hm."
    assert [data for name, data in frames if name == "tool_call"] == [
        {**call, "status": "in_progress"},
        {**call, "status": "failed"},
    ]
    assert frames[3][1] == {
        "error_type": "tool-failed",
        "message": "The list is full.",
        "recoverable": True,
        "request_id": "req_0123456789ab",
    }
    assert [data["accumulated"] for name, data in frames if name == "response_delta"] == ["It", "It is", "It is full."]
    assert frames[-1][1] == {
        "final_output": "It is full.",
        "tools_called": ["fails"],
        "success": True,
        "request_id": "req_0123456789ab",
    }


@pytest.mark.req("ORC-02")
@pytest.mark.parametrize("prefer", ["return=minimal", "respond-async, return=minimal", 'RETURN="minimal"; x=1'])
async def test_a_client_may_do_without_accumulated(prefer):
    async with served(settings=settings()) as s:
        frames = await say(s, headers={"Prefer": prefer})
        assert [data["delta"] for name, data in frames if name == "response_delta"] == ["hello", " there"]
        assert not any("accumulated" in data for _, data in frames)
        frames = await say(s, headers={"Prefer": "return=representation"})
        assert any("accumulated" in data for _, data in frames)


@pytest.mark.req("ORC-03")
async def test_nothing_is_kept_between_two_requests():
    async with served(says("one"), says("two"), settings=settings()) as s:
        for text in ("first", "second"):
            await say(s, text, conversation_id="conv_1")
        assert [message.content for message in s.model.prompts[-1].messages] == ["second"]
        await until(lambda: not s.server.store._all)
        async with s.get("/sessions/conv_1") as answer:
            assert answer.status == 404


@pytest.mark.req("ORC-03")
async def test_with_a_store_a_conversation_has_memory_and_others_have_none():
    async with served(says("one"), says("two"), says("three"), settings=settings(remember_conversations=True)) as s:
        await say(s, "first", conversation_id="conv_1")
        await say(s, "second", conversation_id="conv_1")
        assert [message.content for message in s.model.prompts[-1].messages] == ["first", "one", "second"]
        await say(s, "third")
        assert [message.content for message in s.model.prompts[-1].messages] == ["third"]
        await until(lambda: [kept.session_id for kept in s.server.store._all] == ["conv_1"])


@pytest.mark.req("ORC-03")
@pytest.mark.parametrize(("block", "remembers"), [("", False), ("sessions: {ttl_seconds: 9}", False), ("sessions: {store: memory}", True)])  # fmt: skip
def test_a_conversation_is_remembered_when_the_file_names_a_store(tmp_path, block, remembers):
    (tmp_path / "agent.yaml").write_text(f"name: a\nmodel: {{provider: demo}}\n{block}\n")
    options = ServeOptions(config=load_config(tmp_path / "agent.yaml"), protocols=("chat-stream", "rest"))
    read = settings_of(options)
    assert read.remember_conversations is remembers
    assert read.protocols == ("chat-stream", "rest")


@pytest.mark.req("ORC-07")
@pytest.mark.parametrize(("block", "seconds"), [("", 30), ("loop: {run_timeout: 7}", 7)])
def test_the_time_for_an_answer_is_30_seconds_or_what_the_file_says(tmp_path, block, seconds):
    (tmp_path / "agent.yaml").write_text(f"name: a\nmodel: {{provider: demo}}\n{block}\n")
    assert settings_of(ServeOptions(config=load_config(tmp_path / "agent.yaml"))).chat_stream_timeout == seconds


@pytest.mark.req("ORC-01")
async def test_tools_work_for_the_user_that_is_named():
    tools = PlainTools(echo=echo)
    async with served(calls(("echo", "{}")), says("ok"), calls(("echo", "{}")), says("ok"), tools=tools, settings=settings()) as s:  # fmt: skip
        await say(s, user_id="user_456def")
        await say(s)
    assert [user for _, _, user in tools.called] == ["user_456def", "anonymous"]


@pytest.mark.req("ORC-03")
async def test_a_conversation_of_one_user_is_closed_to_another():
    async with served(settings=settings(remember_conversations=True)) as s:
        await say(s, "my secret", conversation_id="conv_1", user_id="ada")
        frames = await say(s, "tell me", conversation_id="conv_1", user_id="eve")
        assert frames[-1][1]["success"]
        assert [message.content for message in s.model.prompts[1].messages] == ["tell me"]


@pytest.mark.req("ORC-07")
async def test_an_answer_that_takes_too_long_is_ended_with_a_timeout():
    async with served(says("a b", pause=Gate()), settings=settings(chat_stream_timeout=0.5)) as s:
        *_, (kind, error), (last, done) = await say(s)
        assert (kind, error["error_type"], error["recoverable"]) == ("error", "timeout", False)
        assert "0.5 s" in error["message"]
        assert "try again" in error["message"]
        assert (last, done["success"], done["final_output"]) == ("done", False, "a")
        assert s.server.settings.chat_stream_timeout != ServerSettings().chat_stream_timeout == 30


@pytest.mark.req("ORC-07")
async def test_an_answer_in_time_is_not_disturbed_by_the_limit():
    async with served(settings=settings(chat_stream_timeout=10)) as s:
        assert (await say(s))[-1][1]["success"] is True
        (run,) = s.server.runs._runs.values()
        await until(lambda: not s.server.runs.busy)
        assert (run.state, run.stopped_by) == ("finished", None)


@pytest.mark.req("ORC-07")
async def test_a_model_that_fails_ends_the_stream_with_a_hint():
    async with served(Turn(text=["Well"], error=ModelUnavailable("It is busy.")), settings=settings()) as s:
        frames = await say(s)
    assert [name for name, _ in frames] == ["response_delta", "error", "done"]
    assert frames[1][1]["message"] == "It is busy. Please try again."
    assert (frames[1][1]["recoverable"], frames[2][1]["success"]) == (False, False)


@pytest.mark.req("ORC-07", "SRV-20")
@pytest.mark.parametrize("how", ["stop", "shutdown"])
async def test_done_is_last_also_when_someone_ends_the_run(how):
    async with served(says("a b", pause=Gate()), settings=settings()) as s, s.post({"input": "hi"}, PATH) as answer:
        await read_to(answer, "response_delta")
        (run,) = s.server.runs.active
        if how == "stop":
            async with s.client.post(f"{s.url}/runs/{run.run_id}/stop") as stopped:
                assert stopped.status == 200
        else:
            await s.server.drain(0.01)
        (_, error), (kind, done) = named(await answer.read())[-2:]
        assert error["error_type"] == {"stop": "cancelled", "shutdown": "shutting-down"}[how]
        assert (kind, done["success"]) == ("done", False)


async def test_a_client_that_comes_back_reads_on():
    async with served(says("a b c"), settings=settings()) as s, s.post({"input": "hi"}, PATH) as answer:
        whole = await answer.read()
        (run,) = s.server.runs._runs.values()
        first = whole.split(b"\n\n", 1)[0] + b"\n\n"
        number = int(first.split(b"\n")[0].rpartition(b":")[2])
        async with s.get(f"/runs/{run.run_id}/events?after={number}") as again:
            assert first + await again.read() == whole


async def test_a_client_that_leaves_does_not_leave_its_conversation_behind():
    async with served(says("a b", pause=Gate()), settings=settings(), detach_grace=0.02) as s:
        async with s.post({"input": "hi"}, PATH) as answer:
            await read_to(answer, "response_delta")
        await until(lambda: not s.server.runs.busy and not s.server.store._all)


@pytest.mark.req("ORC-01", "SRV-17")
@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"{", "application/json", 400, "invalid-request"),
        (b'{"input": " "}', "application/json", 422, "invalid-request"),
        (json.dumps({"input": "x" * 5001}).encode(), "application/json", 422, "invalid-request"),
        (b'{"input": "hi"}', "text/plain", 415, "unsupported-media-type"),
        (b"input=hi", "multipart/form-data; boundary=x", 415, "unsupported-media-type"),
    ],
)
async def test_a_bad_request_is_a_problem(body, kind, status, code):
    async with served(settings=settings()) as s, s.post(body, PATH, **{"Content-Type": kind}) as answer:
        problem = await answer.json(content_type="application/problem+json")
        assert (answer.status, problem["type"]) == (status, f"https://holodeck.dev/errors/{code}")
        assert s.model.prompts == []


async def test_the_user_speaks_once_whatever_else_is_in_the_input():
    async with served(settings=settings()) as s:
        await asyncio.gather(*(say(s, f"\x07question {i}\n") for i in range(5)))
        shown = [message for prompt in s.model.prompts for message in prompt.messages]
    assert all(isinstance(message, UserMessage) for message in shown)
    assert sorted(message.content for message in shown) == [f"question {i}\n" for i in range(5)]
