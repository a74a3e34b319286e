"""Text that arrives in pieces, made safe while it arrives.

An emoji may come as two halves of a surrogate pair in two deltas: the first half waits for the second, so that nobody
ever hears a half. It knows nothing of what the text is for.
"""

from collections.abc import Callable

from holodeck.core.text import clean

_HIGH_FIRST, _HIGH_LAST = "\ud800", "\udbff"


class Pieces:
    """What was said so far, and the half of a character that cannot be said yet. `tell` hears every piece."""

    __slots__ = ("_half", "_tell", "said")

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.said: list[str] = []
        self._half = ""
        self._tell = tell

    def add(self, delta: str) -> None:
        if self._half or not delta.isascii() or "\x00" in delta:
            delta = self._mend(delta)
        if delta:
            self.said.append(delta)
            self._tell(delta)

    def end(self) -> None:
        """Says what still waited when the stream ended: a half that stays alone is U+FFFD."""
        rest, self._half = clean(self._half), ""
        self.add(rest)

    def _mend(self, delta: str) -> str:
        delta, self._half = self._half + delta, ""
        if delta and _HIGH_FIRST <= delta[-1] <= _HIGH_LAST:
            delta, self._half = delta[:-1], delta[-1]
        return clean(delta)

    def __bool__(self) -> bool:
        return bool(self.said)

    def __str__(self) -> str:
        return "".join(self.said)
