"""A run as plain lines, for pipes and simple terminals: text as it arrives, tool calls while they run; or JSON lines.

All text of models and tools passes the sanitiser before it is written. This module knows no prompts and no input.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import msgspec

from holodeck.cli.paint import Paint
from holodeck.core import events as e
from holodeck.core.messages import text_of
from holodeck.core.text import one_line, shorten, terminal_safe
from holodeck.core.usage import TokenUsage

MAX_HELD = 4096  # characters of an unfinished escape sequence; a longer one is shown as text

_STARTS = re.compile(r"[\x1b\x90\x98\x9b\x9d-\x9f]")
# Possessive quantifiers (*+): a sequence that stops at the end of the text must not be read as a shorter one.
_COMPLETE = re.compile(
    r"""
      (?:\x1b\[|\x9b) [0-?]*+ [ -/]*+ (?:[@-~]|(?=.))                   # CSI
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]) .*? (?:\x07|\x1b\\|\x9c)   # OSC, DCS, SOS, PM, APC
    | \x1b (?![\[\]PX^_]) [ -/]*+ (?:[0-~]|(?=.))                       # two-character escapes
    """,
    re.VERBOSE | re.DOTALL,
)


class SafeStream:
    """`terminal_safe` for text that arrives in pieces: it also catches an escape sequence split over two of them (T24).

    The returned pieces, joined, equal `terminal_safe` of the whole text.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        text = self._held + piece
        cut = _unfinished(text)
        self._held = text[cut:]
        if len(self._held) > MAX_HELD:
            self._held = ""
            return terminal_safe(text[:cut]) + terminal_safe(_STARTS.sub("", text[cut:]))
        return terminal_safe(text[:cut])

    def flush(self) -> str:
        rest, self._held = self._held, ""
        return terminal_safe(rest)


def _unfinished(text: str) -> int:
    """Returns the index of an unfinished sequence, or the text's length if there is none."""
    at = 0
    text_end = len(text) - 1 if text and "\ud800" <= text[-1] <= "\udbff" else len(text)  # half a character
    while start := _STARTS.search(text, at):
        sequence = _COMPLETE.match(text, start.start())
        if sequence is None:
            return start.start()
        at = sequence.end()
    return text_end


SHORT_ARGUMENT = 40
SHORT_RESULT = 2000
SHORT_COMPLAINT = 500
SMALLEST_COST = 0.0001
# JSON does not escape these; on a terminal they would act.
_ACTIVE = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]")


