"""Checks of what a user types, before it goes to the agent: a chain of plain functions (CHT-07).

A check returns the text to continue with, or raises ValueError with a sentence for the user. `InputChecks.then` adds
more, such as those of the agent's folder (`chat.checks` of agent.yaml).
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from holodeck.core.text import strip_controls

MAX_INPUT = 10_000

Check: TypeAlias = Callable[[str], str | None]  # None: nothing to change


def valid_utf8(text: str) -> str:
    """Refuses bytes that are not UTF-8, which arrive as lone surrogates (PEP 383)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("That is not valid UTF-8.") from None
    return text


def without_controls(text: str) -> str:
    return strip_controls(text).strip()


def not_empty(text: str) -> str:
    if not text:
        raise ValueError("There is nothing to send.")
    return text


def not_too_long(text: str) -> str:
    if len(text) > MAX_INPUT:
        raise ValueError(f"That is {len(text)} characters; at most {MAX_INPUT} can be sent.")
    return text


class InputChecks:
    def __init__(self, checks: Iterable[Check] = (valid_utf8, without_controls, not_empty, not_too_long)) -> None:
        self._checks = tuple(checks)

    def then(self, *more: Check) -> "InputChecks":
        return InputChecks((*self._checks, *more))

    def __call__(self, text: str) -> str:
        for check in self._checks:
            changed = check(text)
            text = text if changed is None else changed
        return text
