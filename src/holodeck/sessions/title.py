"""The title of a session in a list: the beginning of the first text that its user wrote."""

import json
import re
from collections.abc import Iterable

from holodeck.core.messages import Message, TextPart, UserMessage
from holodeck.core.text import one_line

MAX_TITLE = 60
READ = 4096  # bytes of a stored step that are searched: a document in it may have megabytes

# The first text of a message as JSON: its content, or the text of its first part that has one. Inside a string the
# quotes would be escaped, so no text can look like one of these keys. The match ends before an escape that the last
# byte cuts.
_TEXT = re.compile(rb'"(?:content|text)":"((?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*)')


def title_of(messages: Iterable[Message]) -> str:
    first = next((each.content for each in messages if isinstance(each, UserMessage)), "")
    texts = (first,) if isinstance(first, str) else (part.text for part in first if isinstance(part, TextPart))
    return one_line(next(iter(texts), "")[:READ], MAX_TITLE)


def title_in(step: bytes | None) -> str:
    """The title from the first bytes of a stored step that begins with a user's message."""
    found = _TEXT.search(step or b"")
    if found is None:
        return ""
    text = found[1].decode(errors="ignore")
    return one_line(json.loads(f'"{text}"', strict=False), MAX_TITLE)
