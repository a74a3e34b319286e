"""The toolsets that the contract is run over. Each offers the same three tools: echo, fail and wait.

A new toolset joins with one more entry in CASES: a name and an async context manager that gives a Case whose toolset
has not been started. A tool type of agent.yaml has a case of its own name. A toolset behind a process or a socket needs
its own `started` and `stopped` events; they are how a test knows without waiting that `wait` is running and that it has
been cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from holodeck.resilience.breaker import CircuitBreakerConfig
from holodeck.tools.binding import ToolBinding, toolset_of
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.port import Toolset
from holodeck.tools.rules import ToolRules


@dataclass
class Signals:
    """What happens inside the tool `wait`."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Case:
    toolset: Toolset
    signals: Signals


def _functions(signals: Signals):
    async def echo(text: str, user_id: str = "nobody") -> str:
        """Says it again."""
        return f"{user_id}: {text}"

    def fail() -> None:
        """Fails."""
        raise ValueError("on purpose")

    async def wait() -> None:
        """Waits to be cancelled."""
        signals.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            signals.stopped.set()

    return echo, fail, wait


def _plain(signals: Signals, *, without: str = "") -> FunctionToolset:
    return FunctionToolset([FunctionTool.of(each) for each in _functions(signals) if each.__name__ != without])


def function(signals: Signals) -> Toolset:
    return _plain(signals)


def bindings(signals: Signals) -> Toolset:
    echo, _, wait = _functions(signals)

    async def fail() -> None:
        raise ValueError("on purpose")

    schemas = {tool.schema.name: tool.schema for tool in map(FunctionTool.of, (echo, fail, wait))}
    return toolset_of(
        [
            ToolBinding(
                tool_name=name,
                openai_function_schema={
                    "type": "function",
                    "function": {"name": name, "description": name, "parameters": schemas[name].parameters},
                },
                mcp_tool_reference=reference,
            )
            for name, reference in {"echo": echo, "fail": fail, "wait": wait}.items()
        ]
    )


BOUND = {"user_id": "{user_id}"}


def bound(signals: Signals) -> Toolset:
    return Catalogue([Source(toolset=_plain(signals), rules=ToolRules(bind=BOUND))])


def selected(signals: Signals) -> Toolset:
    return Catalogue([Source(toolset=_plain(signals), rules=ToolRules(include=["echo", "fa*", "wait"]))])


def combined(signals: Signals) -> Toolset:
    only_echo = Source(toolset=_plain(signals), rules=ToolRules(include=["echo"]))
    return Catalogue([only_echo, Source(toolset=Catalogue()), Source(toolset=_plain(signals, without="echo"))])


def everything(signals: Signals) -> Toolset:
    """As config builds it."""
    rules = ToolRules(include=["*"], bind=BOUND)
    return Catalogue([Source(toolset=_plain(signals), name="plain", rules=rules, breaker=CircuitBreakerConfig())])


def in_memory(build: Callable[[Signals], Toolset]) -> Callable[[], AbstractAsyncContextManager[Case]]:
    @asynccontextmanager
    async def case() -> AsyncIterator[Case]:
        signals = Signals()
        yield Case(build(signals), signals)

    return case


CASES: dict[str, Callable[[], AbstractAsyncContextManager[Case]]] = {
    build.__name__: in_memory(build) for build in (function, bindings, bound, selected, combined, everything)
}
