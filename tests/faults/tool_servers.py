"""The MCP servers of the matrix: one behind stdin and stdout, one over HTTP, both rogues. Their journals record what came."""

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.mcp.rogue_client import ROGUE
from tests.tools.mcp.rogue_http import RogueHttp, rogue_http

CALL_SECONDS = (
    3.0  # long enough for 50 MB of an answer on a busy machine, and longer than the grace of a client that left
)
BOTH_HAVE = ["echo", "hang"]


@dataclass
class ToolServers:
    journal: Path
    web: RogueHttp

    def blocks(self) -> list[dict[str, Any]]:
        return [
            rogue_block(self.journal),
            {"name": "web", "type": "mcp", "url": self.web.url, "timeout": CALL_SECONDS, "exclude": BOTH_HAVE},
        ]

    def calls(self) -> Counter[str]:
        """How often each tool was called, by what the servers wrote down."""
        return calls_in(self.journal) + Counter(
            entry.rpartition(" ")[2] for entry in self.web.journal if entry.startswith("POST tools/call")
        )


def calls_in(journal: Path) -> Counter[str]:
    lines = journal.read_text().splitlines() if journal.exists() else []
    return Counter(line.split(" ")[1] for line in lines if line.startswith("tools/call "))


def rogue_block(journal: Path, *modes: str, **more: Any) -> dict[str, Any]:
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.touch()
    arguments = ["-I", "-S", str(ROGUE), str(journal), *modes]
    block = {"name": "rogue", "type": "mcp", "command": sys.executable, "args": arguments, "timeout": CALL_SECONDS}
    return {**block, **more}


@asynccontextmanager
async def tool_servers(folder: Path) -> AsyncIterator[ToolServers]:
    async with rogue_http() as web:
        yield ToolServers(folder / "rogue.journal", web)
