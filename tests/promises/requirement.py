"""What one promise consists of."""

from typing import NamedTuple


class Requirement(NamedTuple):
    """`due` is the issue that brings it; None means: it is delivered, and a test shows it."""

    id: str
    sentence: str
    source: str
    due: int | None = None
