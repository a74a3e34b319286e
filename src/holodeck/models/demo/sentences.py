"""English sentences about todos → what they ask for, as values.

Knows nothing of the conversation: "it" and "the second one" stay references. The rows of each table are tried in order,
so the particular ones stand before the general.
"""

import re
from datetime import datetime, time, timedelta
from typing import Any

from holodeck.models.demo.dates import DAY, at, cut_date, monday_of, read_date
from holodeck.models.demo.intents import (
    Create,
    Delete,
    Everything,
    Intent,
    It,
    Numbers,
    Show,
    Talk,
    Target,
    Titled,
    TodoChange,
)

LONGEST = 600  # characters; a longer text is a document, not a request


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_STRAIGHT = str.maketrans({0x2018: "'", 0x2019: "'", 0x2013: "-"})  # what phones type for apostrophes and hyphens
_POLITE_START = _compiled(
    r"(?:(?:hi|hey|hello|ok|okay|so|now|also|and|then|please|just)\b[\s,!.]+)*"
    r"(?:(?:can|could|would|will) you |i(?:'d| would) like (?:you )?to |let's )?(?:please )?"
)
_POLITE_END = _compiled(r"(?<![\s,])(?:[\s,]+(?:please|thanks|thank you|for me))+[.!?]*$")
_END = _compiled(r"(?:[\s.?]|(?<!!)!)+$")  # several exclamation marks are a priority and stay


def bare_request(text: str) -> str:
    """One line without courtesies and the full stop."""
    line = " ".join(text.translate(_STRAIGHT).split())
    polite = _POLITE_START.match(line)
    line = line[polite.end() :] if polite else line
    return _END.sub("", _POLITE_END.sub("", line).strip())


def read_command(request: str, now: datetime) -> Intent | None:
    """A sentence that can only be about todos."""
    return (
        _read_create(_NAMED_TODO, request, now)
        or _read_change(request, now)
        or _read_show(request, now)
        or _read_create(_NEW_TODO, request, now)
    )


def guess(request: str, now: datetime) -> Intent | None:
    """A date alone, which corrects the last todo, or a plain "buy eggs tomorrow"."""
    if due := read_date(re.sub(r"^(?:no,? |i meant? |rather )+", "", request, flags=re.IGNORECASE), now):
        return TodoChange(target=It(), due=due)
    return read_todo(request, now) if _BEGINS_LIKE_A_TODO.fullmatch(request) else None


# Small talk

_TOPICS = {
    "no": r"n|no(?:pe)?(?: thanks)?|cancel(?: (?:it|that))?|never ?mind|don'?t|stop|not now|keep (?:it|them)",
    "yes": r"y|yes|yep|yeah|sure|ok|okay|confirm(?:ed)?|do it|go ahead|please do"
    r"|(?:yes|ok|sure),? (?:please|(?:delete|remove) (?:it|them)|do it|go ahead)",
    "greeting": r"(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening|day))(?: there| all| holodeck| demo)?",
    "thanks": r"(?:ok |great |many )?(?:thanks|thank you|thx)(?: (?:a lot|so much|very much|for .+))?|great|cool|perfect",
    "bye": r"(?:good ?)?bye|good ?night|see you(?: .+)?|quit|exit",
    "identity": r"(?:who|what) are you|what(?:'s| is) your name|are you .*\b(?:gpt|chatgpt|ai|bot|human|model|claude)\b.*",
    "help": r"/?help(?: me)?|commands|examples?|\?+|what can (?:you|i) (?:do|say|ask)(?: .+)?"
    r"|how (?:do|does|can) (?:you|this|it|i) (?:work|use .+)|.*\bwhat you can do\b.*",
    "wellbeing": r"how are you(?: doing)?(?: today)?|what'?s up|how's it going",
}
_TALK = {topic: _compiled(pattern) for topic, pattern in _TOPICS.items()}


def read_talk(text: str) -> Talk | None:
    line = " ".join(text.translate(_STRAIGHT).split())
    words = line.strip(" .!,;:)(") or line
    words = re.sub(r"(?<=\w)\s*\?+$", "", words)
    return next((Talk(topic) for topic, phrases in _TALK.items() if phrases.fullmatch(words)), None)


# New todos

