"""One requirement: its id, its sentence and its source."""

from typing import NamedTuple


class Requirement(NamedTuple):
    """`due` is the issue that will deliver it; None: it is delivered, and a test shows it."""

    id: str
    sentence: str
    source: str
    due: int | None = None
