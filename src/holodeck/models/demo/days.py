"""Days in words: the day after tomorrow, next friday, on the 20th, end of month, in two weeks.

Weeks start on Monday. "Friday" is the next one after today, "this Friday" may be today, "next Friday" is in next week.
"This week" and "end of the week" mean Friday as long as that is to come, then Sunday. "This weekend" is Saturday, on a
Sunday that day. "Next week" and "next month" mean their first day. A month and day that are over mean next year's.
"""

import calendar
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from re import Match

from holodeck.models.demo import zones
from holodeck.models.demo.pieces import NUMBERS, ORDINALS, Piece, Rule
from holodeck.models.demo.times import PART

DAY = timedelta(days=1)
FRIDAY, SATURDAY = 4, 5
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
HOLIDAYS = {"christmas": (12, 25), "christmas day": (12, 25), "christmas eve": (12, 24), "halloween": (10, 31)} | {
    f"new year{mark}s {day}": when for mark in ("'", "") for day, when in (("eve", (12, 31)), ("day", (1, 1)))
}
LEAP_CYCLE = 8  # years in which every date of the calendar occurs, 29 February too

_WEEKDAY = r"(?:mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|saturday|sunday)"
_SHORT_WEEKEND = r"(?:sat|sun)"  # also words of their own, hence only behind a preposition
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_COUNT = r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|a couple of|a few)"
_ORDINAL = rf"(?:\d{{1,2}}(?:st|nd|rd|th)|{'|'.join(ORDINALS)})"
_YEAR = r"(?:,?\s+(?P<year>20\d\d))?"
_NO_MORE = r"(?!,?(?: and)? \d+ (?:week|day|hour|min))"  # "3 weeks and 2 days" is parsedatetime's
_PART = rf"(?:\s+(?P<part>{PART}))?"


def monday_of(day: date) -> date:
    return day - day.weekday() * DAY


def month_later(day: date, months: int) -> date:
    """The same day so many months on, or the last one that month has."""
    year, index = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, index + 1, min(day.day, calendar.monthrange(year, index + 1)[1]))


def month_end(day: date) -> date:
    return month_later(day.replace(day=1), 1) - DAY


def week_end(day: date) -> date:
    friday = monday_of(day) + FRIDAY * DAY
    return friday if friday >= day else friday + 2 * DAY


def _weekday(word: str) -> int:
    return next(index for index, name in enumerate(WEEKDAYS) if name.startswith(word.lower()[:3]))


def _month(word: str) -> int:
    return next(index for index, name in enumerate(MONTHS, 1) if name.startswith(word.lower()[:3]))


def _number(word: str) -> int:
    cleaned = word.lower().removesuffix(" of").strip()
    few = {"a": 1, "an": 1, "a couple": 2, "a few": 3}
    return few.get(cleaned) or NUMBERS.get(cleaned) or int(cleaned)


def _ordinal(word: str) -> int:
    return ORDINALS.get(word.lower()) or int(word[:-2])


def _upcoming(today: date, month: int, day: int) -> date | None:
    for year in range(today.year, today.year + LEAP_CYCLE + 1):
        try:
            found = date(year, month, day)
        except ValueError:
            continue
        if found >= today:
            return found
    return None


def _in_month(first: date, day: int) -> date | None:
    try:
        return first.replace(day=day)
    except ValueError:
        return None


def _day(find: Callable[[Match[str], date], date | None]) -> Callable[[Match[str], datetime], Piece | None]:
    """A rule's reader from a function that only thinks in dates; "… morning" behind the day is common to all."""

    def read(match: Match[str], now: datetime) -> Piece | None:
        try:
            day = find(match, now.date())
        except (ValueError, OverflowError):
            return None
        if day is None:
            return None
        return Piece(day=day, part=(match.groupdict().get("part") or "").lower() or None)

    return read


def _tonight(_match: Match[str], now: datetime) -> Piece:
    return Piece(day=now.date(), part="tonight")


def _named_weekday(match: Match[str], today: date) -> date:
    which = (match["which"] or "").lower()
    weekday = _weekday(match["weekday"])
    if which == "next":
        return monday_of(today) + (7 + weekday) * DAY
    ahead = (weekday - today.weekday()) % 7
    return today + (ahead if ahead or which == "this" else 7) * DAY


def _weekday_of_next_week(match: Match[str], today: date) -> date:
    return monday_of(today) + (7 + _weekday(match["weekday"])) * DAY


