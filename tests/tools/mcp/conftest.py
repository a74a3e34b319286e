"""Rogue servers as fixtures."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from tests.processes import NewChildren
from tests.tools.mcp.rogue_client import Rogue, rogue_settings


@pytest.fixture
async def rogue(tmp_path: Path) -> AsyncIterator[Callable]:
    """`await rogue("mode", timeout=1)` starts one; it is closed, and must be gone, at the end."""
    children = NewChildren()
    async with AsyncExitStack() as stack:

        @asynccontextmanager
        async def running(settings: McpSettings) -> AsyncIterator[McpToolset]:
            toolset = McpToolset(settings)
            try:
                await toolset.start()
                yield toolset
            finally:
                await toolset.close()

        async def start(*modes: str, **changes: Any) -> Rogue:
            journal = tmp_path / "journal"
            toolset = await stack.enter_async_context(running(rogue_settings(journal, *modes, **changes)))
            return Rogue(toolset, journal)

        yield start
    assert not children.now()
