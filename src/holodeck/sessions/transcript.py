"""A conversation in a plain list: for `run_agent` and for runs that leave nothing behind."""

from collections.abc import Iterable, Sequence
from typing import Any

from holodeck.core.events import Ending
from holodeck.core.messages import Message, PendingStep, Summary
from holodeck.sessions.history import place_of, summary_after_cut
from holodeck.sessions.port import KEEP, Keep


class HeldParts:
    """The parts of a conversation that a run has in memory. What becomes of them is for the classes that extend it."""

    _messages: list[Message]
    _earlier: int = 0
    _pending: PendingStep | None
    _state: Any
    _summary: Summary | None

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    @property
    def earlier(self) -> int:
        return self._earlier

    @property
    def pending(self) -> PendingStep | None:
        return self._pending

    @property
    def state(self) -> Any:
        return self._state

    @property
    def summary(self) -> Summary | None:
        return self._summary

    def _add(
        self,
        messages: Sequence[Message],
        pending: PendingStep | Keep | None,
        state: Any,
        summary: Summary | Keep | None,
    ) -> None:
        self._messages.extend(messages)
        if pending is not KEEP:
            self._pending = pending
        if state is not KEEP:
            self._state = state
        if summary is not KEEP:
            self._summary = summary


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
        self._messages = list(messages)
        self._pending = pending
        self._state = state
        self._summary = None if summary is None or summary.rest_of(self._messages) is None else summary

    async def history(self) -> Sequence[Message]:
        return self._messages

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
        self._pending = step

    async def rewind(self, before: str) -> None:
        del self._messages[place_of(before, self._messages) :]
        self._pending, self._summary = None, summary_after_cut(self._summary, self._messages)

    def close(self) -> None:
        return None
