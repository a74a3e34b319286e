"""A model whose price is known: what each reply cost, from the tokens that the endpoint counted.

A gateway that says the cost itself knows it better: discounts, caches and tiers are its own.
"""

from msgspec.structs import replace

from holodeck.core.usage import Price
from holodeck.models.port import Listener, Model, ModelReply, Prompt, WrappedModel


class PricedModel(WrappedModel):
    def __init__(self, model: Model, price: Price) -> None:
        super().__init__(model)
        self._price = price

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        reply = await self._model.reply(prompt, listener)
        usage = reply.usage
        if usage is None or usage.cost is not None:
            return reply
        return replace(reply, usage=replace(usage, cost=self._price.of(usage)))
