"""Times of day in words: 3pm, at 15:30, half past three, noon, in the morning."""

from datetime import datetime, time
from re import Match

from holodeck.models.demo.pieces import NUMBERS, Piece, Rule

PARTS = {"morning": time(9), "afternoon": time(15), "evening": time(19), "night": time(21), "tonight": time(20)}
PART = r"morning|afternoon|evening|night"
NOON = 12

_HOUR_WORD = "|".join(word for word in NUMBERS if word != "zero")
_BEFORE_AN_HOUR = r"(?:(?<=at )|(?<=by )|(?<=before )|(?<=until )|(?<=till )|(?<=around ))"  # a table for 7 is no hour
_MERIDIEM = r"(?P<half>[ap])\.?m\b\.?"


def _hour(word: str) -> int:
    return NUMBERS.get(word.lower()) or int(word)


def _clock(match: Match[str], _now: datetime) -> Piece | None:
    groups = match.groupdict()
    return _piece(_hour(match["hour"]), int(groups.get("minute") or 0), groups.get("half"), match["hour"])


def _piece(hour: int, minute: int, half: str | None, written: str) -> Piece | None:
    if half:
        if not 1 <= hour <= NOON:
            return None
        return Piece(clock=time(hour % NOON + (NOON if half.lower() == "p" else 0), minute))
    if hour >= 24 or minute >= 60:  # noqa: PLR2004, a clock's own figures
        return None
    return Piece(clock=time(hour, minute), loose=1 <= hour <= NOON and not written.startswith("0"))


def _past_or_to(match: Match[str], _now: datetime) -> Piece | None:
    minutes = 30 if match["much"].lower() == "half" else 15
    hour = _hour(match["hour"])
    if match["side"].lower() == "to":
        hour, minutes = (hour - 1) or NOON, 60 - minutes
    return _piece(hour, minutes, match["half"], match["hour"])


def _named(match: Match[str], _now: datetime) -> Piece:
    return Piece(clock=time(0), next_day=True) if match["name"].lower() == "midnight" else Piece(clock=time(NOON))


def _part(match: Match[str], _now: datetime) -> Piece:
    return Piece(part=match["part"].lower())


TIME_RULES = (
    Rule(pattern=rf"(?P<hour>\d{{1,2}})(?:[:.](?P<minute>[0-5]\d))?\s*{_MERIDIEM}", read=_clock, strong=True),
    Rule(pattern=r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?:\s*h)?(?![\d:])", read=_clock, strong=True),
    Rule(
        pattern=rf"(?P<much>half|(?:a )?quarter)[ -](?P<side>past|to)[ -](?P<hour>\d{{1,2}}|{_HOUR_WORD})\b"
        rf"(?:\s*{_MERIDIEM})?",
        read=_past_or_to,
        strong=True,
    ),
    Rule(pattern=rf"(?P<hour>\d{{1,2}}|{_HOUR_WORD})\s*o'?clock", read=_clock, strong=True),
    Rule(pattern=rf"{_BEFORE_AN_HOUR}(?P<hour>\d{{1,2}}|{_HOUR_WORD})h?(?![\w:/%.-])", read=_clock, introduced=True),
    Rule(pattern=r"(?P<name>noon|midday|midnight)", read=_named, introduced=True),
    Rule(pattern=r"(?P<name>noon)(?=\W*$)", read=_named),
    Rule(pattern=r"in the (?P<part>morning|afternoon|evening)", read=_part, strong=True),
)
