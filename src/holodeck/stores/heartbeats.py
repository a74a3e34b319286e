"""Tracks the other processes that share the store, by their counters and our own clock, never by a wall clock."""

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from holodeck.core.owner import OwnedId
from holodeck.runs.port import Pulse

LOOKS = 3  # reads of an unchanged counter before its process counts as dead


@dataclass(frozen=True, slots=True)
class _Counter:
    """The counter of another process, and since when it has had this value by our own clock."""

    beats: int
    since: float
    looks: int = 1


class OpenRun(NamedTuple):
    """A run of this process that has not ended, as stored in its row."""

    key: int
    run: OwnedId
    stop_wanted: bool
    followed: int  # raised each time that another process notes a reader of it there
    is_awaited: bool  # a later run of the same session waits for it


class Heartbeats:
    def __init__(self) -> None:
        self._others: dict[str, _Counter] = {}
        self._followed: dict[OwnedId, int] = {}
        self._missing: set[OwnedId] = set()
        self._unknown: set[int] = set()
        self.strays: list[int] = []  # keys of open rows of this process whose run it does not have

    @property
    def has_others(self) -> bool:
        return bool(self._others)

    @property
    def processes(self) -> int:
        """How many processes share the store, by the last heartbeat of this one, which counts too."""
        return 1 + len(self._others)

    def see(self, others: Iterable[tuple[str, int]]) -> None:
        """Notes the counters of all other processes."""
        now, seen = time.monotonic(), self._others
        self._others = {
            replica: (
                replace(seen[replica], looks=seen[replica].looks + 1)
                if replica in seen and seen[replica].beats == beats
                else _Counter(beats, now)
            )
            for replica, beats in others
        }

    def still(self, seconds: float) -> list[tuple[str, int]]:
        """The processes whose counter has not changed for `seconds`, each with its value."""
        now = time.monotonic()
        return [
            (replica, seen.beats)
            for replica, seen in self._others.items()
            if seen.looks >= LOOKS and now - seen.since >= seconds
        ]

    def pulse(self, mine: Iterable[OpenRun], known: Collection[OwnedId], noted: Collection[OwnedId]) -> Pulse:
        """Compares the rows of this process with its memory.

        `known`: runs that it had throughout the read. `noted`: runs that it had at any time during the read, or is starting.
        """
        rows = {row.run: row for row in mine}
        unknown = {row.key for run, row in rows.items() if run not in noted}
        self.strays, self._unknown = [key for key in unknown if key in self._unknown], unknown  # in two reads, as below
        followed = [run for run, row in rows.items() if row.followed != self._followed.get(run, 0)]
        self._followed = {run: row.followed for run, row in rows.items()}
        missing = {run for run in known if run not in rows}
        gone, self._missing = [run for run in missing if run in self._missing], missing
        return Pulse(
            stops=[run for run, row in rows.items() if row.stop_wanted],
            followed=followed,
            gone=gone,  # missing in two reads: the first may have missed a run that was just ending
            awaited=[run for run, row in rows.items() if row.is_awaited],
        )
