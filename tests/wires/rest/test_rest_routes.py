"""REST over real sockets: answers, streams, problems, forms, clients that leave and come back."""

import asyncio
import base64
import json
import re

import aiohttp
import msgspec
import pytest

from holodeck.config.limit_schema import RequestLimits, ServerLimits
from holodeck.core.ids import is_ulid
from holodeck.core.messages import AssistantMessage, ToolMessage, UserMessage
from holodeck.core.sizes import MB
from holodeck.core.usage import TokenUsage
from holodeck.errors import (
    ContextOverflow,
    ModelProtocolError,
    ModelTimeout,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.wires.rest.request import ChatRequest
from holodeck.wires.rest.response import ChatResponse
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, read_to, served, server_block, until
from tests.wires.sse_parsers import whatwg

CHAT, STREAM = "/agent/tester/chat", "/agent/tester/chat/stream"
REST = ServerSettings(protocols=("rest",))
TEXT = base64.b64encode(b"the secret word is plugh").decode()


def named(body: bytes):
    return [(frame.event, json.loads(frame.data)) for frame in whatwg(body)]


def form(**fields):
    made = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        made.add_field(name, value)
    return made


@pytest.mark.req("SRV-08")
async def test_an_answer_has_all_that_is_promised():
    usage = TokenUsage(prompt_tokens=10, completion_tokens=4)
    turns = (calls(("echo", '{"a": 1}'), usage=usage), says("all done", usage=usage))
    async with (
        served(*turns, tools=PlainTools(echo=echo), settings=REST) as s,
        s.post({"message": "hi"}, CHAT) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert re.fullmatch(r"req_[0-9a-f]{12}", answer.headers["X-Request-ID"])
        result = await answer.json()
    assert is_ulid(result.pop("message_id"))
    assert is_ulid(result.pop("session_id"))
    assert isinstance(result["execution_time_ms"], int)
    assert 0 <= result.pop("execution_time_ms") < 10_000
    assert result == {
        "content": "all done",
        "tool_calls": [{"name": "echo", "arguments": {"a": 1}, "status": "success"}],
        "tokens_used": {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28},
        "status": "completed",
        "files": [],
        "model": "scripted",
    }


@pytest.mark.req("SRV-12")
async def test_a_session_has_one_id_on_every_protocol_whichever_began_it():
    settings = ServerSettings(protocols=("ag-ui", "rest"))
    async with served(says("one"), says("two"), says("three"), settings=settings) as s:
        for bad in ("a\nb", "nul\x00", "x" * 129, ""):
            async with s.post({"message": "hi", "session_id": bad}, CHAT) as answer:
                assert (answer.status, (await answer.json())["field"]) == (422, "session_id")
        async with s.post({"message": "first", "session_id": "my thread/../é"}, CHAT) as answer:
            result = await answer.json()
        assert (result["session_id"], result["session_is_new"]) == ("my thread/../é", True)
        asked = {
            "threadId": "my thread/../é",
            "runId": "r1",
            "messages": [{"id": "m1", "role": "user", "content": "second"}],
        }
        async with s.post(asked, "/awp") as answer:
            await answer.read()
        async with s.post({"message": "third", "session_id": "my thread/../é"}, CHAT) as answer:
            assert (await answer.json())["session_id"] == "my thread/../é"
        async with s.get("/sessions/my%20thread%2F..%2F%C3%A9") as answer:
            texts = [each["content"] for each in (await answer.json())["messages"]]
    assert texts == ["first", "one", "second", "two", "third", "three"]


@pytest.mark.req("SRV-08", "SRV-11", "SRV-15")
async def test_a_session_is_continued_shown_and_forgotten():
    async with served(says("one"), says("two"), settings=REST) as s:
        async with s.post({"message": "first"}, CHAT) as answer:
            result = await answer.json()
            session, message = result["session_id"], result["message_id"]
            assert result["tokens_used"] is None
        async with s.post({"message": "second", "session_id": session}, CHAT) as answer:
            result = await answer.json()
        assert (result["session_id"], result["content"]) == (session, "two")
        assert result["message_id"] != message
        async with s.get(f"/sessions/{session}") as answer:
            history = (await answer.json())["messages"]
        assert [each["content"] for each in history] == ["first", "one", "second", "two"]
        async with s.client.delete(f"{s.url}/sessions/{session}") as answer:
            assert answer.status == 204
        async with s.post({"message": "third", "session_id": session}, CHAT) as answer:
            assert (await answer.json())["session_id"] == session
        assert len(s.model.prompts[-1].messages) == 1


FAILURES = {  # what the model does → status, code, Retry-After, reason
    "unreachable": (ModelUnreachable("no route"), 502, "model-error", None, "upstream_unavailable"),
    "nonsense": (ModelProtocolError("html"), 502, "model-error", None, "upstream_protocol_error"),
    "too long": (ContextOverflow("too long"), 502, "model-error", None, "context_overflow"),
    "busy": (ModelUnavailable("busy", retry_after=2.5), 503, "model-unavailable", "3", "upstream_overloaded"),
    "slow": (ModelTimeout("late"), 504, "timeout", None, "upstream_timeout"),
}


@pytest.mark.req("SRV-08", "SRV-17")
@pytest.mark.parametrize("name", FAILURES)
async def test_a_model_that_fails_is_a_problem_before_and_after_it_began(name):
    error, status, code, retry_after, reason = FAILURES[name]
    for turn in (Turn(error=error), Turn(text=["Well"], error=error)):
        async with served(turn, settings=REST) as s, s.post({"message": "hi"}, CHAT) as answer:
            problem = await answer.json(content_type="application/problem+json")
            assert (answer.status, problem["status"]) == (status, status)
            assert problem["type"] == f"https://holodeck.dev/errors/{code}"
            assert (answer.headers.get("Retry-After"), problem["reason"]) == (retry_after, reason)
            assert problem["instance"] == answer.headers["X-Request-ID"]


@pytest.mark.req("SRV-08", "SRV-17")
@pytest.mark.parametrize(
    ("turn", "reason"),
    [(Turn(), "empty_reply"), (Turn(text=[" \n"]), "empty_reply"), (calls(("echo", "{}")), "max_iterations")],
)
async def test_nothing_is_never_an_answer(turn, reason):
    async with served(turn, tools=PlainTools(echo=echo), settings=REST) as s, s.post({"message": "hi"}, CHAT) as answer:
        problem = await answer.json(content_type="application/problem+json")
    assert (answer.status, problem["reason"]) == (502, reason)
    assert problem["type"].endswith("/model-error")


async def test_a_limit_that_was_reached_is_a_warning_when_there_is_something_to_say():
    turn = calls(("echo", "{}"), text=["Still looking."])
    async with served(turn, tools=PlainTools(echo=echo), settings=REST) as s, s.post({"message": "hi"}, CHAT) as answer:
        result = await answer.json()
    assert (answer.status, result["status"], result["content"]) == (200, "max_iterations", "Still looking.")
    assert "15 iterations" in result["warning"]


@pytest.mark.req("SRV-08")
async def test_a_question_to_a_person_is_answered_with_the_next_message():
    tools = PlainTools(approval=frozenset({"echo"}), echo=echo)
    async with served(calls(("echo", '{"a": 1}')), says("done"), tools=tools, settings=REST) as s:
        async with s.post({"message": "delete it"}, CHAT) as answer:
            result = await answer.json()
        assert (answer.status, result["status"]) == (200, "interrupted")
        assert result["tool_calls"] == [{"name": "echo", "arguments": {"a": 1}, "status": "pending"}]
        (question,) = result["interrupts"]
        assert (question["tool"], question["arguments"]) == ("echo", {"a": 1})
        body = {
            "message": "Yes, do.",
            "session_id": result["session_id"],
            "resume": [{"interrupt_id": question["id"], "approved": True}],
        }
        async with s.post(body, CHAT) as answer:
            result = await answer.json()
        assert (result["content"], result["status"]) == ("done", "completed")
        assert [name for name, *_ in tools.called] == ["echo"]
        async with s.post(body, CHAT) as again:
            assert (again.status, (await again.json())["field"]) == (422, "resume")


@pytest.mark.req("SRV-08", "SRV-12")
@pytest.mark.parametrize("way", ["json", "form"])
@pytest.mark.parametrize("approved", [True, False])
async def test_a_decision_needs_no_words_and_adds_none_to_the_conversation(way, approved):
    tools = PlainTools(approval=frozenset({"echo"}), echo=echo)
    async with served(calls(("echo", '{"a": 1}')), says("done"), tools=tools, settings=REST) as s:
        async with s.post({"message": "delete it"}, CHAT) as answer:
            result = await answer.json()
        session, decision = result["session_id"], {"interrupt_id": result["interrupts"][0]["id"], "approved": approved}
        if way == "json":
            sending = s.post({"session_id": session, "resume": [decision]}, CHAT)
        else:
            sending = s.client.post(s.url + CHAT, data=form(session_id=session, resume=json.dumps([decision])))
        async with sending as answer:
            result = await answer.json()
        assert (answer.status, result["content"], result["status"]) == (200, "done", "completed")
        assert len(tools.called) == approved
        kinds = [type(message) for message in s.model.prompts[-1].messages]
        assert kinds == [UserMessage, AssistantMessage, ToolMessage]
        async with s.get(f"/sessions/{session}") as answer:
            roles = [each["role"] for each in (await answer.json())["messages"]]
        assert roles.count("user") == 1


@pytest.mark.req("SRV-12")
async def test_json_and_a_form_are_taken_at_the_same_address():
    async with served(settings=REST) as s:
        for path in (CHAT, STREAM):
            file = {"content": TEXT, "mime_type": "text/plain", "filename": "word.txt"}
            async with s.post({"message": "What is the word?", "files": [file]}, path) as answer:
                assert answer.status == 200
                await answer.read()
            sent = form(message="What is the word?")
            sent.add_field("files", b"the secret word is plugh", filename="word.txt", content_type="text/plain")
            async with s.client.post(s.url + path, data=sent) as answer:
                assert answer.status == 200
                await answer.read()
        shown = [prompt.messages[-1].content for prompt in s.model.prompts]
        assert len(shown) == 4
        assert [content[0].text for content in shown] == ["What is the word?"] * 4
        assert all("the secret word is plugh" in content[1].text for content in shown)


@pytest.mark.req("SRV-12", "SRV-13")
async def test_the_answer_says_what_the_model_received():
    async with served(settings=REST) as s:
        sent = form(message="Read these", session_id="")
        sent.add_field("files", b"a,b\n1,2\n", filename="t.csv", content_type="text/csv")
        sent.add_field("another", "größer".encode(), filename="n.md", content_type="text/markdown")
        async with s.client.post(s.url + CHAT, data=sent) as answer:
            result = (await answer.json())["files"]
        assert [(each["name"], each["mime_type"], each["truncated"]) for each in result] == [
            ("t.csv", "text/csv", False),
            ("n.md", "text/markdown", False),
        ]
        async with s.client.post(s.url + STREAM, data=form(message="none")) as answer:
            assert "files" not in named(await answer.read())[0][1]


@pytest.mark.req("SRV-09")
async def test_the_stream_comes_token_by_token_with_keepalives_between():
    gate = Gate()
    settings = ServerSettings(protocols=("rest",), block=server_block(keepalive=0.05))
    async with served(says("a b", pause=gate), settings=settings) as s, s.post({"message": "hi"}, STREAM) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert (answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]) == ("no-cache", "no")
        first = named(await read_to(answer, "message_delta"))
        assert [name for name, _ in first] == ["stream_start", "message_delta"]
        assert first[1][1]["delta"] == "a"
        await answer.content.readuntil(b": keepalive\n\n")
        gate.open.set()
        rest = named(await answer.read())
    assert [name for name, _ in rest] == ["message_delta", "stream_end"]
    assert set(rest[-1][1]) == {"message_id", "tokens_used", "execution_time_ms", "status", "model"}


@pytest.mark.req("SRV-09")
async def test_a_client_that_comes_back_reads_on_in_the_same_words():
    turns = (calls(("echo", '{"a": 1}'), text=["Let me see."]), says("There it is."))
    async with served(*turns, tools=PlainTools(echo=echo), settings=REST) as s:
        async with s.post({"message": "hi"}, STREAM) as answer:
            whole = await answer.read()
        run_id = named(whole)[0][1]["message_id"]
        parts = re.split(rb"(?<=\n\n)", whole)[:-1]
        numbers = [re.match(rb"id: \w+:(\d+)\n", part) for part in parts]
        for i, number in enumerate(numbers[:-1]):
            if number is None:
                continue  # sent as two frames: the second has the number
            async with s.get(f"/runs/{run_id}/events", **{"Last-Event-ID": f"{run_id}:{int(number[1])}"}) as again:
                assert await again.read() == b"".join(parts[i + 1 :])


async def test_the_run_of_an_answer_can_be_read_again_too():
    async with served(says("all of it"), settings=REST) as s:
        async with s.post({"message": "hi"}, CHAT) as answer:
            result = await answer.json()
        async with s.get(f"/runs/{result['message_id']}/events") as again:
            frames = named(await again.read())
    assert "".join(data["delta"] for name, data in frames if name == "message_delta") == result["content"]
    assert frames[-1][1]["execution_time_ms"] == result["execution_time_ms"]


async def test_a_stop_ends_both_kinds_of_answers_as_a_problem():
    async with served(says("a b", pause=Gate()), settings=REST) as s:
        asking = asyncio.create_task(s.post({"message": "hi"}, CHAT).__aenter__())
        await until(lambda: s.server.runs.active)
        async with s.client.post(f"{s.url}/runs/{s.server.runs.active[0].run_id}/stop") as stopped:
            assert await stopped.json() == {"stopped": True, "state": "cancelled"}
        answer = await asking
        assert (answer.status, (await answer.json(content_type=None))["type"].rpartition("/")[2]) == (409, "cancelled")
        async with s.post({"message": "hi"}, STREAM) as answer:
            first = named(await read_to(answer, "message_delta"))
            async with s.client.post(f"{s.url}/runs/{first[0][1]['message_id']}/stop"):
                kind, data = named(await answer.read())[-1]
        assert (kind, data["status"]) == ("error", 409)


@pytest.mark.req("SRV-20")
async def test_a_shutdown_is_reported_to_both():
    async with served(says("a b", pause=Gate()), settings=REST) as s:
        asking = asyncio.create_task(s.post({"message": "hi"}, CHAT).__aenter__())
        async with s.post({"message": "hi"}, STREAM) as streamed:
            await read_to(streamed, "message_delta")
            await until(lambda: s.server.runs.busy == 2)
            await s.server.drain(0.01)
            answer = await asking
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            kind, data = named(await streamed.read())[-1]
            assert (kind, data["type"].rpartition("/")[2]) == ("error", "shutting-down")


async def test_a_client_that_leaves_gives_its_run_the_grace_and_no_more():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=REST, detach_grace=0.5) as s:
        asking = asyncio.create_task(s.post({"message": "hi"}, CHAT).__aenter__())
        await until(lambda: s.server.runs.active and s.server.runs.active[0].readers == 1)
        run = s.server.runs.active[0]
        asking.cancel()
        await until(lambda: run.readers == 0)
        assert run.state == "running"
        await until(lambda: run.state == "cancelled")


