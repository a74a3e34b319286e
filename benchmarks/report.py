"""Figures and how they are shown: rows of a Markdown table with their targets, and JSON lines to keep.

Knows nothing of how anything is measured.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CannotMeasureError(RuntimeError):
    """The benchmark could not be run, or what it ran misbehaved; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure that has to be reached: `limit` at most, or at least."""

    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measure of one system. `take` makes one figure of the rounds: their median, or the best where noise only adds."""

    measure: str
    system: str
    unit: str
    samples: Sequence[float]
    target: Target | None = None
    take: Callable[[Sequence[float]], float] = statistics.median

    @property
    def value(self) -> float:
        return self.take(self.samples)

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met(self.value)

    def cells(self) -> tuple[str, ...]:
        spread = f" [{number(min(self.samples))}-{number(max(self.samples))}]" if len(self.samples) > 1 else ""
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        return self.measure, self.system, number(self.value) + spread, self.unit, str(self.target or "-"), verdict

    def record(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "system": self.system,
            "unit": self.unit,
            "value": self.value,
            "samples": list(self.samples),
            "target": str(self.target) if self.target else None,
            "met": self.met,
        }


def number(value: float) -> str:
    """Three significant figures; whole numbers as they are."""
    if value == int(value):
        return str(int(value))
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3}f}"


def ratios(values: Iterable[float], baseline: Iterable[float]) -> list[float]:
    """Round by round, so that what slowed a whole round down does not count."""
    return [value / base for value, base in zip(values, baseline, strict=True)]


HEADINGS = ("measure", "system", "value [min-max]", "unit", "target", "")


def table(rows: Sequence[Row]) -> str:
    """A Markdown table that is also straight in a terminal."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = tuple("-" * width for width in widths)
    shown = [lines[0], rule, *lines[1:]]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in shown)


def keep(file: Path, benchmark: str, rows: Iterable[Row], about: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps({"benchmark": benchmark, **about, **row.record()}, ensure_ascii=False) + "\n")
