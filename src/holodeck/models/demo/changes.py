"""Requests that concern a todo which is already there: tick off, reopen, rename, move, prioritise, tag, delete.

A table of patterns; the first that fits wins, so the particular ones stand before the general. Which todo is meant
stays a reference here (`targets.py` reads it, `scripts.py` resolves it).
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from holodeck.models.demo.dates import cut_date, read_date
from holodeck.models.demo.details import (
    clean_title,
    hide_quotes,
    read_details,
    read_priority,
    read_tags,
    show_quotes,
)
from holodeck.models.demo.intents import Change, Delete, Intent, It, Talk, Target
from holodeck.models.demo.pieces import NUMBERS
from holodeck.models.demo.targets import REFERENCE, read_target
from holodeck.models.demo.todos import PAST_TENSES

Reader: TypeAlias = Callable[[re.Match[str], datetime], Intent | None]
Table: TypeAlias = tuple[tuple[re.Pattern[str], Reader], ...]

NOT_FINISHED = frozenset({"wanted", "needed", "liked", "tried", "wondered", "asked", "failed"})  # past, but not done
WHOLE_ACTIONS = frozenset({"did", "done", "finished", "completed"})  # say nothing about the title
UNITS = {
    "min": timedelta(minutes=1),
    "hou": timedelta(hours=1),
    "day": timedelta(days=1),
    "wee": timedelta(weeks=1),
}


def read_change(request: str, now: datetime) -> Intent | None:
    return _first(_CHANGES, request, now)


def read_deed(request: str, now: datetime) -> Intent | None:
    """As in "I bought the eggs", and other ways to speak of a todo without commanding anything."""
    if due := read_date(re.sub(r"^(?:no,? |i meant? |make that |rather )+", "", request, flags=re.IGNORECASE), now):
        return Change(target=It(), due=due)
    return _first(_DEEDS, request, now)


def _first(table: Table, request: str, now: datetime) -> Intent | None:
    for pattern, read in table:
        match = pattern.fullmatch(request)
        if match and (intent := read(match, now)) is not None:
            return intent
    return None


def _target(match: re.Match[str]) -> Target:
    """What the pattern calls `what`; without it the request is about the todo in focus."""
    what = match.groupdict().get("what")
    return read_target(what) if what else It()


def _delete(match: re.Match[str], _now: datetime) -> Intent:
    return Delete(target=_target(match))


def _status(status: str) -> Reader:
    return lambda match, _now: Change(target=_target(match), status=status)


def _complete_unless_planned(match: re.Match[str], now: datetime) -> Intent | None:
    """To "finish the report" reports it done; to "finish the report by friday" is a plan."""
    details = read_details(match["what"], now)
    planned = details.due or details.tags or details.priority
    return None if planned else Change(target=_target(match), status="completed")


def _deed(match: re.Match[str], _now: datetime) -> Intent | None:
    verb = match["verb"].lower()
    past = verb in PAST_TENSES or (verb.endswith("ed") and verb not in NOT_FINISHED)
    what = match["what"] if verb in WHOLE_ACTIONS else f"{verb} {match['what']}"
    return Change(target=read_target(what), status="completed") if past else None


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
    return Change(target=_target(match), title=clean_title(*hide_quotes(match["new"])))


def _undate(match: re.Match[str], _now: datetime) -> Intent:
    return Change(target=_target(match), undated=True)


def _shift(match: re.Match[str], _now: datetime) -> Intent:
    counted = match["count"].lower()
    count = 1 if counted in {"a", "an", "another"} else NUMBERS.get(counted) or int(counted)
    return Change(target=_target(match), shift=count * UNITS[match["unit"].lower()[:3]])


def _move(match: re.Match[str], now: datetime) -> Intent | None:
    """The date is cut out of the sentence; what is left of it names the todo."""
    hidden, quotes = hide_quotes(match["what"])
    rest, due = cut_date(hidden, now)
    what = show_quotes(_BEFORE_A_DATE.sub("", rest), quotes).strip(" ,")
    return Change(target=read_target(what) if what else It(), due=due) if due else None


def _change_to(match: re.Match[str], now: datetime) -> Intent:
    """In "change X to Y", Y says what changes."""
    if due := read_date(match["new"], now):
        return Change(target=_target(match), due=due)
    if priority := read_priority(match["new"]):
        return Change(target=_target(match), priority=priority)
    return _rename(match, now)


def _ask_what_to_change(_match: re.Match[str], _now: datetime) -> Intent:
    return Talk("how_to_change")


def _table(*rows: tuple[str, Reader]) -> Table:
    return tuple((re.compile(pattern, re.IGNORECASE), read) for pattern, read in rows)


_BEFORE_A_DATE = re.compile(r"\s+(?:back |forward )?(?:to|until|till|for|by|is|back|forward|due|out)$", re.IGNORECASE)
_WHAT = r"(?P<what>.+?)"
_THIS = rf"(?P<what>{REFERENCE})"
_IS = r"(?:'?s| is)"
_OF = r"(?:of|for|from|on|to)"
_NEW = r"(?P<new>.+)"
_DONE = r"(?:done|completed?|finished)"
_NOT_DONE = rf"(?:not (?:yet )?{_DONE}|undone|incomplete|pending|open|unfinished|to ?do)"
_TAG = r"#?[^\W\d_][\w-]*"
_TAGS = rf"(?P<tags>{_TAG}(?:(?:\s*,\s*|\s+and\s+|\s+){_TAG})*)"
_HASH_TAGS = r"(?P<tags>#\w[\w-]*(?:[\s,]+(?:and )?#\w[\w-]*)*)"
_PRIORITY = (
    r"(?P<priority>(?:(?:a|an|more|very|really|super|as|of|top|not|so|that) )*"
    r"(?:urgent|asap|important|critical|unimportant"
    r"|(?:high(?:est)?|low(?:est)?|medium|normal|top)(?:[- ]prio(?:rity)?)?))"
)
_REMOVE = r"(?:remove|delete|drop|take|clear)"
_DELETE = r"(?:delete|remove|erase|discard|drop|trash|scrap|get rid of|cancel|throw away|clear|empty)"
_FROM_LIST = r"(?:\s+(?:from|off) (?:my |the )?(?:to-?do )?(?:list|todos?|tasks?))?"
_MOVE = r"(?:move|push|postpone|reschedule|shift|delay|defer|snooze|bring forward|set|make)"
_COUNT = rf"(?P<count>\d{{1,3}}|an?|another|{'|'.join(NUMBERS)})"
_SET = r"(?:set|change|update|move)"

_CHANGES = _table(
    (rf"{_REMOVE} (?:the |its )?(?:due date|deadline|date)(?: {_OF} {_WHAT})?", _undate),
    (rf"{_REMOVE} (?:the )?(?:tags?|labels?) {_TAGS} (?:from|off) {_WHAT}", _untag),
    (rf"{_REMOVE} {_HASH_TAGS} (?:from|off) {_WHAT}", _untag),
    (rf"{_DELETE}(?:\s+{_WHAT}{_FROM_LIST})?", _delete),
    (rf"(?:re-?open|uncomplete|uncheck|restore|unmark|undo)(?:\s+{_WHAT})?", _status("pending")),
    (rf"(?:mark|set|change)\s+{_WHAT}\s+(?:as |to )?{_NOT_DONE}(?: again)?", _status("pending")),
    (rf"{_WHAT}\s+(?:is|are)(?:n't| not) {_DONE}(?: yet| after all)?", _status("pending")),
    (rf"(?:mark|set|check|tick|cross|flag)\s+(?:off\s+)?(?:{_WHAT}\s+)?(?:as\s+|to\s+)?{_DONE}", _status("completed")),
    (rf"(?:check|tick|cross)\s+{_WHAT}\s+off(?: (?:of )?(?:my |the )?list)?", _status("completed")),
    (rf"(?:check|tick|cross) off\s+{_WHAT}", _status("completed")),
    (rf"(?:i(?:'m| am) )?(?:done|finished|through) with\s+{_WHAT}", _status("completed")),
    (rf"(?:complete|finish|finished|completed|accomplished|done:?)\s+{_WHAT}", _complete_unless_planned),
    (rf"(?:(?:it|that|this){_IS} )?(?:all )?{_DONE}", _status("completed")),
    (rf"{_WHAT}\s+(?:is|are|has been|have been|was|were|got)\s+(?:now |already )?{_DONE}", _status("completed")),
    (rf"(?:tag|label)\s+{_THIS}\s+(?:as\s+|with\s+)?{_TAGS}", _tag),
    (rf"(?:tag|label)\s+{_WHAT}\s+(?:as|with)\s+{_TAGS}", _tag),
    (rf"(?:tag|label)\s+{_WHAT}\s+{_HASH_TAGS}", _tag),
    (rf"(?:add|put|attach) (?:the |an? )?(?:tags?|labels?) {_TAGS} (?:to|on) {_WHAT}", _tag),
    (rf"(?:add|put|attach) {_HASH_TAGS} (?:to|on) {_WHAT}", _tag),
    (rf"{_SET} (?:the )?priority {_OF} {_WHAT} to {_PRIORITY}", _priority),
    (rf"{_SET} (?:its|the) priority to {_PRIORITY}", _priority),
    (rf"(?:make|mark|set|flag|change|give|consider)\s+{_WHAT}\s+(?:as |to |to be )?{_PRIORITY}", _priority),
    (rf"{_THIS}{_IS}\s+(?:now |actually )?{_PRIORITY}", _priority),
    (rf"(?:prioriti[sz]e|escalate|raise the priority of)\s+{_WHAT}", _set_priority("high")),
    (rf"(?:deprioriti[sz]e|lower the priority of)\s+{_WHAT}", _set_priority("low")),
    (rf"(?:rename|retitle)\s+{_WHAT}\s+(?:to|as|into)\s+{_NEW}", _rename),
    (rf"{_SET} (?:the )?(?:title|name|text) of\s+{_WHAT}\s+to\s+{_NEW}", _rename),
    (rf"{_SET} (?:its|the) (?:title|name|text) to\s+{_NEW}", _rename),
    (
        rf"{_MOVE}\s+{_WHAT}\s+(?:back |out )?(?:by|for)\s+{_COUNT}\s+(?P<unit>minutes?|mins?|hours?|days?|weeks?)",
        _shift,
    ),
    (rf"{_SET} (?:the )?(?:due date|deadline|date) {_OF} {_WHAT}", _move),
    (rf"{_MOVE}\s+(?:back\s+)?{_WHAT}", _move),
    (rf"(?P<what>(?:{REFERENCE}){_IS} (?:due|for) .+)", _move),
    (rf"(?:change|edit|update|correct|modify)\s+{_WHAT}\s+to\s+{_NEW}", _change_to),
    (rf"(?:edit|change|modify|update)\s+{_THIS}", _ask_what_to_change),
)
_DEEDS = _table(
    (
        rf"i(?:'ve| have)?\s+(?:just |already |finally |now )*(?P<verb>[a-z]+)\s+{_WHAT}(?: (?:already|now|today))?",
        _deed,
    ),
)
