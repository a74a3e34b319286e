"""Converts dates between text and instants: pure functions of a text, a zone and the current time.

Only ISO 8601 is read here. "Tomorrow at three" is natural language, which the model translates.
"""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from holodeck.todo.todo_values import TodoError

END_OF_DAY = time(23, 59, 59)
DAY = timedelta(days=1)


def read_zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: "Europe" is a folder of the zone database
        raise TodoError(f"timezone {shorten(name)} is not an IANA name; write e.g. Europe/Berlin") from None


def read_due_date(text: str, zone: tzinfo) -> datetime:
    """Returns the instant of a due date. Without an offset it is local; without a time it is the end of that day."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return _read_instant(text, zone)
    return _to_utc(datetime.combine(day, END_OF_DAY, zone), text)


def _read_instant(text: str, zone: tzinfo) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise TodoError(f"due_date {shorten(text)} is not ISO 8601; write e.g. 2026-11-16T15:00:00+01:00") from None
    return _to_utc(instant if instant.tzinfo else instant.replace(tzinfo=zone), text)


def _to_utc(instant: datetime, text: str) -> datetime:
    try:
        return instant.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise TodoError(f"due_date {shorten(text)} is outside the years 1 to 9999") from None


def write_instant(instant: datetime | None, zone: tzinfo) -> str | None:
    if instant is None:
        return None
    try:
        return instant.astimezone(zone).isoformat(timespec="seconds")
    except OverflowError:  # an instant at the edge of the calendar has no local form in this zone
        return instant.isoformat(timespec="seconds")


def read_period(text: str, zone: tzinfo, now: datetime) -> tuple[datetime, datetime]:
    """Returns the half-open period [from, before) of `today`, `this_week` (Monday to Sunday) or an ISO date."""
    today = now.astimezone(zone).date()
    if text == "today":
        return _days(today, 1, zone)
    if text == "this_week":
        return _days(today - today.weekday() * DAY, 7, zone)
    try:
        return _days(date.fromisoformat(text), 1, zone)
    except (ValueError, OverflowError):
        raise TodoError(
            f"due_date_filter {shorten(text)} is not today, this_week, overdue or an ISO date such as 2026-11-16"
        ) from None


def _days(first: date, count: int, zone: tzinfo) -> tuple[datetime, datetime]:
    # Local midnights, not 24 hours: a day on which the clocks change is 23 or 25 hours long.
    start = datetime.combine(first, time.min, zone)
    end = datetime.combine(first + count * DAY, time.min, zone)
    return start.astimezone(UTC), end.astimezone(UTC)


def shorten(value: object, limit: int = 60) -> str:
    """Formats a value for a message: visible, on one line, of bounded length."""
    shown = repr(value)
    return shown if len(shown) <= limit else f"{shown[:limit]}…"
