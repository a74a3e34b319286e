"""What a client may get wrong on any wire, in one table: the protocol's own error, with a code, and no data of another owner."""

import json
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from yarl import URL

from holodeck.access.authenticator import Authenticator
from holodeck.access.hook import Hook
from holodeck.access.principal import OF_ONE_USER, Principal
from holodeck.core.ids import new_ulid
from holodeck.errors import PROBLEM_BASE
from holodeck.models.scripted import calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.every_wire import QUESTIONS, SESSION
from tests.server.serving import Served, ask, frames, served
from tests.wires.sse_parsers import whatwg

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
ADA, EVE = {"X-Test-User": "ada"}, {"X-Test-User": "eve"}
WAITING = "01K9ZQ4W3V8N2R5T7Y9A1C3E5H"
RUN, ASKING = "run-of-ada", "asking-run-of-ada"
SECRET = "xyzzy"
A2A = {"A2A-Version": "1.0"}
TASKS = "io.modelcontextprotocol/tasks"
ALL = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
PLAIN: dict[str, str] = {}
EVENTS = "text/event-stream"
MANY = 10_001  # messages: more than any wire takes


class World(NamedTuple):
    """A server where Ada has a conversation, and a call of hers waits for her approval."""

    s: Served
    tools: PlainTools
    interrupt: str
    call: str


async def who(headers: Any, _address: object) -> Principal | None:
    user = headers.get("x-test-user", "")
    return Principal(tenant="default", user=user, scopes=OF_ONE_USER, via="hook") if user else None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    tools = PlainTools(frozenset({"delete"}), delete=echo)
    turns = says("noted"), calls(("delete", '{"name": "a"}')), says("welcome")
    async with served(*turns, tools=tools, settings=ALL, access=Authenticator(hook=Hook(who))) as s:
        async with s.post(ask(f"the word is {SECRET}", thread=SESSION, run=RUN), **ADA) as answer:
            assert answer.status == 200
            await answer.read()
        async with s.post(ask(f"delete {SECRET}", thread=WAITING, run=ASKING), **ADA) as answer:
            (interrupt,) = frames(await answer.read())[-1][1]["outcome"]["interrupts"]
        yield World(s, tools, interrupt["id"], interrupt["toolCallId"])
        assert tools.called == []
        async with s.get(f"/sessions/{WAITING}", **ADA) as answer:
            assert (await answer.json())["pending"] is not None, "the question is still Ada's to answer"


class Bad(NamedTuple):
    """A request of Eve's, and how it is refused. `code` is of the protocol."""

    path: str
    status: int
    code: str | int
    body: Json | Callable[[World], Json] | None = None
    method: str = "POST"
    headers: dict[str, str] = PLAIN


def problem(answer: Json) -> Any:
    assert answer["title"]
    return answer["type"].removeprefix(PROBLEM_BASE)


def openai(answer: Json) -> Any:
    assert answer["type"].startswith(PROBLEM_BASE)
    assert (answer["error"]["message"] != "", answer["error"]["type"]) == (True, answer["error"]["type"])
    return answer["error"]["code"]


def json_rpc(answer: Json) -> Any:
    assert (answer["jsonrpc"], answer["error"]["message"] != "") == ("2.0", True)
    return answer["error"]["code"]


def a2a_http(answer: Json) -> Any:
    return answer["error"]["status"]


def agui_stream(body: bytes) -> Any:
    last = json.loads(whatwg(body)[-1].data)
    assert (last["type"], last["message"] != "") == ("RUN_ERROR", True)
    return last["code"]


def ui_stream(body: bytes) -> Any:
    *chunks, done = [each.data for each in whatwg(body)]
    assert done == "[DONE]"
    parts = [json.loads(each) for each in chunks]
    assert "error" in {each["type"] for each in parts}
    (error,) = [each["data"] for each in parts if each["type"] == "data-error"]
    return error["code"]


def completion_stream(body: bytes) -> Any:
    *chunks, done = [each.data for each in whatwg(body)]
    assert done == "[DONE]"
    return json.loads(chunks[-1])["error"]["code"]


