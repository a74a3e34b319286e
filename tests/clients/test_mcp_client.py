"""The official MCP SDK for Python as a client of the agent, in both eras of the protocol, over HTTP and standard input."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from holodeck.core.tools import ToolResult
from holodeck.models.scripted import Turn, calls, says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.agent_fixture import PlainTools, echo
from tests.clients.driving import node
from tests.server.serving import Served, served

pytestmark = pytest.mark.req("SRV-26")

ALL = ServerSettings(protocols=tuple(WIRES))
ERAS = ["auto", "legacy"]
VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}
SECONDS = 60.0


@asynccontextmanager
async def client_of(
    *turns: Turn, mode: Any, tools: PlainTools | None = None, **more: Any
) -> AsyncIterator[tuple[Client, Served]]:
    async with (
        served(*turns, settings=ALL, tools=tools) as s,
        Client(f"{s.url}/mcp", mode=mode, read_timeout_seconds=SECONDS, **more) as client,
    ):
        yield client, s


def text_of(result: CallToolResult) -> str:
    (part,) = result.content
    assert part.type == "text"
    return part.text


@pytest.mark.req("FAC-04")
@pytest.mark.parametrize("mode", ERAS)
async def test_a_conversation(mode: str) -> None:
    async with client_of(says("Hello"), says("Again"), mode=mode) as (client, s):
        assert client.protocol_version == VERSIONS[mode]
        assert client.server_info is not None
        assert (client.server_info.name, "For tests" in (client.instructions or "")) == ("tester", True)
        assert (await client.list_tools()).tools[0].name == "ask"
        first = await client.call_tool("ask", {"message": "Hi"})
        second = await client.call_tool("ask", {"message": "And?", "session": first.structured_content["session"]})
    assert (text_of(first), text_of(second)) == ("Hello", "Again")
    assert [each.content for each in s.model.prompts[-1].messages] == ["Hi", "Hello", "And?"]


@pytest.mark.parametrize("mode", ERAS)
async def test_progress(mode: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def progress(value: float, _total: float | None, message: str | None) -> None:
        seen.append((value, message))

    turns = [calls(("echo", '{"a": 1}')), says("done")]
    async with client_of(*turns, mode=mode, tools=PlainTools(echo=echo)) as (client, _):
        result = await client.call_tool("ask", {"message": "do it"}, progress_callback=progress)
    assert text_of(result) == "done"
    assert [value for value, _ in seen] == [1, 2]
    assert seen[0][1] == '→ echo {"a": 1}'


@pytest.mark.parametrize("approve", [True, False])
async def test_the_client_shows_the_form_and_calls_again_by_itself(*, approve: bool) -> None:
    deleted: list[Any] = []
    shown: list[str] = []

    async def delete(arguments: dict[str, Any], _context: object) -> ToolResult:
        deleted.append(arguments)
        return ToolResult(content="deleted")

    async def person(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        shown.append(params.message)
        refusal: dict[str, str] = {} if approve else {"reason": "not that one"}
        return ElicitResult(action="accept", content={"decision": "approve" if approve else "reject", **refusal})

    tools = PlainTools(frozenset({"delete"}), delete=delete)
    turns = [calls(("delete", '{"name": "a"}')), says("finished")]
    async with client_of(*turns, mode="auto", tools=tools, elicitation_callback=person) as (client, s):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ask", "wait"]
        result = await client.call_tool("ask", {"message": "delete it"})
        given = str(s.model.prompts[-1].messages[-1].content)
    assert text_of(result) == "finished"
    assert ("not that one" in given) is not approve
    assert deleted == ([{"name": "a"}] if approve else [])
    assert 'delete {"name": "a"}' in shown[0]


@pytest.mark.parametrize("mode", ERAS)
async def test_errors_are_those_of_the_sdk(mode: str) -> None:
    async with client_of(mode=mode) as (client, _):
        with pytest.raises(MCPError) as refused:
            await client.call_tool("ask", {})
        assert refused.value.error.code == -32602
        assert "message" in refused.value.error.message
        with pytest.raises(MCPError):
            await client.call_tool("no such tool", {})


@pytest.mark.req("FAC-04")
@pytest.mark.parametrize("mode", ERAS)
async def test_over_standard_input(mode: Any, tmp_path: Path) -> None:
    """`holodeck mcp`, as a desktop client starts it. The second process reads what the first one stored."""
    agent = {"name": "tester", "description": "For tests", "model": {"provider": "demo", "name": "demo"}}
    (tmp_path / "agent.yaml").write_text(json.dumps(agent))
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "holodeck", "mcp", str(tmp_path / "agent.yaml")],
        env={**os.environ},
    )
    session = None
    for _ in range(2):
        async with Client(command, mode=mode, read_timeout_seconds=SECONDS) as client:
            assert client.protocol_version == VERSIONS[mode]
            asked = {"message": "Hello", **({"session": session} if session else {})}
            result = await client.call_tool("ask", asked)
            assert text_of(result)
            assert session in (None, result.structured_content["session"])
            session = result.structured_content["session"]


@pytest.mark.parametrize("body", [b"", b'{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n'])
async def test_standard_input_may_be_a_file(body: bytes, tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("name: tester\nmodel: {provider: demo}\n")
    (tmp_path / "requests").write_bytes(body)
    with (tmp_path / "requests" if body else Path(os.devnull)).open("rb") as stdin:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holodeck", "mcp", str(tmp_path)), stdin=stdin, stdout=asyncio.subprocess.PIPE
        )
    async with asyncio.timeout(SECONDS):
        out, _ = await process.communicate()
    assert process.returncode == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == ([7] if body else [])


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_sdks_for_javascript(era: str) -> None:
    """The newer package and the older one, which most programs still carry."""
    turns = [calls(("echo", '{"a": 1}')), says("done")]
    async with served(*turns, settings=ALL, tools=PlainTools(echo=echo)) as s:
        scenarios = [{"name": "asks", "arguments": {"message": "Hi"}}, {"name": "asks nothing", "arguments": {}}]
        asked, refused = await asyncio.to_thread(node, "mcp_driver.mjs", f"{s.url}/mcp", era, scenarios=scenarios)
    assert asked["tools"] == ["ask", "continue", "wait"]
    assert asked["result"]["content"] == [{"type": "text", "text": "done"}]
    assert asked["progress"][0] == '→ echo {"a": 1}'
    assert "message" in refused["result"]["error"]
