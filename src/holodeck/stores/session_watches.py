"""Wakes waiters when runs of a session have begun or ended. It does not know where the news comes from."""

import asyncio
import contextlib
from collections.abc import Callable

from holodeck.core.owner import OwnedId


class SessionWatches:
    """The watches of one process.

    `on_first` and `on_last` are called with a session that gets its first or loses its last.
    """

    def __init__(self) -> None:
        self._watches: dict[OwnedId, set[_Watch]] = {}
        self.on_first: Callable[[OwnedId], None] = lambda _session: None
        self.on_last: Callable[[OwnedId], None] = lambda _session: None

    def __bool__(self) -> bool:
        """Whether any session is watched."""
        return bool(self._watches)

    def open(self, session: OwnedId) -> "_Watch":
        watch = _Watch(self, session)
        if session not in self._watches:
            self._watches[session] = set()
            self.on_first(session)
        self._watches[session].add(watch)
        return watch

    def watched(self) -> list[OwnedId]:
        return list(self._watches)

    def changed(self, session: OwnedId) -> None:
        for watch in self._watches.get(session, ()):
            watch.has_changed.set()

    def close(self, session: OwnedId, watch: "_Watch") -> None:
        watches = self._watches.get(session, set())
        watches.discard(watch)
        if not watches and self._watches.pop(session, None) is not None:
            self.on_last(session)


class _Watch:
    def __init__(self, watches: SessionWatches, session: OwnedId) -> None:
        self._watches, self._session = watches, session
        self.has_changed = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # `wait_for` may lose a cancellation
                await self.has_changed.wait()
        self.has_changed.clear()

    def close(self) -> None:
        self._watches.close(self._session, self)
