"""The context window of a model: by its name, or as its endpoint reports it. `model.context_window` overrides both.

Only models of OpenAI, Anthropic and Google are in the table: what a local server can read is its operator's choice, and no name
shows it. A figure that is too low costs a long conversation its oldest turns a little early; one that is too high costs one
refused request, after which the conversation is shown from a later point.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence

from holodeck.errors import HoloDeckError
from holodeck.models.offered import OfferedModel

log = logging.getLogger(__name__)

SECONDS = 5.0  # timeout for an endpoint's list of models; one step waits for it
_KNOWN = tuple(
    (re.compile(pattern), window)
    for pattern, window in (
        (r"gpt-4\.1", 1_047_576),
        (r"gpt-5.*chat", 128_000),
        (r"gpt-[5-9]|codex", 400_000),
        (r"gpt-4o|chatgpt-4o|gpt-4-turbo|gpt-4-(0125|1106)", 128_000),
        (r"gpt-4-32k", 32_768),
        (r"gpt-4", 8_192),
        (r"gpt-3\.5-turbo", 16_385),
        (r"o1-(mini|preview)", 128_000),
        (r"o[1-9](-|$)", 200_000),
        (r"claude-", 200_000),
        (r"gemini-1\.5-pro", 2_097_152),
        (r"gemini-", 1_048_576),
    )
)
_BEFORE_NAME = re.compile(r"^.*/|^(?:[a-z]+\.)?anthropic\.")  # the prefix of a gateway, or of Bedrock
_LARGEST_RESERVE = 16_000  # tokens for an answer whose length the file does not limit
_SAFE = 0.75  # estimates count four characters as a token; code and non-Latin text need more


def known_window(model: str) -> int | None:
    """The context window of a model by its name, even behind a gateway (`openai/gpt-4.1`); None if it is not known."""
    name = _BEFORE_NAME.sub("", model.lower())
    return next((window for pattern, window in _KNOWN if pattern.match(name)), None)


def room_for_history(window: int, max_tokens: int | None) -> int:
    """Estimated tokens of a conversation that fit into the window beside an answer."""
    reserve = min(max_tokens or _LARGEST_RESERVE, window // 4)
    return int((window - reserve) * _SAFE)


class ReportedWindow:
    """The window that an endpoint reports for its model, asked for when a conversation grows long.

    `tokens` is the room for a conversation beside an answer of `max_tokens`; None while it is not known. An endpoint that
    reports nothing is not asked again; a conversation that is too long for it is then cut after its refusal.
    """

    def __init__(
        self, model: str, ask: Callable[[], Awaitable[Sequence[OfferedModel]]], max_tokens: int | None = None
    ) -> None:
        self.tokens: int | None = None
        self._model, self._ask, self._max_tokens = model, ask, max_tokens
        self._asked: asyncio.Lock | None = asyncio.Lock()  # None after the request was made

    async def learn(self) -> None:
        """Asks the endpoint once. Never raises."""
        lock = self._asked
        if lock is None:
            return
        async with lock:
            if self._asked is not None:
                self.tokens = await self._found()
                self._asked = None

    async def _found(self) -> int | None:
        try:
            async with asyncio.timeout(SECONDS):
                offered = await self._ask()
        except (HoloDeckError, TimeoutError, OSError) as error:
            log.debug("the context window of %s is not known: %s", self._model, error)
            return None
        own = [each for each in offered if each.id == self._model] or (offered if len(offered) == 1 else ())
        window = next((each.context_window for each in own if each.context_window), None)
        if window is None:
            return None
        log.info("the endpoint reports a context window of %d tokens for %s", window, self._model)
        return room_for_history(window, self._max_tokens)
