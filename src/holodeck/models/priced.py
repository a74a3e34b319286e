"""A model whose price is known: what each reply cost, from the tokens that the endpoint counted.

A gateway that says the cost itself knows it better: discounts, caches and tiers are its own.
"""

from msgspec.structs import replace

from holodeck.core.usage import Price
from holodeck.models.port import Listener, Model, ModelReply, Prompt


class PricedModel:
    def __init__(self, model: Model, price: Price) -> None:
        self._model = model
        self._price = price

    @property
    def name(self) -> str:
        return self._model.name

    def __repr__(self) -> str:
        return f"PricedModel({self._model!r})"

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        reply = await self._model.reply(prompt, listener)
        usage = reply.usage
        if usage is None or usage.cost is not None:
            return reply
        return replace(reply, usage=replace(usage, cost=self._price.of(usage)))

    async def check(self) -> None:
        await self._model.check()

    async def close(self) -> None:
        await self._model.close()
