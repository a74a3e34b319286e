"""An English sentence → what it asks for. Patterns are tried in order; the first that fits wins.

Knows nothing of the conversation: "it" and "the second one" stay references, which `scripts.py` resolves.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from holodeck.models.demo.dates import cut_date, read_date
from holodeck.models.demo.details import clean_title, hide_quotes, read_details, read_priority, read_tags
from holodeck.models.demo.filters import read_show
from holodeck.models.demo.intents import Change, Create, Delete, Intent, Talk, Target, Unknown
from holodeck.models.demo.pieces import NUMBERS
from holodeck.models.demo.talk import read_answer, read_talk
from holodeck.models.demo.targets import REFERENCE, read_target
from holodeck.models.demo.todos import PAST_TENSES

_STRAIGHT = str.maketrans({0x2018: "'", 0x2019: "'", 0x2013: "-"})  # what phones type for apostrophes and hyphens
LONGEST = 600  # characters; a longer text is a document, not a request

_POLITE = re.compile(
    r"^(?:(?:hi|hey|hello|ok|okay|so|well|now|also|and|then|please|kindly|just|actually|oh|great|thanks|yes)\b[\s,!.]+)*"
    r"(?:(?:can|could|would|will) you (?:please |kindly |also )?|i(?:'d| would) (?:like|love|want) (?:you )?to "
    r"|i want (?:you )?to (?=add|create|delete|remove|see|mark|rename|complete)|let'?s |go ahead and )?(?:please )?",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"(?:[\s,]+(?:please|thanks|thank you|for me|ok|okay|will you|would you|can you))+[.!?]*$", re.IGNORECASE
)
_SPLIT = re.compile(
    r"\s*(?:[,;.]\s*)?\b(?:and )?then\s+|\s*;\s+|[.!]\s+(?=\w)|,?\s+and\s+(?=(?:show|list|what|remind me|add|mark|tag|make it|delete it|set)\b)",
    re.IGNORECASE,
)
_PRIORITY = r"(?P<priority>(?:(?:a|an|more|very|really|super|as|of|top|not|so|that) )*(?:urgent|asap|important|critical|unimportant|(?:high(?:est)?|low(?:est)?|medium|normal|top)(?:[- ]prio(?:rity)?)?))"
_WHAT = r"(?P<what>.+?)"
_TAGS = r"(?P<tags>#?[^\W\d_][\w-]*(?:(?:\s*,\s*|\s+and\s+|\s+)#?[^\W\d_][\w-]*)*)"
_DONE = r"(?:done|completed?|finished|off|as off)"
_VERBS = (
    "buy|call|phone|text|email|e-mail|mail|message|pay|book|order|clean|wash|fix|repair|write|send|submit|prepare|plan|pick up|drop off|get|bring|meet|visit|read|study|learn|"
    "practice|water|feed|walk|return|renew|schedule|review|cook|bake|print|sign|update my|watch|organi[sz]e|ship|deploy|install|go to|take|make an appointment|vacuum|research|finish"
)

Reader = Callable[[re.Match[str], datetime], Intent | None]


def read_sentence(text: str, now: datetime) -> tuple[Intent, ...]:
    """What a message asks for, in order; `(Unknown(),)` when it is none of our sentences."""
    sentence = " ".join(text.translate(_STRAIGHT).split())
    if len(sentence) > LONGEST:
        return (Talk("too_long"),)
    whole = _read_one(sentence, now)
    hidden, quotes = hide_quotes(sentence)
    parts = [part for part in _SPLIT.split(hidden) if part.strip()]
    if len(parts) > 1:
        intents = [_read_one(clean_spaces(part, quotes), now) for part in parts]
        if not any(
            isinstance(intent, Unknown | Talk) or _only_guessed(intent, part)
            for intent, part in zip(intents, parts, strict=True)
        ):
            return tuple(intents)
    return (whole,)


def clean_spaces(text: str, quotes: dict[str, str]) -> str:
    for placeholder, passage in quotes.items():
        text = text.replace(placeholder, passage)
    return text.strip(" ,")


def _only_guessed(intent: Intent, part: str) -> bool:
    return isinstance(intent, Create) and not any(pattern.fullmatch(part.strip()) for pattern in _CREATE)


def _read_one(sentence: str, now: datetime) -> Intent:
    if answer := read_answer(sentence.strip(" .!?,")) or read_talk(sentence):
        return answer
    request = _COURTESY.sub("", sentence[_POLITE.match(sentence).end() :]).strip()  # type: ignore[union-attr]  # every part of it is optional
    request = re.sub(r"(?:[\s.?]|(?<!!)!)+$", "", request)
    return (
        _match(_CHANGES, request, now)
        or read_show(request, now)
        or _read_create(request, now)
        or _match(_GUESSES, request, now)
        or Unknown()
    )


def _match(table: tuple[tuple[re.Pattern[str], Reader], ...], request: str, now: datetime) -> Intent | None:
    for pattern, read in table:
        match = pattern.fullmatch(request)
        if match and (intent := read(match, now)) is not None:
            return intent
    return None


# Changes: what is to become of a todo that is there.


def _target(match: re.Match[str]) -> Target:
    return read_target(match["what"])


def _delete(match: re.Match[str], _now: datetime) -> Intent:
    return Delete(target=_target(match))


def _status(status: str) -> Reader:
    return lambda match, _now: Change(target=_target(match), status=status)


def _complete_unless_dated(match: re.Match[str], now: datetime) -> Intent | None:
    """To "finish the report" reports it done; "finish the report by friday" is a plan."""
    details = read_details(match["what"], now)
    return (
        None if details.due or details.tags or details.priority else Change(target=_target(match), status="completed")
    )


def _tag(match: re.Match[str], _now: datetime) -> Intent:
    return Change(target=_target(match), add_tags=tuple(read_tags(match["tags"])))


def _untag(match: re.Match[str], _now: datetime) -> Intent:
    return Change(target=_target(match), remove_tags=tuple(read_tags(match["tags"])))


def _priority(match: re.Match[str], _now: datetime) -> Intent | None:
    priority = read_priority(match["priority"])
    return Change(target=_target(match), priority=priority) if priority else None


def _set_priority(priority: str) -> Reader:
    return lambda match, _now: Change(target=_target(match), priority=priority)


def _rename(match: re.Match[str], _now: datetime) -> Intent:
    return Change(target=_target(match), title=clean_title(*hide_quotes(match["title"])))


def _undate(match: re.Match[str], _now: datetime) -> Intent:
    return Change(target=_target(match), undated=True)


def _shift(match: re.Match[str], _now: datetime) -> Intent:
    counted = match["count"].lower()
    count = 1 if counted in {"a", "an", "another"} else NUMBERS.get(counted) or int(counted)
    unit = {"min": timedelta(minutes=1), "hou": timedelta(hours=1), "day": timedelta(days=1), "wee": timedelta(weeks=1)}
    return Change(target=_target(match), shift=count * unit[match["unit"].lower()[:3]])


def _reschedule(match: re.Match[str], now: datetime) -> Intent | None:
    hidden, quotes = hide_quotes(match["what"])
    rest, due = cut_date(hidden, now)
    what = clean_spaces(
        re.sub(r"\s+(?:back |forward )?(?:to|until|till|for|by|is|back|forward|due|out)$", "", rest), quotes
    )
    return Change(target=read_target(what), due=due) if due and what else None


def _change_to(match: re.Match[str], now: datetime) -> Intent:
    """In "change X to Y", Y says what changes."""
    target, new = _target(match), match["new"]
    if due := read_date(new, now):
        return Change(target=target, due=due)
    if priority := read_priority(new):
        return Change(target=target, priority=priority)
    return Change(target=target, title=clean_title(*hide_quotes(new)))


def _table(*rows: tuple[str, Reader]) -> tuple[tuple[re.Pattern[str], Reader], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE), read) for pattern, read in rows)


_OF = r"(?:of|for|from|on|to)"
_CHANGES = _table(
    (
        rf"(?:remove|delete|drop|clear) (?:the |its )?(?:due date|deadline|date|reminder time)(?: {_OF} {_WHAT})?",
        lambda m, n: _undate(m, n) if m["what"] else Change(target=read_target("it"), undated=True),
    ),
    (rf"(?:remove|delete|drop|take) (?:the )?(?:tags?|labels?) {_TAGS} (?:from|off) {_WHAT}", _untag),
    (rf"(?:remove|delete|drop|take) (?P<tags>#[\w-]+) (?:from|off) {_WHAT}", _untag),
    (
        r"(?:delete|remove|erase|discard|drop|trash|scrap|get rid of|cancel|throw away)\s+"
        + _WHAT
        + r"(?:\s+(?:from|off) (?:my |the )?(?:to-?do )?(?:list|todos?|tasks?))?",
        _delete,
    ),
    (rf"(?:re-?open|uncomplete|uncheck|restore|unmark|undo)\s+{_WHAT}", _status("pending")),
    (
        rf"(?:mark|set|change)\s+{_WHAT}\s+(?:as |to )?(?:not (?:yet )?(?:done|completed?|finished)|undone|incomplete|pending|open|unfinished|to ?do)(?: again)?",
        _status("pending"),
    ),
    (rf"{_WHAT}\s+(?:is|are)(?:n't| not) (?:done|finished|completed?)(?: yet| after all)?", _status("pending")),
    (
        rf"(?:mark|set|check|tick|cross|flag)\s+(?:off\s+)?{_WHAT}\s+(?:as\s+|to\s+)?{_DONE}(?: (?:of )?(?:my |the )?list)?",
        _status("completed"),
    ),
    (rf"(?:check|tick|cross) off\s+{_WHAT}", _status("completed")),
    (rf"(?:i(?:'m| am) )?(?:done|finished|through) with\s+{_WHAT}", _status("completed")),
    (rf"(?:complete|finish|finished|completed|accomplished|done:?)\s+{_WHAT}", _complete_unless_dated),
    (
        r"(?:(?P<what>it|that|this)(?:'?s| is) )?(?:all )?(?:done|finished|completed)",
        lambda _m, _n: Change(target=read_target("it"), status="completed"),
    ),
    (
        rf"{_WHAT}\s+(?:is|are|has been|have been|was|were|got)\s+(?:now |already )?(?:done|finished|completed?)(?: now| already)?",
        _status("completed"),
    ),
    (rf"(?:tag|label)\s+(?P<what>{REFERENCE})\s+(?:as\s+|with\s+)?{_TAGS}", _tag),
    (rf"(?:tag|label)\s+{_WHAT}\s+(?:as|with)\s+{_TAGS}", _tag),
    (rf"(?:tag|label)\s+{_WHAT}\s+(?P<tags>#\w[\w-]*(?:[\s,]+(?:and )?#\w[\w-]*)*)", _tag),
    (rf"(?:add|put|attach) (?:the |an? )?(?:tags?|labels?) {_TAGS} (?:to|on) {_WHAT}", _tag),
    (rf"(?:add|put) (?P<tags>#[\w-]+(?:[\s,]+(?:and )?#[\w-]+)*) (?:to|on) {_WHAT}", _tag),
    (rf"(?:set|change|update) (?:the )?priority {_OF} {_WHAT} to {_PRIORITY}", _priority),
    (
        rf"(?:set|change|update) (?P<what>its|the) priority to {_PRIORITY}",
        lambda m, _n: Change(target=read_target("it"), priority=read_priority(m["priority"])),
    ),
    (rf"(?:make|mark|set|flag|change|give|consider)\s+{_WHAT}\s+(?:as |to |is |to be )?{_PRIORITY}", _priority),
    (rf"(?P<what>{REFERENCE})(?:'?s| is)\s+(?:now |actually )?{_PRIORITY}", _priority),
    (rf"(?:prioriti[sz]e|escalate|raise the priority of)\s+{_WHAT}", _set_priority("high")),
    (rf"(?:deprioriti[sz]e|lower the priority of)\s+{_WHAT}", _set_priority("low")),
    (rf"(?:rename|retitle)\s+{_WHAT}\s+(?:to|as|into)\s+(?P<title>.+)", _rename),
    (rf"(?:change|set|update) (?:the )?(?:title|name|text) of\s+{_WHAT}\s+to\s+(?P<title>.+)", _rename),
    (
        r"(?:change|set|update) (?P<what>its|the) (?:title|name|text) to\s+(?P<title>.+)",
        lambda m, _n: Change(target=read_target("it"), title=clean_title(*hide_quotes(m["title"]))),
    ),
    (
        rf"(?:move|push|postpone|shift|delay|defer|snooze)\s+{_WHAT}\s+(?:back |out )?(?:by|for)\s+(?P<count>\d+|an?|another|{'|'.join(NUMBERS)})\s+(?P<unit>minutes?|mins?|hours?|days?|weeks?)",
        _shift,
    ),
    (rf"(?:set|change|move|update) (?:the )?(?:due date|deadline|date) {_OF} {_WHAT}", _reschedule),
    (
        r"(?:move|push|postpone|reschedule|shift|delay|defer|snooze|bring forward|set|make)\s+(?:back\s+)?" + _WHAT,
        _reschedule,
    ),
    (rf"(?P<what>(?:{REFERENCE})(?:'?s| is) (?:due|for) .+)", _reschedule),
    (rf"(?:change|edit|update|correct)\s+{_WHAT}\s+to\s+(?P<new>.+)", _change_to),
)


# New todos.

_NOUN = r"(?:to-?\s?do|task|reminder|item|note|todo item|entry)"
_KIND = r"(?:(?P<level>urgent|important|critical|high[- ]priority|low[- ]priority|medium[- ]priority) )?"
_LIST = r"(?:(?:on|to|in|into|onto) (?:my|the|our) (?:to-?\s?do |todo |task |shopping )?(?:list|todos?|tasks?|reminders?|agenda))"
_CREATE = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:add|create|make|set(?: up)?|write down|new|start|open|give me|schedule)(?: me)?(?: an?| another| the| one)?(?: new)? {_KIND}{_NOUN}(?: {_LIST})?(?:\s*[:,-]|\s+(?:to|for|called|named|titled|that says|about|saying))?(?P<text>(?:\s+.*)?)",
        rf"(?:add|put|write|place|stick) (?P<text>.+?) {_LIST}(?P<more>.*)",
        r"(?:add|create|note(?: down)?|put down|jot down|write down|todo|to-?do|task|reminder|note to self|new)(?P<level>(?!))?(?:\s*[:,-]\s*|\s+)(?P<text>.+)",
        r"(?:add|create|new)(?P<text>)",
        r"(?:please )?remind me(?P<text>(?:\s+.*)?)",
        r"(?:(?P<first>.+?),?\s+)remind me\s+(?P<text>to .+)",
        r"(?:don'?t|do not|never) (?:let me )?forget (?:to |about |that )?(?P<text>.+)",
        r"(?:i )?(?:must |should )?remember to (?P<text>.+)",
        r"i(?:'ve| have)? (?:really |also |still )?(?:need to|have to|got to|gotta|must|should|ought to|want to|gotta) (?!know\b|talk\b|ask\b|see\b)(?P<text>.+)",
        r"(?P<level>urgent|important|critical|asap|(?:high|low)[- ]priority)\s*[:!,-]+\s*(?P<text>.+)",
        r"make sure (?:that )?i (?P<text>.+)",
        r"schedule (?P<text>.+)",
    )
)


def _read_create(request: str, now: datetime) -> Intent | None:
    for pattern in _CREATE:
        if match := pattern.fullmatch(request):
            groups = match.groupdict("")
            said = " ".join(part for part in (groups["text"].strip(), groups.get("more"), groups.get("first")) if part)
            level = f", {groups['level']}" if groups.get("level") else ""
            return Create(read_details(f"{said}{level}" if said else "", now))
    return None


# What is neither a command nor a question, but close enough.


def _bought(match: re.Match[str], _now: datetime) -> Intent | None:
    verb = match["verb"].lower()
    if verb not in PAST_TENSES and (
        not verb.endswith("ed") or verb in {"need", "wanted", "needed", "liked", "tried", "wondered"}
    ):
        return None
    what = match["what"] if verb in {"did", "finished", "completed", "done"} else f"{verb} {match['what']}"
    return Change(target=read_target(what), status="completed")


def _plan(match: re.Match[str], now: datetime) -> Intent:
    return Create(read_details(match[0], now))


_GUESSES = _table(
    (
        rf"i(?:'ve| have)?\s+(?:just |already |finally |now )*(?P<verb>[a-z]+)\s+{_WHAT}(?: (?:already|now|today|just now))?",
        _bought,
    ),
    (rf"(?:{_VERBS})\b(?!.*\?$).+", _plan),
)
