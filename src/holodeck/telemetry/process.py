"""The resources of the process, under the names that every Prometheus client uses. Read from /proc if it exists."""

import os
import time
from pathlib import Path

from holodeck.telemetry.exposition import Figure, Gauge

_SELF = Path("/proc/self")


def process_figures(uptime: float) -> list[Figure]:
    cpu = Gauge("process_cpu_seconds_total", "CPU time, user and system", time.process_time(), kind="counter")
    started = Gauge(
        "process_start_time_seconds", "Start time, in seconds since 1970", round(time.time() - uptime), together="min"
    )
    return [cpu, started, *_of_linux()]


def _of_linux() -> list[Figure]:
    if not _SELF.exists():
        return []
    resident = int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    descriptors = len(os.listdir(_SELF / "fd"))  # noqa: PTH208  a count needs no paths
    return [
        Gauge("process_resident_memory_bytes", "Memory in use", resident),
        Gauge("process_open_fds", "Open files and sockets", descriptors),
    ]
