"""The conversation of a durable store, as a run sees it: the end of its history, decoded once, and one commit at a time."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.core.owner import OwnedId, Owner
from holodeck.sessions.port import KEEP, Keep
from holodeck.sessions.transcript import HeldParts, check_room, place_of, summary_after_cut
from holodeck.stores import records
from holodeck.stores.session_rows import SessionRow, Step, size_of_steps, steps_of

_Added: TypeAlias = tuple[Sequence[Message], PendingStep | Keep | None, Any, Summary | Keep | None]
"""What a commit adds to the parts in memory: messages, pending step, state, summary."""


class _Store(Protocol):
    max_bytes: int

    def grew(self, owner: Owner, added: int) -> None:
        """The owner stores so many bytes more, or less."""

    def give_back(self, owner: Owner, session_id: str) -> None:
        """The session is no longer in use by a run."""


class StoredConversation(HeldParts, ABC):
    """What the stores have in common; each of them implements how it reads and writes."""

    def __init__(self, store: _Store, session: OwnedId, row: SessionRow, messages: list[Message]) -> None:
        self._keeper, (self._owner, self._session_id) = store, session
        self._row, self.messages = row, messages
        self.earlier = row.messages - len(messages)
        self._closed = False
        self._claimed = False
        self._cut: str | None = None  # the message before which the next commit cuts the history
        self._size = row.size  # with the history cut
        self._writing: asyncio.Future[SessionRow | None] | None = None
        self.pending = None if row.pending is None else records.pending_of(row.pending, row.v)
        self.state = None if row.state is None else records.state_of(row.state, row.v)
        self.summary = None if row.summary is None else records.summary_of(row.summary, row.v)

    @abstractmethod
    async def _older(self) -> list[Message]:
        """The messages of the session from its first one on."""

    @abstractmethod
    def _begin_write(
        self, steps: Sequence[Step], parts: Mapping[str, bytes | None], ending: Ending | None, cut: str | None
    ) -> "asyncio.Future[SessionRow | None]":
        """Writes all of it in one transaction; the row is None if the session was deleted meanwhile.

        With `cut`, the stored history is cut before that message of the user first, as `sessions.history.cut_before`
        does. The write goes on if its caller is cancelled.
        """

    async def history(self) -> Sequence[Message]:
        if not self.earlier:
            return self.messages
        count = self.earlier
        return [*(await self._older())[:count], *self.messages]

    async def rewind(self, before: str) -> None:
        messages = await self.history()
        kept = list(messages[: place_of(before, messages)])
        self.messages, self.earlier, self._cut = kept, 0, before
        self.pending, self.summary = None, summary_after_cut(self.summary, kept)
        self._size = size_of_steps(steps_of(kept))

    async def commit(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None = None,
        *,
        state: Any = KEEP,
        summary: Summary | Keep | None = KEEP,
        ending: Ending | None = None,
    ) -> None:
        """One transaction, carried out also if the caller is cancelled meanwhile."""
        steps, parts = self._encoded(messages, pending, state, summary)
        while self._writing is not None:  # it does not wait for its caller
            await asyncio.wait({self._writing})
        await asyncio.shield(self._start_writing(steps, parts, ending, (messages, pending, state, summary)))

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> "asyncio.Future[SessionRow | None]":
        steps, parts = self._encoded(messages, None, state, KEEP)
        self._add(messages, None, state, KEEP)
        return self._start_writing(steps, parts, None, None)

    def _encoded(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None,
        state: Any,
        summary: Summary | Keep | None,
    ) -> tuple[list[Step], dict[str, bytes | None]]:
        """What is written: steps, and those parts of the session that change. SessionFull if it does not fit."""
        steps = steps_of(messages) if messages else []
        if steps and self._size + (added := size_of_steps(steps)) > self._keeper.max_bytes:
            check_room(messages, added, self._size, self._keeper.max_bytes)
        if self._row.v < records.VERSION:  # all parts of a row have one version
            pending = self.pending if pending is KEEP else pending
            state = self.state if state is KEEP else state
            summary = self.summary if summary is KEEP else summary
        parts: dict[str, bytes | None] = {}
        for name, part in (("pending", pending), ("state", state), ("summary", summary)):
            if part is not KEEP:
                parts[name] = None if part is None else records.encode(part)
        return steps, parts

    async def begin_calls(self, step: PendingStep) -> None:
        await self.commit((), step)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._keeper.give_back(self._owner, self._session_id)

    def _start_writing(
        self,
        steps: Sequence[Step],
        parts: Mapping[str, bytes | None],
        ending: Ending | None,
        added: _Added | None,
    ) -> "asyncio.Future[SessionRow | None]":
        """`added` is added to the parts in memory when it is stored."""
        cut = self._cut if steps or parts.get("pending") is not None else None  # an ending alone cuts nothing
        self._writing = future = self._begin_write(steps, parts, ending, cut)
        future.add_done_callback(partial(self._written, added, cut))
        return future

    def _written(self, added: _Added | None, cut: str | None, done: "asyncio.Future[SessionRow | None]") -> None:
        self._writing = None
        if done.cancelled() or done.exception() is not None:
            return
        before, self._row, self._claimed = self._row, done.result() or self._row, True
        if cut is not None:
            self._cut = None
        if self._cut is None:
            self._size = self._row.size
        if added is not None:
            self._add(*added)
        if self._row.size != before.size:
            self._keeper.grew(self._owner, self._row.size - before.size)
