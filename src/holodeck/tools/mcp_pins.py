"""Pins the tools of one server: a tool that the model was once shown under a name must not change.

A server that changes a tool's description or schema after people have come to trust it (a "rug pull") loses that tool
until HoloDeck is restarted. Pins outlive the server's restarts, not ours. This module does not talk to the server.
"""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holodeck.core.json_values import MAX_DEPTH, depth_exceeds
from holodeck.core.text import clean, one_line, shorten
from holodeck.core.tools import TOOL_NAME, ToolSchema
from holodeck.tools.mcp_wire import ListedTool

MAX_DESCRIPTION = 10_000

_log = logging.getLogger(__name__)


class PinnedTools:
    """The tools that may be offered now. `schemas` is the same object until the tools change.

    `results` are the schemas of structured results, of the tools that declare one.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._pins: dict[str, str] = {}
        self._withdrawn: set[str] = set()
        self.tools: dict[str, ToolSchema] = {}
        self.schemas: Sequence[ToolSchema] = ()
        self.results: dict[str, dict[str, Any]] = {}

    def update(self, listed: Iterable[ListedTool]) -> None:
        """Replaces the previous listing with a complete new one."""
        offered: dict[str, ToolSchema] = {}
        results: dict[str, dict[str, Any]] = {}
        for tool in listed:
            if refusal := self._refusal(tool, offered):
                details = {"server": self._server, "tool": one_line(tool.name), "reason": refusal}
                _log.warning("tool_refused", extra={"details": details})
            elif self._unchanged(tool):
                offered[tool.name] = ToolSchema(
                    name=tool.name,
                    description=shorten(clean(tool.description or ""), MAX_DESCRIPTION),
                    parameters=tool.input_schema,
                    repeatable=tool.repeatable,
                )
                if tool.output_schema is not None and not depth_exceeds(tool.output_schema, MAX_DEPTH):
                    results[tool.name] = tool.output_schema
        self.tools, self.results, self.schemas = offered, results, tuple(offered.values())

    def _refusal(self, tool: ListedTool, offered: dict[str, ToolSchema]) -> str | None:
        if not TOOL_NAME.fullmatch(tool.name):
            return "a tool's name is 1 to 64 of A-Z, a-z, 0-9, _ and -"
        if tool.name in offered:
            return "there are two tools of this name"
        if depth_exceeds(tool.input_schema, MAX_DEPTH):
            return f"its schema is nested deeper than {MAX_DEPTH} levels"
        return None

    def _unchanged(self, tool: ListedTool) -> bool:
        fingerprint = _fingerprint(tool)
        pinned = self._pins.setdefault(tool.name, fingerprint)
        if pinned != fingerprint and tool.name not in self._withdrawn:
            self._withdrawn.add(tool.name)
            _log.warning("tool_changed", extra={"details": {"server": self._server, "tool": tool.name}})
        return tool.name not in self._withdrawn


def _fingerprint(tool: ListedTool) -> str:
    seen_by_model = [tool.name, tool.description, tool.input_schema]
    return hashlib.sha256(msgspec.json.encode(seen_by_model, order="deterministic")).hexdigest()