class PlainDisplay:
    """Prints runs. Its `emit` is the run's."""

    def __init__(
        self, out: IO[str], paint: Paint, *, verbose: bool = False, quiet: bool = False, err: IO[str] | None = None
    ) -> None:
        """`err` is the stream for failures and warnings, if not between the answers."""
        self.verbose = verbose
        self.quiet = quiet
        self._out = out
        self._err = err
        self._paint = paint
        self._safe = SafeStream()
        self._at_line_start = True
        self._open_line: str | None = None  # the call whose line still waits for its result
        self._warned: list[str] = []  # warnings of this run that are on the screen

    def emit(self, event: e.Event) -> None:
        match event:
            case e.TextAdded():
                self._say(self._safe.feed(event.delta))
            case e.TextEnded():
                self._say(self._safe.flush())
                self._new_line()
            case e.ReasoningAdded() if self.verbose:
                self._say(self._paint.dim(terminal_safe(event.delta)))
            case e.ReasoningEnded() if self.verbose:
                self._new_line()
            case e.ToolCallEnded():
                self._call(event)
            case e.ToolFinished():
                self._result(event)
            case e.WarningRaised():
                self._warned.append(event.message)
                self._complain("!", event.message, self._paint.yellow)
            case e.RunFinished():
                self._finished(event)
            case e.RunFailed():
                self._failed(event)

    def wait_for(self, what: str) -> None:
        """Does nothing: transient lines are for screens."""

    def close(self) -> None:
        self._say(self._safe.flush())
        self._new_line()

    def _call(self, event: e.ToolCallEnded) -> None:
        if self.quiet:
            return
        self._new_line()
        self._say(self._paint.dim(f"→ {call_text(event.name, event.arguments, short=not self.verbose)} … "))
        self._open_line = event.call_id

    def _result(self, event: e.ToolFinished) -> None:
        if self.quiet:
            return
        mark = self._paint.red("✗") if event.failed else self._paint.green("✓")
        name = "" if self._open_line == event.call_id else f"{one_line(event.name)} "
        if name:
            self._new_line()
        self._say(f"{mark} {self._paint.dim(f'{name}{event.seconds:.2f} s')}")
        self._new_line()
        if self.verbose or event.failed:
            text = shorten(terminal_safe(text_of(event.content)), SHORT_RESULT)
            self._note(self._paint.dim("  " + text.strip().replace("\n", "\n  ")))

    def _finished(self, event: e.RunFinished) -> None:
        if event.outcome is e.Outcome.CANCELLED:
            self._note(self._paint.dim("(stopped)"))
        if warning := unshown(event.warning, self._warned):
            self._complain("!", warning, self._paint.yellow)
        self._warned.clear()
        if self.verbose and event.usage:
            self._note(self._paint.dim(usage_text(event.usage)))
        self._new_line()

    def _failed(self, event: e.RunFailed) -> None:
        self._complain("✗", event.message, self._paint.red)
        self._warned.clear()

    def _complain(self, mark: str, message: str, colour: Callable[[str], str]) -> None:
        line = f"{mark} {one_line(message, SHORT_COMPLAINT)}"
        if self._err is None:
            self._note(colour(line))
        else:
            self._new_line()
            self._err.write(f"{line}\n")
            self._err.flush()

    def _note(self, line: str) -> None:
        self._new_line()
        self._say(line)
        self._new_line()

    def _new_line(self) -> None:
        self._open_line = None
        if not self._at_line_start:
            self._say("\n")

    def _say(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._at_line_start = text.endswith("\n")


def unshown(warning: str | None, shown: Iterable[str]) -> str:
    """Returns the part of an ending's warning that was not shown yet. The warning joins all warnings of the run."""
    rest = warning or ""
    for message in shown:
        rest = rest.replace(message, "", 1)
    return " ".join(rest.split())


def call_text(name: str, arguments: str, *, short: bool) -> str:
    """Formats a call: `create_todo(title="Buy eggs")`."""
    limit = SHORT_ARGUMENT if short else SHORT_RESULT
    try:
        values = json.loads(arguments or "{}").items()
        shown = ", ".join(
            f"{one_line(key)}={one_line(json.dumps(it, ensure_ascii=False), limit)}" for key, it in values
        )
    except (ValueError, AttributeError, RecursionError):  # not JSON, not an object, or nested too deeply
        shown = one_line(arguments)
    return f"{one_line(name)}({shown})"


def progress_text(content: Mapping[str, Any]) -> str:
    """Formats a tool's progress: `3/10 pages read`, or percent if the server counts to 1 or 100."""
    done, total, message = (
        content.get("progress"),
        content.get("total"),
        one_line(str(content.get("message") or ""), 60),
    )
    amount = ""
    if isinstance(done, int | float):
        amount = f"{done:g}"
        if isinstance(total, int | float) and total > 0:
            amount = f"{done / total:.0%}" if total in {1, 100} else f"{done:g}/{total:g}"
    return " ".join(filter(None, (amount, message)))


def usage_text(usage: TokenUsage) -> str:
    """Formats `1,200 + 34 tokens`, and the cost if it is known."""
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    return tokens if usage.cost is None else f"{tokens} · {cost_text(usage.cost)}"


def cost_text(cost: float) -> str:
    """Formats a cost without a currency: the file does not name the currency of its prices."""
    if 0 < cost < SMALLEST_COST:
        return f"cost under {SMALLEST_COST}"
    return f"cost {cost:,.2f}" if cost >= 1 else f"cost {cost:.4f}"


class JsonDisplay:
    """Prints a run for scripts (`--json`): each event is one line, a JSON object as in `holodeck.core.events`."""

    def __init__(self, out: IO[str]) -> None:
        self.verbose = False
        self._out = out

    def emit(self, event: e.Event) -> None:
        text = msgspec.json.encode(event).decode()
        self._out.write(_ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        self._out.flush()

    def wait_for(self, what: str) -> None:
        """Does nothing: scripts get events only."""

    def close(self) -> None:
        """Does nothing: every line is complete."""