_NOUN = r"(?:to-?\s?do(?: item)?|task|reminder|item|note)"
_LIST = r"(?:on|to|in) (?:my|the) (?:to-?do |task |shopping )?(?:list|to-?dos?|tasks?)"
_LEVEL = r"(?P<level>urgent|important|(?:high|low)[- ]priority)"
_TEXT = r"(?P<text>(?:\s+.*)?)"
_NAMED_TODO = (
    _compiled(
        r"(?:(?:add|create|new)(?: an?| another| one)?|(?:make|set|schedule) (?:an?|another))(?: new)? "
        rf"(?:{_LEVEL} )?{_NOUN}(?: {_LIST})?(?:\s*[:,-]|\s+(?:to|for|called|about))?{_TEXT}"
    ),
)
_NEW_TODO = (
    _compiled(rf"(?:add|put|write) (?P<text>.+?) {_LIST}(?P<more>.*)"),
    _compiled(r"(?:add|create|new|note|to-?do|task|reminder)\s*[:,-]\s*(?P<text>.+)"),
    _compiled(rf"(?:(?:add|create|note(?: down)?|write down|new|schedule)(?: an?\b)?|remind me){_TEXT}"),
    _compiled(r"(?P<more>.+?),?\s+remind me\s+(?P<text>to .+)"),
    _compiled(r"(?:don't|do not) (?:let me )?forget (?:to |about )?(?P<text>.+)"),
    _compiled(r"i (?:need to|have to|must|should|want to) (?!know\b|see\b)(?P<text>.+)"),
    _compiled(rf"{_LEVEL}\s*[:!,-]+\s*(?P<text>.+)"),
)
_BEGINS_LIKE_A_TODO = _compiled(
    r"(?:book|bring|buy|call|clean|cook|e-?mail|feed|finish|fix|get|go to|learn|meet|order|pay|pick up|plan|prepare"
    r"|read|renew|repair|return|review|send|submit|take|text|visit|wash|water|write)\b.+(?<!\?)"
)


def _read_create(patterns: tuple[re.Pattern[str], ...], request: str, now: datetime) -> Create | None:
    for pattern in patterns:
        if match := pattern.fullmatch(request):
            found = match.groupdict("")
            text = f"{found['text'].strip()} {found.get('more', '').strip()}".strip()
            level = found.get("level")
            return read_todo(f"{text}, {level}" if text and level else text, now)
    return None


# The attributes inside a sentence: "buy eggs tomorrow at 3pm, urgent #home"

_HIGH = r"(?:urgent(?:ly)?|asap|(?:very )?important|high[- ]prio(?:rity)?|priority:? high)"
_LOW = r"(?:not (?:so |that )?(?:urgent|important)|no rush|some ?day|low[- ]prio(?:rity)?|priority:? low)"
_MEDIUM = r"(?:(?:medium|normal)[- ]priority)"
_LEVELS = (("low", _LOW), ("medium", _MEDIUM), ("high", _HIGH))  # "not urgent" has to be seen before "urgent"
_BEFORE_A_LEVEL = r"(?<![\s,;.(-])[\s,;.(-]+(?:(?:and|with|as|at|but)\s+)?(?:it'?s\s+|make it\s+)?(?:an?\s+)?"
_PRIORITIES = (
    *((level, _compiled(rf"{_BEFORE_A_LEVEL}{words}[)\s.!]*$")) for level, words in _LEVELS),
    *((level, _compiled(rf"^{words}\s*[:,!-]+\s*")) for level, words in _LEVELS),
    ("high", _compiled(r"\s*!{2,}$")),
)
_TAG = r"[^\W\d_][\w-]*"
_TAGS = r"[#\w][\w#, -]*"  # read_tags takes it apart
_HASH_TAG = _compiled(rf"(?:^|(?<=[\s,(]))(?:and\s+(?=#))?#({_TAG})[),]?")
_TAG_WORDS = _compiled(
    rf"(?<![\s,])[\s,]+(?:and\s+)?(?:with )?(?:tag(?:s|ged)?|label(?:led|ed)?)\s+(?:it\s+)?(?:as\s+)?({_TAGS})$"
)
_QUOTED = re.compile(r"\"[^\"]+\"|“[^”]+”|(?<!\w)'[^']+'(?!\w)")
_HIDDEN = 0xE000  # the first private character: no keyboard writes it, and no rule matches it


