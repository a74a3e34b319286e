"""The conversation of a durable store, as a run sees it: the end of its history, decoded once, and one commit at a time."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.sessions.history import check_room, place_of, summary_after_cut
from holodeck.sessions.port import KEEP, Keep
from holodeck.sessions.transcript import HeldParts
from holodeck.stores import records
from holodeck.stores.session_rows import SessionRow, Step, size_of_steps, steps_of


class StoredConversation(HeldParts, ABC):
    """What the stores have in common; each of them says how it reads and writes."""

    def __init__(self, row: SessionRow, messages: list[Message], max_bytes: int) -> None:
        self._row, self._messages, self._max_bytes = row, messages, max_bytes
        self._earlier = row.messages - len(messages)
        self._closed = False
        self._claimed = False
        self._cut: str | None = None  # the message before which the next commit cuts the history
        self._size = row.size  # with the history cut
        self._writing: asyncio.Future[SessionRow | None] | None = None
        self._pending = records.pending_of(row.pending, row.v)
        self._state = records.state_of(row.state, row.v)
        self._summary = records.summary_of(row.summary, row.v)

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

    @abstractmethod
    def _released(self) -> None:
        """The session is no longer in use by this run."""

    @abstractmethod
    def _grew(self, added: int) -> None:
        """The owner of the session stores so many bytes more, or less."""

    async def history(self) -> Sequence[Message]:
        if not self._earlier:
            return self._messages
        count = self._earlier
        return [*(await self._older())[:count], *self._messages]

    async def rewind(self, before: str) -> None:
        messages = await self.history()
        kept = list(messages[: place_of(before, messages)])
        self._messages, self._earlier, self._cut = kept, 0, before
        self._pending, self._summary = None, summary_after_cut(self._summary, kept)
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
        steps, changed = self._encoded(messages, pending, state, summary)

        await self._write(steps, changed, ending, partial(self._add, messages, pending, state, summary))

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> "asyncio.Future[SessionRow | None]":
        steps, changed = self._encoded(messages, None, state, KEEP)
        self._add(messages, None, state, KEEP)
        return self._start_writing(steps, changed, None, lambda: None)

    def _encoded(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None,
        state: Any,
        summary: Summary | Keep | None,
    ) -> tuple[list[Step], dict[str, bytes | None]]:
        """What is written: steps, and those parts of the session that change. SessionFull if it does not fit."""
        steps = steps_of(messages)
        check_room(messages, size_of_steps(steps), self._size, self._max_bytes)
        parts: dict[str, Any] = {"pending": pending, "state": state, "summary": summary}
        if self._row.v < records.VERSION:  # all parts of a row have one version
            kept = {"pending": self._pending, "state": self._state, "summary": self._summary}
            parts = {name: kept[name] if part is KEEP else part for name, part in parts.items()}
        return steps, {name: records.optional(part) for name, part in parts.items() if part is not KEEP}

    async def begin_calls(self, step: PendingStep) -> None:
        def apply() -> None:
            self._pending = step

        await self._write([], {"pending": records.encode(step)}, None, apply)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._released()

    async def _write(
        self,
        steps: Sequence[Step],
        parts: Mapping[str, bytes | None],
        ending: Ending | None,
        apply: Callable[[], None],
    ) -> None:
        """One transaction, carried out also if the caller is cancelled meanwhile; `apply` is called when it is done."""
        while self._writing is not None:  # it does not wait for its caller
            await asyncio.wait({self._writing})
        await asyncio.shield(self._start_writing(steps, parts, ending, apply))

    def _start_writing(
        self,
        steps: Sequence[Step],
        parts: Mapping[str, bytes | None],
        ending: Ending | None,
        apply: Callable[[], None],
    ) -> "asyncio.Future[SessionRow | None]":
        cut = self._cut if steps or parts.get("pending") is not None else None  # an ending alone cuts nothing
        self._writing = future = self._begin_write(steps, parts, ending, cut)
        future.add_done_callback(partial(self._written, apply, cut))
        return future

    def _written(self, apply: Callable[[], None], cut: str | None, done: "asyncio.Future[SessionRow | None]") -> None:
        self._writing = None
        if done.cancelled() or done.exception() is not None:
            return
        before, self._row, self._claimed = self._row, done.result() or self._row, True
        if cut is not None:
            self._cut = None
        if self._cut is None:
            self._size = self._row.size
        apply()
        if self._row.size != before.size:
            self._grew(self._row.size - before.size)