def _weekend(match: Match[str], today: date) -> date:
    if (match["which"] or "").lower() == "next":
        return monday_of(today) + (7 + SATURDAY) * DAY
    return max(today, monday_of(today) + SATURDAY * DAY)


def _end_of(match: Match[str], today: date) -> date:
    unit, following = match["unit"].lower()[0], (match["which"] or "").lower() == "next"
    if unit == "d":
        return today
    if unit == "w":
        return monday_of(today) + (7 + FRIDAY) * DAY if following else week_end(today)
    if unit == "m":
        return month_end(month_later(today.replace(day=1), 1) if following else today)
    return date(today.year + following, 12, 31)


def _this(match: Match[str], today: date) -> date:
    return {"week": week_end, "month": month_end}[match["unit"].lower()](today)


def _next(match: Match[str], today: date) -> date:
    starts = {
        "week": monday_of(today) + 7 * DAY,
        "month": month_later(today.replace(day=1), 1),
        "year": date(today.year + 1, 1, 1),
    }
    return starts[match["unit"].lower()]


def _later(count: int, unit: str, start: date) -> date:
    if unit.startswith("month"):
        return month_later(start, count)
    if unit.startswith("year"):
        return month_later(start, 12 * count)
    return start + count * {"d": 1, "w": 7, "f": 14}[unit[0]] * DAY


def _in_days(match: Match[str], today: date) -> date:
    return _later(_number(match["count"]), match["unit"].lower(), today)


def _from(match: Match[str], today: date) -> date:
    anchor = match["anchor"].lower()
    if anchor in {"now", "today"}:
        start = today
    elif anchor == "tomorrow":
        start = today + DAY
    else:
        start = today + ((_weekday(anchor) - today.weekday()) % 7 or 7) * DAY
    return _later(_number(match["count"]), match["unit"].lower(), start)


def _day_of_month(match: Match[str], today: date) -> date | None:
    day, which = _ordinal(match["ordinal"]), (match["which"] or "").lower()
    this_month = today.replace(day=1)
    if which:
        return _in_month(month_later(this_month, 1) if which == "next" else this_month, day)
    months = (month_later(this_month, ahead) for ahead in range(3))
    return next((found for first in months if (found := _in_month(first, day)) and found >= today), None)


def _month_and_day(match: Match[str], today: date) -> date | None:
    written = match["day"]
    day = int(written.rstrip("stndrh")) if written[0].isdigit() else _ordinal(written)
    if match["year"]:
        return date(int(match["year"]), _month(match["month"]), day)
    return _upcoming(today, _month(match["month"]), day)


def _month_alone(match: Match[str], today: date) -> date | None:
    if match["year"]:
        return date(int(match["year"]), _month(match["month"]), 1)
    return _upcoming(today, _month(match["month"]), 1)


def _slashed(match: Match[str], today: date) -> date | None:
    """Month/day as Americans write it, unless only day/month is possible."""
    month, day = int(match["one"]), int(match["two"])
    if month > len(MONTHS):
        month, day = day, month
    if not match["year"]:
        return _upcoming(today, month, day)
    year = int(match["year"])
    return date(year if year > 99 else 2000 + year, month, day)  # noqa: PLR2004, a year of two digits


def _dotted(match: Match[str], _today: date) -> date:
    return date(int(match["year"]), int(match["month"]), int(match["day"]))


def _holiday(match: Match[str], today: date) -> date | None:
    return _upcoming(today, *HOLIDAYS[match["name"].lower()])


def _iso(match: Match[str], now: datetime) -> Piece | None:
    try:
        moment = datetime.fromisoformat(match["iso"].upper())
    except ValueError:
        return None
    if moment.tzinfo is not None:
        return Piece(moment=moment.astimezone(now.tzinfo))
    return Piece(day=moment.date(), clock=moment.time() if match["time"] else None)


def _in_hours(match: Match[str], now: datetime) -> Piece:
    minutes = 60.0 if match["unit"].lower().startswith("h") else 1.0
    if match["decimal"]:
        count = float(match["decimal"])
    else:
        count = (0.5 if match["only_half"] else _number(match["count"])) + (0.5 if match["plus_half"] else 0)
    return Piece(moment=zones.after(now.astimezone(UTC).astimezone(now.tzinfo), timedelta(minutes=count * minutes)))


