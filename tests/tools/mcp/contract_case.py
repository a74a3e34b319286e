"""McpToolset as a case of the contract in tests/contracts: over HTTP, so that the tools can be looked into."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from tests.contracts.toolset_cases import Case, Signals
from tests.tools.mcp.real_http import serving


@asynccontextmanager
async def mcp() -> AsyncIterator[Case]:
    signals = Signals()
    server = MCPServer("contract")

    @server.tool()
    def echo(text: str) -> str:
        """Says it again."""
        return text

    @server.tool()
    def fail() -> None:
        """Fails."""
        raise ToolError("on purpose")

    @server.tool()
    async def wait() -> None:
        """Waits to be cancelled."""
        signals.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            signals.stopped.set()

    async with serving(server) as url:
        yield Case(McpToolset(McpSettings(name="contract", url=url, required=True)), signals)
