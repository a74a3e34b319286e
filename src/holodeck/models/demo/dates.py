"""Date words → due dates: "tomorrow at 3pm", "next friday", "in 2 hours", "Dec 3rd at 14:30".

Weeks start on Monday. "Friday" is the next one after today, "this Friday" may be today, "next Friday" is in next week.
"Next week" and "next month" mean their first day, "this weekend" means Saturday. A month and day that are over mean next
year's. A day without a time is due when it ends, which is also how the todo server reads a bare date.
"""

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from re import Match
from typing import Any, NamedTuple

DAY = timedelta(days=1)
END_OF_DAY = time(23, 59, 59)
FIRST_HOUR, LAST_HOUR = time(7), time(22)  # "at 9" means an hour at which people are awake
FRIDAY, SATURDAY = 4, 5
NOON = 12
LEAP_CYCLE = 8  # years in which every date of the calendar occurs, 29 February too
PARTS = {"morning": time(9), "noon": time(12), "afternoon": time(15), "evening": time(19)}
PARTS |= {"tonight": time(20), "night": time(21), "midnight": time(0)}
WEEKDAYS = tuple(
    name.lower() for name in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_COUNTED = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBERS = {word: number for number, word in enumerate(_COUNTED, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """When something is due, in the user's zone. Without a time (`timed` is false) it is the end of that day."""

    when: datetime
    timed: bool = True
    dated: bool = True  # false: only a time was given, and the day is the next on which it comes

    @property
    def iso(self) -> str:
        return self.when.isoformat(timespec="seconds")


def at(day: date, clock: time, now: datetime) -> datetime:
    """That wall-clock time in the zone of `now`.

    In the gap of spring the time moves on by the gap (02:30 becomes 03:30). In autumn the earlier of the two is meant,
    unless only the later one is still to come.
    """
    zone = now.tzinfo or UTC
    early = datetime.combine(day, clock, zone)
    chosen = early.replace(fold=1) if is_over(early, now) and not is_over(early.replace(fold=1), now) else early
    return chosen.astimezone(UTC).astimezone(zone)


def is_over(moment: datetime, now: datetime) -> bool:
    # Through UTC: Python compares two times of the same zone by their wall clocks and ignores the fold.
    return moment.astimezone(UTC) <= now.astimezone(UTC)


def monday_of(day: date) -> date:
    return day - day.weekday() * DAY


def month_later(day: date, months: int) -> date:
    """The same day so many months later, or the last day of that month."""
    year, index = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, index + 1, min(day.day, calendar.monthrange(year, index + 1)[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePiece:
    """What one phrase contributes: "tomorrow at 3 in the afternoon" is three pieces that fit together."""

    day: date | None = None
    clock: time | None = None
    part: str | None = None  # a key of PARTS
    moment: datetime | None = None
    loose: bool = False  # the clock time does not say which half of the day


def _joined(one: DatePiece, other: DatePiece) -> DatePiece | None:
    """Both together, or None when they contradict each other."""
    given: dict[str, Any] = {field.name: value for field in fields(other) if (value := getattr(other, field.name))}
    clash = any(getattr(one, name) for name in given) or ((one.moment or other.moment) and one != DatePiece())
    return None if clash else replace(one, **given)


def _near(match: Match[str], now: datetime) -> DatePiece:
    word = match["near"].lower()
    ahead = 2 if "after" in word else word in {"tomorrow", "tmrw"}
    return DatePiece(day=now.date() + ahead * DAY, part="tonight" if word == "tonight" else _part(match))


def _part(match: Match[str]) -> str | None:
    return (match.groupdict().get("part") or "").lower() or None


def _in(match: Match[str], now: datetime) -> DatePiece:
    word, unit = match["count"].lower(), match["unit"].lower()
    few = {"a": 1, "an": 1, "a couple of": 2, "a few": 3, "half a": 0.5, "half an": 0.5}
    count = few.get(word) or NUMBERS.get(word) or int(word)
    if unit.startswith(("h", "mi")):
        minutes = count * (60 if unit.startswith("h") else 1)
        later = now.astimezone(UTC) + timedelta(minutes=minutes)  # in real time, whatever the wall clocks do
        return DatePiece(moment=later.astimezone(now.tzinfo).replace(second=0, microsecond=0))
    if unit.startswith(("mo", "y")):
        return DatePiece(day=month_later(now.date(), int(count * (12 if unit.startswith("y") else 1))))
    return DatePiece(day=now.date() + count * (7 if unit.startswith("w") else 1) * DAY)


def _next(match: Match[str], now: datetime) -> DatePiece:
    today, unit = now.date(), match["unit"].lower()
    if unit == "week":
        return DatePiece(day=monday_of(today) + 7 * DAY)
    return DatePiece(day=month_later(today.replace(day=1), 1) if unit == "month" else date(today.year + 1, 1, 1))


def _end_of(match: Match[str], now: datetime) -> DatePiece:
    today, unit, following = now.date(), match["unit"].lower(), bool(match.groupdict().get("next"))
    if unit == "week":
        friday = monday_of(today) + (FRIDAY + 7 * following) * DAY
        return DatePiece(day=friday if friday >= today else friday + 2 * DAY)
    if unit == "month":
        return DatePiece(day=month_later(today.replace(day=1), 1 + following) - DAY)
    return DatePiece(day=date(today.year + following, 12, 31) if unit == "year" else today + following * DAY)


def _weekday(match: Match[str], now: datetime) -> DatePiece:
    today, which, name = now.date(), (match["which"] or "").lower(), match["weekday"].lower()
    if name == "weekend":
        saturday = monday_of(today) + SATURDAY * DAY
        return DatePiece(day=saturday + 7 * DAY if which == "next" else max(today, saturday))
    index = next(index for index, weekday in enumerate(WEEKDAYS) if weekday.startswith(name[:3]))
    if which == "next":
        return DatePiece(day=monday_of(today) + (7 + index) * DAY, part=_part(match))
    ahead = (index - today.weekday()) % 7
    return DatePiece(day=today + (ahead if ahead or which == "this" else 7) * DAY, part=_part(match))


def _day_of_month(match: Match[str], now: datetime) -> DatePiece | None:
    """The next day with that number, in the month and year if they are given."""
    today, groups = now.date(), match.groupdict()
    day, year, month = int(groups["day"]), groups.get("year"), groups.get("month")
    firsts = [month_later(today.replace(day=1), ahead) for ahead in range(12 * LEAP_CYCLE + 1)]
    if month:
        firsts = [first for first in firsts if first.month == MONTHS.index(month.lower()[:3]) + 1]
    if year:
        firsts = [date(int(year), MONTHS.index(groups["month"].lower()[:3]) + 1, 1)]
    for first in firsts:
        fits = 1 <= day <= calendar.monthrange(first.year, first.month)[1]
        if fits and (year or first.replace(day=day) >= today):
            return DatePiece(day=first.replace(day=day), part=_part(match))
    return None


def _iso(match: Match[str], now: datetime) -> DatePiece:
    moment = datetime.fromisoformat(match["iso"].upper())
    if moment.tzinfo is not None:
        return DatePiece(moment=moment.astimezone(now.tzinfo))
    return DatePiece(day=moment.date(), clock=moment.time() if match["time"] else None)


def _clock(match: Match[str], _now: datetime) -> DatePiece | None:
    groups = match.groupdict("")
    hour, minute = NUMBERS.get(groups["hour"].lower()) or int(groups["hour"]), int(groups.get("minute") or 0)
    if half := groups.get("half"):
        return DatePiece(clock=time(hour % NOON + NOON * (half in "pP"), minute)) if 1 <= hour <= NOON else None
    return DatePiece(clock=time(hour, minute), loose=1 <= hour <= NOON and not groups["hour"].startswith("0"))


class Rule(NamedTuple):
    """One kind of date phrase.

    `strong` phrases are dates wherever they stand. Others are dates only at the edge of a sentence or behind a
    preposition: "friday report" and "march 3 miles" are none. `introduced` ones always need the preposition.
    """

    pattern: str
    read: Callable[[Match[str], datetime], DatePiece | None]
    strong: bool = False
    introduced: bool = False


_PART = r"(?:\s+(?P<part>morning|afternoon|evening|night|noon))?"
_WEEKDAY = r"mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|saturday|sunday"
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d{1,2})"
_YEAR = r"(?:,?\s+(?P<year>20\d\d))?"
_COUNT = rf"(?P<count>\d{{1,3}}|half an?|a couple of|a few|an?|{'|'.join(NUMBERS)})"
_UNIT = r"(?P<unit>hours?|hrs?|h|minutes?|mins?|days?|weeks?|months?|years?)"
_HOUR = rf"(?P<hour>1\d|2[0-3]|0?\d|{'|'.join(NUMBERS)})"
_INTRODUCED_HOUR = r"(?:(?<=at )|(?<=by )|(?<=before )|(?<=until ))"  # a table for 7 is no hour
_RULES = (
    Rule(r"(?P<iso>20\d\d-\d\d-\d\d(?P<time>[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?)", _iso, strong=True),
    Rule(rf"(?P<near>(?:the )?day after tomorrow|tomorrow|tmrw|today|tonight){_PART}", _near, strong=True),
    Rule(r"(?P<near>this) (?P<part>morning|afternoon|evening)", _near, strong=True),
    Rule(rf"in {_COUNT}\s*{_UNIT}", _in, strong=True),
    Rule(r"next (?P<unit>week|month|year)", _next, strong=True),
    Rule(r"(?:the )?end of (?:the |this )?(?P<next>next )?(?P<unit>day|week|month|year)", _end_of, strong=True),
    Rule(r"(?:later )?this (?P<unit>week|month)", _end_of),
    Rule(rf"(?:(?P<which>next|this) )?(?P<weekday>{_WEEKDAY}){_PART}", _weekday),
    Rule(rf"(?:(?P<which>next|this) )?(?P<weekday>sat|sun){_PART}", _weekday, introduced=True),
    Rule(r"(?P<which>next|this|the) (?P<weekday>weekend)", _weekday),
    Rule(rf"(?:the )?{_DAY}(?:st|nd|rd|th)", _day_of_month, introduced=True),
    Rule(rf"(?:the )?{_DAY}(?:st|nd|rd|th)?(?: of)? {_MONTH}{_YEAR}{_PART}", _day_of_month),
    Rule(rf"{_MONTH} (?:the )?{_DAY}(?:st|nd|rd|th)?{_YEAR}{_PART}", _day_of_month),
    Rule(r"(?P<hour>\d{1,2})(?:[:.](?P<minute>[0-5]\d))?\s*(?P<half>[ap])\.?m\b\.?", _clock, strong=True),
    Rule(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?![\d:])", _clock, strong=True),
    Rule(rf"{_INTRODUCED_HOUR}{_HOUR}(?: ?h| o'clock)?(?![\w:/%.-])", _clock, introduced=True),
    Rule(r"(?P<part>noon|midnight)", lambda match, _: DatePiece(part=_part(match))),
    Rule(r"in the (?P<part>morning|afternoon|evening)", lambda match, _: DatePiece(part=_part(match)), strong=True),
)
_INTRODUCTION = r"(?P<intro>(?:[,;(]\s*)?\b(?:(?:due|scheduled)(?: (?:by|on|at|for))?|by|on|at|before|until|for)\s+)"
_FOLLOWS_A_DATE = re.compile(r"\s*(?:$|[,;:.!)#]|(?:to|about|with|and|in|at|for|from|or|that|by)\b)", re.IGNORECASE)


def cut_date(text: str, now: datetime) -> tuple[str, Due | None]:
    """The sentence without its date, and the date."""
    found, rest = DatePiece(), text
    while best := max(_fitting(rest, found, now), key=lambda fit: fit[:2], default=None):
        _, _, start, found = best
        end = start + best[1]
        rest = f"{rest[:start].rstrip(' ,;:.(-')} {rest[end:].lstrip(' ,;:.)-')}".strip()
    return (text, None) if found == DatePiece() else (rest, _due(found, now))


def read_date(text: str, now: datetime) -> Due | None:
    """The date, if the text has nothing else."""
    rest, due = cut_date(text.strip(), now)
    return None if re.search(r"\w", rest) else due


@cache
def _compiled(rule: Rule) -> re.Pattern[str]:
    optional = "" if rule.introduced else "?"
    return re.compile(rf"{_INTRODUCTION}{optional}(?<![\w/#:.-])(?:{rule.pattern})(?![\w/]|'s\b)", re.IGNORECASE)


def _fitting(text: str, found: DatePiece, now: datetime) -> list[tuple[int, int, int, DatePiece]]:
    """The date phrases that go with what was found: (position, length, start, both together)."""
    fits = []
    for rule in _RULES:
        for match in _compiled(rule).finditer(text):
            position = _position(rule, match, text)
            try:
                piece = rule.read(match, now) if position else None
            except (ValueError, OverflowError):
                continue  # 2026-02-31, or a year that no calendar has
            if piece and (joined := _joined(found, piece)):
                fits.append((position, match.end() - match.start(), match.start(), joined))
    return fits


def _position(rule: Rule, match: Match[str], text: str) -> int:
    """3 at the end of the sentence, 2 at its start, 1 inside, 0 where the phrase is no date."""
    if not re.search(r"\w", text[match.end() :]):
        return 3
    connected = _FOLLOWS_A_DATE.match(text, match.end()) is not None
    if not re.search(r"\w", text[: match.start()]):
        return 2 if rule.strong or connected else 0
    return 1 if rule.strong or (match["intro"] and connected) else 0


def _due(piece: DatePiece, now: datetime) -> Due:
    if piece.moment is not None:
        return Due(when=piece.moment)
    if piece.clock is None and piece.part is None:
        return Due(when=at(piece.day or now.date(), END_OF_DAY, now), timed=False)
    midnight = piece.clock is None and piece.part == "midnight"  # belongs to the end of its day
    days = [piece.day] if piece.day else [now.date(), now.date() + DAY]
    moments = [at(day + midnight * DAY, clock, now) for day in days for clock in _clocks(piece)]
    when = next((moment for moment in moments if not is_over(moment, now)), moments[0])
    if is_over(when, now) and piece.clock is None:
        return Due(when=at(days[0], END_OF_DAY, now), timed=False)  # "tonight", at half past nine
    return Due(when=when, dated=piece.day is not None or piece.clock is None)


def _clocks(piece: DatePiece) -> list[time]:
    """The possible readings of a time of day, the earlier first."""
    if piece.clock is None:
        return [PARTS[piece.part or "night"]]
    if not piece.loose:
        return [piece.clock]
    halves = [piece.clock.replace(hour=piece.clock.hour % NOON + half) for half in (0, NOON)]
    if piece.part is not None:
        return halves[:1] if piece.part == "morning" else halves[1:]
    return [clock for clock in halves if FIRST_HOUR <= clock <= LAST_HOUR]
