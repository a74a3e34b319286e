"""A chat without a terminal: lines that a test wrote down, an agent that is ready, and what the user was shown."""

import asyncio
import io
from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.agent.definition import AgentDefinition
from holodeck.cli.conversation.attachments import Attachments
from holodeck.cli.conversation.chat_context import ChatContext, ModelMenu, StartingAgent
from holodeck.cli.conversation.chat_store import ChatStore
from holodeck.cli.conversation.local_chat import Chat
from holodeck.cli.conversation.session import ChatConfig, ChatSession, SessionState
from holodeck.cli.paint import Paint
from holodeck.cli.plain_display import JsonDisplay
from holodeck.config.build import build_middleware
from holodeck.config.load import LoadedConfig, load_config
from holodeck.models.scripted import ScriptedModel
from holodeck.runs.middleware import EventMiddleware
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.functions import FunctionToolset


class FixedLines:
    is_typed = True

    def __init__(self, *lines: str | Exception | Awaitable[object]) -> None:
        self.lines = list(lines)
        self.asked: list[tuple[str, str]] = []

    async def read(self, prompt: str) -> str | None:
        return await self.ask(prompt)

    async def ask(self, question: str, default: str = "") -> str | None:
        self.asked.append((question, default))
        line = self.lines.pop(0) if self.lines else None
        if isinstance(line, Exception):
            raise line
        if isinstance(line, Awaitable):
            await line
            return await self.ask(question, default)
        return line


class ReadyAgent(StartingAgent):
    """An agent that has started."""

    def __init__(self, agent: AgentDefinition, config: LoadedConfig) -> None:
        super().__init__(config, max_messages=agent.max_messages, after=partial(asyncio.sleep, 0))
        self._agent = agent

    async def _start(self) -> None:
        await self._after()


@dataclass
class ChatFixture:
    """Everything around one chat; `printed` is what the user sees besides the answers."""

    folder: Path
    model: ScriptedModel
    tools: Any = field(default_factory=lambda: FunctionToolset([]))
    config: ChatConfig = field(default_factory=ChatConfig)
    interactive: bool = True
    max_tokens: int | None = None
    summarize: bool = False
    keeps: bool = False
    sessions: str = ""  # of the agent file
    middleware: str = ""
    printed: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    out: Any = None

    async def converse(self, *lines: str | Exception | Awaitable[object], **options: Any) -> int:
        agent = AgentDefinition(
            name="a",
            model=self.model,
            tools=self.tools if isinstance(self.tools, Catalogue) else Catalogue.of(self.tools),
            max_tokens=self.max_tokens,
            summarize=self.summarize,
            max_messages=self.config.max_messages,
        )
        self.lines = FixedLines(*lines)
        self.loaded = config = self._config()
        self.context = ChatContext(
            config=self.config,
            session=ChatSession(agent_name="a"),
            starting=ReadyAgent(agent, config),
            models=ModelMenu(config),
            store=ChatStore(
                config,
                user_id=self.config.user_id,
                keeps=self.keeps,
                complain=self.printed.append,
            ),
            attachments=Attachments(config),
            display=self.out or JsonDisplay(io.StringIO()),
            say=self.printed.append,
            complain=self.printed.append,
            paint=Paint(enabled=False),
            clipboard=self.copied.append,
            new_middleware=build_middleware(config) or EventMiddleware,
        )
        self.context.session.become(SessionState.ACTIVE)
        async with agent:
            chat = Chat(self.context, self.lines, interactive=self.interactive, **options)
            try:
                return await chat.go()
            finally:
                await chat.close()
                await self.context.store.close()

    def _config(self) -> LoadedConfig:
        file = self.folder / "agent.yaml"
        file.write_text(f"name: a\nmodel: {{provider: demo}}\n{self.sessions}{self.middleware}")
        return load_config(file, environment={})

    @property
    def output(self) -> str:
        return "\n".join(self.printed)

    @property
    def received(self) -> list[str]:
        """The last message of each prompt."""
        return [str(prompt.messages[-1].content) for prompt in self.model.prompts]
