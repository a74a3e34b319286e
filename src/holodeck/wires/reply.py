"""Folds a run into one reply, for wires that have one message per run, with helpers that several wires share.

The model may write text several times, between tool calls. In one message, each of these texts is a paragraph. The
*answer* is the last of them, as in `AgentResponse.final_response`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from holodeck.core import events as e
from holodeck.core.text import one_line
from holodeck.core.tools import arguments_shown
from holodeck.core.usage import TokenUsage
from holodeck.errors import Cancelled, HoloDeckError, ModelError, by_code

PARAGRAPH = "\n\n"
WAITING = frozenset({e.Outcome.INTERRUPTED, e.Outcome.CLIENT_TOOLS})
MAX_EXCERPT = 200  # characters of a tool's arguments or result in a line about it
_MAX_READ = 4_000  # characters that are examined for it
T = TypeVar("T")


class EventReader(Generic[T]):
    """Reads one run from its first event on, in order.

    A subclass has a method for each event that its protocol can show. The method has the event's name: `text_added` for
    TextAdded.
    """

    _readers: ClassVar[Mapping[type[e.Event], Callable[[Any, Any], Sequence[Any]]]]

    def __init_subclass__(cls) -> None:
        cls._readers = e.methods_by_event(cls)

    def read(self, event: e.Event) -> Sequence[T]:
        """Returns what shows this event: nothing for events that the protocol cannot show."""
        reader = self._readers.get(type(event))
        return () if reader is None else reader(self, event)


class ReplyReader(EventReader[T]):
    """Collects the events of a run into one reply."""

    def __init__(self) -> None:
        self._reply = ReplyText()

    def step_started(self, _event: e.StepStarted) -> Sequence[T]:
        self._reply.step_started()
        return ()


class ReplyText:
    """Collects the texts of a run."""

    def __init__(self) -> None:
        self._message_id: str | None = None
        self._has_text = False
        self._step: list[str] = []
        self._before = ""

    def step_started(self) -> None:
        self._before = "".join(self._step) or self._before
        self._step = []

    def add(self, event: e.TextAdded) -> str:
        """Returns the text to send for this delta."""
        delta = event.delta
        if delta:
            if event.message_id != self._message_id:
                self._message_id = event.message_id
                if self._has_text:
                    delta = PARAGRAPH + delta
            self._has_text = True
            self._step.append(event.delta)
        return delta

    def answer(self, ending: e.Ending) -> str:
        """Returns the last step's text. If it has none and the run did not complete, an earlier step's text counts."""
        last = "".join(self._step)
        completed = isinstance(ending, e.RunFinished) and ending.outcome is e.Outcome.COMPLETED
        return last if completed else last or self._before


def error_of(ending: e.RunFailed) -> HoloDeckError:
    return by_code(ending.code, ending.message, reason=ending.reason, retry_after=ending.retry_after)


def failure_of(ending: e.Ending, answer: str) -> HoloDeckError | None:
    """Returns the error that a client gets instead of an answer. None if there is an answer or a question to a person.

    A run that completed has an answer, though it may be empty: then tools ran, and the ending has a warning.
    """
    if isinstance(ending, e.RunFailed):
        return error_of(ending)
    if ending.outcome is e.Outcome.CANCELLED:
        return Cancelled(" ".join(filter(None, ["The run was stopped before it had answered.", ending.warning])))
    if ending.outcome is not e.Outcome.MAX_ITERATIONS or answer.strip():
        return None
    error = ModelError(ending.warning or "The model did not produce an answer.")
    error.reason = "max_iterations"
    return error


def time_text(at: datetime) -> str:
    """Formats a time in UTC as A2A and MCP do."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def excerpt(text: str) -> str:
    """The start of a tool's arguments or result, in one line."""
    return one_line(text[:_MAX_READ], MAX_EXCERPT)


def approval_asked(interrupt: e.Interrupt) -> dict[str, Any]:
    arguments = arguments_shown(interrupt.arguments)
    return {"id": interrupt.id, "tool": interrupt.tool, "arguments": arguments, "message": interrupt.message}


def token_counts(usage: TokenUsage) -> dict[str, int]:
    """Returns the known counts, by the names that AG-UI and the AI SDK use."""
    counts = {
        "inputTokens": usage.prompt_tokens,
        "outputTokens": usage.completion_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }
    return {key: count for key, count in counts.items() if count is not None}
