"""Several toolsets as one.

A tool's name belongs to the toolset that had it first, for as long as the agent runs: a server cannot take over
another's tool by adding one of the same name later, not even while the other restarts (T26).
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.errors import StartError
from holodeck.tools.names import label_of, unknown_tool
from holodeck.tools.port import ToolContext, Toolset, ToolsetHealth

logger = logging.getLogger(__name__)

MAX_TOOLS = 128  # T18


class CombinedToolset:
    def __init__(self, toolsets: Sequence[Toolset]) -> None:
        self._toolsets = tuple(toolsets)
        self._owners: dict[str, Toolset] = {}
        self._hidden: set[tuple[str, int]] = set()  # what has been warned about

    async def start(self) -> None:
        """All at once. When one cannot start, those that did are closed again."""
        starts = [asyncio.create_task(toolset.start()) for toolset in self._toolsets]
        try:
            await asyncio.gather(*starts)
            self._take_names()
        except BaseException:
            for task in starts:
                task.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.close()
            raise

    async def close(self) -> None:
        outcomes = await asyncio.gather(*(each.close() for each in self._toolsets), return_exceptions=True)
        for toolset, outcome in zip(self._toolsets, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                logger.error("%s could not be closed", label_of(toolset), exc_info=outcome)

    def health(self) -> Sequence[ToolsetHealth]:
        return [each for toolset in self._toolsets for each in toolset.health()]

    def schemas(self) -> Sequence[ToolSchema]:
        offered = []
        for toolset, schema in self._all():
            if schema.name not in self._owners and len(self._owners) < MAX_TOOLS:
                self._owners[schema.name] = toolset
            if self._owners.get(schema.name) is toolset:
                offered.append(schema)
            else:
                self._hide(schema.name, toolset)
        return offered

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        owner = self._owners.get(name)
        if owner is None:
            return unknown_tool(name, self._owners)
        return await owner.call(name, arguments, context)

    def _all(self) -> Iterator[tuple[Toolset, ToolSchema]]:
        return ((toolset, schema) for toolset in self._toolsets for schema in toolset.schemas())

    def _take_names(self) -> None:
        owners: dict[str, Toolset] = {}
        for toolset, schema in self._all():
            other = owners.setdefault(schema.name, toolset)
            if other is not toolset:
                both = f"{label_of(other)} and {label_of(toolset)}"
                raise StartError(
                    f"{both} both have a tool '{schema.name}'; leave it out of one with include or exclude"
                )
        if len(owners) > MAX_TOOLS:
            raise StartError(f"there are {len(owners)} tools, at most {MAX_TOOLS} can be offered; choose with include")
        self._owners = owners

    def _hide(self, name: str, toolset: Toolset) -> None:
        if (name, id(toolset)) in self._hidden:
            return
        self._hidden.add((name, id(toolset)))
        owner = self._owners.get(name)
        why = f"{label_of(owner)} has one of that name" if owner else f"there are {MAX_TOOLS} already"
        logger.warning("tool_hidden: %s of %s is not offered: %s", name, label_of(toolset), why)
