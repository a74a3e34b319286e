"""The clock of a store: never behind what is stored, and not moved by a clock that is set while the process runs."""

import time


class StoreClock:
    def __init__(self, latest: float, now: float | None = None) -> None:
        """`latest` is the newest time that is stored, `now` the time by the store's own clock if it has one."""
        self._offset = max(latest, time.time() if now is None else now) - time.monotonic()

    def __call__(self) -> float:
        return self._offset + time.monotonic()