def read_todo(sentence: str, now: datetime) -> Create:
    """A new todo from a sentence. What is in quotation marks is title and nothing else."""
    quotes = dict(enumerate(_QUOTED.findall(sentence), _HIDDEN))
    for code, quote in quotes.items():
        sentence = sentence.replace(quote, chr(code), 1)
    text, tags = _cut_tags(sentence)
    text, priority = _cut_priority(text)
    text, due = cut_date(text, now)
    if priority is None:  # "buy eggs, urgent, tomorrow"
        text, priority = _cut_priority(text)
    return Create(title=_title(text, quotes), due=due, priority=priority, tags=tags)


def _cut_tags(text: str) -> tuple[str, tuple[str, ...]]:
    tags = [tag.lower() for tag in _HASH_TAG.findall(text)]
    text = " ".join(_HASH_TAG.sub(" ", text).split())
    if match := _TAG_WORDS.search(text):
        tags += read_tags(match[1])
        text = text[: match.start()]
    return text, tuple(dict.fromkeys(tags))


def read_tags(text: str) -> tuple[str, ...]:
    return tuple(tag for word in re.findall(_TAG, text) if (tag := word.lower()) != "and")


def _cut_priority(text: str) -> tuple[str, str | None]:
    for level, words in _PRIORITIES:
        if match := words.search(text):
            return f"{text[: match.start()]} {text[match.end() :]}".strip(), level
    return text, None


def _title(text: str, quotes: dict[int, str]) -> str:
    title = re.sub(r"^(?:to|that|about|[:,-]+)\s+", "", " ".join(text.split()), flags=re.IGNORECASE)
    title = title.strip(" ,;:.!?-")
    alone = len(title) == 1 and ord(title) in quotes
    title = title.translate(quotes)
    title = title[1:-1] if alone else title
    return title[:1].upper() + title[1:]


# Which todo is meant

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ONE = rf"(?:(?:number |no\. ?|task |todo |# ?)?\d{{1,3}}(?:st|nd|rd|th)?|{'|'.join(_ORDINALS)}|last)"
_THING = r"(?: (?:ones?|tasks?|todos?|items?))?"
_IT = r"(?:it|that|this|them|(?:that|this|the) (?:one|task|todo|item|reminder))"
_REFERENCE = rf"(?:{_IT}|(?:the )?{_ONE}{_THING})"
_IT_ALONE = _compiled(_IT)
_ALL = _compiled(
    r"(?:all|everything|both)(?: (?:of )?(?:them|it|my|the))?(?: (?:to-?dos|tasks|items))?|(?:my|the) list"
)
_POSITIONS = _compiled(rf"(?:the )?({_ONE}(?:(?:,\s*|,?\s+and\s+)(?:the )?{_ONE})*){_THING}")
_AROUND_A_TITLE = _compiled(r"^(?:(?:the|my) )?(?:(?:task|todo|item|reminder) )?|\s+(?:one|task|todo|item|reminder)$")


def read_target(phrase: str) -> Target:
    words = phrase.strip(" .,!?")
    if _IT_ALONE.fullmatch(words):
        return It()
    if _ALL.fullmatch(words):
        return Everything()
    if match := _POSITIONS.fullmatch(words):
        return Numbers(tuple(_number(one.lower()) for one in re.findall(_ONE, match[1], re.IGNORECASE)))
    return Titled(_AROUND_A_TITLE.sub("", words).strip("\"'“” ") or words)


def _number(word: str) -> int:
    if word in _ORDINALS:
        return _ORDINALS.index(word) + 1
    digits = re.search(r"\d+", word)
    return int(digits[0]) if digits else -1


# Changes. A group is named after what it says; the values beside a pattern are set in any case.

