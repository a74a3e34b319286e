"""A cache of whole histories, for long conversations that had a run recently.

A run reads only the end of its session. A client that lacks messages is sent all of them, so a session with such a
client would be read as a whole in each turn. This cache keeps the history from one turn to the next. The end that the
run has read shows whether it is still valid: another process may have added to the session, or cut it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from holodeck.core.messages import History, Message
from holodeck.core.owner import OwnedId, Owner

MAX_BYTES = 16 * 1024 * 1024  # bytes of all histories together


class _RecentHistory(NamedTuple):
    history: History
    size: int


class RecentHistories:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._kept: dict[OwnedId, _RecentHistory] = {}  # least recently used first
        self._size = 0

    async def whole(
        self,
        session: OwnedId,
        earlier: int,
        messages: Sequence[Message],
        older: Callable[[], Awaitable[Sequence[Message]]],
    ) -> History:
        """The history that ends with these `messages` after `earlier` other ones, which `older` reads."""
        kept = self._kept.get(session)
        history = None if kept is None else _grown(kept.history, earlier, messages)
        if history is None:
            history = History([*(await older()), *messages])
        self._keep(session, history)
        return history

    def forget(self, owner: Owner, session_id: str | None = None) -> None:
        """Drops a deleted session, or all sessions of an owner."""
        for session in [(owner, session_id)] if session_id else [each for each in self._kept if each[0] == owner]:
            self._drop(session)

    def _keep(self, session: OwnedId, history: History) -> None:
        self._drop(session)
        size = history.size
        if size > self._max:
            return
        self._kept[session] = _RecentHistory(history, size)
        self._size += size
        while self._size > self._max:
            self._drop(next(iter(self._kept)))

    def _drop(self, session: OwnedId) -> None:
        kept = self._kept.pop(session, None)
        if kept is not None:
            self._size -= kept.size


def _grown(history: History, earlier: int, messages: Sequence[Message]) -> History | None:
    """The history with the messages that came after it. None if it is not the beginning of this conversation.

    Its last message decides: the messages before a stored message never change. A message that a user has edited keeps
    its id, but another run has stored it.
    """
    place = len(history) - earlier - 1
    if not 0 <= place < len(messages) or history.last is None:
        return None
    ours, theirs = history.last, messages[place]
    if (ours.id, ours.run_id, ours.timestamp) != (theirs.id, theirs.run_id, theirs.timestamp):
        return None
    return history.extended(messages[place + 1 :])
