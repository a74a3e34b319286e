"""Which AG-UI the client at the other end understands."""

import re
from enum import Enum, auto
from typing import Any

PROTOCOL_VERSION = "1.0"
_VERSION = re.compile(r"(\d{1,4})(\.\d{1,4})*")


class Profile(Enum):
    """Clients before 1.0 never send a version, and three shapes of 1.0 end their run.

    These are: a tool result as a list of parts, `pendingToolCallIds`, and the outcome `cancelled`.
    """

    FULL = auto()
    LEGACY = auto()


def profile_of(protocol_version: Any) -> Profile:
    match = _VERSION.fullmatch(protocol_version) if isinstance(protocol_version, str) else None
    return Profile.FULL if match and int(match[1]) >= 1 else Profile.LEGACY
