"""A conversation in a plain list: for `run_agent` and for runs that leave nothing behind."""

from collections.abc import Iterable, Sequence
from typing import Any

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.sessions.history import place_of, summary_after_cut
from holodeck.sessions.port import KEEP, Keep


class HeldParts:
    """The parts of a conversation that a run has in memory. What becomes of them is for the classes that extend it."""

    messages: list[Message]
    earlier: int = 0
    pending: PendingStep | None
    state: Any
    summary: Summary | None

    def _add(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None,
        state: Any,
        summary: Summary | Keep | None,
    ) -> None:
        self.messages.extend(messages)
        if pending is not KEEP:
            self.pending = pending
        if state is not KEEP:
            self.state = state
        if summary is not KEEP:
            self.summary = summary


class Transcript(HeldParts):
    def __init__(
        self,
        messages: Iterable[Message] = (),
        *,
        state: Any = None,
        summary: Summary | None = None,
        pending: PendingStep | None = None,
    ) -> None:
        """Drops a summary that covers other messages than these."""
        self.messages = list(messages)
        self.pending = pending
        self.state = state
        self.summary = None if summary is None or summary.rest_of(self.messages) is None else summary

    async def history(self) -> Sequence[Message]:
        return self.messages

    def accept(self, messages: Sequence[Message], *, state: Any = KEEP) -> None:
        self._add(messages, None, state, KEEP)

    async def commit(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None = None,
        *,
        state: Any = KEEP,
        summary: Summary | Keep | None = KEEP,
        ending: Ending | None = None,  # noqa: ARG002  nothing here outlives the process
    ) -> None:
        self._add(messages, pending, state, summary)

    async def begin_calls(self, step: PendingStep) -> None:
        self.pending = step

    async def rewind(self, before: str) -> None:
        del self.messages[place_of(before, self.messages) :]
        self.pending, self.summary = None, summary_after_cut(self.summary, self.messages)

    def close(self) -> None:
        return None
