"""Readers of runs on the wires of named events. Remembers each run's wire: who comes back, gets the same stream."""

from collections.abc import Callable
from typing import TypeAlias
from weakref import WeakKeyDictionary

from starlette.requests import Request

from holodeck.runs.runs import Run
from holodeck.server.agent_server import AgentServer
from holodeck.server.stream import Cursor, EventStream
from holodeck.wires.encoder import Encoder

MakeEncoder: TypeAlias = Callable[[Run], Encoder]  # must not hold the run itself: it would never be forgotten


class NamedEventReaders:
    def __init__(self, server: AgentServer) -> None:
        self._server = server
        self._makers: WeakKeyDictionary[Run, MakeEncoder] = WeakKeyDictionary()

    def remember(self, run: Run, make: MakeEncoder) -> None:
        """The wire of the one who started it: a duplicate that joins may like it told otherwise, and is told so itself."""
        self._makers.setdefault(run, make)

    def begin(self, run: Run, make: MakeEncoder) -> EventStream:
        self.remember(run, make)
        return self._stream(run, make, 0)

    def follow(self, run: Run, first: int) -> EventStream | None:
        """The run from event `first` on; None if it was started on another wire."""
        make = self._makers.get(run)
        return None if make is None else self._stream(run, make, first)

    def _stream(self, run: Run, make: MakeEncoder, first: int) -> EventStream:
        encoder = make(run)
        encoder.encode_many(enumerate(run.log.since(0, first)))  # it has to have heard the story so far
        return EventStream(
            self._server.runs,
            [Cursor(run, encoder, first)],
            self._server.settings.streams,
            content_type=encoder.content_type,
        )


def named_event_readers_of(request: Request) -> NamedEventReaders:
    readers: NamedEventReaders = request.app.state.named_events
    return readers


def milliseconds_of(run: Run) -> int:
    """How long a run took, or has taken so far."""
    return round(run.seconds * 1000)
