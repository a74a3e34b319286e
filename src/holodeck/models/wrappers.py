"""A model behind a circuit breaker: while the breaker is open, calls fail at once instead of waiting for the endpoint.

One call of the loop counts once, after the client's own retries. Failures of the endpoint count: no connection, a broken
response, overload, silence. A refusal (bad key, prompt too long or not allowed, a page that is not an API) does not: the
endpoint is up, and its message helps the user more than "not available".
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
from holodeck.models.port import Listener, Model, ModelReply, Prompt, WrappedModel
from holodeck.resilience.breaker import CircuitBreaker

COUNTED = (ModelUnreachable, ModelInterrupted, ModelTruncated, ModelTimeout, ModelUnavailable)


class GuardedModel(WrappedModel):
    """Raises ModelUnavailable at once while the breaker is open, before the first delta, so that a fallback can take over.

    `check` asks the endpoint even then.
    """

    def __init__(self, model: Model, breaker: CircuitBreaker) -> None:
        super().__init__(model)
        self._breaker = breaker

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
        except BaseException as error:  # a call that was stopped, a defect of ours
            if isinstance(error, asyncio.CancelledError) and listener.ended_in_silence():
                admission.failed("It sent nothing before the step's timeout.")
            else:
                admission.withdrawn()
            raise
        admission.succeeded()
        return reply

    def _not_available(self) -> ModelUnavailable:
        seconds = self._breaker.retry_after
        return ModelUnavailable(
            f"The model {self.name} has failed several times in a row and is left alone for a while. "
            f"Try again in {max(1, math.ceil(seconds))} s.",
            retry_after=seconds,
        )
