"""A run as one reply: which error stands for which ending, on every wire that answers with a status."""

import pytest

from holodeck import errors
from holodeck.core import events as e
from holodeck.errors import BudgetExceeded
from holodeck.wires.problem import problem
from holodeck.wires.reply import ReplyText, failure_of
from tests.wires.event_sequences import RUN, SESSION, finished

CODES = {
    "invalid-request": 422, "session-not-found": 404, "session-busy": 409, "payload-too-large": 413,
    "rate-limited": 429, "internal-error": 500, "tool-unavailable": 502, "model-error": 502, "not-ready": 503,
    "model-unavailable": 503, "shutting-down": 503, "timeout": 504, "cancelled": 409, "budget-exceeded": 500, "something-new": 500,
}  # fmt: skip


@pytest.mark.req("SRV-17")
@pytest.mark.parametrize("code", CODES)
def test_a_failed_run_is_the_problem_of_its_code(code: str) -> None:
    failed = e.RunFailed(RUN, SESSION, code, "It failed.", reason="why", retry_after=2.0)
    error = failure_of(failed, "")
    assert isinstance(error, errors.HoloDeckError)
    assert code != BudgetExceeded.code or isinstance(error, BudgetExceeded)
    assert error.code == (code if code != "something-new" else "internal-error")
    assert (error.status, error.message, error.reason, error.retry_after) == (CODES[code], "It failed.", "why", 2.0)
    assert problem(error).detail == "It failed."


@pytest.mark.req("SRV-17")
@pytest.mark.parametrize(
    ("ending", "answer", "code", "reason"),
    [
        (finished(), "yes", None, None),
        (finished(), "", None, None),
        (finished(e.Outcome.MAX_ITERATIONS), "so far", None, None),
        (finished(e.Outcome.MAX_ITERATIONS), "", "model-error", "max_iterations"),
        (finished(e.Outcome.INTERRUPTED), "", None, None),
        (finished(e.Outcome.CLIENT_TOOLS), "", None, None),
        (finished(e.Outcome.CANCELLED), "half", "cancelled", None),
    ],
)
def test_which_endings_are_answers(ending: e.RunFinished, answer: str, code: str | None, reason: str | None) -> None:
    error = failure_of(ending, answer)
    assert (getattr(error, "code", None), getattr(error, "reason", None)) == (code, reason)


def test_the_answer_is_the_last_text() -> None:
    reply = ReplyText()
    sent = [reply.add(e.TextAdded(*piece)) for piece in (("a", "Let me"), ("a", " see."), ("a", ""))]
    reply.step_started()
    assert reply.answer(finished()) == ""
    assert reply.answer(finished(e.Outcome.MAX_ITERATIONS)) == "Let me see."
    sent += [reply.add(e.TextAdded("b", "")), reply.add(e.TextAdded("b", "There."))]
    assert reply.answer(finished()) == "There."
    assert "".join(sent) == "Let me see.\n\nThere."