_WHAT = r"(?P<what>(?!(?:what|which|who|how)\b).+?)"
_THIS = rf"(?P<what>{_REFERENCE})"
_IS = r"(?:'s| is)"
_DONE = r"(?:done|completed?|finished)"
_NOT_DONE = rf"(?:not (?:yet )?{_DONE}|undone|pending|open|unfinished)"
_PRIORITY = r"(?P<priority>(?:(?:an?|more|very|not) )*(?:urgent|asap|important|(?:high|low|medium|normal)(?:[- ]prio(?:rity)?)?))"
_CHANGES: tuple[tuple[re.Pattern[str], dict[str, Any]], ...] = tuple(
    (_compiled(pattern), given)
    for pattern, given in (
        (
            rf"(?:remove|delete|clear) (?:the |its )?(?:due )?(?:date|deadline)(?: (?:of|from) {_WHAT})?",
            {"undated": True},
        ),
        (rf"(?:remove|delete) (?:the )?(?:tags? |(?=#))(?P<remove_tags>{_TAGS}) from {_WHAT}", {}),
        (rf"(?:re-?open|restore|uncheck)(?:\s+{_WHAT})?", {"status": "pending"}),
        (rf"(?:mark|set)\s+{_WHAT}\s+(?:as |to )?{_NOT_DONE}(?: again)?", {"status": "pending"}),
        (rf"{_WHAT}\s+(?:is|are)(?:n't| not) {_DONE}(?: yet)?", {"status": "pending"}),
        (rf"(?:mark|set|check|tick)\s+(?:off\s+)?(?:{_WHAT}\s+)?(?:as\s+|to\s+)?{_DONE}", {"status": "completed"}),
        (rf"(?:check|tick|cross) off\s+{_WHAT}", {"status": "completed"}),
        (rf"(?:check|tick|cross)\s+{_WHAT}\s+off(?: my list)?", {"status": "completed"}),
        (rf"(?:(?:i'm |i am )?(?:done|finished) with|completed?|finished)\s+{_WHAT}", {"status": "completed"}),
        (rf"(?:(?:it|that){_IS} )?(?:all )?{_DONE}", {"status": "completed"}),
        (rf"{_WHAT}\s+(?:is|are)\s+(?:now )?{_DONE}", {"status": "completed"}),
        (rf"(?:tag|label)\s+{_THIS}\s+(?:as\s+|with\s+)?(?P<add_tags>{_TAGS})", {}),
        (rf"(?:tag|label)\s+{_WHAT}\s+(?:as\s+|with\s+|(?=#))(?P<add_tags>{_TAGS})", {}),
        (rf"add (?:the )?(?:tags? |(?=#))(?P<add_tags>{_TAGS}) to {_WHAT}", {}),
        (rf"(?:set|change) (?:the |its )?priority(?: of {_WHAT})? to {_PRIORITY}", {}),
        (rf"(?:make|mark|set)\s+{_WHAT}\s+(?:as |to )?{_PRIORITY}", {}),
        (rf"{_THIS}{_IS}\s+{_PRIORITY}", {}),
        (rf"(?:rename|retitle)\s+{_WHAT}\s+(?:to|as)\s+(?P<title>.+)", {}),
        (rf"(?:change|set) (?:the |its )?(?:title|name)(?: of\s+{_WHAT})?\s+to\s+(?P<title>.+)", {}),
        (rf"(?P<moved>{_REFERENCE}){_IS} due (?P<when>.+)", {}),
        (r"(?:move|push|postpone|reschedule|set|make)\s+(?P<moved>.+)", {}),
        (rf"(?:change|edit|update)\s+{_WHAT}\s+to\s+(?P<new>.+)", {}),
    )
)
_DELETE = _compiled(
    rf"(?:delete|remove|drop|get rid of)(?:\s+{_WHAT}(?:\s+(?:from|off) (?:my |the )?(?:to-?do )?list)?)?"
)
_BEFORE_A_DATE = _compiled(r"\s+(?:to|until|for|by|due)$")


def _read_change(request: str, now: datetime) -> Intent | None:
    for pattern, given in _CHANGES:
        match = pattern.fullmatch(request)
        if match and (change := _change(match.groupdict(), given, now)):
            return change
    if re.fullmatch(rf"(?:change|edit|update) {_REFERENCE}", request, re.IGNORECASE):
        return Talk("how_to_change")
    if match := _DELETE.fullmatch(request):
        return Delete(target=read_target(match["what"]) if match["what"] else It())
    return None


def _change(found: dict[str, str | None], given: dict[str, Any], now: datetime) -> TodoChange | None:
    """The change that the groups of a pattern describe; None if they make no sense ("move the sofa")."""
    what, new = found.get("what"), found.get("new") or ""
    changes: dict[str, Any] = dict(given)
    for name in ("add_tags", "remove_tags"):
        if tags := found.get(name):
            changes[name] = read_tags(tags)
    if level := _level(found.get("priority") or new):
        changes["priority"] = level
    elif due := read_date(new, now) if new else None:
        changes["due"] = due
    elif title := found.get("title") or new:
        changes["title"] = read_title(title)
    if moved := found.get("moved"):
        rest, changes["due"] = cut_date(f"{moved} {found.get('when') or ''}".strip(), now)
        what = _BEFORE_A_DATE.sub("", rest)
    changes = {name: value for name, value in changes.items() if value}
    return TodoChange(target=read_target(what) if what else It(), **changes) if changes else None


