"""`terminal_safe` for text that arrives in pieces: it also catches an escape sequence split over two of them (T24)."""

import re

from holodeck.core.text import terminal_safe

MAX_HELD = 4096  # a longer unfinished sequence is not one; its text is shown

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
    """The returned pieces, joined, equal `terminal_safe` of the whole text."""

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
