"""Functions that all conversations share: where to cut a history, how much of its end a run needs, what a run holds.

`Transcript` is the simplest conversation, a list: for `run_agent` and for runs that store nothing.
"""

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary, TextPart, UserMessage
from holodeck.core.sizes import MB
from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest, SessionFull
from holodeck.sessions.port import KEEP, Keep, StoredSession


def index_of_message(message_id: str, messages: Sequence[Message]) -> int:
    """The index of this user message. Histories are cut only before user messages, so that no call loses its result."""
    for index, message in enumerate(messages):
        if message.id == message_id and isinstance(message, UserMessage):
            return index
    raise InvalidRequest(f"There is no user message {message_id!r} in this session.", field="from")


def cut_before(stored: StoredSession, message_id: str) -> StoredSession:
    """The session before this user message. A pending step belongs to the part that was cut off."""
    kept = stored.messages[: index_of_message(message_id, stored.messages)]
    return msgspec.structs.replace(stored, messages=kept, pending=None)


def summary_after_cut(summary: Summary | None, remaining: Sequence[Message]) -> Summary | None:
    """The summary, unless it covers messages that were cut off."""
    return summary if summary is not None and summary.rest_of(remaining) is not None else None


def wanted_messages(last: int | None, total: int, summary: Summary | None) -> int:
    """How many messages from the end a run needs: those for the model, and those that its summary does not cover yet.

    At most twice `last`, even if an old summary was never renewed.
    """
    if last is None:
        return total
    uncovered = 0 if summary is None else min(total - summary.messages + 1, 2 * last)
    return min(total, max(last, uncovered))


def size_of(encoded: bytes, messages: int) -> int:
    """The size of messages in a JSON list, in bytes. It does not depend on how many lists they are stored in."""
    return len(encoded) - messages - 1 if messages else 0


def check_room(messages: Sequence[Message], added: int, size: int, max_size: int) -> None:
    """Refuses user messages that do not fit.

    Messages of models and tools are always stored: one run's worth at most.
    """
    if size + added > max_size and any(isinstance(message, UserMessage) for message in messages):
        raise SessionFull(
            f"This conversation would hold more than {max_size / MB:g} MB (sessions.max_mb). Start a new one."
        )


def whole_turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Splits messages before each user message. Each piece is stored in one row, and read as a whole."""
    pieces: list[list[Message]] = []
    for message in messages:
        if not pieces or isinstance(message, UserMessage):
            pieces.append([])
        pieces[-1].append(message)
    return pieces


class SessionChange(msgspec.Struct, frozen=True):
    """What a commit changes in a conversation: the messages to add, and the parts to replace."""

    messages: Sequence[Message]
    pending: PendingStep | Keep | None = None
    state: Any = KEEP
    summary: Summary | Keep | None = KEEP


class Committing(ABC):
    """The two ways to commit, for every conversation."""

    async def commit(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None = None,
        *,
        state: Any = KEEP,
        summary: Summary | Keep | None = KEEP,
        ending: Ending | None = None,
    ) -> None:
        stored = self._begin_commit(SessionChange(messages, pending, state, summary), ending)
        if stored is not None:
            await asyncio.shield(stored)  # the commit completes even if the caller is cancelled

    def end(
        self, messages: Sequence[Message], pending: PendingStep | Keep | None, *, state: Any, ending: Ending
    ) -> "asyncio.Future[Any] | None":
        return self._begin_commit(SessionChange(messages, pending, state), ending)

    @abstractmethod
    def _begin_commit(self, change: SessionChange, ending: Ending | None) -> "asyncio.Future[Any] | None":
        """Starts to store. Durable when the future is done or, if it is None, already."""


class HeldParts:
    """The parts of a conversation that a run has in memory. Subclasses store them."""

    messages: list[Message]
    earlier: int = 0
    pending: PendingStep | None
    state: Any
    summary: Summary | None

    def _add(self, change: SessionChange) -> None:
        self.messages.extend(change.messages)
        if change.pending is not KEEP:
            self.pending = change.pending
        if change.state is not KEEP:
            self.state = change.state
        if change.summary is not KEEP:
            self.summary = change.summary


class AddedAtOnce(Committing):
    """A conversation in memory: what is added is there at once, and no ending is stored with it."""

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> "asyncio.Future[Any] | None":
        self._add(SessionChange(messages, state=state))
        return None

    def _begin_commit(self, change: SessionChange, ending: Ending | None) -> "asyncio.Future[Any] | None":  # noqa: ARG002  see above
        self._add(change)
        return None

    @abstractmethod
    def _add(self, change: SessionChange) -> None: ...


class Transcript(HeldParts, AddedAtOnce):
    def __init__(
        self,
        messages: Iterable[Message] = (),
        *,
        state: Any = None,
        summary: Summary | None = None,
        pending: PendingStep | None = None,
    ) -> None:
        """Drops a summary that does not belong to these messages."""
        self.messages = list(messages)
        self.pending = pending
        self.state = state
        self.summary = None if summary is None or summary.rest_of(self.messages) is None else summary

    async def history(self) -> Sequence[Message]:
        return tuple(self.messages)

    async def stored(self) -> Sequence[Message]:
        return tuple(self.messages)

    async def begin_calls(self, step: PendingStep, *, state: Any = KEEP) -> None:
        self._add(SessionChange((), step, state))

    async def rewind(self, before: str) -> None:
        del self.messages[index_of_message(before, self.messages) :]
        self.pending, self.summary = None, summary_after_cut(self.summary, self.messages)

    def close(self) -> None:
        return None


MAX_TITLE = 60
READ = 4096  # bytes of a stored step that are searched: a document in it may have megabytes

# The first text of a message as JSON: its content, or the text of its first part that has one. Inside a string the
# quotes would be escaped, so no text can look like one of these keys. The match ends before an escape that the last
# byte cuts.
_TEXT = re.compile(rb'"(?:content|text)":"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)')


def title_of(messages: Iterable[Message]) -> str:
    first = next((each.content for each in messages if isinstance(each, UserMessage)), "")
    texts = (first,) if isinstance(first, str) else (part.text for part in first if isinstance(part, TextPart))
    return one_line(next(iter(texts), "")[:READ], MAX_TITLE)


def title_in(step: bytes | None) -> str:
    """The title from the first bytes of a stored step that begins with a user's message."""
    found = _TEXT.search(step or b"")
    if found is None:
        return ""
    text = found[1].decode(errors="ignore")
    return one_line(json.loads(f'"{text}"', strict=False), MAX_TITLE)
