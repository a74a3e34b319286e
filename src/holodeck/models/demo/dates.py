"""Finds the due date in a sentence and what the sentence says without it.

Own rules come first; parsedatetime is asked for the rest, and only about a phrase at the end of the sentence that a
preposition introduces and that it understands from the first word to the last: it sees dates in "call 911", "sun" and
"march", and titles must survive.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache

import parsedatetime

from holodeck.models.demo import zones
from holodeck.models.demo.days import DAY, DAY_RULES
from holodeck.models.demo.pieces import Piece, Rule
from holodeck.models.demo.times import NOON, PARTS, TIME_RULES

EARLIEST, LATEST = time(7), time(22)  # "at 9" means an hour at which people are awake
FIRST_MORNING_HOUR = 7  # "tomorrow at 6" is the evening, "tomorrow at 7" the morning

_INTRODUCTION = (
    r"(?P<intro>(?:[,;(]\s*)?\b(?:(?:is |it's )?(?:due|deadline|scheduled)(?: is)?(?: (?:by|on|at|for|before|until))?"
    r"|no later than|by|on|at|before|until|till|for|around|starting)\s+(?:around\s+)?)"
)
_FOLLOWS_A_DATE = re.compile(
    r"\s*(?:$|[,;:.!)#]|(?:to|about|with|and|in|at|for|from|because|so|or|that|by)\b)", re.IGNORECASE
)
_LEFTOVER_END = re.compile(r"[\s,;:.(—-]+$")
_LEFTOVER_START = re.compile(r"^[\s,;:.)—-]+")
_TAIL = re.compile(
    r"(?:^|.*?\s)(?P<tail>(?:(?:by|before|until|till|due|on)\s+(?=.*[a-z]{3})|(?=in\s+\d))(?P<words>.+))$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """When something is due, in the user's zone. Without a time (`timed` is false) it is the end of that day."""

    when: datetime
    timed: bool = True
    dated: bool = True  # false: only a time was said, and the day is the next on which it comes

    @property
    def iso(self) -> str:
        return self.when.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    start: int
    end: int
    piece: Piece
    place: int  # 3 at the end, 2 at the start, 1 in the middle


def cut_date(text: str, now: datetime) -> tuple[str, Due | None]:
    """The sentence without its date, and the date."""
    found = Piece()
    rest = text
    while hit := _best_hit(rest, found, now):
        found = hit[0]
        rest = _join(rest[: hit[1].start], rest[hit[1].end :])
    if found == Piece():
        return _ask_parsedatetime(text, now)
    return rest, _resolve(found, now)


def read_date(text: str, now: datetime) -> Due | None:
    """The date, if the text says nothing else."""
    rest, due = cut_date(text.strip(), now)
    return None if re.search(r"\w", rest) else due


def _join(before: str, behind: str) -> str:
    before, behind = _LEFTOVER_END.sub("", before), _LEFTOVER_START.sub("", behind)
    return f"{before} {behind}".strip()


@cache
def _compiled(rule: Rule) -> re.Pattern[str]:
    optional = "" if rule.introduced else "?"
    return re.compile(rf"{_INTRODUCTION}{optional}(?<![\w/#:.-])(?:{rule.pattern})(?![\w/]|'s\b)", re.IGNORECASE)


def _best_hit(text: str, found: Piece, now: datetime) -> tuple[Piece, _Hit] | None:
    fitting = [
        (joined, hit)
        for rule in (*DAY_RULES, *TIME_RULES)
        for hit in _hits(rule, text, now)
        if (joined := found.joined(hit.piece)) is not None
    ]
    return max(fitting, key=lambda pair: (pair[1].place, pair[1].end - pair[1].start), default=None)


def _hits(rule: Rule, text: str, now: datetime) -> list[_Hit]:
    hits = []
    for match in _compiled(rule).finditer(text):
        place = _place(rule, match, text)
        piece = rule.read(match, now) if place else None
        if piece is not None:
            hits.append(_Hit(start=match.start(), end=match.end(), piece=piece, place=place))
    return hits


