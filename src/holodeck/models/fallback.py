"""Several models in order: when one fails before its first delta, the next one answers."""

from collections.abc import Sequence

from msgspec.structs import replace

from holodeck.errors import ModelAuthFailed, ModelError, ModelProtocolError
from holodeck.models.port import Listener, Model, ModelReply, Prompt

FALLBACK_WARNING = "model-fallback"


class FallbackModel:
    """Only failures of the endpoint or the key move on: what was asked wrongly stays wrong with another model."""

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise ValueError("FallbackModel needs at least one model")
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return self._models[0].name

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        for model, following in zip(self._models, self._models[1:], strict=False):
            try:
                return await _reply_of(model, prompt, listener)
            except ModelError as error:
                if error.started or not _helps_to_change(error):
                    raise
                listener.warning(FALLBACK_WARNING, f"{model.name} failed ({error.reason}); {following.name} answers.")
        return await _reply_of(self._models[-1], prompt, listener)

    async def check(self) -> None:
        """The first model has to be there. The others are for when it is not."""
        await self._models[0].check()

    async def close(self) -> None:
        for model in self._models:
            await model.close()


async def _reply_of(model: Model, prompt: Prompt, listener: Listener) -> ModelReply:
    """The reply, or the failure, with the name of the model that it comes from."""
    try:
        reply = await model.reply(prompt, listener)
    except ModelError as error:
        error.model = error.model or model.name
        raise
    return reply if reply.model else replace(reply, model=model.name)


def _helps_to_change(error: ModelError) -> bool:
    return error.retryable or isinstance(error, ModelAuthFailed | ModelProtocolError)
