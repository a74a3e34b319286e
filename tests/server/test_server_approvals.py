"""Approvals over HTTP fail closed: an answer that is neither a yes nor a no decides nothing (ACC-07)."""

import json
from typing import Any

import pytest

from holodeck.core.tools import ToolResult
from holodeck.models.scripted import calls, says
from holodeck.server.options import ServerSettings
from tests.agent.parts import PlainTools
from tests.server.serving import Served, ask, frames, served

pytestmark = pytest.mark.req("ACC-07")

REST = ServerSettings(protocols=("rest",))
ROUTES = ("/awp", "/copilotkit/agent/default/run", "/copilotkit")
SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "arguments": {"type": "object"}},
    "required": ["approved"],
}
UNCLEAR = [
    "no", None, 0, [], {"decision": "reject"}, {"approve": False}, {"Approved": False}, {"approved": "false"}, {},
    {"approved": None}, {"approved": 1}, "yes",
]  # fmt: skip


class Deletions:
    """A tool that needs approval, and what it deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.tools = PlainTools(frozenset({"delete"}), delete=self.delete)

    async def delete(self, arguments: dict[str, Any], _context: object) -> ToolResult:
        self.deleted.append(arguments["name"])
        return ToolResult(content="deleted")


async def post(s: Served, given: dict[str, Any], path: str) -> tuple[int, bytes]:
    body = {"method": "agent/run", "body": given} if path == "/copilotkit" else given
    async with s.post(body, path) as answer:
        return answer.status, await answer.read()


async def asked(s: Served, path: str) -> str:
    """The id of the interrupt that the first run ends with."""
    _, body = await post(s, ask("delete it"), path)
    outcome = frames(body)[-1][1]["outcome"]
    assert outcome["interrupts"][0]["responseSchema"] == SCHEMA
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
            assert (status, problem["field"], problem["schema"]) == (422, "resume[0].payload", SCHEMA), payload
        assert (await post(s, answer_to(interrupt), path))[0] == 422, "this client can send a payload"
        assert tool.deleted == []
        status, body = await post(s, answer_to(interrupt, payload={"approved": True}), path)
        assert (status, tool.deleted) == (200, ["a"])
        assert frames(body)[-1][1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize("payload", [False, {"approved": False}, {"approved": False, "reason": "not that one"}])
async def test_a_no_is_a_no(payload: Any) -> None:
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
            told = await answer.json()
        decision = {"interrupt_id": told["interrupts"][0]["id"], "approved": approved}
        resume = {"session_id": told["session_id"], "resume": [decision]}
        async with s.post(resume, "/agent/tester/chat") as answer:
            assert (answer.status, (await answer.json())["field"]) == (422, "resume[0].approved")
        assert tool.deleted == []
        async with s.post({**resume, "resume": [{**decision, "approved": True}]}, "/agent/tester/chat") as answer:
            assert answer.status == 200
        assert tool.deleted == ["a"]
