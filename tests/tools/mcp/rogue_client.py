"""What tests do with a rogue server: call it, read its journal, wait for it."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.core.tools import ToolResult
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_toolset import McpToolset
from holodeck.tools.port import ToolContext, ToolsetHealth

ROGUE = Path(__file__).with_name("rogue.py")


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Waits for what is not announced: another process's file, its death."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.01)


@dataclass
class Rogue:
    toolset: McpToolset
    journal: Path

    async def call(self, tool: str, /, arguments: dict[str, Any] | None = None, **context: Any) -> ToolResult:
        return await self.toolset.call(tool, arguments or {}, ToolContext(user_id="alice", **context))

    async def pid(self) -> int:
        return int((await self.call("pid")).text)

    def seen(self, entry: str) -> int:
        return self.journal.read_text().splitlines().count(entry)

    def names(self) -> set[str]:
        return {schema.name for schema in self.toolset.schemas()}

    @property
    def health(self) -> ToolsetHealth:
        return self.toolset.health()[0]


def rogue_settings(journal: Path, *modes: str, **changes: Any) -> McpSettings:
    journal.touch()
    args = ("-I", "-S", str(ROGUE), str(journal), *modes)
    quick = {"timeout": 10.0, "required": False}
    return McpSettings(**{"name": "rogue", "command": sys.executable, "args": args, **quick, **changes})
