"""Time zones by IANA name: the user's if it is a real one, else this machine's."""

import os
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LOCALTIME = Path("/etc/localtime")


def is_zone(name: str) -> bool:
    """Whether a name that came from outside is a time zone. Never raises, never leaves the zone database."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: names such as "Europe" or very long ones
        return False
    return True


@cache
def local_zone() -> str:
    """This machine's zone: $TZ, else where /etc/localtime points, else UTC."""
    named = os.environ.get("TZ", "").lstrip(":")
    if named and is_zone(named):
        return named
    _, found, name = str(_LOCALTIME.resolve()).partition("zoneinfo/")
    return name if found and is_zone(name) else "UTC"
