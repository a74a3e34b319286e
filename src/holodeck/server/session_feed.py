"""`GET /sessions/{id}/events`: all runs of a session, one after the other, on whatever wire they start."""

from collections import deque
from collections.abc import Sequence

from holodeck.core.events import failure
from holodeck.core.owner import OwnedId
from holodeck.errors import HoloDeckError
from holodeck.runs.run import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.stream import Cursor, EventStream, place_of
from holodeck.wires import sse
from holodeck.wires.agui.encode import encoder_for
from holodeck.wires.agui.profile import Profile

MAX_SHOWN = 50  # runs whose events are counted


class SessionFeed(EventStream):
    """Sends AG-UI events with ids `<run>:<n>` until the client leaves, the session is deleted or the server stops.

    It begins with the events so far of the session's runs in progress. A reader that reconnects begins after the event
    that it names, as long as that run can be replayed.
    """

    def __init__(self, server: AgentServer, session: OwnedId, after: tuple[str, int] | None = None) -> None:
        beginning = sse.KEEPALIVE  # the server sends the head of an answer with its first bytes
        super().__init__(server.runs, (), server.settings.streams, content_type=sse.CONTENT_TYPE, prefix=beginning)
        self._server, self._session, self._after = server, session, after
        self._next: deque[tuple[Run, int] | None] = deque()
        self._failure: HoloDeckError | None = None
        self._shown: dict[str, int] = {}  # the number of the next event, by run

    async def _stream(self) -> None:
        stored = self._server.stored_runs
        with self._runs.feeds.subscribed(self._session, self._started):
            async with stored.announced(self._session, self._started):
                self._next.extendleft(reversed(await self._first()))
                await self._write(self._prefix)
                while not self._left:
                    if not self._next:
                        await self._more()
                    elif (one := self._next.popleft()) is None:
                        break
                    else:
                        await self._show(*one)
        if not self._left:
            await self._send({"type": "http.response.body", "body": self._last_event(), "more_body": False})

    def _last_event(self) -> bytes:
        """Sends RUN_ERROR if runs are no longer announced."""
        if self._failure is None:
            return b""
        _, session_id = self._session
        return encoder_for(None, Profile.FULL, "").encode(failure("", session_id, self._failure))

    async def _first(self) -> list[tuple[Run, int]]:
        """Returns the runs to begin with, and the number of the first event to show of each."""
        owner, session_id = self._session
        stored = self._server.stored_runs
        if self._after is not None:
            run_id, number = self._after
            found = await stored.since(run_id, session_id, owner=owner)
            if found:
                return [(run, number + 1 if run.run_id == run_id else 0) for run in found]
        runs = await stored.of_session(session_id, owner=owner)
        return [(run, 0) for run in runs if not run.log.ended]

    async def _show(self, run: Run, first: int) -> None:
        """Shows a run from event `first` on, with all of its parts, and no event twice.

        A run may be announced twice: it is known here, or this process takes it over, while its copy is being followed.
        """
        encoder = encoder_for(None, Profile.FULL, run.run_id)
        parts: Sequence[Run] = run.parts if run.is_remote or first else (run,)
        while parts:
            for part in parts:
                first = max(first, self._shown.get(run.run_id, 0))
                with self._runs.attached(part, returns=True):
                    cursor = Cursor(part, encoder, place_of(part, first, encoder), self._server.chain())
                    await self._follow(cursor, last=False)
                self._shown[run.run_id] = max(self._shown.get(run.run_id, 0), part.first_number + cursor.place)
            later = parts[-1].later
            parts = () if later is None or self._left else (later,)
        while len(self._shown) > MAX_SHOWN:
            del self._shown[next(iter(self._shown))]

    async def _more(self) -> None:
        """Waits for the next run. Sends a comment when idle."""
        self._waiter = self._loop.create_future()
        await self._waiter
        if self._silent:
            await self._write(sse.KEEPALIVE)

    def _started(self, run: Run | HoloDeckError | None) -> None:
        self._failure = run if isinstance(run, HoloDeckError) else self._failure
        self._next.append((run, 0) if isinstance(run, Run) else None)
        self._wake()
