"""Tools behind circuit breakers: one for the server, one for each of its tools.

Tools of an open breaker are withdrawn: the model is not offered them and is told so (by `ToolsetHealth.withdrawn`),
instead of trying them in a loop. What counts as a failure is what `retryable` marks: the tool could not be reached,
broke off or did not answer in time. A tool that answers with an error works.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.resilience.breaker import Admission, CircuitBreaker, CircuitBreakerConfig, Phase
from holodeck.resilience.breakers import Breakers, Dependency
from holodeck.tools.port import ToolContext, Toolset, ToolsetHealth


class GuardedToolset:
    """`name` is the server's, as the agent file has it."""

    def __init__(self, inner: Toolset, name: str, config: CircuitBreakerConfig, breakers: Breakers) -> None:
        self._inner = inner
        self._name = name
        self._config = config
        self._breakers = breakers
        self._server = breakers.of(Dependency.MCP, name, config)
        self._tools: dict[str, CircuitBreaker] = {}

    async def start(self) -> None:
        await self._inner.start()

    async def close(self) -> None:
        await self._inner.close()

    def schemas(self) -> Sequence[ToolSchema]:
        return [schema for schema in self._inner.schemas() if not self._is_withdrawn(schema.name)]

    def health(self) -> Sequence[ToolsetHealth]:
        withdrawn = tuple(schema.name for schema in self._inner.schemas() if self._is_withdrawn(schema.name))
        states = self._inner.health()
        if self._server.phase is Phase.OPEN:
            detail = f"failed too often, tried again in {self._server.retry_after:.0f} s"
            states = [replace(state, ready=False, detail=detail) for state in states]
        return [replace(state, withdrawn=withdrawn) for state in states] if withdrawn else states

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        tool = self._breaker_of(name)
        on_trial = tool.phase is not Phase.CLOSED
        admissions = self._admitted(tool)
        if admissions is None:
            return ToolResult.failure(
                f"{name} is not available at the moment: it has failed several times in a row. "
                "Do not call it again now; go on without it, or tell the user to try later."
            )
        of_tool, of_server = admissions
        try:
            result = await self._inner.call(name, arguments, context)
            if not (result.failed and result.retryable):
                of_tool.succeeded()
                of_server.succeeded()
            else:
                of_tool.failed(result.text)
                if not on_trial:  # else it is known to be ill: that it still is says nothing about the server
                    of_server.failed(result.text)
            return result
        finally:
            of_tool.withdrawn()
            of_server.withdrawn()

    def _admitted(self, tool: CircuitBreaker) -> tuple[Admission, Admission] | None:
        of_tool = tool.admit()
        if of_tool is None:
            return None
        of_server = self._server.admit()
        if of_server is None:
            of_tool.withdrawn()
            return None
        return of_tool, of_server

    def _is_withdrawn(self, name: str) -> bool:
        tool = self._tools.get(name)
        return self._server.phase is Phase.OPEN or (tool is not None and tool.phase is Phase.OPEN)

    def _breaker_of(self, name: str) -> CircuitBreaker:
        if name not in self._tools:
            offered = {schema.name for schema in self._inner.schemas()}
            self._tools = {each: breaker for each, breaker in self._tools.items() if each in offered}
            self._tools[name] = self._breakers.of(Dependency.TOOL, f"{self._name}.{name}", self._config)
        return self._tools[name]