@pytest.mark.req("SRV-13", "SRV-17")
async def test_bodies_with_files_may_be_larger_than_others_but_not_endless():
    limits = ServerLimits(request=RequestLimits(max_body_mb=1_000 / MB))
    settings = ServerSettings(protocols=("rest", "chat-stream"), block=server_block(limits=limits), max_upload=5_000)
    async with served(settings=settings) as s:
        for path, size, status in (
            (CHAT, 2_000, 200),
            (CHAT, 6_000, 413),
            (STREAM, 6_000, 413),
            ("/chat/stream", 2_000, 413),
        ):
            body = {"message": "hi", "input": "hi", "more": "x" * size}
            async with s.post(body, path) as answer:
                assert answer.status == status


async def test_a_wire_that_was_not_asked_for_is_not_there():
    async with served(settings=ServerSettings(protocols=("ag-ui",))) as s, s.post({"message": "hi"}, CHAT) as answer:
        assert answer.status == 404


@pytest.mark.req("SRV-19")
async def test_openapi_describes_both_wires_with_examples_that_hold():
    async with served(settings=ServerSettings(protocols=tuple(WIRES))) as s, s.get("/openapi.json") as answer:
        result = await answer.json()
    paths, schemas = result["paths"], result["components"]["schemas"]
    assert {"/agent/{name}/chat", "/agent/{name}/chat/stream", "/chat/stream"} <= set(paths)
    assert set(re.findall(r"#/components/schemas/(\w+)", str(result))) <= set(schemas)
    assert schemas["ChatRequest"]["properties"]["message"]["anyOf"][0]["maxLength"] == 10_000
    assert [each["required"] for each in schemas["ChatRequest"]["anyOf"]] == [["message"], ["resume"]]
    assert schemas["ChatRequest"]["properties"]["files"]["maxItems"] == 10
    chat = paths["/agent/{name}/chat"]["post"]
    assert set(chat["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    msgspec.convert(chat["requestBody"]["content"]["application/json"]["example"], ChatRequest)
    msgspec.convert(chat["responses"]["200"]["content"]["application/json"]["example"], ChatResponse)
    for path in ("/agent/{name}/chat/stream", "/chat/stream"):
        stream = paths[path]["post"]["responses"]["200"]["content"]["text/event-stream"]["example"]
        assert named(stream.encode())[-1][0] in {"stream_end", "done"}
    assert paths["/chat/stream"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"] == [
        "input"
    ]
