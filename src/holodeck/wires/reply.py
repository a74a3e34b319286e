"""A run as one reply, for wires that know one message per run: its text, its answer, and whether it is one at all.

A run may speak several times, between its tool calls. Told as one message, each of these texts is a paragraph of its
own. The *answer* is what was said last; it is what `AgentResponse.final_response` says.
"""

from holodeck.core.events import Ending, Outcome, RunFailed, RunFinished, TextAdded
from holodeck.errors import Cancelled, HoloDeckError, ModelError, by_code

PARAGRAPH = "\n\n"
WAITING = frozenset({Outcome.INTERRUPTED, Outcome.CLIENT_TOOLS})


class ReplyText:
    """Hears the texts of a run."""

    def __init__(self) -> None:
        self._message_id: str | None = None
        self._said = False
        self._step: list[str] = []
        self._before = ""

    def step_started(self) -> None:
        self._before = "".join(self._step) or self._before
        self._step = []

    def add(self, event: TextAdded) -> str:
        """What has to be sent for this piece."""
        delta = event.delta
        if delta:
            if event.message_id != self._message_id:
                self._message_id = event.message_id
                if self._said:
                    delta = PARAGRAPH + delta
            self._said = True
            self._step.append(event.delta)
        return delta

    def answer(self, ending: Ending) -> str:
        """A run that was completed answered in its last step, or not at all; any other may have said it before."""
        last = "".join(self._step)
        completed = isinstance(ending, RunFinished) and ending.outcome is Outcome.COMPLETED
        return last if completed else last or self._before


def error_of(ending: RunFailed) -> HoloDeckError:
    return by_code(ending.code, ending.message, reason=ending.reason, retry_after=ending.retry_after)


def failure_of(ending: Ending, answer: str, *, tools_ran: bool) -> HoloDeckError | None:
    """The error that a client gets instead of an answer; None if there is one, or a question to a person.

    An empty answer after tools ran is no failure: the work is done, and a client that retries would do it twice. The
    ending's warning says that the model answered with nothing.
    """
    if isinstance(ending, RunFailed):
        return error_of(ending)
    if ending.outcome is Outcome.CANCELLED:
        return Cancelled("The run was stopped before it had answered.")
    worked = tools_ran and ending.outcome is Outcome.COMPLETED
    if ending.outcome in WAITING or answer.strip() or worked:
        return None
    error = ModelError(ending.warning or "The model answered with nothing.")
    error.reason = "max_iterations" if ending.outcome is Outcome.MAX_ITERATIONS else "empty_reply"
    return error
