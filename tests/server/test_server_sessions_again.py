"""Sessions that have expired, and runs that were cut: clients learn of both, and can go on."""

import asyncio
import json

import pytest

from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.errors import RunInterrupted
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.sessions.memory import MemorySessionStore
from tests.agent.agent_fixture import Deletions
from tests.runs.test_runs import Gate
from tests.server.serving import ask, frames, read_to, served, types, until
from tests.server.test_server_restart import on_file

ALL = ServerSettings(protocols=("ag-ui", "rest", "chat-stream"))
UNKNOWN = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"


@pytest.mark.req("SRV-15", "DUR-05")
async def test_an_answer_says_if_the_session_that_was_asked_for_is_new():
    async with served(says("hello"), settings=ALL) as s:
        for body, is_new in (({}, False), ({"session_id": UNKNOWN}, True), ({"session_id": UNKNOWN}, False)):
            async with s.post({"message": "hi", **body}, "/agent/tester/chat") as answer:
                result = await answer.json()
                assert (result.get("session_is_new", False), "X-HoloDeck-Session" in answer.headers) == (is_new, is_new)
        async with s.post({"message": "hi", "session_id": UNKNOWN[:-1] + "H"}, "/agent/tester/chat/stream") as answer:
            assert b'"session_is_new":true' in await answer.read()


def user_message(number: int) -> dict:
    return {"id": f"m{number}", "role": "user", "parts": [{"type": "text", "text": f"hi {number}"}]}


