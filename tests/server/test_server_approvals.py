"""Approvals over HTTP fail closed: an answer that is neither a yes nor a no decides nothing (ACC-07)."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import aiohttp
import pytest

from holodeck.agent.pending import REFUSED
from holodeck.core.events import Interrupt
from holodeck.core.request import APPROVAL_SCHEMA
from holodeck.errors import InvalidRequest
from holodeck.models.scripted import calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.wires import jsonrpc
from holodeck.wires.mcp.approvals import form_answers
from tests.agent.agent_fixture import Deletions
from tests.server.serving import Served, ask, frames, served

pytestmark = pytest.mark.req("ACC-07")

REST = ServerSettings(protocols=("rest",))
ROUTES = ("/awp", "/copilotkit/agent/default/run", "/copilotkit")
WHY = "not that one"
ALL = ServerSettings(protocols=tuple(WIRES))
UNCLEAR = [
    "no", None, 0, [], {"decision": "reject"}, {"approve": False}, {"Approved": False}, {"approved": "false"}, {},
    {"approved": None}, {"approved": 1}, "yes",
]  # fmt: skip


async def post(s: Served, given: dict[str, Any], path: str) -> tuple[int, bytes]:
    body = {"method": "agent/run", "body": given} if path == "/copilotkit" else given
    async with s.post(body, path) as answer:
        return answer.status, await answer.read()


async def asked(s: Served, path: str) -> str:
    """The id of the interrupt that the first run ends with."""
    _, body = await post(s, ask("delete it"), path)
    outcome = frames(body)[-1][1]["outcome"]
    assert outcome["interrupts"][0]["responseSchema"] == APPROVAL_SCHEMA
    return str(outcome["interrupts"][0]["id"])


def answer_to(interrupt: str, **answer: Any) -> dict[str, Any]:
    return ask(messages=[], resume=[{"interruptId": interrupt, "status": "resolved", **answer}])


@pytest.mark.parametrize("path", ROUTES)
async def test_an_unclear_answer_is_422_with_the_schema_and_the_question_stays_open(path: str) -> None:
    tool = Deletions()
    async with served(calls(("delete", '{"name": "a"}')), says("done"), tools=tool.tools) as s:
        interrupt = await asked(s, path)
        for payload in UNCLEAR:
            status, body = await post(s, answer_to(interrupt, payload=payload), path)
            problem = json.loads(body)
            assert (status, problem["field"], problem["schema"]) == (422, "resume[0].payload", APPROVAL_SCHEMA), payload
        assert (await post(s, answer_to(interrupt), path))[0] == 422, "this client can send a payload"
        assert tool.deleted == []
        status, body = await post(s, answer_to(interrupt, payload={"approved": True}), path)
        assert (status, tool.deleted) == (200, ["a"])
        assert frames(body)[-1][1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize("payload", [False, {"approved": False}, {"approved": False, "reason": "not that one"}])
async def test_a_refusal_is_a_refusal(payload: Any) -> None:
    tool = Deletions()
    async with served(calls(("delete", '{"name": "a"}')), says("done"), tools=tool.tools) as s:
        interrupt = await asked(s, "/awp")
        status, body = await post(s, answer_to(interrupt, payload=payload), "/awp")
        assert (status, tool.deleted) == (200, [])
        (result,) = [data for _, data in frames(body) if data["type"] == "TOOL_CALL_RESULT"]
        assert result["content"].startswith("The user refused this call.")


@pytest.mark.parametrize("approved", ["true", "no", None, 1, 0, [], {}])
async def test_rest_takes_nothing_but_a_boolean(approved: Any) -> None:
    tool = Deletions()
    async with served(calls(("delete", '{"name": "a"}')), says("done"), tools=tool.tools, settings=REST) as s:
        async with s.post({"message": "delete it"}, "/agent/tester/chat") as answer:
            result = await answer.json()
        decision = {"interrupt_id": result["interrupts"][0]["id"], "approved": approved}
        resume = {"session_id": result["session_id"], "resume": [decision]}
        async with s.post(resume, "/agent/tester/chat") as answer:
            assert (answer.status, (await answer.json())["field"]) == (422, "resume[0].approved")
        assert tool.deleted == []
        async with s.post({**resume, "resume": [{**decision, "approved": True}]}, "/agent/tester/chat") as answer:
            assert answer.status == 200
        assert tool.deleted == ["a"]


async def _json(s: Served, body: dict[str, Any], path: str, **headers: str) -> dict[str, Any]:
    async with s.post(body, path, **headers) as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def _refuse_over_agui(s: Served, path: str = "/awp") -> None:
    interrupt = await asked(s, path)
    status, _ = await post(s, answer_to(interrupt, payload={"approved": False, "reason": WHY}), path)
    assert status == 200


async def _refuse_over_rest(s: Served) -> None:
    first = await _json(s, {"message": "delete it"}, "/agent/tester/chat")
    decision = {"interrupt_id": first["interrupts"][0]["id"], "approved": False, "reason": WHY}
    await _json(s, {"session_id": first["session_id"], "resume": [decision]}, "/agent/tester/chat")


async def _refuse_over_responses(s: Served) -> None:
    first = await _json(s, {"input": "delete it"}, "/v1/responses")
    decision = {"type": "mcp_approval_response", "approval_request_id": first["output"][0]["id"], "approve": False}
    again = {"input": [{**decision, "reason": WHY}], "previous_response_id": first["id"]}
    await _json(s, again, "/v1/responses")


async def _refuse_over_ai_sdk(s: Served) -> None:
    user = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "delete it"}]}
    async with s.post({"id": "chat", "messages": [user]}, "/ai-sdk/chat") as answer:
        lines = [json.loads(line[6:]) for line in (await answer.text()).splitlines() if line.startswith("data: {")]
    (question,) = [each for each in lines if each["type"] == "tool-approval-request"]
    part = {
        "type": "dynamic-tool",
        "toolName": "delete",
        "toolCallId": question["toolCallId"],
        "state": "approval-responded",
        "input": {"name": "a"},
        "approval": {"id": question["approvalId"], "approved": False, "reason": WHY},
    }
    answered = {"id": lines[0]["messageId"], "role": "assistant", "parts": [part]}
    async with s.post({"id": "chat", "messages": [user, answered]}, "/ai-sdk/chat") as answer:
        assert answer.status == 200, await answer.text()


async def _refuse_over_a2a(s: Served) -> None:
    async def send(parts: list[Any], **more: Any) -> dict[str, Any]:
        message = {"messageId": f"a2a-{len(more)}", "role": "ROLE_USER", "parts": parts, **more}
        task: dict[str, Any] = (await _json(s, {"message": message}, "/a2a/message:send", **{"A2A-Version": "1.0"}))["task"]  # fmt: skip
        return task

    task = await send([{"text": "delete it"}])
    (question,) = [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]
    decision = {"interruptId": question["interruptId"], "approved": False, "reason": WHY}
    await send([{"data": decision}], taskId=task["id"])


async def _refuse_over_mcp(s: Served) -> None:
    async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        async with s.post(body, "/mcp", **headers) as answer:
            text = await answer.text()
        given = text if text.startswith("{") else text.rpartition("data: ")[2]
        found: dict[str, Any] = json.loads(given)["result"]["structuredContent"]
        return found

    first = await call("ask", {"message": "delete it"})
    decision = {"id": first["approvals"][0]["id"], "approved": False, "reason": WHY}
    await call("continue", {"session": first["session"], "decisions": [decision]})


async def test_the_reason_of_a_refusal_reaches_the_model_on_every_wire() -> None:
    ways = (
        _refuse_over_agui, _refuse_over_rest, _refuse_over_responses, _refuse_over_ai_sdk, _refuse_over_a2a, _refuse_over_mcp,
    )  # fmt: skip
    tool = Deletions()
    turns = (calls(("delete", '{"name": "a"}')), says("As you wish.")) * len(ways)
    async with served(*turns, tools=tool.tools, settings=ALL) as s:
        for refuse in ways:
            await refuse(s)
            assert s.model.prompts[-1].messages[-1].content == f"{REFUSED} Their reason: {WHY}", refuse
        assert tool.deleted == []


def _no_then(yes: str) -> Callable[[str], str]:
    """Writes the member of each refusal a second time, as a yes."""
    return lambda body: re.sub(r'"(approved?)": false', rf'"\1": false, {yes}: true', body)


def _all_again(body: str) -> str:
    """Writes the member of the body that decides a second time, with a yes for each no in it."""
    name, value = next(each for each in json.loads(body).items() if ": false" in json.dumps(each[1]))
    return f"{body[:-1]}, {json.dumps(name)}: {json.dumps(value).replace(': false', ': true')}}}"


TWICE: dict[str, Callable[[str], str]] = {
    "a yes after a no": _no_then(r'"\1"'),
    "a no after a yes": lambda body: re.sub(r'"(approved?)": false', r'"\1": true, "\1": false', body),
    "with other spaces": _no_then(r'"\1"\n '),
    "with an escape": lambda body: re.sub(r'"a(pproved?)": false', r'"a\1": false, "\\u0061\1": true', body),
    "with a character that is dropped": _no_then(r'"\1\\u0000"'),
    "in the object around it": _all_again,
}


class Meddler:
    """Sends each refusal with names that are given twice, before it is sent as it is."""

    def __init__(self, s: Served, tool: Deletions) -> None:
        self._s, self._tool = s, tool
        self.refused: list[tuple[str, str]] = []

    @asynccontextmanager
    async def post(self, body: dict[str, Any], path: str, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        text = json.dumps(body)
        for name, change in TWICE.items() if re.search(r'"approved?": false', text) else ():
            assert change(text) != text
            async with self._s.post(change(text).encode(), path, **headers) as answer:
                problem = await answer.text()
            assert "no approval was recorded" in problem, (path, name, answer.status, problem)
            assert answer.status in (400, 422) or "error" in json.loads(problem)
            self.refused.append((path, name))
        assert self._tool.deleted == []
        async with self._s.post(body, path, **headers) as answer:
            yield answer


@pytest.mark.req("FAC-07")
async def test_a_body_that_decides_twice_decides_nothing_on_every_wire() -> None:
    """Parsers differ in which of two members counts: what a proxy lets through as a no must not be a yes here."""
    ways = (
        _refuse_over_agui, partial(_refuse_over_agui, path="/copilotkit"), _refuse_over_rest, _refuse_over_responses,
        _refuse_over_ai_sdk, _refuse_over_a2a, _refuse_over_mcp,
    )  # fmt: skip
    tool = Deletions()
    turns = (calls(("delete", '{"name": "a"}')), says("As you wish.")) * len(ways)
    async with served(*turns, tools=tool.tools, settings=ALL) as s:
        meddler = Meddler(s, tool)
        for refuse in ways:
            await refuse(cast("Served", meddler))
            assert s.model.prompts[-1].messages[-1].content == f"{REFUSED} Their reason: {WHY}", refuse
        assert len(meddler.refused) == len(ways) * len(TWICE)
        assert tool.deleted == []


async def test_a_form_that_decides_twice_decides_nothing() -> None:
    tool = Deletions()
    async with served(calls(("delete", '{"name": "a"}')), says("well"), tools=tool.tools, settings=REST) as s:
        first = await _json(s, {"message": "delete it"}, "/agent/tester/chat")
        no = json.dumps([{"interrupt_id": first["interrupts"][0]["id"], "approved": False}])
        yes = no.replace("false", "true")
        for resumes in ([no, yes], [yes, no], [TWICE["a yes after a no"](no)]):
            form = aiohttp.FormData({"session_id": first["session_id"]}, default_to_multipart=True)
            for each in resumes:
                form.add_field("resume", each)
            async with s.client.post(f"{s.url}/agent/tester/chat", data=form) as answer:
                assert (answer.status, "no approval was recorded" in await answer.text()) == (422, True)
        assert tool.deleted == []


@pytest.mark.parametrize("name", ["a yes after a no", "a no after a yes"])
def test_a_form_of_mcp_that_decides_twice_decides_nothing(name: str) -> None:
    answer = {"i1": {"action": "accept", "content": {"decision": "approve", "approved": False}}}
    params = {"requestState": "r", "inputResponses": answer}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert jsonrpc.decode(body.encode()).params == params
    with pytest.raises(jsonrpc.RpcError, match="no approval was recorded"):
        jsonrpc.decode(TWICE[name](body).encode())
    interrupt = Interrupt(id="i1", tool="pay", arguments="{}", message="?", call_id="c")
    typed = {"i1": {"action": "accept", "content": {"decision": "approve", "arguments": '{"sum": 1, "sum": 1000}'}}}
    with pytest.raises(InvalidRequest, match="no approval was recorded"):
        form_answers(typed, [interrupt])


async def test_a_reason_is_text_and_not_too_long() -> None:
    tool = Deletions()
    async with served(calls(("delete", '{"name": "a"}')), says("done"), tools=tool.tools) as s:
        interrupt = await asked(s, "/awp")
        for wrong in (7, {"a": 1}, "x" * 2001):
            status, body = await post(s, answer_to(interrupt, payload={"approved": False, "reason": wrong}), "/awp")
            assert (status, json.loads(body)["field"]) == (422, "resume[0].payload.reason")
        status, _ = await post(s, answer_to(interrupt, payload={"approved": False, "reason": "  "}), "/awp")
        assert (status, s.model.prompts[-1].messages[-1].content) == (200, REFUSED)
