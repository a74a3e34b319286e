"""A model behind a circuit breaker: while the breaker is open, nobody waits for an endpoint that does not answer.

One call of the loop counts once, after the client's own retries. What counts as a failure is the endpoint's: no
connection, a broken answer, overload, silence. A refusal (a bad key, a question that is too long or not allowed, a page
that is no API) proves that somebody is there, and its message helps more than "not available" would.
"""

import asyncio
import math

from holodeck.errors import (
    ModelError,
    ModelInterrupted,
    ModelTimeout,
    ModelTruncated,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.models.port import Listener, Model, ModelReply, Prompt
from holodeck.resilience.breaker import CircuitBreaker
from holodeck.resilience.step_timeout import ended_in_silence

COUNTED = (ModelUnreachable, ModelInterrupted, ModelTruncated, ModelTimeout, ModelUnavailable)


class GuardedModel:
    """Raises ModelUnavailable at once while the breaker is open, before anything is said: a fallback can take over."""

    def __init__(self, model: Model, breaker: CircuitBreaker) -> None:
        self._model = model
        self._breaker = breaker

    @property
    def name(self) -> str:
        return self._model.name

    def __repr__(self) -> str:
        return f"GuardedModel({self._model!r})"

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        admission = self._breaker.admit()
        if admission is None:
            raise self._not_available()
        try:
            reply = await self._model.reply(prompt, listener)
        except COUNTED as error:
            admission.failed(error.message)
            raise
        except ModelError:
            admission.succeeded()
            raise
        except asyncio.CancelledError:
            if ended_in_silence():
                admission.failed("It said nothing until the time of the step was over.")
            raise
        else:
            admission.succeeded()
            return reply
        finally:
            admission.withdrawn()  # for what is none of the above: a call that was stopped, a defect of ours

    async def check(self) -> None:
        """Always asks: whoever checks wants to know how it is now."""
        await self._model.check()

    async def close(self) -> None:
        await self._model.close()

    def _not_available(self) -> ModelUnavailable:
        seconds = self._breaker.retry_after
        return ModelUnavailable(
            f"The model {self.name} has failed several times in a row and is left alone for a while. "
            f"Try again in {max(1, math.ceil(seconds))} s.",
            retry_after=seconds,
        )
