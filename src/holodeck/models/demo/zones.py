"""Zones and wall clocks: local times that do not exist, exist twice, or belong to a machine that does not say its zone.

Knows nothing of words; `times.py` and `days.py` read those.
"""

import os
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

LOCALTIME = Path("/etc/localtime")
END_OF_DAY = time(23, 59, 59)
"""A date without a time is due when its day is over, which is also how the todo server reads a bare date.

Any earlier hour would make "today" overdue while the day is still long.
"""


def zone_named(name: str | None) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: "Europe" is a folder of the zone database
        return None


def system_zone() -> tzinfo:
    """The machine's zone with its rules, not only its offset of today: a date in spring needs the former."""
    if named := zone_named(os.environ.get("TZ", "").lstrip(":")):
        return named
    try:
        with LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file, key="localtime")
    except (OSError, ValueError):
        return datetime.now(UTC).astimezone().tzinfo or UTC


def at(day: date, clock: time, now: datetime) -> datetime:
    """That wall-clock time in the zone of `now`.

    In the gap of spring the time is moved on by the gap (02:30 becomes 03:30). In autumn the earlier of the two is
    meant, unless only the later one is still to come.
    """
    zone = now.tzinfo or UTC
    early = datetime.combine(day, clock, zone)
    chosen = early.replace(fold=1) if _passed(early, now) and not _passed(early.replace(fold=1), now) else early
    return chosen.astimezone(UTC).astimezone(zone)


def after(now: datetime, span: timedelta) -> datetime:
    """So much later in real time, whatever the clocks on the wall do meanwhile; whole minutes."""
    return (now.astimezone(UTC) + span).astimezone(now.tzinfo).replace(second=0, microsecond=0)


def _passed(moment: datetime, now: datetime) -> bool:
    # Through UTC: Python compares two times of the same zone by their wall clocks and ignores the fold.
    return moment.astimezone(UTC) <= now.astimezone(UTC)
