"""Metrics in Prometheus' text format: series of values, and gauges, which are read at scrape time.

We do not use prometheus-client: it costs time and memory at start, and a lock for each count. This module does not know
what is counted, or how: `holodeck.telemetry.metrics` does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add
from typing import Literal, TypeAlias

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = tuple[str, ...]

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric with its values: plain data, which processes can exchange and add up."""

    name: str
    meaning: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Labels = ()
    bounds: tuple[float, ...] = ()  # upper bounds of a histogram's buckets
    together: Literal["sum", "max", "min"] = "sum"  # how the values of several processes are combined
    values: list[tuple[Labels, list[float]]]  # in a histogram: a count for each bound, one for values above, the sum

    @property
    def only_grows(self) -> bool:
        return self.kind != "gauge"

    def lines(self) -> Iterator[str]:
        yield from (f"# HELP {self.name} {self.meaning}", f"# TYPE {self.name} {self.kind}")
        for labels, values in self.values:
            if self.kind == "histogram":
                yield from self._buckets(labels, values)
            else:
                yield f"{self.name}{_shown(self.labels, labels)} {_number(values[0])}"

    def _buckets(self, labels: Labels, values: list[float]) -> Iterator[str]:
        *counts, total = values
        names, so_far = (*self.labels, "le"), 0.0
        for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts, strict=True):
            so_far += count
            yield f"{self.name}_bucket{_shown(names, (*labels, bound))} {_number(so_far)}"
        yield f"{self.name}_sum{_shown(self.labels, labels)} {_number(total)}"
        yield f"{self.name}_count{_shown(self.labels, labels)} {_number(so_far)}"


def combined(several: Iterable[Iterable[Series]]) -> list[Series]:
    """Combines the series of several processes by name, in the order in which they first appear."""
    found: dict[str, Series] = {}
    for each in (series for one in several for series in one):
        known = found.get(each.name)
        if known is None:
            found[each.name] = each
            continue
        function = _TOGETHER[each.together]
        values = dict(known.values)
        for labels, added in each.values:
            before = values.get(labels)
            values[labels] = added if before is None else [*map(function, before, added)]
        found[each.name] = msgspec.structs.replace(known, values=list(values.items()))
    return list(found.values())


_TOGETHER: dict[str, Callable[[float, float], float]] = {"sum": add, "max": max, "min": min}


def page(figures: Iterable[Series]) -> bytes:
    text = "".join(f"{line}\n" for series in figures for line in series.lines())
    return text.encode("utf-8", "replace")


def gauge(
    name: str,
    meaning: str,
    value: float | Mapping[Labels, float],
    labels: Labels = (),
    kind: Literal["gauge", "counter"] = "gauge",
    *,
    together: Literal["sum", "max", "min"] = "sum",
) -> Series:
    """A value that is read at scrape time. `kind` is "counter" if it only grows.

    `together` is how the values of several workers are combined: summed, unless all workers share one value.
    """
    by_labels = value if isinstance(value, Mapping) else {(): value}
    values = [(labels, [value]) for labels, value in by_labels.items()]
    return Series(name=name, meaning=meaning, kind=kind, labels=labels, together=together, values=values)


def _shown(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
