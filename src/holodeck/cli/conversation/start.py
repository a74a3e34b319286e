"""Starts an agent while the user already types: the first message waits for it, the prompt does not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from holodeck.agent.definition import AgentDefinition
from holodeck.config.build import build_agent
from holodeck.config.build_model import build_model, offered_models, shown_tokens
from holodeck.config.load import LoadedConfig, with_model
from holodeck.config.model_schema import ModelChoice
from holodeck.errors import HoloDeckError
from holodeck.models.offered import OfferedModel


class ModelMenu:
    """The models of the agent file's endpoint. A failure is not cached: the next request tries again."""

    def __init__(self, config: LoadedConfig) -> None:
        self._config = config
        self._offered: tuple[OfferedModel, ...] | None = None
        self._asking = asyncio.Lock()

    @property
    def is_fixed(self) -> bool:
        """Whether the file's provider has only one model."""
        return self._config.agent.model.provider == "demo"

    async def offered(self) -> tuple[OfferedModel, ...]:
        """Returns the models. Raises ModelError if the endpoint has no list."""
        async with self._asking:
            if self._offered is None:
                self._offered = await offered_models(self._config)
            return self._offered

    async def names(self) -> tuple[str, ...]:
        """Returns names for completion: none if the endpoint has no list."""
        try:
            return tuple(each.id for each in await self.offered())
        except HoloDeckError:
            return ()


class StartingAgent:
    def __init__(self, config: LoadedConfig, *, max_messages: int, after: Callable[[], Awaitable[object]]) -> None:
        """`after` is awaited first, so that imports do not delay the prompt."""
        self.config = config
        self.choice: ModelChoice = config.agent.model  # as it is now
        self._max_messages = max_messages
        self._after = after
        self.task = asyncio.create_task(self._start(), name="start of the agent")
        self._agent: AgentDefinition | None = None

    @property
    def failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    async def get(self) -> AgentDefinition:
        """Returns the agent as soon as it is ready. Raises what its start raised."""
        await asyncio.shield(self.task)
        if self._agent is None:
            raise RuntimeError("the start ended without an agent")
        return self._agent

    async def use_model(self, name: str) -> AgentDefinition:
        """Switches the model: `name` or `provider/name`. Raises ConfigError, ModelError; then nothing changes."""
        before = await self.get()
        changed = with_model(self.config, name)
        model = build_model(changed, before.breakers)
        try:
            await model.check()
        except BaseException:
            await model.close()
            raise
        self._agent, self.choice = replace(before, model=model, max_tokens=shown_tokens(changed)), changed.agent.model
        await before.model.close()
        return self._agent

    async def close(self) -> None:
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})
        if self._agent is not None:
            await self._agent.close()

    async def _start(self) -> None:
        await self._after()
        # In a thread, because it imports what the agent needs, which takes long for a tool server over HTTP.
        agent = await asyncio.to_thread(build_agent, self.config)
        try:
            await agent.start()
            if not self.config.agent.model.fallback:  # otherwise a fallback will answer
                await agent.model.check()
        except BaseException:
            await agent.close()
            raise
        self._agent = replace(agent, max_messages=min(agent.max_messages, self._max_messages))
