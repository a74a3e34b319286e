"""Wrappers of models: a circuit breaker, a price, fallbacks."""

import asyncio
import math
from collections.abc import Sequence

from msgspec.structs import replace

from holodeck.errors import (
    ModelAuthFailed,
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelTimeout,
    ModelTruncated,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.models.port import Listener, Model, ModelReply, Prompt, WrappedModel
from holodeck.models.price import Price
from holodeck.resilience.breaker import CircuitBreaker

FALLBACK_WARNING = "model-fallback"
COUNTED = (ModelUnreachable, ModelInterrupted, ModelTruncated, ModelTimeout, ModelUnavailable)


class GuardedModel(WrappedModel):
    """A model behind a circuit breaker.

    Raises ModelUnavailable at once while the breaker is open, before the first delta, so that a fallback can take over.
    `check` asks the endpoint even then. One call of the loop counts once, after the client's own retries. Failures of the
    endpoint count: no connection, a broken response, overload, silence. A refusal (bad key, prompt too long or not allowed,
    a page that is not an API) does not: the endpoint is up, and its message helps the user more than "not available".
    """

    def __init__(self, model: Model, breaker: CircuitBreaker) -> None:
        super().__init__(model)
        self._breaker = breaker

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        admission = self._breaker.admit()
        if admission is None:
            seconds = self._breaker.retry_after
            raise ModelUnavailable(
                f"The model {self.name} has failed several times in a row and is not called for a while. "
                f"Try again in {max(1, math.ceil(seconds))} s.",
                retry_after=seconds,
            )
        try:
            reply = await self._model.reply(prompt, listener)
        except COUNTED as error:
            admission.failed(error.message)
            raise
        except ModelError:
            admission.succeeded()
            raise
        except BaseException as error:  # a cancelled call, or a bug of ours
            if isinstance(error, asyncio.CancelledError) and listener.timed_out_without_output():
                admission.failed("It sent nothing before the step's timeout.")
            else:
                admission.withdrawn()
            raise
        admission.succeeded()
        return reply


class PricedModel(WrappedModel):
    """Adds the cost to each reply, from the token counts of the endpoint.

    A cost that the gateway reports itself wins: it includes discounts, caching and tiers.
    """

    def __init__(self, model: Model, price: Price) -> None:
        super().__init__(model)
        self._price = price

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        reply = await self._model.reply(prompt, listener)
        usage = reply.usage
        if usage is None or usage.cost is not None:
            return reply
        return replace(reply, usage=replace(usage, cost=self._price.of(usage)))


class FallbackModel(WrappedModel):
    """Several models in order: when one fails before its first delta, the next one answers.

    Only failures of the endpoint or the key lead to the next model: a bad request would fail there as well.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise ValueError("FallbackModel needs at least one model")
        super().__init__(models[0])  # the others are checked when it fails
        self._models = tuple(models)

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        for model, following in zip(self._models, self._models[1:], strict=False):
            try:
                return await _reply_of(model, prompt, listener)
            except ModelError as error:
                if error.started or not _helps_to_change(error):
                    raise
                listener.warning(FALLBACK_WARNING, f"{model.name} failed ({error.reason}); {following.name} answers.")
        return await _reply_of(self._models[-1], prompt, listener)

    async def close(self) -> None:
        for model in self._models:
            await model.close()


async def _reply_of(model: Model, prompt: Prompt, listener: Listener) -> ModelReply:
    """Calls the model, and sets its name on the reply or the error."""
    try:
        reply = await model.reply(prompt, listener)
    except ModelError as error:
        error.model = error.model or model.name
        raise
    return reply if reply.model else replace(reply, model=model.name)


def _helps_to_change(error: ModelError) -> bool:
    return error.retryable or error.of_model or isinstance(error, ModelAuthFailed | ModelProtocolError)
