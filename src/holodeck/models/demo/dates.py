"""Date words at the start or the end of a sentence: "tomorrow at 3pm", "next friday", "in 2 hours", "Dec 3rd at 14:30".

Date words inside a sentence belong to the title: "friday report", "look at 3 houses". "Friday" is the next one after
today, "this Friday" may be today, "next Friday" is in next week. Weeks start on Monday. A day without a time is due
when it ends, which is also how the todo server reads a bare date.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from re import Match

DAY = timedelta(days=1)
END_OF_DAY = time(23, 59, 59)
NOON = 12
FIRST_HOUR = 7  # "at 6" without more is in the afternoon, "at 7" in the morning
SATURDAY = 5
PARTS = {"morning": time(9), "noon": time(12), "afternoon": time(15), "evening": time(19), "night": time(21)}
PARTS |= {"tonight": time(20), "midnight": time(0)}
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_COUNTED = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBERS = {word: number for number, word in enumerate(_COUNTED, 1)}


@dataclass(frozen=True, slots=True)
class When:
    """A day, a time of day, or both."""

    day: date | None = None
    clock: time | None = None

    def moment(self, now: datetime, old: datetime | None = None) -> datetime:
        """The due date in the zone of `now`. What is not given is taken from the old due date, if there is one."""
        clock = self.clock or (old.time() if old else END_OF_DAY)
        days = [self.day] if self.day else [*([old.date()] if old else []), now.date(), now.date() + DAY]
        # By way of UTC, which moves a time in the gap of spring out of it.
        moments = [datetime.combine(day, clock, now.tzinfo).astimezone(UTC).astimezone(now.tzinfo) for day in days]
        return next((moment for moment in moments if not is_over(moment, now)), moments[-1])


def is_over(moment: datetime, now: datetime) -> bool:
    return moment.astimezone(UTC) <= now.astimezone(UTC)  # in UTC, because clocks are set back in autumn


def _number(word: str) -> int:
    return NUMBERS.get(word.lower()) or (1 if word.lower() in {"a", "an"} else int(word))


def _monday(day: date) -> date:
    return day - day.weekday() * DAY


def _next_month(day: date) -> date:
    return (day.replace(day=28) + 4 * DAY).replace(day=1)


def _weekday(match: Match[str], today: date) -> date:
    index, which = WEEKDAYS.index(match["weekday"].lower()[:3]), (match["which"] or "").lower()
    if which == "next":
        return _monday(today) + (7 + index) * DAY
    ahead = (index - today.weekday()) % 7
    return today + (ahead if ahead or which == "this" else 7) * DAY


def _calendar(match: Match[str], today: date) -> date:
    """A day of a month; without a year the next one that comes."""
    day = date(int(match["year"] or today.year), MONTHS.index(match["month"].lower()[:3]) + 1, int(match["day"]))
    return day if match["year"] or day >= today else day.replace(year=today.year + 1)


def _day(read: Callable[[Match[str], date], date], match: Match[str], now: datetime) -> When:
    return When(read(match, now.date()), PARTS.get((match["part"] or "").lower()))


def _later(match: Match[str], now: datetime) -> When:
    minutes = _number(match["count"]) * (60 if match["unit"].lower() == "hour" else 1)
    later = (now.astimezone(UTC) + timedelta(minutes=minutes)).astimezone(now.tzinfo)
    return When(later.date(), later.time().replace(second=0, microsecond=0))


def _clock(match: Match[str], _: datetime) -> When:
    groups = match.groupdict("")
    if part := groups.get("part"):
        return When(clock=PARTS[part.lower()])
    hour, half = _number(groups["hour"]), groups.get("half", "").lower()
    if half:
        hour = hour % NOON + NOON * (half == "p")
    elif hour < FIRST_HOUR and not groups["hour"].startswith("0"):
        hour += NOON
    return When(clock=time(hour, int(groups.get("minute") or 0)))


_COUNT = rf"(?P<count>\d{{1,3}}|an?|{'|'.join(NUMBERS)})"
_WEEKDAY = r"(?P<weekday>mon(?:day)?|tue(?:sday)?|wed(?:nesday)?|thu(?:rsday)?|fri(?:day)?|saturday|sunday)"
_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:tember)?"
_MONTH += r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
_YEAR = r"(?:,? (?P<year>20\d\d))?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DAYS: tuple[tuple[str, Callable[[Match[str], date], date]], ...] = (
    (r"(?P<iso>20\d\d-\d\d-\d\d)", lambda match, _: date.fromisoformat(match["iso"])),
    (r"today|(?=tonight)|this(?= morning| afternoon| evening)", lambda _, today: today),
    (r"(?:the )?day after tomorrow", lambda _, today: today + 2 * DAY),
    (r"tomorrow", lambda _, today: today + DAY),
    (rf"in {_COUNT} days?", lambda match, today: today + _number(match["count"]) * DAY),
    (rf"in {_COUNT} weeks?", lambda match, today: today + _number(match["count"]) * 7 * DAY),
    (r"next week", lambda _, today: _monday(today) + 7 * DAY),
    (r"next month", lambda _, today: _next_month(today)),
    (r"(?:the )?end of (?:the )?month", lambda _, today: _next_month(today) - DAY),
    (r"this weekend", lambda _, today: max(today, _monday(today) + SATURDAY * DAY)),
    (rf"(?:(?P<which>next|this) )?{_WEEKDAY}", _weekday),
    (rf"(?:the )?{_DAY}(?: of)? {_MONTH}{_YEAR}", _calendar),
    (rf"{_MONTH} {_DAY}{_YEAR}", _calendar),
)
_PART = r"(?: ?(?P<part>morning|afternoon|evening|night|tonight))?"
_CLOCKS = (
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))? ?(?P<half>[ap])\.?m\b\.?",
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)",
    rf"(?<=at |by )(?P<hour>\d{{1,2}}|{'|'.join(NUMBERS)})(?: o'clock)?",
    r"(?P<part>noon|midnight)",
    r"in the (?P<part>morning|afternoon|evening)",
)
_RULES: tuple[tuple[str, Callable[[Match[str], datetime], When]], ...] = (
    (rf"in {_COUNT} ?(?P<unit>hour|min(?:ute)?)s?", _later),
    *((rf"(?:{pattern}){_PART}", partial(_day, read)) for pattern, read in _DAYS),
    *((pattern, _clock) for pattern in _CLOCKS),
)


def _search(pattern: str, text: str) -> Match[str] | None:
    """Finds the pattern, with its preposition, at the end of a text, or at its start before "to" or a comma."""
    words = rf"(?:(?:due|by|on|at|before|until|for|to)\s+)*(?:{pattern})"
    end, start = rf"(?:^|(?<![\s,;])[\s,;]+){words}[\s.!?]*$", rf"{words}(?:\s*[,:]\s*|\s+(?=to\s))"
    return re.search(end, text, re.IGNORECASE) or re.match(start, text, re.IGNORECASE)


def cut_date(text: str, now: datetime) -> tuple[str, When | None]:
    """The sentence without the date words at its edges, and what they mean."""
    rest, found = text, When()
    while piece := _next_piece(rest, found, now):
        rest, found = piece
    return (text, None) if found == When() else (rest, found)


def _next_piece(text: str, found: When, now: datetime) -> tuple[str, When] | None:
    """The text without its next phrase for a day or a time, and what was found with it."""
    for pattern, read in _RULES:
        if match := _search(pattern, text):
            try:
                new = read(match, now)
            except ValueError:
                continue  # 30 February, 25:61
            if not (new.day and found.day) and not (new.clock and found.clock):
                rest = f"{text[: match.start()]} {text[match.end() :]}".strip()
                return rest, When(new.day or found.day, new.clock or found.clock)
    return None


def read_date(text: str, now: datetime) -> When | None:
    """The date, if the text has nothing else."""
    rest, when = cut_date(text.strip(), now)
    return None if rest else when
