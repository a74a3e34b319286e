"""An agent that starts while the user already types: the first message waits for it, the prompt does not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import get_args

from pydantic import ValidationError

from holodeck.agent.agent import Agent
from holodeck.config.build import build_agent
from holodeck.config.build_model import build_model
from holodeck.config.load import LoadedConfig
from holodeck.config.model_schema import ModelChoice, Provider
from holodeck.errors import ConfigError


class StartingAgent:
    def __init__(self, config: LoadedConfig, *, max_messages: int, after: Callable[[], Awaitable[object]]) -> None:
        """`after` is awaited first, so that imports do not hold up the prompt."""
        self.config = config
        self.choice: ModelChoice = config.agent.model  # as it is now
        self._max_messages = max_messages
        self._after = after
        self.task = asyncio.create_task(self._start(), name="start of the agent")
        self._agent: Agent | None = None

    @property
    def failed(self) -> bool:
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)

    async def get(self) -> Agent:
        """The agent, as soon as it is ready. Raises what its start raised."""
        await asyncio.shield(self.task)
        if self._agent is None:
            raise RuntimeError("the start ended without an agent")
        return self._agent

    async def use_model(self, name: str) -> Agent:
        """Another model from now on: `name` or `provider/name`. Raises ConfigError, ModelError; then nothing changes."""
        before = await self.get()
        changed = _with_model(self.config, name)
        model = build_model(changed, before.breakers)
        try:
            await model.check()
        except BaseException:
            await model.close()
            raise
        self._agent, self.choice = replace(before, model=model), changed.agent.model
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
        # In a thread, because it imports what the agent needs: much work, if a tool server is to be spoken to over HTTP.
        agent = await asyncio.to_thread(build_agent, self.config)
        try:
            await agent.start()
            if not self.config.agent.model.fallback:  # else another one will answer
                await agent.model.check()
        except BaseException:
            await agent.close()
            raise
        self._agent = replace(agent, max_messages=min(agent.max_messages, self._max_messages))


def _with_model(config: LoadedConfig, name: str) -> LoadedConfig:
    """The same configuration with another model in it, checked as the file was."""
    settings = config.agent.model
    provider, slash, rest = name.partition("/")
    changed: dict[str, object] = {"name": name}
    if (slash and provider in get_args(Provider)) or name == "demo":
        changed = {"provider": provider, "name": rest}
        if provider != settings.provider:  # another's address and key are no use to it
            changed |= {"endpoint": None, "api_key": None, "auth_token": None, "betas": []}
    if (settings.provider, settings.name) != (changed.get("provider", settings.provider), changed["name"]):
        changed["price"] = None  # another's as well
    try:
        model = type(settings).model_validate({**settings.model_dump(), "fallback": [], **changed})
    except ValidationError as error:
        raise ConfigError(f"{name}: {error.errors()[0]['msg']}") from None  # its own text may repeat a secret
    return replace(config, agent=config.agent.model_copy(update={"model": model}))
