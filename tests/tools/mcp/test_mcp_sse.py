"""Servers over the older HTTP+SSE transport: a real one, and ones that do not open the stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from holodeck.errors import StartError
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from holodeck.tools.port import ToolContext
from tests.ports import free_port
from tests.tools.mcp.real_http import serving, serving_sse


@asynccontextmanager
async def connected(url: str, **changes: Any) -> AsyncIterator[McpToolset]:
    settings = {"name": "old", "url": url, "transport": "sse", "timeout": 30.0, "required": True, **changes}
    toolset = McpToolset(McpSettings(**settings))
    await toolset.start()
    try:
        yield toolset
    finally:
        await toolset.close()


def adder() -> MCPServer:
    server = MCPServer("real")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool()
    def much(size: int) -> str:
        """Says much."""
        return "x" * size

    return server


async def test_a_server_of_the_official_sdk_over_sse():
    async with serving_sse(adder()) as url, connected(url) as toolset:
        assert [schema.name for schema in toolset.schemas()] == ["add", "much"]
        results = await asyncio.gather(
            *(toolset.call("add", {"a": number, "b": 1}, ToolContext(user_id="alice")) for number in range(5))
        )
        assert [result.text for result in results] == ["1", "2", "3", "4", "5"]


async def test_an_answer_over_the_limit_ends_the_call_and_not_the_agent():
    async with serving_sse(adder()) as url, connected(url, max_line_bytes=100_000) as toolset:
        failed = await toolset.call("much", {"size": 500_000}, ToolContext(user_id="alice"))
        assert failed.failed
        result = await toolset.call("add", {"a": 1, "b": 1}, ToolContext(user_id="alice"))
        assert result.text == "2"


async def test_a_server_without_sse_is_reported_at_the_start():
    with pytest.raises(StartError, match="cannot be reached"):
        async with connected(f"http://127.0.0.1:{free_port()}/sse"):
            pass
    async with serving(adder()) as url:
        with pytest.raises(StartError, match=r"answered with HTTP 40\d. Check its `url`"):
            async with connected(url.replace("/mcp", "/sse")):
                pass


async def test_a_server_of_the_older_kind_is_named_where_the_newer_one_fails():
    async with serving_sse(adder()) as url:
        with pytest.raises(StartError, match="transport: sse"):
            async with connected(url, transport=None):
                pass
