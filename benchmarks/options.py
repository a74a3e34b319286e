"""What the command line can change about a benchmark."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    scratch: Path  # an empty folder for logs, databases and virtual environments; removed at the end
    rounds: int = 3
    quick: bool = False  # tries out the harness; its figures mean little
    capacity: bool = False  # also climbs the ladder of paced streams
