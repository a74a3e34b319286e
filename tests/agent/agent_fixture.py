"""A run in a test: a scripted model, tools that are plain coroutines, and the events it emitted."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holodeck.agent.agent_response import AgentResponse
from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run
from holodeck.agent.settings import AgentLoopConfig
from holodeck.core import grammar
from holodeck.core.events import Event
from holodeck.core.messages import UserMessage, unanswered
from holodeck.core.tools import Approval, ToolResult, ToolSchema
from holodeck.models.scripted import ScriptedModel, Turn
from holodeck.sessions.transcript import Transcript
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.port import ToolContext, ToolsetHealth

_AGENT_FIELDS = ("output", "state", "max_result_characters", "max_messages", "max_tokens", "window", "summarize")
Tool = Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult]]


class PlainTools:
    """A toolset of coroutines. Keeps every call it carried out."""

    def __init__(self, approval: frozenset[str] = frozenset(), schema: dict | None = None, **tools: Tool) -> None:
        self.tools = tools
        self.approval = approval
        self.schema = schema or {"type": "object"}
        self.called: list[tuple[str, dict[str, Any], str]] = []

    async def start(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def schemas(self) -> Sequence[ToolSchema]:
        return [
            ToolSchema(
                name=name,
                parameters=self.schema,
                approval=Approval.ALWAYS if name in self.approval else Approval.NEVER,
            )
            for name in self.tools
        ]

    def health(self) -> Sequence[ToolsetHealth]:
        return []

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        self.called.append((name, arguments, context.user_id))
        return await self.tools[name](arguments, context)


async def echo(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult(content=f"{context.user_id}: {arguments}")


async def broken(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    raise RuntimeError("the tool's own secret")


async def stuck(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError("never reached")


class Deletions:
    """A tool that needs approval, and what it deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.tools = PlainTools(frozenset({"delete"}), delete=self.delete)

    async def delete(self, arguments: dict[str, Any], _context: object) -> ToolResult:
        self.deleted.append(arguments["name"])
        return ToolResult(content="deleted")


class AgentFixture:
    """An agent with its conversation; `play` runs it once and checks what holds for every run."""

    def __init__(self, *turns: Turn, tools: PlainTools | None = None, **settings: Any) -> None:
        self.model = ScriptedModel(turns)
        self.tools = tools or PlainTools(echo=echo, broken=broken, stuck=stuck)
        agent_fields = {key: settings.pop(key) for key in _AGENT_FIELDS if key in settings}
        self.agent = AgentDefinition(
            name="test",
            model=self.model,
            tools=Catalogue.of(self.tools),
            loop=AgentLoopConfig(**settings),
            **agent_fields,
        )
        self.conversation = Transcript()
        self.events: list[Event] = []

    async def play(self, *texts: str, on: Callable[[Event], None] | None = None, **context: Any) -> AgentResponse:
        """`on` gets each event as it is emitted, to cancel or release at an exact point."""
        self.events = []
        pending = self.conversation.pending
        awaiting = frozenset(call.id for call in pending.waiting) if pending else frozenset()

        def emit(event: Event) -> None:
            self.events.append(event)
            if on is not None:
                on(event)

        try:
            return await run(
                self.agent,
                AgentContext(
                    conversation=self.conversation,
                    input=[UserMessage(content=text) for text in texts],
                    user_id=context.pop("user_id", "ada"),
                    **context,
                ),
                emit,
            )
        finally:
            grammar.check(self.events, awaiting)
            assert unanswered(self.conversation.messages) == []

    def emitted(self, kind: type) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    @property
    def ending(self) -> Any:
        return self.events[-1]
