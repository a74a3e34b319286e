"""An AG-UI stream that begins while the request's files are being read, to show the page that is being recognised.

Text recognition takes seconds a page. The server reads files before the run starts, so that it can refuse an unreadable
file with a status. From the first scanned page on it streams instead, and a refusal becomes RUN_ERROR. The stream
begins with the run's RUN_STARTED and continues with the run's events after it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar

from holodeck.core.encoder import Encoder, bare
from holodeck.core.events import ActivityShown, Event, RunStarted, failure
from holodeck.core.ids import new_message_id
from holodeck.errors import HoloDeckError, InternalError
from holodeck.runs.middleware import NumberedEvents
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.streaming_response import Cursor, EventStream
from holodeck.wires.sse import FrameEncoder

log = logging.getLogger(__name__)

FILE = "file"  # the kind of the activity


class ScanProgress:
    """The page that is being read. The file reader calls `report` before each page."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # a file → its activity, which each page replaces
        self._pending: list[ActivityShown] = []
        self.begun = asyncio.Event()
        self.wake: Callable[[], None] = lambda: None  # before the stream begins there is nothing to wake

    def report(self, name: str, page: int, pages: int) -> None:
        id_ = self._ids.setdefault(name, new_message_id())
        content = {"name": name, "status": f"page {page} of {pages}", "progress": page - 1, "total": pages}
        self._pending.append(ActivityShown(message_id=id_, kind=FILE, content=content))
        self.begun.set()
        self.wake()

    @property
    def has_more(self) -> bool:
        return bool(self._pending)

    def take(self) -> list[Event]:
        taken: list[Event] = [*self._pending]
        self._pending.clear()
        return taken


async def started_or_reading(
    starting: Coroutine[Any, Any, Run], progress: ScanProgress
) -> tuple[Run | None, "asyncio.Task[Run]"]:
    """Waits until the run has started or the first scanned page is being read. Raises if the run is refused."""
    start, reading = asyncio.ensure_future(starting), asyncio.ensure_future(progress.begun.wait())
    try:
        await asyncio.wait({start, reading}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        start.cancel()
        raise
    finally:
        reading.cancel()
    return (start.result() if start.done() else None), start


class ReadingStream(EventStream):
    """Streams the pages being read, then the run.

    If the client disconnects, the files are still read; then the run's grace period starts.
    """

    def __init__(
        self,
        server: AgentServer,
        started: RunStarted,
        start: "asyncio.Task[Run]",
        progress: ScanProgress,
        encoder: Encoder,
    ) -> None:
        super().__init__(server.runs, (), server.settings.block, content_type=encoder.content_type)
        self._server, self._middleware = server, server.middleware()
        self._started, self._start, self._progress, self._encoder = started, start, progress, encoder

    async def _stream(self) -> None:
        await self._write(self._encoded([(0, self._started)]))
        self._progress.wake = self._wake
        self._start.add_done_callback(lambda _: self._wake())
        while not self._start.done() and not self._left:
            await self._write(self._encoded([(None, event) for event in self._progress.take()]))
            await self._more()
        if self._left:
            self._start.add_done_callback(self._give_grace)
        elif (run := await self._run()) is not None:
            self._cursors.append(Cursor(run, _WithoutStart(self._encoder), 0, self._server.middleware()))
            self._runs.attach(run)
            await super()._stream()

    def _encoded(self, batch: NumberedEvents) -> bytes:
        return self._encoder.encode_many(self._middleware(batch))

    async def _more(self) -> None:
        """Waits for the next page or for the run. Sends a comment when idle."""
        if self._progress.has_more or self._start.done():
            return
        await self._woken()
        if self._silent:
            await self._write(self._encoder.keepalive)

    async def _run(self) -> Run | None:
        """Returns the run, or None if the request was refused; then the stream already has its ending."""
        try:
            return self._start.result()
        except HoloDeckError as error:
            refused = error
        except Exception:  # the status is already sent: an exception has to become an ending, not a broken stream
            log.exception("a run could not be started")
            refused = InternalError()
        ending = failure(self._started.run_id, self._started.session_id, refused)
        await self._write(self._encoded([(1, ending)]), final=True)
        return None

    def _give_grace(self, start: "asyncio.Task[Run]") -> None:
        """The run starts without a reader, so its grace period begins now."""
        if not start.cancelled() and start.exception() is None:
            self._runs.attach(start.result())
            self._runs.detach(start.result())


class _WithoutStart(FrameEncoder):
    """The encoder of a stream whose client already has the run's beginning."""

    content_type: ClassVar[str] = ""  # the head of the answer is sent
    needs_all_events: ClassVar[bool] = False
    shows_metadata: ClassVar[bool] = True

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def keepalive(self) -> bytes:
        return self._encoder.keepalive

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        return self._encoder.encode_many((n, event) for n, event in batch if not isinstance(bare(event), RunStarted))
