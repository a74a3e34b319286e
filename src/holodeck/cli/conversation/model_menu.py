"""The models that a chat can change to: fetched from the endpoint once, when the user first asks for them."""

import asyncio

from holodeck.config.build_model import offered_models
from holodeck.config.load import LoadedConfig
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