def _place(rule: Rule, match: re.Match[str], text: str) -> int:
    """Where the phrase stands, or 0 if it is no date there."""
    if not re.search(r"\w", text[match.end() :]):
        return 3
    connected = _FOLLOWS_A_DATE.match(text, match.end()) is not None
    if not re.search(r"\w", text[: match.start()]):
        return 2 if rule.strong or connected else 0
    return 1 if rule.strong or (match["intro"] and connected) else 0


def _resolve(piece: Piece, now: datetime) -> Due:
    if piece.moment is not None:
        return Due(when=piece.moment)
    if piece.clock is not None:
        return _at_clock(piece, piece.clock, now)
    if piece.part is not None:
        return _at_part(piece, piece.part, now)
    return Due(when=zones.at(piece.day or now.date(), zones.END_OF_DAY, now), timed=False)


def _at_part(piece: Piece, part: str, now: datetime) -> Due:
    day = piece.day or now.date()
    when = zones.at(day, PARTS[part], now)
    if not _is_over(when, now):
        return Due(when=when)
    if piece.day is None:
        return Due(when=zones.at(day + DAY, PARTS[part], now))
    return Due(when=zones.at(day, zones.END_OF_DAY, now), timed=False)  # "tonight", said at half past nine


def _at_clock(piece: Piece, clock: time, now: datetime) -> Due:
    if piece.next_day:
        return Due(when=zones.at((piece.day or now.date()) + DAY, clock, now))
    if piece.day is not None:
        halves = _halves(piece, clock)
        when = zones.at(piece.day, halves[0], now)
        later = zones.at(piece.day, halves[-1], now)
        return Due(when=later if _is_over(when, now) and not _is_over(later, now) else when)
    candidates = [
        zones.at(now.date() + ahead * DAY, half, now) for ahead in (0, 1) for half in sorted(_halves(piece, clock))
    ]
    if piece.loose and piece.part is None:
        candidates = [when for when in candidates if EARLIEST <= when.time() <= LATEST]
    return Due(when=next(when for when in candidates if not _is_over(when, now)), dated=False)


def _halves(piece: Piece, clock: time) -> list[time]:
    """The readings of a clock time, the likelier first."""
    if not piece.loose:
        return [clock]
    early, late = clock.replace(hour=clock.hour % NOON), clock.replace(hour=clock.hour % NOON + NOON)
    if piece.part is not None:
        return [early] if piece.part == "morning" else [late]
    return [early, late] if FIRST_MORNING_HOUR <= clock.hour < NOON else [late, early]


def _is_over(when: datetime, now: datetime) -> bool:
    return when.astimezone(UTC) <= now.astimezone(UTC)


@cache
def _calendar() -> parsedatetime.Calendar:
    constants = parsedatetime.Constants("en_US", usePyICU=False)
    return parsedatetime.Calendar(constants, version=parsedatetime.VERSION_CONTEXT_STYLE)


def _ask_parsedatetime(text: str, now: datetime) -> tuple[str, Due | None]:
    match = _TAIL.match(text)
    if match is None:
        return text, None
    words = match["words"].strip(" .!?")
    answer = _calendar().nlp(words, now.replace(tzinfo=None).timetuple())
    if not answer or len(answer) != 1 or answer[0][4].strip().lower() != words.lower():
        return text, None
    moment, context = answer[0][0], answer[0][1]
    timed = bool(context.hasTime)
    if timed and not context.hasDate:
        when = zones.after(now, moment - now.replace(tzinfo=None, second=0, microsecond=0))
    else:
        when = zones.at(moment.date(), moment.time() if timed else zones.END_OF_DAY, now)
    if when < now - timedelta(minutes=1):
        return text, None
    return _join(text[: match.start("tail")], ""), Due(when=when, timed=timed)
