"""Sessions that have expired, and runs that were cut: clients learn of both, and can go on."""

import json

import pytest

from holodeck.errors import RunInterrupted
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.sessions.memory import MemorySessionStore
from tests.agent.agent_fixture import Deletions
from tests.runs.test_runs import Gate
from tests.server.serving import ask, frames, read_to, served, types
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
async def test_agui_clients_learn_that_a_thread_is_new_also_without_a_history():
    async with served(says("hello"), says("again"), settings=ALL) as s:
        for run, is_new in (("r1", True), ("r2", None)):
            async with s.post(ask(thread="t", run=run)) as answer:
                started = json.loads((await answer.read()).partition(b"data: ")[2].partition(b"\n")[0])
            assert (started["type"], started["metadata"].get("sessionIsNew")) == ("RUN_STARTED", is_new)


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
