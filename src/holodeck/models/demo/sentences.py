"""English sentences about todos → requests: one table of patterns, tried in order.

Knows nothing of the conversation: "it" and "the second one" stay words, which `todos.py` looks up.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holodeck.models.demo.dates import When, cut_date, read_date

LONGEST = 600  # characters; a longer text is a document, not a request


@dataclass(frozen=True, slots=True)
class Request:
    """The request that a sentence makes.

    `action` is create, list, update, delete, or a topic of `small_talk.py`. `fields` are named like the arguments of the todo
    tools, but for `due`, a `When`. `target` are the words for a todo; empty means the last one.
    """

    action: str
    fields: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    chosen: tuple[Any, ...] = ()  # the todos, once the user has chosen them
    confirmed: bool = False


_STRAIGHT = str.maketrans({0x2018: "'", 0x2019: "'", 0x2013: "-"})  # what phones type for apostrophes and hyphens
_POLITE_START = re.compile(
    r"(?:(?:hi|hey|hello|ok|okay|so|now|also|and|then|please|just)\b[\s,!.]+)*"
    r"(?:(?:can|could|would|will) you |i(?:'d| would) like (?:you )?to )?(?:please )?",
    re.IGNORECASE,
)
_END = re.compile(r"(?:(?<![\s,])[\s,]+(?:please|thanks|thank you|for me))*(?:[.?\s]|(?<!!)!)*$", re.IGNORECASE)

_NEW = r"(?:(?:add|create|new)(?: an?| another)?|(?:make|set|schedule) an?)(?: new)?"
_NOUN = r"(?:to-?do(?: item)?|task|reminder|item|note)"
_LIST = r"(?:on|to|in) (?:my|the) (?:to-?do |task |shopping )?(?:list|to-?dos?|tasks?)"
_LEVELS = {  # "not urgent" must be seen before "urgent"
    "low": r"(?:not (?:so |that )?(?:urgent|important)|no rush|some ?day|low(?:[- ]prio(?:rity)?)?)",
    "high": r"(?:(?:very |more )?(?:urgent|important)|asap|high(?:[- ]prio(?:rity)?)?)",
    "medium": r"(?:(?:medium|normal)(?:[- ]prio(?:rity)?)?)",
}
_LEVEL = rf"(?P<level>{'|'.join(_LEVELS.values())})"
_TAGS = r"(?P<tags>[#\w][\w#, -]*)"
_WHAT = r"(?P<target>(?!(?:what|which|who|how)\b).+?)"
_DONE = r"(?P<undone>not (?:yet )?|un)?(?:done|completed?|finished)"
_VERBS = "book|bring|buy|call|clean|cook|email|feed|finish|fix|get|go to|learn|meet|order|pay|pick up|plan|prepare|read"
_VERBS += "|renew|return|review|send|submit|take|visit|wash|water|write"
_THINGS = r"(?:to-?dos?|tasks?|items?|reminders?|lists?)"
_ASKS = r"(?:show|list|see|what|which|any|anything|how many|(?:do|did|have) i|(?:is|are) there|my|overdue|open|all)"
_FILTER = r"(?:#\w|\b(?:due|overdue|pending|tagged|completed|everything|i have|did i (?:do|finish))|urgent)"

# pattern, action, fields that are set in any case. Groups: `target`; `text` and `more`, a new todo with its attributes;
# `title`; `level`, a priority; `tags`; `undone`; `moved`, a todo and a date; `new`, a date, a priority or a title;
# `search`; `question`, words that filter the list.
_GRAMMAR: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (rf"{_NEW}(?: {_LEVEL})? {_NOUN}(?: {_LIST})?(?:[:,]|\s+(?:to|for|called))?(?P<text>(?:\s.*)?)", "create", {}),
    (rf"(?:remove|delete|clear) (?:the |its )?(?:due )?date(?: (?:of|from) {_WHAT})?", "update", {"due": ""}),
    (rf"re-?open(?:\s+{_WHAT})?", "update", {"status": "pending"}),
    (rf"(?:(?:check|tick) off|(?:done|finished) with|complete|finished)\s+{_WHAT}", "update", {"status": "completed"}),
    (rf"(?:mark|set)\s+{_WHAT}\s+(?:as\s+|to\s+)?{_DONE}", "update", {"status": "completed"}),
    (rf"(?:{_WHAT}(?:'s|\s+is)\s+)?{_DONE}", "update", {"status": "completed"}),
    (rf"(?:tag|label)\s+{_WHAT}\s+(?:as\s+|with\s+|(?=#)){_TAGS}", "update", {}),
    (rf"(?:set|change) (?:the |its )?priority(?: of {_WHAT})? to {_LEVEL}", "update", {}),
    (rf"(?:make|mark|set)\s+{_WHAT}\s+(?:as |to )?{_LEVEL}", "update", {}),
    (rf"(?P<target>it|that)(?:'s| is)\s+{_LEVEL}", "update", {}),
    (rf"rename\s+{_WHAT}\s+(?:to|as)\s+(?P<title>.+)", "update", {}),
    (r"(?:move|push|postpone|reschedule|set|make)\s+(?P<moved>.+)", "update", {}),
    (rf"(?:change|update)\s+{_WHAT}\s+to\s+(?P<new>.+)", "update", {}),
    (rf"(?:delete|remove|drop|get rid of)(?:\s+{_WHAT}(?:\s+from (?:my |the )?list)?)?", "delete", {}),
    (rf"(?P<question>{_THINGS}|today|tomorrow|this week|overdue|everything)[?! .]*", "list", {"status": "pending"}),
    (rf"(?P<question>{_ASKS}\b.*?(?:\b{_THINGS}|{_FILTER})\b.*?)[?! .]*", "list", {"status": "pending"}),
    (r"(?:find|search(?: for)?|look for)\s+(?P<search>.+)", "list", {"status": "all"}),
    (rf"(?:add|put) (?P<text>.+?) {_LIST}(?P<more>.*)", "create", {}),
    (r"(?:add|create|new|schedule)(?: an?\b)?[:,]?(?P<text>(?:\s.*)?)", "create", {}),
    (r"(?:note|todo|task|remind me(?: of)?)[:,]?(?P<text>(?:\s.*)?)", "create", {}),
    (r"(?:don't (?:let me )?forget(?: to)?|i (?:need to|have to|must|should)) (?P<text>.+)", "create", {}),
    (rf"{_LEVEL}\s*[:!,-]+\s*(?P<text>.+)", "create", {}),
)
_ROWS = tuple((re.compile(pattern, re.IGNORECASE), action, fields) for pattern, action, fields in _GRAMMAR)


def one_line(text: str) -> str:
    return " ".join(text.translate(_STRAIGHT).split())


def bare_request(line: str) -> str:
    """A line without courtesies and the full stop; several exclamation marks are a priority and stay."""
    polite = _POLITE_START.match(line)
    return _END.sub("", line[polite.end() if polite else 0 :])


def read_command(request: str, now: datetime) -> Request | None:
    """A sentence that can only be about todos."""
    for pattern, action, fields in _ROWS:
        if match := pattern.fullmatch(request):
            found = {name: words.strip() for name, words in match.groupdict("").items()}
            if read := _read_row(action, found, fields, now):
                return read
    return None


def guess(request: str, now: datetime) -> Request | None:
    """A date alone, which corrects the last todo, or a plain "buy eggs tomorrow"."""
    if due := read_date(re.sub(r"^(?:no,? |i meant? |rather )+", "", request, flags=re.IGNORECASE), now):
        return Request("update", {"due": due})
    return read_todo(request, now) if re.match(rf"(?:{_VERBS})\b.+(?<!\?)$", request, re.IGNORECASE) else None


def _read_row(action: str, found: dict[str, str], fields: dict[str, Any], now: datetime) -> Request | None:
    """The request that the groups of a pattern describe; None if they make no sense ("move the sofa")."""
    target, new = found.get("target", ""), found.get("new", "")
    level, due = _level(found.get("level") or new), read_date(new, now)
    if action == "create":
        return read_todo(f"{found['text']} {found.get('more', '')}".strip(), now, level)
    if action == "delete":
        return Request("delete", target=target)
    if action == "list":
        filters = _filters(found["question"], now) if "question" in found else {"search": found["search"].strip("\"'")}
        return Request("list", fields | filters)
    if moved := found.get("moved"):
        target, due = cut_date(moved, now)
    title = found.get("title") or ("" if due or level else new)
    changes = {"priority": level, "tags": _tags(found.get("tags", "")), "due": due, "title": _title(title)}
    changes |= {"status": "pending" if found.get("undone") else None}
    changes = fields | {name: value for name, value in changes.items() if value}
    return Request("update", changes, target) if changes else None


# The attributes inside a sentence: "buy eggs tomorrow at 3pm, urgent #home"

_HASH_TAG = re.compile(r"(?:^|(?<=[\s,]))#([^\W\d_][\w-]*),?")
_TAG_WORDS = re.compile(rf"(?<![\s,])[\s,]+(?:tagged|tag it|tags?)\s+(?:as\s+|with\s+)?{_TAGS}$", re.IGNORECASE)
_LEVEL_END = re.compile(
    rf"(?<![\s,;-])(?:[\s,;-]+(?:it's |with )?(?!(?:high|low|medium|normal)$){_LEVEL}|\s*!!+)$",
    re.IGNORECASE,
)
_FILTERS = (
    (r"\b(?:all|everything)\b", "status", "all"),
    (r"(?<!not )\b(?:completed|done|finished|did i)\b", "status", "completed"),
    (r"\b(?:high|urgent|important)\b", "priority", "high"),
    (r"\blow\b", "priority", "low"),
    (r"\bthis week\b", "due_date_filter", "this_week"),
    (r"\b(?:overdue|late)\b", "due_date_filter", "overdue"),
)


def read_todo(text: str, now: datetime, level: str | None = None) -> Request:
    """The request for a new todo, whose attributes stand at the edges of the text."""
    text, tags = _cut_tags(text)
    due: When | None = None
    for _ in range(2):  # "urgent, tomorrow" and "tomorrow, urgent"
        if match := _LEVEL_END.search(text):
            text, level = text[: match.start()], _level(match["level"] or "high")
        text, date = cut_date(text, now)
        due = date or due
    fields = {"title": _title(text), "due": due, "priority": level, "tags": tags}
    return Request("create", {name: value for name, value in fields.items() if value})


def _filters(question: str, now: datetime) -> dict[str, Any]:
    """The filters of list_todos: "which urgent tasks about eggs are due tomorrow"."""
    words, tags = _cut_tags(question)
    words, _, search = words.partition(" about ")
    fields = {name: value for phrase, name, value in _FILTERS if re.search(phrase, words, re.IGNORECASE)}
    _, due = cut_date(words, now)
    if due and due.day:
        fields.setdefault("due_date_filter", "today" if due.day == now.date() else due.day.isoformat())
    return fields | {"tags": tags, "search": search}


def _cut_tags(text: str) -> tuple[str, list[str]]:
    tags = _tags(" ".join(_HASH_TAG.findall(text)))
    text = " ".join(_HASH_TAG.sub(" ", text).split())
    if match := _TAG_WORDS.search(text):
        text, tags = text[: match.start()], tags + _tags(match["tags"])
    return text, list(dict.fromkeys(tags))


def _tags(words: str) -> list[str]:
    return [word for word in re.findall(r"[^\W\d_][\w-]*", words.lower()) if word != "and"]


def _level(words: str) -> str | None:
    return next((level for level, phrase in _LEVELS.items() if re.fullmatch(phrase, words, re.IGNORECASE)), None)


def _title(text: str) -> str:
    title = re.sub(r"^(?:to|that|about)\s+", "", text.strip(" ,;:.!?-"), flags=re.IGNORECASE)
    if re.fullmatch(r"(\"|').*\1", title):
        title = title[1:-1]
    return title[:1].upper() + title[1:]
