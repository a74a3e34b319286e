"""Metrics in Prometheus' text format: counters and histograms that are fed, gauges that are read at scrape time.

Written here instead of taken from prometheus-client, which costs a server time and memory at its start and a lock for
each count. Metrics belong to the event loop, so they need none.

Labels cannot fill the memory: a metric keeps at most `MAX_SERIES` of them; later ones are counted as "other".
This module does not know what is counted.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES = 512
OTHER = "other"

Labels: TypeAlias = tuple[str, ...]

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Figure(Protocol):
    """One name on the page, with all its series."""

    def lines(self) -> Iterator[str]: ...


def page(figures: Iterable[Figure]) -> bytes:
    text = "".join(f"{line}\n" for figure in figures for line in figure.lines())
    return text.encode("utf-8", "replace")


class Counter:
    """Only grows. A counter without labels starts at 0, so that the first count is seen as one."""

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self._name, self._meaning, self._labels = name, meaning, labels
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        try:
            self._values[labels] += by
        except KeyError:
            labels = _bounded(labels, self._values)
            self._values[labels] = self._values.get(labels, 0) + by

    def lines(self) -> Iterator[str]:
        yield from _head(self._name, self._meaning, "counter")
        for labels, value in self._values.items():
            yield f"{self._name}{_shown(self._labels, labels)} {_number(value)}"


class Histogram:
    """How often a figure was at most so large. `observe` may stand for many equal observations."""

    def __init__(self, name: str, meaning: str, bounds: tuple[float, ...], labels: Labels = ()) -> None:
        self._name, self._meaning, self._labels, self._bounds = name, meaning, labels, bounds
        self._series: dict[Labels, list[float]] = {}  # a count for each bound, one for what is above, the sum
        if not labels:
            self._series[()] = self._empty()

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series.setdefault(_bounded(labels, self._series), self._empty())
        series[bisect_left(self._bounds, value)] += times
        series[-1] += value * times

    def lines(self) -> Iterator[str]:
        yield from _head(self._name, self._meaning, "histogram")
        names = (*self._labels, "le")
        for labels, (*counts, total) in self._series.items():
            so_far = 0.0
            for bound, count in zip((*map(_number, self._bounds), "+Inf"), counts, strict=True):
                so_far += count
                yield f"{self._name}_bucket{_shown(names, (*labels, bound))} {_number(so_far)}"
            yield f"{self._name}_sum{_shown(self._labels, labels)} {_number(total)}"
            yield f"{self._name}_count{_shown(self._labels, labels)} {_number(so_far)}"

    def _empty(self) -> list[float]:
        return [0] * (len(self._bounds) + 2)


class Gauge:
    """A value that is read at scrape time. `kind` is "counter" for one that only grows there."""

    def __init__(
        self, name: str, meaning: str, value: float | Mapping[Labels, float], labels: Labels = (), kind: str = "gauge"
    ) -> None:
        self._name, self._meaning, self._labels, self._kind = name, meaning, labels, kind
        self._values = value if isinstance(value, Mapping) else {(): value}

    def lines(self) -> Iterator[str]:
        yield from _head(self._name, self._meaning, self._kind)
        for labels, value in self._values.items():
            yield f"{self._name}{_shown(self._labels, labels)} {_number(value)}"


def _bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    return labels if len(known) < MAX_SERIES else (OTHER,) * len(labels)


def _head(name: str, meaning: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _shown(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
