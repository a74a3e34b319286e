"""Computes how long to wait before a retry: our own backoff and the server's Retry-After. Pure: it does not sleep."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

LONGEST_RETRY_AFTER = 86_400.0  # the most that is passed on; some endpoints send values that no clock can hold


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses that double from `first` to `longest`.

    Each is shortened at random, so that clients do not retry together.
    """

    retries: int = 2
    first: float = 0.5
    longest: float = 8.0
    longest_hint: float = 20.0  # a Retry-After beyond it is not waited for

    def pause(self, attempt: int, random: Callable[[], float]) -> float:
        """Seconds after the failed attempt number `attempt`, counted from 1; `random` gives 0 to 1."""
        full = min(self.longest, self.first * 2.0 ** (attempt - 1))
        return full * (0.5 + random() / 2)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that the other side asked for, in any of the usual headers. None if it sent no sensible value."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, LONGEST_RETRY_AFTER)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is None and value is not None:
        seconds = _until(value, now or datetime.now(UTC))
    return None if seconds is None else min(seconds, LONGEST_RETRY_AFTER)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return number if number >= 0 else None  # false for nan as well


def _until(text: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())
