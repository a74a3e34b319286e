"""A stream for clients that do not wait long: after a while it ends with a last frame, and the run goes on without it."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.stream import Cursor, EventStream
from holodeck.server.sync_answer import left


class TimedStream(EventStream):
    """`late` makes the last frame after `seconds`; `on_leave` is called when the client left before the end."""

    def __init__(
        self,
        server: AgentServer,
        cursor: Cursor,
        *,
        seconds: float,
        late: Callable[[], Awaitable[bytes]],
        on_leave: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(server.runs, (cursor,), server.settings.streams, content_type=cursor.encoder.content_type)
        self._seconds, self._late, self._on_leave = seconds, late, on_leave
        self._expired = False

    async def _stream(self) -> None:
        timer = self._loop.call_later(self._seconds, self._expire)
        try:
            await super()._stream()
        finally:
            timer.cancel()
        if self._expired:
            await self._write(await self._late(), final=True)

    def _expire(self) -> None:
        self._expired = True
        super()._leave()

    def _leave(self) -> None:
        if not self._expired and not self._left and self._on_leave is not None:
            self._on_leave()
        super()._leave()


async def ends_within(run: Run, seconds: float, receive: Receive) -> bool:
    """Whether a run ends in so many seconds. ClientDisconnect if the client leaves first."""
    if run.log.ended or run.task is None:
        return True
    leaving = asyncio.create_task(left(receive))
    try:
        done, _ = await asyncio.wait({leaving, run.task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
    if leaving in done and not run.log.ended:
        raise ClientDisconnect
    return run.log.ended
