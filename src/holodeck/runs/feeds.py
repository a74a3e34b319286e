"""Who wants to know of the runs of a session as they start: readers of `GET /sessions/{id}/events`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from holodeck.core.owner import OwnedId

T = TypeVar("T")


class SessionFeeds(Generic[T]):
    """Callbacks by session. Each is called with every run that starts, and with None when no more follow."""

    def __init__(self) -> None:
        self._calls: dict[OwnedId, list[Callable[[T | None], None]]] = {}
        self._closed = False

    @contextmanager
    def subscribed(self, session: OwnedId, call: Callable[[T | None], None]) -> Iterator[None]:
        self._calls.setdefault(session, []).append(call)
        if self._closed:
            call(None)
        try:
            yield
        finally:
            calls = self._calls[session]
            calls.remove(call)
            if not calls:
                del self._calls[session]

    def started(self, session: OwnedId, run: T) -> None:
        for call in self._calls.get(session, ()):
            call(run)

    def end(self, session: OwnedId) -> None:
        """The session was deleted."""
        for call in self._calls.get(session, ()):
            call(None)

    def close(self) -> None:
        """No run starts any more."""
        self._closed = True
        for session in self._calls:
            self.end(session)