DAY_RULES = (
    Rule(
        pattern=r"(?P<iso>20\d\d-\d\d-\d\d(?P<time>[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?)",
        read=_iso,
        strong=True,
    ),
    Rule(
        pattern=rf"(?:the )?day after tomorrow{_PART}",
        read=_day(lambda _, today: today + 2 * DAY),
        strong=True,
    ),
    Rule(
        pattern=rf"(?:tomorrow|tomorow|tommorow|tommorrow|tmrw|tmr){_PART}",
        read=_day(lambda _, today: today + DAY),
        strong=True,
    ),
    Rule(pattern=r"today|this (?P<part>morning|afternoon|evening)", read=_day(lambda _, today: today), strong=True),
    Rule(pattern=r"tonight|this night", read=_tonight, strong=True),
    Rule(
        pattern=rf"in (?:(?P<decimal>\d+\.\d+)|(?P<only_half>half an?)|(?P<count>{_COUNT}))"
        r"(?P<plus_half>(?: and a half(?= (?:hour|hr|min)))?)\s*(?P<unit>hours?|hrs?|h|minutes?|mins?)\b" + _NO_MORE,
        read=_in_hours,
        strong=True,
    ),
    Rule(
        pattern=rf"in (?P<decimal>(?!))?(?P<only_half>(?!))?(?P<count>{_COUNT})\s*(?P<unit>hours?)"
        r"(?P<plus_half> and a half)",
        read=_in_hours,
        strong=True,
    ),
    Rule(
        pattern=rf"in (?P<count>{_COUNT})\s*(?P<unit>days?|weeks?|fortnights?|months?|years?)\b(?:' time)?" + _NO_MORE,
        read=_day(_in_days),
        strong=True,
    ),
    Rule(
        pattern=rf"(?P<count>{_COUNT})\s*(?P<unit>days?|weeks?|fortnights?|months?) (?:from|after) "
        rf"(?P<anchor>now|today|tomorrow|{_WEEKDAY}){_PART}",
        read=_day(_from),
        strong=True,
    ),
    Rule(pattern=rf"(?P<weekday>{_WEEKDAY}) (?:of )?next week{_PART}", read=_day(_weekday_of_next_week), strong=True),
    Rule(pattern=rf"next week,?(?: on)? (?P<weekday>{_WEEKDAY}){_PART}", read=_day(_weekday_of_next_week), strong=True),
    Rule(pattern=r"(?:later )?this (?P<unit>week|month)", read=_day(_this)),
    Rule(pattern=r"next (?P<unit>week|month|year)", read=_day(_next), strong=True),
    Rule(pattern=r"(?P<which>this|next|the|coming) (?:coming )?weekend", read=_day(_weekend)),
    Rule(
        pattern=r"(?:the )?end of (?:the )?(?:(?P<which>this|next) )?(?P<unit>day|week|month|year)",
        read=_day(_end_of),
        strong=True,
    ),
    Rule(pattern=r"(?P<which>(?!))?eo(?P<unit>[dwmy])", read=_day(_end_of)),
    Rule(pattern=rf"(?:(?P<which>next|this|coming) )?(?P<weekday>{_WEEKDAY}){_PART}", read=_day(_named_weekday)),
    Rule(
        pattern=rf"(?:(?P<which>next|this|coming) )?(?P<weekday>{_SHORT_WEEKEND}){_PART}",
        read=_day(_named_weekday),
        introduced=True,
    ),
    Rule(
        pattern=rf"(?:the )?(?P<ordinal>{_ORDINAL}) of (?P<which>this|next) month",
        read=_day(_day_of_month),
        strong=True,
    ),
    Rule(
        pattern=r"(?:the )?(?P<ordinal>\d{1,2}(?:st|nd|rd|th))(?P<which>(?!))?",
        read=_day(_day_of_month),
        introduced=True,
    ),
    Rule(
        pattern=rf"(?:the )?(?P<day>\d{{1,2}}(?:st|nd|rd|th)?|{'|'.join(ORDINALS)}),?(?: of)? {_MONTH}{_YEAR}{_PART}",
        read=_day(_month_and_day),
    ),
    Rule(pattern=rf"{_MONTH} (?:the )?(?P<day>\d{{1,2}}(?:st|nd|rd|th)?)\b{_YEAR}{_PART}", read=_day(_month_and_day)),
    Rule(pattern=rf"in {_MONTH}{_YEAR}", read=_day(_month_alone)),
    Rule(pattern=r"(?P<one>\d{1,2})/(?P<two>\d{1,2})(?:/(?P<year>\d{4}|\d\d))?(?![\d/])(?<!24/7)", read=_day(_slashed)),
    Rule(pattern=r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>20\d\d)", read=_day(_dotted)),
    Rule(pattern=rf"(?P<name>{'|'.join(HOLIDAYS)})", read=_day(_holiday), introduced=True),
)
