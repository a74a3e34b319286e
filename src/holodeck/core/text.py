"""Makes text from outside safe: surrogates, control characters, terminal escapes, length.

Every function is total: it returns text for any input.
"""

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BIDI_AND_INVISIBLE = re.compile(
    "[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\u061c\U000e0000-\U000e007f]"
)
_ESCAPE = re.compile(
    r"""
      (?:\x1b\[|\x9b) [0-?]* [ -/]* [@-~]?                       # CSI
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]) .*? (?:\x07|\x1b\\|\x9c|\Z)   # OSC, DCS, SOS, PM, APC
    | \x1b [ -/]* [0-~]?                                         # two-character escapes
    """,
    re.VERBOSE | re.DOTALL,
)


def scalar(text: str) -> str:
    """Text that UTF-8 can encode: surrogate pairs joined, single halves replaced with U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    if _SURROGATE_PAIR.search(text):  # never in the output of a JSON decoder; slow if there are many single halves
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _SURROGATE.sub("\ufffd", text)


def strip_controls(text: str) -> str:
    r"""Drops control characters other than \n, \t and \r (ORC-01)."""
    return _CONTROL.sub("", text)


def clean(text: str) -> str:
    """Cleans text from a client, a model or a tool before it is stored: valid Unicode, no NUL."""
    if text.isascii() and "\x00" not in text:
        return text
    return scalar(text).replace("\x00", "")


def terminal_safe(text: str) -> str:
    r"""Cleans text for a terminal: no escape sequences, no control characters but \n and \t, no bidi overrides."""
    if text.isascii() and text.isprintable():
        return text
    without_escapes = _ESCAPE.sub("", scalar(text))
    return _BIDI_AND_INVISIBLE.sub("", _CONTROL.sub("", without_escapes).replace("\r", ""))


def shorten(text: str, limit: int, *, note: str = "… [{cut} of {length} characters left out]") -> str:
    """Shortens text to about `limit` characters, with a note of how much is missing."""
    if len(text) <= limit:
        return text
    return text[:limit] + note.format(cut=len(text) - limit, length=len(text))


def one_line(text: str, limit: int = 80) -> str:
    """Text for lists and log lines: terminal-safe, one line, shortened with an ellipsis."""
    flat = " ".join(terminal_safe(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def from_header(value: bytes) -> str:
    """Decodes a header that may hold any text: browsers send UTF-8, others Latin-1 as HTTP defines it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
