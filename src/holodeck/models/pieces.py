"""Text that arrives in pieces, made safe while it arrives.

An emoji may come as two halves of a surrogate pair in two deltas: the first half waits for the second, so that
no listener receives half a character.
"""

from collections.abc import Callable

from holodeck.core.text import clean

_HIGH_FIRST, _HIGH_LAST = "\ud800", "\udbff"


class TextPieces:
    """The deltas so far. Holds back half a surrogate pair, and calls `on_delta` with each complete delta."""

    __slots__ = ("_half", "_on_delta", "deltas")

    def __init__(self, on_delta: Callable[[str], None]) -> None:
        self.deltas: list[str] = []
        self._half = ""
        self._on_delta = on_delta

    def add(self, delta: str) -> None:
        if self._half or not delta.isascii() or "\x00" in delta:
            delta = self._mend(delta)
        if delta:
            self.deltas.append(delta)
            self._on_delta(delta)

    def end(self) -> None:
        """Flushes at the end of the stream: a half that stays alone becomes U+FFFD."""
        rest, self._half = clean(self._half), ""
        self.add(rest)

    def _mend(self, delta: str) -> str:
        delta, self._half = self._half + delta, ""
        if delta and _HIGH_FIRST <= delta[-1] <= _HIGH_LAST:
            delta, self._half = delta[:-1], delta[-1]
        return clean(delta)

    def __bool__(self) -> bool:
        return bool(self.deltas)

    def __str__(self) -> str:
        return "".join(self.deltas)