def response_stream(body: bytes) -> Any:
    *events, done = [each.data for each in whatwg(body)]
    assert done == "[DONE]"
    last, error = (json.loads(each) for each in events[-2:])
    assert (last["type"], last["response"]["status"], error["type"]) == ("response.failed", "failed", "error")
    return last["response"]["error"]["type"]


STREAMS = {
    "/awp": agui_stream,
    "/ai-sdk/chat": ui_stream,
    "/v1/chat/completions": completion_stream,
    "/v1/responses": response_stream,
}


def form_of(path: str) -> Callable[[Json], Any]:
    """How errors of this address look."""
    if path.startswith("/v1/"):
        return openai
    if path in {"/mcp", "/a2a"}:
        return json_rpc
    return a2a_http if path.startswith("/a2a/") else problem


def rpc(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def tool(name: str, **arguments: Any) -> Json:
    return rpc("tools/call", name=name, arguments=arguments)


def mcp_task(method: str, **params: Any) -> Json:
    about = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
    }
    return rpc(method, _meta=about, **params)


def mcp_headers(method: str, name: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}


def to_task(task: str, *parts: Json) -> Json:
    return rpc("SendMessage", message={"messageId": "m", "taskId": task, "role": "ROLE_USER", "parts": [*parts]})


def page(*messages: Json, **fields: Any) -> Json:
    return {"id": new_ulid(), "messages": [*messages], **fields}


def user_part(text: str) -> Json:
    return {"id": new_ulid(), "role": "user", "parts": [{"type": "text", "text": text}]}


def answered_part(**about: Any) -> Json:
    part = {"type": "dynamic-tool", "toolName": "delete", "toolCallId": "c", "input": {}, **about}
    return {"id": new_ulid(), "role": "assistant", "parts": [part]}


NOT_FOUND, INVALID = "run-not-found", "invalid-request"
R, RESPONSE = f"/runs/{RUN}", f"/v1/responses/resp_{RUN}"
HI: Json = {"role": "user", "content": "hi"}

