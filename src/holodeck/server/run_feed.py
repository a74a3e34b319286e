"""A stream of the runs of one session, as processes start them.

It knows no wire: subclasses choose the runs and encode them.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from holodeck.access.principal import Principal
from holodeck.core.owner import OwnedId
from holodeck.errors import HoloDeckError, Unauthorized
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.identity import PRINCIPAL
from holodeck.server.streaming_response import EventStream
from holodeck.wires import sse


class RunFeed(EventStream, ABC):
    """Shows one run after the other until the client leaves, its credential expires, the session is deleted or the server stops.

    When the credential expires, the run in progress is shown to its end: only reading another one needs a new credential.
    """

    _principal: Principal

    def __init__(self, server: AgentServer, session: OwnedId, *, prefix: bytes) -> None:
        super().__init__(server.runs, (), server.settings.block, content_type=sse.CONTENT_TYPE, prefix=prefix)
        self._server, self._session = server, session
        # Runs, each with its first event to show; None ends the feed.
        self._next: deque[tuple[Run, int] | None] = deque()
        self._failure: HoloDeckError | None = None  # why runs are no longer announced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._principal = scope[PRINCIPAL]
        await super().__call__(scope, receive, send)

    async def _stream(self) -> None:
        expires = self._principal.expires
        if expires is None:
            await self._show_all()
            return
        expiry = self._loop.call_later(expires - time.time(), self._announced, _expired())
        try:
            await self._show_all()
        finally:
            expiry.cancel()

    async def _show_all(self) -> None:
        last = b""
        with self._runs.feeds.subscribed(self._session, self._announced):
            async with self._server.stored_runs.announced(self._session, self._announced):
                self._next.extendleft(reversed(await self._first()))
                await self._write(self._prefix)
                while not self._left:
                    if not self._next:
                        await self._more()
                    elif (one := self._next.popleft()) is None:
                        last = b"" if self._failure is None else self._error(self._failure)
                        break
                    elif await self._show(*one):
                        break
        if not self._left:
            await self._send({"type": "http.response.body", "body": last, "more_body": False})

    @abstractmethod
    async def _first(self) -> Sequence[tuple[Run, int]]:
        """Returns the runs to show first, each with its first event to show."""

    @abstractmethod
    async def _show(self, run: Run, first: int) -> bool:
        """Sends a run. Returns whether the feed ends with it."""

    @abstractmethod
    def _error(self, error: HoloDeckError) -> bytes:
        """Encodes the reason why runs are no longer announced."""

    def _takes(self, _run: Run) -> bool:
        """Whether a run that was announced is shown."""
        return True

    async def _more(self) -> None:
        """Waits for the next run. Sends a comment when idle, unless the key was given an earlier end meanwhile."""
        await self._woken()
        if self._silent and self._server.access.has_expired(self._principal):
            self._announced(_expired())
        elif self._silent:
            await self._write(sse.KEEPALIVE)

    def _announced(self, run: Run | HoloDeckError | None) -> None:
        if isinstance(run, Run) and self._server.access.has_expired(self._principal):
            run = _expired()
        if not isinstance(run, Run):
            self._failure = run or self._failure
            self._next.append(None)
        elif self._takes(run):
            self._next.append((run, 0))
        else:
            return
        self._wake()


def _expired() -> Unauthorized:
    return Unauthorized("The credential of this stream has expired.", reason="expired")
