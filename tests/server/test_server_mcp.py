"""The agent as an MCP server over raw HTTP: eras, errors, approvals, tasks, long answers, clients that leave."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holodeck.access.principal import APPROVE, CHAT, RUNS_READ, RUNS_STOP
from holodeck.config.limit_schema import AddressLimits, ServerLimits
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.core.request import RunRequest
from holodeck.errors import Overloaded
from holodeck.models.scripted import Turn, calls, says
from holodeck.runs.log import RunLog
from holodeck.runs.run import Run
from holodeck.server.mcp_calls import ends_within
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import Deletions, PlainTools, echo
from tests.server.keyed import keyed
from tests.server.serving import Gate, Served, read_to, served, server_block, until
from tests.wires.sse_parsers import whatwg

pytestmark = pytest.mark.req("SRV-26")

ALL = ServerSettings(protocols=tuple(WIRES))
PREFIX = "io.modelcontextprotocol/"
VERSION = "2026-07-28"
TASKS = {"extensions": {f"{PREFIX}tasks": {}}}
FORMS = {"elicitation": {}}
Json = dict[str, Any]


def body_of(method: str, params: Json | None = None, *, capabilities: Json | None = None, modern: bool = True) -> Json:
    meta = {f"{PREFIX}protocolVersion": VERSION, f"{PREFIX}clientCapabilities": capabilities or {}}
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {**(params or {}), **({"_meta": meta} if modern else {})},
    }


def headers_of(body: Json) -> dict[str, str]:
    """Those that a client of the newer era sends; none for an older one."""
    params = body.get("params", {})
    name = params.get("name") or params.get("taskId")
    given = {"MCP-Protocol-Version": VERSION, "Mcp-Method": body["method"], **({"Mcp-Name": name} if name else {})}
    return given if "_meta" in params else {}


async def sent(s: Served, body: Json, **headers: str) -> tuple[int, Json]:
    async with s.post(body, "/mcp", **{**headers_of(body), **headers}) as answer:
        data = await answer.read()
        if answer.content_type == "text/event-stream":
            return answer.status, json.loads(whatwg(data)[-1].data)
        return answer.status, json.loads(data) if data else {}


async def called(s: Served, arguments: Json, tool: str = "ask", more: Json | None = None, **options: Any) -> Json:
    status, answer = await sent(
        s, body_of("tools/call", {"name": tool, "arguments": arguments, **(more or {})}, **options)
    )
    assert status == 200, answer
    result: Json = answer["result"]
    return result


DELETE = calls(("delete", '{"name": "a"}'))


@pytest.mark.parametrize("modern", [True, False])
async def test_a_conversation(*, modern: bool) -> None:
    async with served(says("Hello"), says("Again"), settings=ALL) as s:
        first = await called(s, {"message": "Hi"}, modern=modern)
        session = first["structuredContent"]["session"]
        second = await called(s, {"message": "And?", "session": session}, modern=modern)
    assert [each["content"][0]["text"] for each in (first, second)] == ["Hello", "Again"]
    assert second["structuredContent"]["session"] == session
    assert [each.content for each in s.model.prompts[-1].messages] == ["Hi", "Hello", "And?"]


async def test_the_older_handshake_makes_no_session() -> None:
    async with served(settings=ALL) as s:
        for asked, given in (("2025-06-18", "2025-06-18"), ("2023-01-01", "2025-11-25"), (None, "2025-11-25")):
            body = body_of("initialize", {"protocolVersion": asked, "capabilities": {}}, modern=False)
            async with s.post(body, "/mcp") as answer:
                result = (await answer.json())["result"]
                assert "Mcp-Session-Id" not in answer.headers
            assert (result["protocolVersion"], result["serverInfo"]["name"]) == (given, "tester")
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert await sent(s, note) == (202, {})
        assert await sent(s, body_of("ping", modern=False)) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})


async def test_discovery() -> None:
    async with served(settings=ALL) as s:
        _, answer = await sent(s, body_of("server/discover"))
    result = answer["result"]
    assert (result["supportedVersions"], result["resultType"], result["cacheScope"]) == (
        [VERSION],
        "complete",
        "private",
    )
    assert set(result["capabilities"]) == {"tools", "extensions"}


@pytest.mark.parametrize("method", ["initialize", "ping", "unknown/method", "tasks/list", "prompts/list"])
async def test_methods_that_the_newer_generation_lacks_are_404(method: str) -> None:
    async with served(settings=ALL) as s:
        status, answer = await sent(s, body_of(method))
    assert (status, answer["error"]["code"], answer["id"]) == (404, -32601, 1)


@pytest.mark.req("SRV-17")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b"[{}]", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no"}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": []}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": {}}}', -32602),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {"run": "x"}}}',
            -32602,
        ),
    ],
)
async def test_bad_messages_are_errors_of_the_protocol(body: bytes, code: int) -> None:
    async with served(settings=ALL) as s, s.post(body, "/mcp") as answer:
        result = json.loads(await answer.read())
        assert (answer.status in {200, 400}, result["error"]["code"]) == (True, code)
        assert s.model.prompts == []


async def test_other_methods_of_http_are_405() -> None:
    async with served(settings=ALL) as s:
        for method in ("GET", "DELETE"):
            async with s.client.request(method, f"{s.url}/mcp") as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_progress_comes_while_it_works() -> None:
    gate = Gate()
    turns = [calls(("echo", '{"a": 1}')), Turn(text=["done"], pause=gate)]
    async with served(*turns, tools=PlainTools(echo=echo), settings=ALL) as s:
        body = body_of("tools/call", {"name": "ask", "arguments": {"message": "do"}})
        body["params"]["_meta"]["progressToken"] = "p"
        async with s.post(body, "/mcp", **headers_of(body)) as answer:
            seen = await read_to(answer, "← echo")
            gate.open.set()
            frames = [json.loads(frame.data) for frame in whatwg(seen + await answer.read())]
    assert [each["params"]["progress"] for each in frames[:-1]] == [1, 2]
    assert {each["params"]["progressToken"] for each in frames[:-1]} == {"p"}
    assert frames[-1]["result"]["content"][0]["text"] == "done"


async def test_a_client_that_does_not_take_streams_gets_json() -> None:
    async with served(settings=ALL) as s:
        body = body_of("tools/call", {"name": "ask", "arguments": {"message": "Hi"}})
        async with s.post(body, "/mcp", **{**headers_of(body), "Accept": "application/json"}) as answer:
            assert answer.content_type == "application/json"
            assert (await answer.json())["result"]["content"][0]["text"] == "hello there"


@pytest.mark.req("ACC-07")
async def test_an_approval_in_two_round_trips() -> None:
    tool = Deletions()
    async with served(DELETE, says("gone"), tools=tool.tools, settings=ALL) as s:
        asked = await called(s, {"message": "delete it"}, capabilities=FORMS)
        assert (asked["resultType"], tool.deleted) == ("input_required", [])
        (key,) = asked["inputRequests"]
        state = {"requestState": asked["requestState"]}
        again = await called(s, {"message": "delete it"}, more=state, capabilities=FORMS)
        assert again["inputRequests"].keys() == asked["inputRequests"].keys(), "no approval was recorded"
        for unclear in ({"action": "accept"}, {"action": "accept", "content": {"decision": True}}):
            more = {**state, "inputResponses": {key: unclear}}
            status, _ = await sent(
                s, body_of("tools/call", {"name": "ask", "arguments": {}, **more}, capabilities=FORMS)
            )
            assert (status, tool.deleted) == (400, [])
        closed = {**state, "inputResponses": {key: {"action": "cancel"}}}
        waiting = await called(s, {"message": "delete it"}, more=closed, capabilities=FORMS)
        assert (waiting["structuredContent"]["status"], tool.deleted) == ("waiting", [])
        yes = {**state, "inputResponses": {key: {"action": "accept", "content": {"decision": "approve"}}}}
        done = await called(s, {"message": "delete it"}, more=yes, capabilities=FORMS)
        assert (done["content"][0]["text"], tool.deleted) == ("gone", ["a"])
        twice = await called(s, {"message": "delete it"}, more=yes, capabilities=FORMS)
        assert (twice["content"][0]["text"], tool.deleted) == ("gone", ["a"]), "a duplicate joins the run"


async def test_a_state_that_was_changed_finds_nothing() -> None:
    async with served(DELETE, says("gone"), tools=Deletions().tools, settings=ALL) as s:
        asked = await called(s, {"message": "delete it"}, capabilities=FORMS)
        for state in (asked["requestState"] + "x", "", 7, {}):
            body = body_of("tools/call", {"name": "ask", "arguments": {}, "requestState": state}, capabilities=FORMS)
            status, answer = await sent(s, body)
            assert (status, answer["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("modern", [True, False])
async def test_an_approval_by_the_tool_continue(*, modern: bool) -> None:
    tool = Deletions()
    async with served(DELETE, says("gone"), tools=tool.tools, settings=ALL) as s:
        asked = (await called(s, {"message": "delete it"}, modern=modern))["structuredContent"]
        (approval,) = asked["approvals"]
        decisions = [{"id": approval["id"], "approved": True, "arguments": {"name": "b"}}]
        done = await called(s, {"session": asked["session"], "decisions": decisions}, "continue", modern=modern)
    assert (asked["status"], done["content"][0]["text"], tool.deleted) == ("waiting", "gone", ["b"])


async def test_an_answer_that_takes_long_is_waited_for() -> None:
    gate = Gate()
    quick = ServerSettings(protocols=tuple(WIRES), mcp_wait=0.01)
    async with served(Turn(text=["late"], pause=gate), settings=quick) as s:
        for headers in ({}, {"Accept": "application/json"}):
            body = body_of("tools/call", {"name": "ask", "arguments": {"message": "Hi", "session": "s"}})
            _, answer = await sent(s, body, **headers)
            about = answer["result"]["structuredContent"]
            assert (about["status"], about["session"]) == ("working", "s")
        run = s.run(about["run"])
        await called(s, {"run": run.run_id}, "wait")
        assert not run.log.ended, "closing a `wait` stops nothing"
        gate.open.set()
        await run.done()
        done = await called(s, {"run": run.run_id}, "wait")
    assert done["content"][0]["text"] == "late"


async def left_behind(s: Served, body: Json) -> Run:
    """The run of a client that went away while the model was answering."""
    asking = asyncio.create_task(sent(s, body))
    await until(lambda: s.model.prompts)
    (run,) = s.server.runs.active
    asking.cancel()
    await asyncio.wait({asking})
    return run


async def test_a_client_that_leaves_cancels_its_run() -> None:
    gate = Gate()
    async with served(Turn(text=["never"], pause=gate), settings=ALL) as s:
        body = body_of("tools/call", {"name": "ask", "arguments": {"message": "Hi", "session": "s"}})
        run = await left_behind(s, body)
        await asyncio.wait_for(run.done(), 30)
        assert run.state == "cancelled"


async def test_an_older_client_that_loses_its_connection_leaves_its_run_its_grace() -> None:
    gate = Gate()
    async with served(Turn(text=["there"], pause=gate), settings=ALL) as s:
        body = body_of("tools/call", {"name": "ask", "arguments": {"message": "Hi"}}, modern=False)
        run = await left_behind(s, body)
        await until(lambda: run.readers == 0)
        assert not run.log.ended
        gate.open.set()
        await asyncio.wait_for(run.done(), 30)
        assert run.state == "finished"


async def task_when(s: Served, task_id: str, status: str, capabilities: Json) -> Json:
    while True:
        _, answer = await sent(s, body_of("tasks/get", {"taskId": task_id}, capabilities=capabilities))
        result: Json = answer["result"]
        if result["status"] == status:
            return result
        assert result["status"] == "working"
        await asyncio.sleep(0.01)


async def test_a_run_as_a_task() -> None:
    gate = Gate()
    async with served(Turn(text=["at last"], pause=gate), settings=ALL) as s:
        made = await called(s, {"message": "Hi"}, capabilities=TASKS)
        assert (made["resultType"], made["status"], made["ttlMs"] > 0) == ("task", "working", True)
        task = await task_when(s, made["taskId"], "working", TASKS)
        assert "result" not in task
        gate.open.set()
        task = await task_when(s, made["taskId"], "completed", TASKS)
    assert task["result"]["content"][0]["text"] == "at last"


async def test_a_quick_answer_is_no_task() -> None:
    async with served(settings=ALL) as s:
        result = await called(s, {"message": "Hi"}, capabilities=TASKS)
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "hello there")


async def test_a_task_is_cancelled() -> None:
    async with served(Turn(text=["never"], pause=Gate()), settings=ALL) as s:
        made = await called(s, {"message": "Hi"}, capabilities=TASKS)
        for _ in range(2):
            _, answer = await sent(s, body_of("tasks/cancel", {"taskId": made["taskId"]}, capabilities=TASKS))
            assert {key for key in answer["result"] if key != "_meta"} == {"resultType"}
            await task_when(s, made["taskId"], "cancelled", TASKS)


async def test_a_task_that_waits_is_cancelled_and_takes_no_decision_afterwards() -> None:
    """Another client may still show the form."""
    tool, both, gate = Deletions(), {**TASKS, **FORMS}, Gate()
    turn = calls(("delete", '{"name": "a"}'), text=["Well"], pause=gate)
    async with served(turn, says("never"), tools=tool.tools, settings=ALL) as s:
        made = await called(s, {"message": "delete it"}, capabilities=both)
        gate.open.set()
        (key,) = (await task_when(s, made["taskId"], "input_required", both))["inputRequests"]
        task = {"taskId": made["taskId"]}
        _, answer = await sent(s, body_of("tasks/cancel", task, capabilities=both))
        assert "error" not in answer
        approved = {key: {"action": "accept", "content": {"decision": "approve"}}}
        await sent(s, body_of("tasks/update", {**task, "inputResponses": approved}, capabilities=both))
        _, answer = await sent(s, body_of("tasks/get", task, capabilities=both))
    assert (answer["result"]["status"], tool.deleted) == ("cancelled", [])


async def test_a_task_that_waits_takes_decisions_one_by_one() -> None:
    tool, both = Deletions(), {**TASKS, **FORMS}
    gate = Gate()
    turns = [
        calls(("delete", '{"name": "a"}'), ("delete", '{"name": "b"}'), text=["Well"], pause=gate),
        says("gone"),
    ]
    async with served(*turns, tools=tool.tools, settings=ALL) as s:
        made = await called(s, {"message": "delete them"}, capabilities=both)
        gate.open.set()
        task = await task_when(s, made["taskId"], "input_required", both)
        first, second = task["inputRequests"]
        answers = {
            first: {"action": "accept", "content": {"decision": "approve"}},
            second: {"action": "decline"},
        }
        for number, (key, answer) in enumerate(answers.items()):
            params = {"taskId": made["taskId"], "inputResponses": {key: answer}}
            status, _ = await sent(s, body_of("tasks/update", params, capabilities=both))
            assert status == 200
            if number == 0:
                left = await task_when(s, made["taskId"], "input_required", both)
                assert [*left["inputRequests"]] == [second]
        done = await task_when(s, made["taskId"], "completed", both)
    assert (done["taskId"], done["result"]["content"][0]["text"], tool.deleted) == (made["taskId"], "gone", ["a"])


async def test_a_task_whose_last_answer_is_refused_can_be_answered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tool, both = Deletions(), {**TASKS, **FORMS}
    async with served(DELETE, says("gone"), tools=tool.tools, settings=ALL) as s:
        asked = await called(s, {"message": "delete it"}, capabilities=both)
        (form,) = asked["inputRequests"]
        params = {"taskId": asked["requestState"], "inputResponses": {form: {"action": "decline"}}}
        update = body_of("tasks/update", params, capabilities=both)

        async def full(*_args: Any, **_more: Any) -> None:
            raise Overloaded("full")

        with monkeypatch.context() as patched:
            patched.setattr(s.server.runs, "start", full)
            assert (await sent(s, update))[0] != 200
        left = await task_when(s, asked["requestState"], "input_required", both)
        assert [*left["inputRequests"]] == [form]
        assert (await sent(s, update))[0] == 200
        await task_when(s, asked["requestState"], "completed", both)
    assert tool.deleted == []


@pytest.mark.req("ACC-07")
async def test_only_a_key_that_may_approve_decides_for_a_task(tmp_path: Path) -> None:
    tool, both = Deletions(), {**TASKS, **FORMS}
    turns = calls(("delete", '{"name": "a"}'), ("delete", '{"name": "b"}')), says("gone")
    async with keyed(tmp_path, *turns, tools=tool.tools) as (s, holders):
        chats = holders.headers(CHAT, RUNS_READ, user="ann")
        approves = holders.headers(CHAT, RUNS_READ, APPROVE, user="ann")
        await s.server.access.refresh()
        asking = body_of("tools/call", {"name": "ask", "arguments": {"message": "delete them"}}, capabilities=both)
        _, asked = await sent(s, asking, **chats)
        first, second = asked["result"]["inputRequests"]
        task = {"taskId": asked["result"]["requestState"]}
        yes, closed = {"action": "accept", "content": {"decision": "approve"}}, {"action": "cancel"}

        async def updated(key: str, answer: Json, headers: dict[str, str]) -> int:
            params = {**task, "inputResponses": {key: answer}}
            return (await sent(s, body_of("tasks/update", params, capabilities=both), **headers))[0]

        async def left() -> list[str]:
            _, got = await sent(s, body_of("tasks/get", task, capabilities=both), **chats)
            return [*got["result"]["inputRequests"]]

        assert await updated(first, yes, chats) == 403
        assert await left() == [first, second], "what was refused is not kept"
        assert (await updated(first, yes, approves), await left()) == (200, [second])
        assert (await updated(first, closed, approves), await left()) == (200, [first, second]), "taken back"
        assert (await updated(second, yes, chats), tool.deleted) == (403, [])


async def test_a_key_that_may_only_chat_neither_reads_nor_stops_tasks(tmp_path: Path) -> None:
    async with keyed(tmp_path, Turn(text=["never"], pause=Gate())) as (s, holders):
        chats = holders.headers(CHAT, user="ann")
        stops = holders.headers(CHAT, RUNS_READ, RUNS_STOP, user="ann")
        await s.server.access.refresh()
        asking = body_of("tools/call", {"name": "ask", "arguments": {"message": "Hi"}}, capabilities=TASKS)
        _, made = await sent(s, asking, **chats)
        task = {"taskId": made["result"]["taskId"]}
        waiting = {"name": "wait", "arguments": {"run": task["taskId"]}}
        bodies = [body_of(method, task, capabilities=TASKS) for method in ("tasks/get", "tasks/cancel")]
        for body in (*bodies, body_of("tools/call", waiting, capabilities=TASKS)):
            assert (await sent(s, body, **chats))[0] == 403, body
        assert not s.server.runs.active[0].log.ended
        for body in bodies:
            assert (await sent(s, body, **stops))[0] == 200


@pytest.mark.req("T17")
async def test_waiting_takes_a_slot() -> None:
    gate, limits = Gate(), ServerLimits(address=AddressLimits(streams=1))
    async with served(
        Turn(text=["late"], pause=gate), settings=ServerSettings(protocols=("mcp",), block=server_block(limits=limits))
    ) as s:
        made = await called(s, {"message": "Hi"}, capabilities=TASKS)
        body = body_of("tools/call", {"name": "wait", "arguments": {"run": made["taskId"]}})
        await until(lambda: s.server.answering == 0)
        first = asyncio.create_task(sent(s, body))
        await until(lambda: s.server.answering == 1)
        assert (await sent(s, body))[0] == 429
        gate.open.set()
        assert (await first)[1]["result"]["content"][0]["text"] == "late"


async def test_tasks_need_their_capability() -> None:
    async with served(settings=ALL) as s:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            status, answer = await sent(s, body_of(method, {"taskId": "x"}))
            assert (status, answer["error"]["code"]) == (400, -32021)
            status, answer = await sent(s, body_of(method, {"taskId": "x"}, capabilities=TASKS))
            assert (status, answer["error"]["code"]) == (400, -32602), "unknown"


@pytest.mark.req("SRV-20")
async def test_a_run_that_is_left_to_another_process_has_not_ended() -> None:
    """Its caller is answered that it goes on; it was refused, for what is left of the run has no ending."""
    left = asyncio.Event()
    run = Run(request=RunRequest(), run_id="r", session_id="s", owner=ANONYMOUS_OWNER, log=RunLog())
    run.task = asyncio.create_task(left.wait())
    waiting = asyncio.create_task(ends_within(run, 60, asyncio.Event().wait))
    await asyncio.sleep(0)
    run.log.cut()
    left.set()
    assert await waiting is False
    assert await ends_within(run, 60, asyncio.Event().wait) is False


@pytest.mark.req("SRV-20")
async def test_a_stream_of_a_run_that_is_left_to_another_process_ends_with_a_response() -> None:
    """Clients wait for the response to their call, however the stream ends."""
    gate = Gate()
    async with served(Turn(text=["late"], pause=gate), settings=ALL) as s:
        body = body_of("tools/call", {"name": "ask", "arguments": {"message": "Hi", "session": "s"}})
        asking = asyncio.create_task(sent(s, body))
        await until(lambda: s.model.prompts)
        (run,) = s.server.runs.active
        await until(lambda: run.readers)
        run.log.cut()
        _, answer = await asyncio.wait_for(asking, 30)
    assert answer["result"]["structuredContent"]["status"] == "working"
