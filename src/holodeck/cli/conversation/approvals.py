"""Asks a person about a tool call that needs their agreement: yes, no, yes with other arguments, or always in this chat."""

import json
from collections.abc import Callable
from typing import Any

from holodeck.cli.lines import Interrupted, Lines
from holodeck.cli.plain_display import call_text
from holodeck.core.events import Interrupt
from holodeck.core.request import Resume

QUESTION = "  allow? [y/n/e = edit/a = always] "
YES, NO, EDIT = frozenset({"y", "yes"}), frozenset({"", "n", "no"}), frozenset({"e", "edit"})
ALWAYS = frozenset({"a", "always"})


async def decide(interrupt: Interrupt, lines: Lines, say: Callable[[str], None], allowed: set[str]) -> Resume | None:
    """None if the person left the question open: Ctrl+C, Ctrl+D, the end of a pipe.

    `allowed` has the tools that run without a question; the answer "always" adds this one.
    """
    shown = call_text(interrupt.tool, interrupt.arguments, short=False)
    if interrupt.tool in allowed:
        say(f"? {shown} (always allowed in this chat)")
        return Resume(interrupt_id=interrupt.id, approved=True)
    say(f"? {shown}")
    while True:
        answer = await _answer(lines, QUESTION)
        if answer is None:
            return None
        word = answer.strip().lower()
        if word in YES:
            return Resume(interrupt_id=interrupt.id, approved=True)
        if word in ALWAYS:
            allowed.add(interrupt.tool)
            return Resume(interrupt_id=interrupt.id, approved=True)
        if word in NO:
            return Resume(interrupt_id=interrupt.id, approved=False)
        if word in EDIT and (arguments := await _edited(interrupt, lines, say)) is not None:
            return Resume(interrupt_id=interrupt.id, approved=True, payload={"arguments": arguments})


async def _edited(interrupt: Interrupt, lines: Lines, say: Callable[[str], None]) -> dict[str, Any] | None:
    text = interrupt.arguments or "{}"
    while True:
        answer = await _answer(lines, "  arguments: ", text)
        if answer is None:
            return None
        try:
            arguments = json.loads(answer)
        except (ValueError, RecursionError) as error:
            say(f"  That is no JSON: {error}")
        else:
            if isinstance(arguments, dict):
                return arguments
            say("  Arguments are an object: {…}")
        text = answer


async def _answer(lines: Lines, question: str, default: str = "") -> str | None:
    try:
        return await lines.ask(question, default)
    except Interrupted:
        return None
