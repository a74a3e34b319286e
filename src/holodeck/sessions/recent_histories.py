"""Whole histories of the long conversations that runs were asked about last.

A run reads the end of its session. A client that lacks messages is sent all of them, so that a session with such a client
would be read whole in each turn. Here it is kept from one turn to the next, and the end that the run has read says whether
it still holds: another process may have added to the session, or cut it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from holodeck.core.history import History
from holodeck.core.messages import Message
from holodeck.core.owner import OwnedId, Owner

MAX_BYTES = 16 * 1024 * 1024  # of all together


class _Kept(NamedTuple):
    history: History
    size: int


class RecentHistories:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._kept: dict[OwnedId, _Kept] = {}  # least recently used first
        self._size = 0

    async def whole(
        self,
        session: OwnedId,
        earlier: int,
        messages: Sequence[Message],
        older: Callable[[], Awaitable[Sequence[Message]]],
    ) -> History:
        """The history that ends with these `messages`, and has so many `earlier` ones; `older` reads those."""
        kept = self._kept.get(session)
        history = None if kept is None else _grown(kept.history, earlier, messages)
        if history is None:
            history = History([*(await older()), *messages])
        self._keep(session, history)
        return history

    def forget(self, owner: Owner, session_id: str | None = None) -> None:
        """Drops a session that was deleted, or all of an owner."""
        for session in [(owner, session_id)] if session_id else [each for each in self._kept if each[0] == owner]:
            self._drop(session)

    def _keep(self, session: OwnedId, history: History) -> None:
        self._drop(session)
        size = history.size
        if size > self._max:
            return
        self._kept[session] = _Kept(history, size)
        self._size += size
        while self._size > self._max:
            self._drop(next(iter(self._kept)))

    def _drop(self, session: OwnedId) -> None:
        kept = self._kept.pop(session, None)
        if kept is not None:
            self._size -= kept.size


def _grown(history: History, earlier: int, messages: Sequence[Message]) -> History | None:
    """The history with what came after it; None if it is not the beginning of this conversation.

    Its last message decides: what comes before a message never changes while it is stored. A message that a user has
    changed keeps its id, but another run has stored it.
    """
    place = len(history) - earlier - 1
    if not 0 <= place < len(messages) or history.last is None:
        return None
    ours, theirs = history.last, messages[place]
    if (ours.id, ours.run_id, ours.timestamp) != (theirs.id, theirs.run_id, theirs.timestamp):
        return None
    return history.extended(messages[place + 1 :])
