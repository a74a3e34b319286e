"""A conversation in a plain list: for the terminal and for `run_agent`, which keep nothing beyond the process."""

from collections.abc import Iterable, Sequence
from typing import Any

from holodeck.core.messages import Message, PendingStep, Summary


class Transcript:
    def __init__(self, messages: Iterable[Message] = (), *, state: Any = None, summary: Summary | None = None) -> None:
        """A summary of other messages than these would tell what is not there, so it is left out."""
        self._messages = list(messages)
        self._pending: PendingStep | None = None
        self._state = state
        self._summary = None if summary is None or summary.rest_of(self._messages) is None else summary

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    @property
    def pending(self) -> PendingStep | None:
        return self._pending

    @property
    def state(self) -> Any:
        return self._state

    @property
    def summary(self) -> Summary | None:
        return self._summary

    async def commit(self, messages: Sequence[Message], pending: PendingStep | None = None) -> None:
        self._messages.extend(messages)
        self._pending = pending

    async def put_state(self, state: Any) -> None:
        self._state = state

    async def put_summary(self, summary: Summary | None) -> None:
        self._summary = summary

    def clear(self) -> None:
        self._messages.clear()
        self._pending = self._summary = None
