"""An English message → what it asks for.

Knows nothing of the conversation: "it" and "the second one" stay references.
"""

import re
from collections.abc import Callable
from datetime import datetime

from holodeck.models.demo.changes import read_change, read_deed
from holodeck.models.demo.details import hide_quotes, show_quotes
from holodeck.models.demo.filters import read_show
from holodeck.models.demo.intents import Intent, Talk, Unknown
from holodeck.models.demo.plans import guess_plan, read_named_plan, read_plan
from holodeck.models.demo.talk import read_answer, read_talk

LONGEST = 600  # characters; a longer text is a document, not a request

_STRAIGHT = str.maketrans({0x2018: "'", 0x2019: "'", 0x2013: "-"})  # what phones type for apostrophes and hyphens
_POLITE_START = re.compile(
    r"(?:(?:hi|hey|hello|ok|okay|so|well|now|also|and|then|please|kindly|just|actually|oh|great|thanks|yes)\b[\s,!.]+)*"
    r"(?:(?:can|could|would|will) you (?:please |kindly |also )?"
    r"|i(?:'d| would) (?:like|love|want) (?:you )?to "
    r"|i want (?:you )?to (?=add|create|delete|remove|see|mark|rename|complete)"
    r"|let's |go ahead and )?(?:please )?",
    re.IGNORECASE,
)
_POLITE_END = re.compile(
    r"(?:[\s,]+(?:please|thanks|thank you|for me|ok|okay|will you|would you|can you))+[.!?]*$", re.IGNORECASE
)
_END = re.compile(r"(?:[\s.?]|(?<!!)!)+$")  # several exclamation marks are a priority and stay
_NEXT_REQUEST = re.compile(
    r"\s*(?:[,;.]\s*)?\b(?:and )?then\s+|\s*;\s+|[.!]\s+(?=\w)"
    r"|,?\s+and\s+(?=(?:show|list|what|remind me|add|mark|tag|make it|delete it|set)\b)",
    re.IGNORECASE,
)

_Reader = Callable[[str, datetime], Intent | None]
# In order of certainty: the first that understands the request wins.
_COMMANDS: tuple[_Reader, ...] = (read_named_plan, read_change, read_show, read_plan)
_GUESSES: tuple[_Reader, ...] = (read_deed, guess_plan)


def read_message(text: str, now: datetime) -> tuple[Intent, ...]:
    """What a message asks for, in order; `(Unknown(),)` when it is none of our sentences.

    It is taken apart ("add milk, then show my list") only if each part is a command by itself: "milk and eggs" is one
    title.
    """
    message = " ".join(text.translate(_STRAIGHT).split())
    if len(message) > LONGEST:
        return (Talk("too_long"),)
    if answer := read_answer(message.strip(" .!?,")) or read_talk(message):
        return (answer,)
    return _commands(message, now) or (_first((*_COMMANDS, *_GUESSES), _request(message), now) or Unknown(),)


def _commands(message: str, now: datetime) -> tuple[Intent, ...]:
    hidden, quotes = hide_quotes(message)
    parts = [show_quotes(part, quotes).strip(" ,") for part in _NEXT_REQUEST.split(hidden)]
    if len(parts) == 1:
        return ()
    intents = [_first(_COMMANDS, _request(part), now) for part in parts if part]
    understood = tuple(intent for intent in intents if intent is not None)
    return understood if len(understood) == len(intents) else ()


def _request(sentence: str) -> str:
    """The sentence without its courtesies and its full stop."""
    polite = _POLITE_START.match(sentence)
    bare = sentence[polite.end() :] if polite else sentence
    return _END.sub("", _POLITE_END.sub("", bare).strip())


def _first(readers: tuple[_Reader, ...], request: str, now: datetime) -> Intent | None:
    return next((intent for read in readers if (intent := read(request, now)) is not None), None)