def a2a_message(number: int) -> dict:
    return {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": f"hi {number}"}]}


def mcp_call(arguments: dict) -> dict:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": arguments}}


# The path, the body with the number of a message, the member that names the session, and how the answer says it is new.
NAMED = {
    "chat-stream": (
        "/chat/stream",
        lambda n: {"input": f"hi {n}"},
        {"conversation_id": UNKNOWN},
        '"session_is_new":true',
    ),
    "chat completions": (
        "/v1/chat/completions",
        lambda n: {"messages": [{"role": "user", "content": f"hi {n}"}]},
        {"metadata": {"session_id": UNKNOWN}},
        '"holodeck":{"session_is_new":true}',
    ),
    "responses": (
        "/v1/responses",
        lambda n: {"input": f"hi {n}"},
        {"conversation": UNKNOWN},
        '"holodeck":{"session_is_new":true}',
    ),
    "ai-sdk": ("/ai-sdk/chat", lambda n: {"messages": [user_message(n)]}, {"id": UNKNOWN}, '"sessionIsNew":true'),
}


@pytest.mark.req("SRV-15", "DUR-05")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", NAMED)
async def test_an_answer_of_every_wire_says_if_its_session_is_new(wire, streamed):
    path, body_of, names, says_new = NAMED[wire]
    settings = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
    async with served(*[says("hello")] * 3, settings=settings) as s:
        for number, named, is_new in ((1, names, True), (2, names, False), (3, {}, False)):
            if number == 3 and wire == "ai-sdk":
                continue  # a chat always has an id
            more = {"stream": streamed} if path.startswith("/v1/") else {}
            async with s.post({**body_of(number), **named, **more}, path) as answer:
                assert (answer.status, says_new in await answer.text()) == (200, is_new), number


@pytest.mark.req("SRV-15", "SRV-27")
@pytest.mark.parametrize("method", ["send", "stream"])
async def test_a_task_says_if_its_context_is_new(method):
    async with served(*[says("hello")] * 2, settings=ServerSettings(protocols=("a2a",))) as s:
        for number, is_new in ((1, True), (2, False)):
            sent = {"message": {**a2a_message(number), "contextId": UNKNOWN}}
            async with s.post(sent, f"/a2a/message:{method}", **{"A2A-Version": "1.0"}) as answer:
                body = await answer.text()
                assert (answer.status, '"metadata":{"sessionIsNew":true}' in body) == (200, is_new), body


@pytest.mark.req("SRV-15")
async def test_a_calling_model_reads_that_the_session_it_named_is_new():
    async with served(*[says("hello")] * 2, settings=ServerSettings(protocols=("mcp",))) as s:
        for number, is_new in ((1, True), (2, False)):
            call = mcp_call({"message": f"hi {number}", "session": UNKNOWN})
            async with s.post(call, "/mcp", Accept="application/json") as answer:
                result = (await answer.json())["result"]
            assert result["structuredContent"].get("session_is_new", False) is is_new
            texts = [each["text"] for each in result["content"]]
            new = f"The session {UNKNOWN} is unknown or has expired, so this began a new one"
            assert ([text.partition(":")[0] for text in texts]) == (["hello", new] if is_new else ["hello"])


@pytest.mark.req("SRV-15", "ACC-07")
async def test_an_approval_in_a_session_that_has_expired_says_that_the_session_is_gone():
    resume = [{"interruptId": "x", "status": "resolved", "payload": {"approved": True}}]
    async with served(settings=ALL) as s, s.post(ask(messages=[], thread="gone", resume=resume)) as answer:
        problem = await answer.json()
    assert (answer.status, problem["field"]) == (422, "resume")
    assert problem["detail"] == "There is no open interrupt 'x': the session is unknown, or has expired."


@pytest.mark.req("SRV-15", "DUR-05")
async def test_an_answer_says_if_the_session_has_expired_since():
    now = [1_700_000_000.0]
    store = MemorySessionStore(ttl_seconds=60, clock=lambda: now[0])
    async with served(says("one"), says("two"), says("three"), settings=ALL, store=store) as s:

        async def asked(text: str) -> tuple[bool, bool]:
            async with s.post({"message": text, "session_id": UNKNOWN}, "/agent/tester/chat") as answer:
                result = await answer.json()
                return result.get("session_is_new", False), "X-HoloDeck-Session" in answer.headers

        assert await asked("first") == (True, True)
        now[0] += 59
        assert await asked("second") == (False, False), "its time begins again with each answer"
        now[0] += 59
        async with s.get(f"/sessions/{UNKNOWN}") as answer:
            assert answer.status == 200
        now[0] += 2
        async with s.get(f"/sessions/{UNKNOWN}") as answer:
            assert answer.status == 404
        assert await asked("third") == (True, True)
        async with s.get(f"/sessions/{UNKNOWN}") as answer:
            texts = [message["content"] for message in (await answer.json())["messages"]]
        assert texts == ["third", "three"]


@pytest.mark.req("SRV-15")
@pytest.mark.parametrize("version", ["1.0", "0.0.59"])
async def test_agui_clients_learn_that_a_thread_is_new_also_without_a_history(version):
    async with served(says("hello"), says("again"), settings=ALL) as s:
        for run, is_new in (("r1", True), ("r2", None)):
            async with s.post(ask(thread="t", run=run, protocolVersion=version)) as answer:
                started = json.loads((await answer.read()).partition(b"data: ")[2].partition(b"\n")[0])
            assert (started["type"], started.get("metadata", {}).get("sessionIsNew")) == ("RUN_STARTED", is_new)


@pytest.mark.req("SRV-11")
async def test_a_run_that_was_stopped_continues_without_a_new_message():
    gate = Gate()
    async with served(says("half an answer", pause=gate), says("the whole answer"), settings=ALL) as s:
        stream = await s.post(ask(thread="t", run="r1"))
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        async with s.post({}, "/runs/r1/continue") as answer:
            assert answer.status == 409, "it has not ended"
        async with s.post({}, "/runs/r1/stop") as answer:
            assert (await answer.json())["stopped"]
        await stream.read()
        gate.open.set()
        async with s.post({}, "/runs/r1/continue") as answer:
            body = await answer.read()
        assert types(body)[-1] == "RUN_FINISHED"
        assert b'"threadId":"t"' in body
        assert b'"parentRunId":"r1"' in body
        async with s.get("/sessions/t") as answer:
            texts = [message["content"] for message in (await answer.json())["messages"]]
        assert texts[1:] == ["half", "the whole answer"]
        async with s.post({}, "/runs/nothing/continue") as answer:
            assert answer.status == 404


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept in a file", "in memory"])
async def test_a_run_that_the_server_ends_when_it_stops_says_how_to_continue(tmp_path, is_kept):
    stores = on_file(tmp_path / "s.db") if is_kept else {}
    async with served(says("half an answer", pause=Gate()), settings=ALL, **stores) as s:
        stream = await s.post(ask(thread="t"))
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        await s.server.drain(0)
        ending = frames(await stream.read())[-1][1]
    then = " When it is back, a new message continues the conversation." if is_kept else ""
    assert (ending["code"], ending["message"]) == ("shutting-down", f"The server is shutting down.{then}")


@pytest.mark.req("SRV-11", "D03")
async def test_a_run_that_waits_for_its_turn_when_the_server_stops_is_to_be_sent_again(tmp_path):
    """Its message is not stored: a new message would continue without it."""
    async with served(says("half an answer", pause=Gate()), settings=ALL, **on_file(tmp_path / "s.db")) as s:
        stream = await s.post(ask(thread="t", run="r1"))
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        waiting = asyncio.create_task(s.post(ask(thread="t", run="r2")).__aenter__())
        await until(lambda: s.server.runs.find("r2", owner=ANONYMOUS_OWNER))
        await s.server.drain(0)
        ending = frames(await (await waiting).read())[-1][1]
        await stream.read()
    assert ending["message"] == "The server is shutting down. The message was not stored; send it again."


@pytest.mark.req("SRV-11")
async def test_a_run_that_was_cut_is_named_until_another_one_follows(tmp_path):
    """While its continuation ran, a client was still asked to offer one."""
    gate, cut = Gate(), Turn(text=["half an answer"], error=RunInterrupted("The process ended."))
    async with served(cut, says("the whole answer", pause=gate), settings=ALL, **on_file(tmp_path / "s.db")) as s:
        await (await s.post(ask(thread="t", run="r1"))).read()
        async with s.get("/sessions/t") as answer:
            session = await answer.json()
            assert (session["active_runs"], session["cut_run"]) == ([], "r1")
        stream = await s.post({}, "/runs/r1/continue")
        await read_to(stream, "RUN_STARTED")
        async with s.get("/sessions/t") as answer:
            session = await answer.json()
            assert (len(session["active_runs"]), session["cut_run"]) == (1, None)
        gate.open.set()
        await stream.read()


@pytest.mark.req("SRV-11", "ACC-07")
async def test_a_run_that_waits_or_is_complete_does_not_continue_and_its_question_stays_open():
    tool = Deletions()
    async with served(calls(("delete", '{"name": "a"}')), says("done"), tools=tool.tools, settings=ALL) as s:
        async with s.post(ask("delete it", thread="t", run="r1")) as answer:
            interrupt = frames(await answer.read())[-1][1]["outcome"]["interrupts"][0]["id"]
        async with s.post({}, "/runs/r1/continue") as answer:
            assert (answer.status, "waits for an answer" in await answer.text()) == (422, True)
        resume = [{"interruptId": interrupt, "status": "resolved", "payload": {"approved": True}}]
        async with s.post(ask(messages=[], thread="t", run="r2", resume=resume)) as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"
        assert tool.deleted == ["a"]
        async with s.post({}, "/runs/r2/continue") as answer:
            assert (answer.status, "is complete" in await answer.text()) == (422, True)


@pytest.mark.req("SRV-11", "ACC-07")
async def test_a_run_does_not_continue_while_a_later_one_waits_for_an_answer():
    """Another tab, or an answer that was stopped before it was used: the question must stay open."""
    gate, tool = Gate(), Deletions()
    turns = says("half an answer", pause=gate), calls(("delete", '{"name": "a"}')), says("done")
    async with served(*turns, tools=tool.tools, settings=ALL) as s:
        stream = await s.post(ask(thread="t", run="r1"))
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        await (await s.post({}, "/runs/r1/stop")).read()
        gate.open.set()
        async with s.post(ask("delete it", thread="t", run="r2")) as answer:
            interrupt = frames(await answer.read())[-1][1]["outcome"]["interrupts"][0]["id"]
        async with s.post({}, "/runs/r1/continue") as answer:
            assert (answer.status, "waits for an answer" in await answer.text()) == (422, True)
        resume = [{"interruptId": interrupt, "status": "resolved", "payload": {"approved": True}}]
        async with s.post(ask(messages=[], thread="t", run="r3", resume=resume)) as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"
        assert tool.deleted == ["a"]


@pytest.mark.req("SRV-11", "ACC-07")
async def test_a_continuation_that_waits_for_its_turn_leaves_the_question_of_the_run_before_open():
    first, second, tool = Gate(), Gate(), Deletions()
    asks = Turn(text=["First"], calls=calls(("delete", '{"name": "a"}')).calls, pause=second)
    turns = says("half an answer", pause=first), asks, says("done")
    async with served(*turns, tools=tool.tools, settings=ALL) as s:
        stream = await s.post(ask(thread="t", run="r1"))
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        await (await s.post({}, "/runs/r1/stop")).read()
        first.open.set()
        asking = await s.post(ask("delete it", thread="t", run="r2"))
        await read_to(asking, "RUN_STARTED")
        waiting = asyncio.create_task(s.post({}, "/runs/r1/continue").__aenter__())
        await until(lambda: s.server.runs.queue.waiting((ANONYMOUS_OWNER, "t")) == 2)
        second.open.set()
        interrupt = frames(await asking.read())[-1][1]["outcome"]["interrupts"][0]["id"]
        ((_, start), (_, end)) = frames(await (await waiting).read())
        assert (start["type"], end["type"]) == ("RUN_STARTED", "RUN_ERROR")
        assert "waits for an answer" in end["message"]
        resume = [{"interruptId": interrupt, "status": "resolved", "payload": {"approved": True}}]
        async with s.post(ask(messages=[], thread="t", run="r3", resume=resume)) as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"
        assert tool.deleted == ["a"]


@pytest.mark.req("SRV-11", "C08")
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}])
@pytest.mark.parametrize("together", [True, False])
async def test_two_requests_to_continue_a_run_get_one_continuation(headers, together):
    gate, later = Gate(), Gate()
    turns = says("half an answer", pause=gate), says("the whole answer", pause=later)
    async with served(*turns, settings=ALL) as s:
        stream = await s.post(ask(thread="t", run="r1"))
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        await (await s.post({}, "/runs/r1/stop")).read()
        gate.open.set()
        first = await s.post({}, "/runs/r1/continue", **headers)
        if not together:
            later.open.set()
            one = await first.read()
        second = await s.post({}, "/runs/r1/continue", **headers)
        later.open.set()
        one, two = (await first.read() if together else one), await second.read()
        assert types(one) == types(two)
        assert types(one)[-1] == "RUN_FINISHED"
        async with s.get("/sessions/t") as answer:
            texts = [message["content"] for message in (await answer.json())["messages"]]
        assert texts[1:] == ["half", "the whole answer"]


@pytest.mark.req("SRV-11")
async def test_a_continuation_that_was_cut_is_continued_by_the_same_request():
    gate, later = Gate(), Gate()
    turns = says("half an answer", pause=gate), says("more of it", pause=later), says("the rest")
    async with served(*turns, settings=ALL) as s:
        stream = await s.post(ask(thread="t", run="r1"))
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        await (await s.post({}, "/runs/r1/stop")).read()
        gate.open.set()
        again = await s.post({}, "/runs/r1/continue")
        begun = await read_to(again, "TEXT_MESSAGE_CONTENT")
        cut = json.loads(begun.partition(b"data: ")[2].partition(b"\n")[0])["runId"]
        await (await s.post({}, f"/runs/{cut}/stop")).read()
        later.open.set()
        async with s.post({}, "/runs/r1/continue") as answer:
            body = await answer.read()
        assert f'"parentRunId":"{cut}"'.encode() in body
        assert types(body)[-1] == "RUN_FINISHED"