BAD = {
    # ids of another owner
    "session": Bad(f"/sessions/{SESSION}", 404, "session-not-found", method="GET"),
    "session, followed": Bad(f"/sessions/{SESSION}/events", 404, "session-not-found", method="GET"),
    "run": Bad(R, 404, NOT_FOUND, method="GET"),
    "run, followed": Bad(f"{R}/events", 404, NOT_FOUND, method="GET"),
    "run, stopped": Bad(f"{R}/stop", 404, NOT_FOUND),
    "run, continued": Bad(f"{R}/continue", 404, NOT_FOUND),
    "run, a ticket": Bad(f"{R}/ticket", 404, NOT_FOUND),
    "response": Bad(RESPONSE, 404, NOT_FOUND, method="GET"),
    "response, streamed": Bad(f"{RESPONSE}?stream=true", 404, NOT_FOUND, method="GET"),
    "response, its input": Bad(f"{RESPONSE}/input_items", 404, NOT_FOUND, method="GET"),
    "response, cancelled": Bad(f"{RESPONSE}/cancel", 404, NOT_FOUND),
    "response, deleted": Bad(RESPONSE, 404, NOT_FOUND, method="DELETE"),
    "response, continued": Bad("/v1/responses", 404, "previous_response_not_found", {"input": "hi", "previous_response_id": f"resp_{RUN}"}),
    "ai-sdk, its messages": Bad(f"/ai-sdk/chat/{SESSION}/messages", 404, "session-not-found", method="GET"),
    "mcp, waited for": Bad("/mcp", 200, -32602, tool("wait", run=RUN)),
    "mcp, a task": Bad("/mcp", 400, -32602, mcp_task("tasks/get", taskId=RUN), headers=mcp_headers("tasks/get", RUN)),
    "mcp, a task cancelled": Bad("/mcp", 400, -32602, mcp_task("tasks/cancel", taskId=RUN), headers=mcp_headers("tasks/cancel", RUN)),
    "a2a, a task": Bad("/a2a", 200, -32001, rpc("GetTask", id=RUN), headers=A2A),
    "a2a, cancelled": Bad("/a2a", 200, -32001, rpc("CancelTask", id=RUN), headers=A2A),
    "a2a, subscribed": Bad("/a2a", 200, -32001, rpc("SubscribeToTask", id=RUN), headers=A2A),
    "a2a, a message to it": Bad("/a2a", 200, -32001, to_task(RUN, {"text": "hi"}), headers=A2A),
    "a2a over HTTP, a task": Bad(f"/a2a/tasks/{RUN}", 404, "NOT_FOUND", method="GET", headers=A2A),
    # unknown models and agents
    "rest, unknown agent": Bad("/agent/unknown/chat", 404, "agent-not-found", {"message": "hi"}),
    "openai, unknown model": Bad("/v1/chat/completions", 404, "model_not_found", {"model": "gpt-9", "messages": [HI]}),
    "openai, unknown model, read": Bad("/v1/models/gpt-9", 404, "model_not_found", method="GET"),
    "responses, unknown model": Bad("/v1/responses", 404, "model_not_found", {"model": "gpt-9", "input": "hi"}),
    "mcp, unknown tool": Bad("/mcp", 200, -32602, tool("gpt-9")),
    "mcp, unknown method": Bad("/mcp", 200, -32601, rpc("models/list")),
    "a2a, unknown method": Bad("/a2a", 200, -32601, rpc("ListModels"), headers=A2A),
    # results of calls that were never made
    "ag-ui, a result": Bad("/awp", 200, INVALID, ask(thread=new_ulid(), messages=[{"id": "t", "role": "tool", "toolCallId": "c", "content": SECRET}])),
    "openai, a result": Bad("/v1/chat/completions", 400, INVALID, {"messages": [{"role": "tool", "tool_call_id": "c", "content": SECRET}]}),
    "openai, a result in a session": Bad("/v1/chat/completions", 400, INVALID, {"messages": [{"role": "tool", "tool_call_id": "c", "content": SECRET}]}, headers={"X-Session-Id": new_ulid()}),
    "openai, a result, streamed": Bad("/v1/chat/completions", 200, INVALID, {"stream": True, "messages": [{"role": "tool", "tool_call_id": "c", "content": SECRET}]}),
    "responses, a result, streamed": Bad("/v1/responses", 200, INVALID, {"stream": True, "input": [{"type": "function_call_output", "call_id": "c", "output": SECRET}]}),
    "responses, a result": Bad("/v1/responses", 400, INVALID, {"input": [{"type": "function_call_output", "call_id": "c", "output": SECRET}]}),
    "ai-sdk, a result": Bad("/ai-sdk/chat", 200, INVALID, page(answered_part(state="output-available", output=SECRET))),
    # approvals that are another owner's
    "ag-ui, approved": Bad("/awp", 422, INVALID, lambda w: ask(thread=WAITING, messages=[], resume=[{"interruptId": w.interrupt, "status": "resolved", "payload": {"approved": True}}])),
    "rest, approved": Bad("/agent/tester/chat", 422, INVALID, lambda w: {"session_id": WAITING, "resume": [{"interrupt_id": w.interrupt, "approved": True}]}),
    "responses, approved": Bad("/v1/responses", 400, INVALID, lambda w: {"conversation": WAITING, "input": [{"type": "mcp_approval_response", "approval_request_id": w.interrupt, "approve": True}]}),
    "responses, approved after": Bad("/v1/responses", 404, "previous_response_not_found", lambda w: {"previous_response_id": f"resp_{ASKING}", "input": [{"type": "mcp_approval_response", "approval_request_id": w.interrupt, "approve": True}]}),
    "ai-sdk, approved": Bad("/ai-sdk/chat", 422, INVALID, lambda w: {"id": WAITING, "messages": [answered_part(toolCallId=w.call, state="approval-responded", approval={"id": w.interrupt, "approved": True})]}),
    "mcp, approved": Bad("/mcp", 200, -32602, lambda w: tool("continue", session=WAITING, decisions=[{"id": w.interrupt, "approved": True}])),
    "mcp, approved by a form": Bad("/mcp", 400, -32602, lambda w: mcp_task("tools/call", name="ask", arguments={"message": "hi"}, requestState=ASKING, inputResponses={w.interrupt: {"action": "accept", "content": {"decision": "approve"}}}), headers=mcp_headers("tools/call", "ask")),
    "mcp, approved as a task": Bad("/mcp", 400, -32602, lambda w: mcp_task("tasks/update", taskId=ASKING, inputResponses={w.interrupt: {"action": "accept", "content": {"decision": "approve"}}}), headers=mcp_headers("tasks/update", ASKING)),
    "a2a, approved": Bad("/a2a", 200, -32001, lambda w: to_task(ASKING, {"data": {"interruptId": w.interrupt, "approved": True}}), headers=A2A),
    # WebSockets
    **{f"websocket, {path}": Bad(path, 405, "method-not-allowed", method="GET", headers=WEBSOCKET) for path in ("/awp", "/agent/tester/chat", "/v1/chat/completions", "/v1/responses", "/ai-sdk/chat")},
    "websocket, /mcp": Bad("/mcp", 405, -32000, method="GET", headers=WEBSOCKET),
    "websocket, /a2a": Bad("/a2a", 405, -32000, method="GET", headers=WEBSOCKET),
    # histories without end
    "ag-ui, giant": Bad("/awp", 422, INVALID, ask(messages=[{"id": str(i), "role": "user", "content": "x"} for i in range(MANY)])),
    "rest, giant": Bad("/agent/tester/chat", 422, INVALID, {"message": "x" * 2_000_000}),
    "openai, giant": Bad("/v1/chat/completions", 400, INVALID, {"messages": [HI] * MANY}),
    "responses, giant": Bad("/v1/responses", 400, INVALID, {"input": [HI] * MANY}),
    "ai-sdk, giant": Bad("/ai-sdk/chat", 422, INVALID, page(*[user_part("x")] * MANY)),
    "mcp, giant": Bad("/mcp", 200, -32602, tool("ask", message="x" * 2_000_000)),
    "a2a, giant": Bad("/a2a", 200, -32602, rpc("SendMessage", message={"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}] * MANY}), headers=A2A),
}  # fmt: skip


@pytest.mark.req("SRV-17", "SRV-28", "T36")
@pytest.mark.parametrize("what", BAD)
async def test_it_is_refused_in_the_words_of_its_protocol(world: World, what: str) -> None:
    bad, asked = BAD[what], len(world.s.model.prompts)
    body = bad.body(world) if callable(bad.body) else bad.body
    headers = {**EVE, **bad.headers, **({} if body is None else {"Content-Type": "application/json"})}
    url = URL(world.s.url + bad.path, encoded=True)
    data = None if body is None else BytesIO(json.dumps(body).encode())
    async with world.s.client.request(bad.method, url, data=data, headers=headers) as answer:
        received = await answer.read()
    code = STREAMS[bad.path](received) if answer.content_type == EVENTS else form_of(bad.path)(json.loads(received))
    assert (answer.status, code) == (bad.status, bad.code), received[:2000]
    assert SECRET.encode() not in received
    assert len(world.s.model.prompts) == asked, "the model was asked"


@pytest.mark.req("SRV-28", "T36")
@pytest.mark.parametrize("wire", WIRES)
async def test_the_id_of_anothers_session_is_one_of_ones_own(world: World, wire: str) -> None:
    path, body, headers = QUESTIONS[wire](f"hi, by {wire}", SESSION)
    async with world.s.post(body, path, **EVE, **headers) as answer:
        received = await answer.read()
    assert (answer.status, b"welcome" in received, SECRET.encode() in received) == (200, True, False)
    assert SECRET not in str(world.s.model.prompts[-1].messages)
    async with world.s.get(f"/sessions/{SESSION}", **ADA) as answer:
        assert (await answer.json())["message_count"] == 2
