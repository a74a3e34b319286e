"""Questions about the list: "what's due this week?", "show completed", "anything tagged work?"."""

import re
from datetime import datetime, time, timedelta

from holodeck.models.demo import zones
from holodeck.models.demo.dates import cut_date
from holodeck.models.demo.days import DAY, SATURDAY, monday_of, month_later
from holodeck.models.demo.details import TAG, cut_tags, read_tags
from holodeck.models.demo.intents import Period, Show
from holodeck.models.demo.patterns import pattern

_NOUN = r"(?:to-?\s?dos?|to-?do list|tasks?|items?|reminders?|lists?|agenda|plate|chores)"
_ASKS = pattern(
    r"(?:show|list|display|view|see|print|read|count|review|check)\b",
    r"(?:give|tell|get|let)(?: me)?\b",
    *("what", "which", "anything", r"any\b", "how many", "how much", r"(?:do|did|have|am) i\b", "(?:is|are) there"),
    *(r"my\b", "overdue", r"open\b", "pending", r"all\b"),
)
_ABOUT_THE_LIST = pattern(
    rf"\b{_NOUN}\b",
    rf"#{TAG}",
    r"\b(?:due|overdue|left|pending|outstanding|tagged|completed|unfinished|behind|coming up)\b",
    r"\bi have\b",
    r"\bi(?: still)? (?:need|have|got|want) to (?:do|finish)\b",
    r"\bshould i (?:do|work on)\b",
    r"\bdo i (?:still )?have\b",
    r"\b(?:did|have) i (?:already |just )?(?:do|done|finish|finished|complete)",
    r"\b(?:show|list|see)(?: me)? (?:all|everything|today|tomorrow|done|finished|urgent|high|low|important)\b",
    r"\b(?:urgent|important|high[- ]priority|low[- ]priority) (?:things|stuff|ones)\b",
    r"^what(?:'s| is) (?:up )?(?:next|planned|the plan)",
    r"^(?:anything|something) (?:urgent|important|for|to do|today)",
)
_SHORT = pattern("list", _NOUN, "today", "this week", "tomorrow", "overdue", "everything", "all")
_SEARCH = pattern(
    rf"(?:find|search(?: for)?|look for|look up)\s+(?:(?:my|the|all)\s+)?(?:{_NOUN}\s+)?"
    r"(?:(?:about|with|for|containing|named)\s+)?(?P<search>.+)"
)
_ABOUT = pattern(r"\b(?:about|containing|mentioning|with the word|matching|regarding)\s+(?P<search>[^?]+)$")
_TAGGED = pattern(
    rf"\b(?:tagged|tags?|labell?ed|label)\s+(?:as\s+|with\s+)?(?P<tags>{TAG}(?:(?:,\s*|\s+and\s+){TAG})*)"
)
_OVERDUE = pattern(r"\b(?:overdue|late|behind|past due|missed)\b")
_COMPLETED = pattern(r"\b(?:completed|done|finished|closed|(?:did|have) i (?:already |just )?(?:do|finish|complete))\b")
_UNFINISHED = pattern(r"\b(?:not|un|isn't|aren't|to be|in)[ -]?(?:done|completed?|finished)\b", r"\bto get done\b")
_ALL = pattern(r"\b(?:all|everything|every)\b")
_PRIORITIES = (
    ("high", pattern(r"\b(?:high(?:est)?|top|urgent|important|critical)\b")),
    ("low", pattern(r"\b(?:low(?:est)?|unimportant)\b")),
    ("medium", pattern(r"\b(?:medium|normal)[- ]priority\b")),
)


def read_show(sentence: str, now: datetime) -> Show | None:
    words = sentence.rstrip("?! .")
    if found := _SEARCH.fullmatch(words):
        return Show(status="all", search=_bare(found["search"]))
    if not _SHORT.fullmatch(words) and not (_ASKS.match(words) and _ABOUT_THE_LIST.search(words)):
        return None
    return _read_filters(words, now)


def _read_filters(words: str, now: datetime) -> Show:
    about = _ABOUT.search(words)
    rest = words[: about.start()] if about else words
    rest, tags = cut_tags(rest)
    if tagged := _TAGGED.search(rest):
        tags += read_tags(tagged["tags"])
        rest = rest[: tagged.start()] + rest[tagged.end() :]
    overdue = _OVERDUE.search(rest) is not None
    show = Show(
        priority=next((level for level, words in _PRIORITIES if words.search(rest)), None),
        period=None if overdue else _period(rest, now),
        overdue=overdue,
        tags=tuple(dict.fromkeys(tags)),
        search=_bare(about["search"]) if about else "",
        count_only=re.match(r"how (?:many|much)|count", rest, re.IGNORECASE) is not None,
    )
    return _with_status(show, rest)


def _with_status(show: Show, words: str) -> Show:
    if _COMPLETED.search(words) and not _UNFINISHED.search(words):
        status = "completed"
    elif show == Show() and _ALL.search(words):
        status = "all"
    else:
        return show
    return Show(
        status=status,
        priority=show.priority,
        period=show.period,
        tags=show.tags,
        search=show.search,
        count_only=show.count_only,
    )


def _bare(text: str) -> str:
    return text.strip(" .!?\"'“”")


def _period(words: str, now: datetime) -> Period | None:
    today = now.date()
    monday, first = monday_of(today), today.replace(day=1)
    named = (
        ("this week", "this_week", monday, 7 * DAY),
        ("next week", None, monday + 7 * DAY, 7 * DAY),
        ("this weekend", None, monday + SATURDAY * DAY, 2 * DAY),
        ("next weekend", None, monday + (7 + SATURDAY) * DAY, 2 * DAY),
        ("this month", None, first, month_later(first, 1) - first),
        ("next month", None, month_later(first, 1), month_later(first, 2) - month_later(first, 1)),
    )
    for label, word, start, length in named:
        if re.search(rf"\b{label}\b", words, re.IGNORECASE):
            return _days(label, word, datetime.combine(start, time.min), length, now)
    _, due = cut_date(words, now)
    if due is None:
        return None
    day = due.when.date()
    near = {today: ("today", "today"), today + DAY: ("tomorrow", None)}
    label, word = near.get(day, (f"on {day.isoformat()}", None))
    return _days(label, word or day.isoformat(), datetime.combine(day, time.min), DAY, now)


def _days(label: str, word: str | None, start: datetime, length: timedelta, now: datetime) -> Period:
    last = start + length
    return Period(
        label=label,
        word=word,
        start=zones.at(start.date(), time.min, now),
        end=zones.at(last.date(), time.min, now),
    )
