"""A run for scripts: one JSON object a line for each event, as `holodeck.core.events` has them (`--json`)."""

import re
from typing import IO

import msgspec

from holodeck.core.events import Event

# JSON leaves these as they are; on a terminal they would act.
_ACTIVE = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]")


class JsonDisplay:
    def __init__(self, out: IO[str]) -> None:
        self.verbose = False
        self._out = out

    def emit(self, event: Event) -> None:
        text = msgspec.json.encode(event).decode()
        self._out.write(_ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        self._out.flush()

    def wait_for(self, what: str) -> None:
        """Scripts get events only."""

    def close(self) -> None:
        """Every line is whole already."""
