"""Requests for a new todo: "remind me to …", "add … to my list", "I need to …", or just "buy eggs tomorrow"."""

import re
from datetime import datetime

from holodeck.models.demo.details import read_details
from holodeck.models.demo.intents import Create

_NOUN = r"(?:to-?\s?do(?: item)?|task|reminder|item|note|entry)"
_LEVEL = r"(?:(?P<level>urgent|important|critical|(?:high|low|medium)[- ]priority) )?"
_LIST = (
    r"(?:(?:on|to|in|into|onto) (?:my|the|our) (?:to-?\s?do |task |shopping )?"
    r"(?:list|to-?dos?|tasks?|reminders?|agenda))"
)
_LINK = r"(?:\s*[:,-]|\s+(?:to|for|called|named|titled|that says|about|saying))?"
_TEXT = r"(?P<text>(?:\s+.*)?)"


def _patterns(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


# These say the word: nothing else can be meant, whatever verb of a change they begin with.
_NAMED = _patterns(
    r"(?:add|create|write down|new)(?: me)?(?: an?| another| one)?(?: new)? "
    rf"{_LEVEL}{_NOUN}(?: {_LIST})?{_LINK}{_TEXT}",
    r"(?:make|set(?: up)?|start|open|give me|schedule)(?: me)?(?: an?| another)(?: new)? "
    rf"{_LEVEL}{_NOUN}{_LINK}{_TEXT}",
)
_ASKED = _patterns(
    rf"(?:add|put|write|place|stick) (?P<text>.+?) {_LIST}(?P<more>.*)",
    r"(?:add|create|note(?: down)?|put down|jot down|write down|new|schedule)\s+(?:an? )?(?P<text>.+)",
    r"(?:add|create|new|note|to-?do|task|reminder|note to self)\s*[:,-]\s*(?P<text>.+)",
    r"(?:to-?do|note to self)\s+(?P<text>.+)",
    r"(?:add|create|new)(?P<text>)",
    rf"remind me{_TEXT}",
    r"(?P<more>.+?),?\s+remind me\s+(?P<text>to .+)",
    r"(?:don't|do not|never) (?:let me )?forget (?:to |about |that )?(?P<text>.+)",
    r"(?:i )?(?:must |should )?remember to (?P<text>.+)",
    r"i(?:'ve| have)? (?:really |also |still )?(?:need to|have to|got to|gotta|must|should|ought to|want to) "
    r"(?!know\b|talk\b|ask\b|see\b)(?P<text>.+)",
    r"(?P<level>urgent|important|critical|asap|(?:high|low)[- ]priority)\s*[:!,-]+\s*(?P<text>.+)",
    r"make sure (?:that )?i (?P<text>.+)",
)
_BEGINS_LIKE_A_TODO = re.compile(
    r"(?:book|bake|bring|buy|call|clean|cook|deploy|drop off|e-?mail|feed|finish|fix|get|go to|install|learn|mail|meet"
    r"|message|order|organi[sz]e|pay|phone|pick up|plan|practice|prepare|print|read|renew|repair|research|return|review"
    r"|send|ship|sign|study|submit|take|text|vacuum|visit|walk|wash|watch|water|write)\b.+(?<!\?)",
    re.IGNORECASE,
)


def read_named_plan(request: str, now: datetime) -> Create | None:
    return _read(_NAMED, request, now)


def read_plan(request: str, now: datetime) -> Create | None:
    return _read(_ASKED, request, now)


def guess_plan(request: str, now: datetime) -> Create | None:
    """A bare "buy eggs tomorrow"."""
    return Create(read_details(request, now)) if _BEGINS_LIKE_A_TODO.fullmatch(request) else None


def _read(patterns: tuple[re.Pattern[str], ...], request: str, now: datetime) -> Create | None:
    for pattern in patterns:
        if match := pattern.fullmatch(request):
            groups = match.groupdict("")
            said = " ".join(part for part in (groups["text"].strip(), groups.get("more", "").strip()) if part)
            level = groups.get("level")
            return Create(read_details(f"{said}, {level}" if said and level else said, now))
    return None
