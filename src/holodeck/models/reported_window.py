"""The context window that an endpoint reports for its model, asked for when a conversation grows long.

For models that no table knows: a local server reads as much as its operator allows. An endpoint that reports nothing is not
asked again; a conversation that is too long for it is then cut after its refusal.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from holodeck.errors import HoloDeckError
from holodeck.models.context_windows import room_for_history
from holodeck.models.offered import OfferedModel

log = logging.getLogger(__name__)

SECONDS = 5.0  # for the list of models; a step waits for it once


class ReportedWindow:
    """`tokens` is what a conversation may have beside an answer of `max_tokens`; None while it is not known."""

    def __init__(
        self, model: str, ask: Callable[[], Awaitable[Sequence[OfferedModel]]], max_tokens: int | None = None
    ) -> None:
        self.tokens: int | None = None
        self._model, self._ask, self._max_tokens = model, ask, max_tokens
        self._asked: asyncio.Lock | None = asyncio.Lock()  # None: it was asked

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
