"""The official A2A SDK as a client of the agent: 1.0 over both bindings and 0.3, with streams and without."""

import asyncio
from typing import Any

import pytest

from holodeck.core.tools import ToolResult
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.parts import PlainTools, echo
from tests.clients.driving import Json, python
from tests.server.serving import served

pytestmark = pytest.mark.req("SRV-27")

ALL = ServerSettings(protocols=tuple(WIRES))
BINDINGS = ["JSONRPC", "HTTP+JSON", "0.3"]


async def played(*turns: Turn, tools: PlainTools, asks: list[Any], **how: Any) -> Json:
    async with served(*turns, tools=tools, settings=ALL) as s:
        scenario = {"name": "it", "url": s.url, "asks": asks, **how}
        (result,) = await asyncio.to_thread(python, "a2a_driver.py", [scenario])
    return result


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_message_becomes_a_task(binding: str, *, streaming: bool) -> None:
    turns = [calls(("echo", '{"a": 1}')), says("Hello you")]
    asks = [[{"text": "Hi"}]]
    result = await played(*turns, tools=PlainTools(echo=echo), asks=asks, binding=binding, streaming=streaming)
    task = result["task"]
    assert (result["card"], task["status"]["state"]) == ("tester", "TASK_STATE_COMPLETED")
    assert [part["text"] for each in task["artifacts"] for part in each["parts"]] == ["Hello you"]
    assert task["history"][0]["parts"] == [{"text": "Hi"}]
    if streaming:
        updates = result["updates"]
        assert "task" in updates[0]
        assert updates[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        pieces = [each["artifactUpdate"] for each in updates if "artifactUpdate" in each]
        assert [each.get("append", False) for each in pieces] == [False, True, False]
        assert pieces[-1]["lastChunk"]
        assert pieces[-1]["artifact"]["parts"] == [{"text": "Hello you"}]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_approval_is_a_message_to_the_task(binding: str) -> None:
    deleted: list[Any] = []

    async def delete(arguments: Json, _context: object) -> ToolResult:
        deleted.append(arguments)
        return ToolResult(content="deleted")

    tools = PlainTools(frozenset({"delete"}), delete=delete)
    turns = [calls(("delete", '{"name": "a"}')), says("gone")]
    async with served(*turns, tools=tools, settings=ALL) as s:
        how = {"url": s.url, "binding": binding, "streaming": True}
        (asked,) = await asyncio.to_thread(
            python, "a2a_driver.py", [{"name": "asks", **how, "asks": [[{"text": "Hi"}]]}]
        )
        status = asked["task"]["status"]
        assert (status["state"], deleted) == ("TASK_STATE_INPUT_REQUIRED", [])
        (question,) = [part["data"] for part in status["message"]["parts"] if "data" in part]
        answer = {"data": {"interruptId": question["interruptId"], "approved": True}}
        message = {"messageId": "m2", "role": "ROLE_USER", "parts": [answer], "taskId": asked["task"]["id"]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        async with s.post(body, "/a2a", **{"A2A-Version": "1.0"}) as given:
            task = (await given.json())["result"]["task"]
    assert (task["id"], task["status"]["state"], deleted) == (
        asked["task"]["id"],
        "TASK_STATE_COMPLETED",
        [{"name": "a"}],
    )
