"""The attributes inside a sentence: "buy eggs tomorrow at 3pm, urgent #home" → title, due date, priority, tags.

What is in quotation marks is title and nothing else.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from holodeck.models.demo.dates import Due, cut_date
from holodeck.models.demo.patterns import one_of, pattern

HIGH = one_of(
    *(r"urgent(?:ly)?", "asap", r"a\.s\.a\.p\.?", "as soon as possible", "(?:very )?important", "critical"),
    *("(?:(?:very )?high|highest|top)[- ]prio(?:rity)?", "priority:? high", "p1", "!high"),
)
LOW = one_of(
    *("not (?:so |very |that )?(?:urgent|important)", "no rush", "no hurry", "whenever", "some ?day"),
    *("when(?:ever)? i have time", "(?:low|lowest)[- ]prio(?:rity)?", "priority:? low", "!low"),
)
MEDIUM = one_of("(?:medium|normal)[- ]priority", "priority:? (?:medium|normal)")
_LEVELS = (("low", LOW), ("medium", MEDIUM), ("high", HIGH))  # "not urgent" has to be seen before "urgent"

_BEFORE_PRIORITY = (
    r"(?:^|[,;.(—-]\s*|\s+)(?:(?:and|with|as|at|but)\s+)?"
    r"(?:(?:it'?s|it is|this is|that'?s|make it|mark it)\s+)?(?:(?:as|an?|very|really|super)\s+)*"
)
_AT_END = tuple((level, pattern(rf"{_BEFORE_PRIORITY}{words}[)\s.!]*$")) for level, words in _LEVELS)
_AT_START = tuple((level, pattern(rf"^{words}\s*[:,!—-]+\s*")) for level, words in _LEVELS)
_ANYWHERE = (
    ("low", pattern(r"(?:,\s*|\s+)(?:with |at |as )?(?:a )?low[- ]priority\b")),
    ("high", pattern(r"(?:,\s*|\s+)(?:(?:with |at |as )?(?:a )?high[- ]priority|asap|urgently)\b", r"\s*!{2,}")),
)
TAG = r"[^\W\d_][\w-]*"
_HASH_TAG = re.compile(rf"(?:^|(?<=[\s,(]))(?:(?:and|with)\s+(?=#))?#(?P<tag>{TAG})[),]?", re.IGNORECASE)
_SAID_TAGS = re.compile(
    rf"[\s,;.]+(?:and\s+|with\s+|under\s+)?(?:(?:the\s+)?tags?(?:ged)?|label(?:led|ed)?)\s+(?:it\s+)?(?:as\s+|with\s+)?"
    rf"(?P<tags>{TAG}(?:(?:,\s*|\s+and\s+|,\s*and\s+){TAG})*)[\s.!]*$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"]+\"|“[^”]+”|«[^»]+»|(?<!\w)'[^']+'(?!\w)")
_MARKS = "\"“”«»'"
_FIRST_PLACEHOLDER = 0xE000  # private use: no keyboard writes it, and no rule matches it


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    title: str
    due: Due | None = None
    priority: str | None = None
    tags: tuple[str, ...] = ()


def read_details(sentence: str, now: datetime) -> Details:
    text, quotes = hide_quotes(sentence)
    text, tags = cut_tags(text)
    text, priority = cut_priority(text)
    text, due = cut_date(text, now)
    if priority is None:  # "buy eggs, urgent, tomorrow": the date stood behind it
        text, priority = cut_priority(text)
    text, more_tags = _cut_said_tags(text)
    return Details(
        title=clean_title(text, quotes), due=due, priority=priority, tags=tuple(dict.fromkeys(tags + more_tags))
    )


def hide_quotes(text: str) -> tuple[str, dict[str, str]]:
    """Quoted passages replaced by one character each, so that no rule looks inside."""
    quotes: dict[str, str] = {}

    def hide(match: re.Match[str]) -> str:
        placeholder = chr(_FIRST_PLACEHOLDER + len(quotes))
        quotes[placeholder] = match[0]
        return placeholder

    return _QUOTED.sub(hide, text), quotes


def show_quotes(text: str, quotes: dict[str, str]) -> str:
    for placeholder, passage in quotes.items():
        text = text.replace(placeholder, passage)
    return text


def cut_tags(text: str) -> tuple[str, list[str]]:
    tags = [match["tag"].lower() for match in _HASH_TAG.finditer(text)]
    without = " ".join(_HASH_TAG.sub(" ", text).split())
    without, said = _cut_said_tags(without)
    return without, tags + said


def _cut_said_tags(text: str) -> tuple[str, list[str]]:
    match = _SAID_TAGS.search(text)
    if match is None:
        return text, []
    return text[: match.start()], read_tags(match["tags"])


def read_tags(text: str) -> list[str]:
    return [word.lower() for word in re.findall(TAG, text) if word.lower() != "and"]


def cut_priority(text: str) -> tuple[str, str | None]:
    for level, words in (*_AT_END, *_AT_START, *_ANYWHERE):
        match = words.search(text)
        if match and (match.start() > 0 or match.end() < len(text)):
            return f"{text[: match.start()]} {text[match.end() :]}".strip(), level
    return text, None


def read_priority(text: str) -> str | None:
    """The priority, if the text says nothing else; "high" alone counts too."""
    for level, words in _LEVELS:
        simple = {"high": "|highest|high|top", "low": "|low|lowest|unimportant", "medium": "|medium|normal"}[level]
        if re.fullmatch(
            rf"(?:a |an |more |very |really |super |as )*(?:{words}{simple})[\s.!]*", text.strip(), re.IGNORECASE
        ):
            return level
    return None


def clean_title(text: str, quotes: dict[str, str]) -> str:
    title = " ".join(text.split())
    title = re.sub(r"^(?:to|that i (?:need|have) to|that|about|[:,-]+)\s+", "", title, flags=re.IGNORECASE)
    title = re.sub(r"(?:[\s,;:.!?—-]|\s(?:and|due|by|on|at)$)+$", "", title)
    title = show_quotes(title.strip(" ,;:"), quotes)
    if len(quotes) == 1 and title == next(iter(quotes.values())):
        title = title.strip(_MARKS)
    return title[:1].upper() + title[1:]
