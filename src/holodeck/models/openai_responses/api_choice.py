"""`model.api: auto`: the API that suits the model, and the other one when the endpoint does not serve it."""

import logging
import re
from urllib.parse import urlsplit

from holodeck.models.port import Listener, Model, ModelReply, Prompt
from holodeck.models.settings import EndpointSettings
from holodeck.models.streamed import ApiNotServed

log = logging.getLogger(__name__)

OPENAI_HOST = "api.openai.com"
_REASONING = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d)(?!.*chat)|codex|computer-use)")


def is_openai_reasoning(settings: EndpointSettings) -> bool:
    """Whether this is one of OpenAI's own reasoning models at OpenAI: only the Responses API keeps their thoughts.

    The name decides, because nothing else is known before the first request.
    """
    endpoint = (settings.endpoint or "").strip()
    at_openai = urlsplit(endpoint).hostname == OPENAI_HOST if endpoint else settings.provider == "openai"
    return at_openai and _REASONING.match(settings.model) is not None


class ChosenApiModel:
    """Uses the preferred API. Switches to the other one for good when the endpoint does not serve the preferred one."""

    def __init__(self, preferred: tuple[str, Model], other: tuple[str, Model]) -> None:
        """The same model by two APIs, each with the API's name."""
        self._preferred, self._other = preferred, other
        self._settled: Model | None = None

    @property
    def name(self) -> str:
        return self._preferred[1].name

    def __repr__(self) -> str:
        return f"ChosenApiModel({self._preferred!r}, {self._other!r})"

    async def reply(self, prompt: Prompt, listener: Listener) -> ModelReply:
        if self._settled is not None:
            return await self._settled.reply(prompt, listener)
        (api, model), (other_api, other) = self._preferred, self._other
        try:
            reply = await model.reply(prompt, listener)
        except ApiNotServed as error:
            reply = await self._ask_other(prompt, listener, error)
            log.warning("%s is not available through the API %s; %s is used from now on", self.name, api, other_api)
            self._settled = other
        return reply

    async def _ask_other(self, prompt: Prompt, listener: Listener, error: ApiNotServed) -> ModelReply:
        try:
            return await self._other[1].reply(prompt, listener)
        except ApiNotServed:
            raise error from None

    async def check(self) -> None:
        await self._preferred[1].check()

    async def close(self) -> None:
        await self._preferred[1].close()
        await self._other[1].close()
