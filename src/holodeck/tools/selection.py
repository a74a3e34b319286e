"""Some of a toolset's tools: the ones the agent's author wants, and which of them need a person's agreement.

Asking the person is the loop's business; here a tool only gets its mark.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from holodeck.core.tools import Approval, ToolResult, ToolSchema
from holodeck.errors import StartError
from holodeck.tools.names import label_of, suggestion, unknown_tool
from holodeck.tools.port import ToolContext, Toolset, ToolsetHealth

logger = logging.getLogger(__name__)


class SelectedToolset:
    """`include` None means all.

    A name that the server does not have is a StartError: a typing mistake in `exclude` or `approval` would leave a tool
    open that somebody meant to close.
    """

    def __init__(
        self,
        inner: Toolset,
        *,
        include: Collection[str] | None = None,
        exclude: Collection[str] = (),
        approval: Mapping[str, Approval] | None = None,
    ) -> None:
        self._inner = inner
        self._include = None if include is None else frozenset(include)
        self._exclude = frozenset(exclude)
        self._approval = dict(approval or {})
        self._names_checked = False

    async def start(self) -> None:
        await self._inner.start()
        problem = self._misnamed()
        if problem:
            await self._inner.close()
            raise StartError(problem)

    async def close(self) -> None:
        await self._inner.close()

    def health(self) -> Sequence[ToolsetHealth]:
        return self._inner.health()

    def schemas(self) -> Sequence[ToolSchema]:
        problem = self._misnamed()
        if problem:  # a server that was not there at the start has come
            logger.warning("%s", problem)
        return [self._marked(schema) for schema in self._inner.schemas() if self._selected(schema.name)]

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if not self._selected(name):
            return unknown_tool(name, [schema.name for schema in self.schemas()])
        return await self._inner.call(name, arguments, context)

    def _selected(self, name: str) -> bool:
        return name not in self._exclude and (self._include is None or name in self._include)

    def _marked(self, schema: ToolSchema) -> ToolSchema:
        approval = self._approval.get(schema.name, schema.approval)
        return schema if approval == schema.approval else msgspec.structs.replace(schema, approval=Approval(approval))

    def _misnamed(self) -> str | None:
        """What is wrong with the names, said once, as soon as the server's own names are known."""
        if self._names_checked or not all(each.ready for each in self._inner.health()):
            return None
        self._names_checked = True
        known = [schema.name for schema in self._inner.schemas()]
        named = sorted({*(self._include or ()), *self._exclude, *self._approval} - set(known))
        if not named:
            return None
        label = label_of(self._inner)
        return "; ".join(f"{label} has no tool '{name}'{suggestion(name, known)}" for name in named)
