"""`GET /sessions/{id}/events`: all runs of a session, one after the other, as they start on whatever wire."""

from collections import deque

from holodeck.core.owner import OwnedId
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.stream import Cursor, EventStream
from holodeck.wires import sse
from holodeck.wires.agui.negotiate import encoder_for
from holodeck.wires.agui.profile import Profile


class SessionFeed(EventStream):
    """Events of AG-UI with ids `<run>:<n>`, until the client leaves, the session is deleted or the server stops.

    It begins with what the session's runs in progress have shown so far; for a reader that comes back, with what follows
    the event that it names, as long as its run can be read again.
    """

    def __init__(self, server: AgentServer, session: OwnedId, after: tuple[str, int] | None = None) -> None:
        beginning = sse.KEEPALIVE  # an answer's head leaves with its first bytes
        super().__init__(server.runs, (), server.settings.streams, content_type=sse.CONTENT_TYPE, prefix=beginning)
        self._server, self._session, self._after = server, session, after
        self._next: deque[tuple[Run, int] | None] = deque()

    async def _stream(self) -> None:
        with self._runs.feeds.subscribed(self._session, self._started):
            self._next.extendleft(reversed(self._first()))
            await self._write(self._prefix)
            while not self._left:
                if not self._next:
                    await self._more()
                elif (one := self._next.popleft()) is None:
                    break
                else:
                    await self._show(*one)
        if not self._left:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _first(self) -> list[tuple[Run, int]]:
        """The runs to begin with, and the place in the log of each."""
        owner, session_id = self._session
        known = self._runs.of_session(session_id, owner=owner)
        if self._after is not None:
            run_id, number = self._after
            last = next((place for place, run in enumerate(known) if _has(run, run_id, number)), None)
            if last is not None:
                place = max(0, number + 1 - known[last].first_number)
                return [(known[last], min(place, len(known[last].log))), *((run, 0) for run in known[last + 1 :])]
        return [(run, 0) for run in known if not run.log.ended]

    async def _show(self, run: Run, place: int) -> None:
        encoder = encoder_for(None, Profile.FULL, run.run_id)
        with self._runs.attached(run):
            await self._follow(Cursor(run, encoder, place, self._server.chain()), last=False)

    async def _more(self) -> None:
        """Waits for the next run; sends a comment in silence."""
        self._waiter = self._loop.create_future()
        await self._waiter
        if self._silent:
            await self._write(sse.KEEPALIVE)

    def _started(self, run: Run | None) -> None:
        self._next.append(None if run is None else (run, 0))
        self._wake()


def _has(run: Run, run_id: str, number: int) -> bool:
    """Whether an event with this number is of this part of a run."""
    return run.run_id == run_id and run.first_number <= number < run.next_number