def read_title(text: str) -> str:
    return _title(text.strip("\"'“” "), {})


def _level(text: str) -> str | None:
    """The priority, if the text has nothing else; "high" alone counts too."""
    for level, words in _LEVELS:
        if re.fullmatch(rf"(?:(?:an?|more|very) )*(?:{words}|{level})", text.strip(), re.IGNORECASE):
            return level
    return None


# Questions about the list

_THINGS = r"(?:to-?\s?dos?|tasks?|items?|reminders?|lists?)"
_ASKS = _compiled(
    r"(?:show|list|see|what|which|anything|any|how many|(?:do|did|have) i|(?:is|are) there|my|overdue|open|all|give me)\b"
)
_ABOUT_THE_LIST = _compiled(
    rf"\b{_THINGS}\b|#{_TAG}|\b(?:due|overdue|left|pending|tagged|completed)\b|\bi have\b|\bdid i (?:do|finish|complete)"
    r"|\b(?:show|list)(?: me)? (?:all|everything|today|tomorrow|done|urgent|high|low)\b|^anything (?:urgent|to do|today)"
)
_SHORT = _compiled(rf"{_THINGS}|today|tomorrow|this week|overdue|everything")
_SEARCH = _compiled(r"(?:find|search(?: for)?|look for)\s+(?P<search>.+)")
_ABOUT = _compiled(r"\b(?:about|containing|with the word)\s+(?P<search>[^?]+)$")
_TAGGED = _compiled(rf"\btagged\s+(?:as\s+|with\s+)?(?P<tags>{_TAGS})")


def _read_show(request: str, now: datetime) -> Show | None:
    words = request.rstrip("?! .")
    if found := _SEARCH.fullmatch(words):
        return Show(status="all", search=found["search"].strip(" \"'“”"))
    if not _SHORT.fullmatch(words) and not (_ASKS.match(words) and _ABOUT_THE_LIST.search(words)):
        return None
    about, tagged = _ABOUT.search(words), _TAGGED.search(words)
    rest = words[: min(found.start() for found in (about, tagged) if found)] if about or tagged else words
    rest, tags = _cut_tags(rest)
    filters: dict[str, Any] = {
        "tags": tags + (read_tags(tagged["tags"]) if tagged else ()),
        "search": about["search"].strip(" \"'“”") if about else "",
    }
    for level, phrase in (("high", r"\b(?:high|urgent|important)\b"), ("low", r"\blow\b")):
        if re.search(phrase, rest, re.IGNORECASE):
            filters["priority"] = level
    filters |= (
        {"due_filter": "overdue"} if re.search(r"\b(?:overdue|late)\b", rest, re.IGNORECASE) else _period(rest, now)
    )
    if re.search(r"(?<!not )\b(?:completed|done|finished|did i)\b", rest, re.IGNORECASE):
        filters["status"] = "completed"
    elif Show(**filters) == Show() and re.search(r"\b(?:all|everything)\b", rest, re.IGNORECASE):
        filters["status"] = "all"
    return Show(**filters)


def _period(words: str, now: datetime) -> dict[str, Any]:
    today, monday = now.date(), monday_of(now.date())
    for name, first, due_filter in (("this week", monday, "this_week"), ("next week", monday + 7 * DAY, None)):
        if re.search(rf"\b{name}\b", words, re.IGNORECASE):
            period = at(first, time.min, now), at(first + timedelta(days=7), time.min, now)
            return {"period": period, "period_name": name, "due_filter": due_filter}
    _, due = cut_date(words, now)
    if due is None:
        return {}
    day = due.when.date()
    name = {today: "today", today + DAY: "tomorrow"}.get(day, f"on {day.isoformat()}")
    period = at(day, time.min, now), at(day + DAY, time.min, now)
    return {"period": period, "period_name": name, "due_filter": "today" if day == today else day.isoformat()}
