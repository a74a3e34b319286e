"""A summary without understanding: what the user said, in the user's own words, shortened."""

from collections.abc import Iterator, Sequence

import msgspec

from holodeck.core.messages import Message, text_of
from holodeck.core.text import one_line, shorten

_LONGEST_LINE, _LONGEST = 100, 2000


class _Line(msgspec.Struct):
    role: str = ""
    text: str = ""


def recap(messages: Sequence[Message]) -> str:
    """Of a conversation that comes as lines of JSON, one message a line."""
    said = "\n".join(_said(message) for message in messages)
    return shorten(said, _LONGEST) if said else "Nothing was said."


def _said(message: Message) -> str:
    return "\n".join(_told(line) for line in _lines(text_of(message.content)) if line.role in ("user", "summary"))


def _told(line: _Line) -> str:
    return line.text if line.role == "summary" else f"The user said: {one_line(line.text, _LONGEST_LINE)}"


def _lines(text: str) -> Iterator[_Line]:
    for line in text.split("\n"):  # not splitlines(): JSON may hold other separators as they are
        try:
            yield msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError:
            continue  # no message of the conversation
