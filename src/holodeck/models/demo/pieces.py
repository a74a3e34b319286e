"""What a date phrase contributes: a day, a clock time, a part of the day, or a moment outright.

"Tomorrow at 3 in the afternoon" is three pieces that fit together; two days do not.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, time
from re import Match


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    day: date | None = None
    clock: time | None = None
    part: str | None = None  # morning, afternoon, evening, night
    moment: datetime | None = None
    loose: bool = False  # the clock time does not say which half of the day
    next_day: bool = False  # midnight belongs to the end of its day

    def joined(self, other: "Piece") -> "Piece | None":
        """Both together, or None when they contradict each other."""
        if (self.moment and other != Piece()) or (other.moment and self != Piece()):
            return None
        given = {field.name: getattr(other, field.name) for field in fields(other) if getattr(other, field.name)}
        if any(getattr(self, name) for name in given):
            return None
        return replace(self, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of date phrase.

    `strong` phrases are dates wherever they stand. Others are only at the edge of a sentence or behind a preposition,
    for "friday report" and "march 3 miles" are no dates. `introduced` ones need the preposition everywhere.
    """

    pattern: str
    read: Callable[[Match[str], datetime], Piece | None]
    strong: bool = False
    introduced: bool = False


NUMBERS = {
    word: number
    for number, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    )
}
ORDINALS = {
    word: number
    for number, word in enumerate(
        [
            "first",
            "second",
            "third",
            "fourth",
            "fifth",
            "sixth",
            "seventh",
            "eighth",
            "ninth",
            "tenth",
            "eleventh",
            "twelfth",
        ],
        1,
    )
}
