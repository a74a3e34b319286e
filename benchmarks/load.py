"""One run of the load client: its options in, its figures out. Which load means what is the business of `measures`."""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.native import program
from benchmarks.processes import cores
from benchmarks.report import CannotMeasureError
from benchmarks.systems import SSE, Wire, agui_body

GRACE = 30.0  # seconds beyond --max-seconds before the load client is given up

_serials = itertools.count()


class Quantiles(msgspec.Struct, frozen=True):
    """Milliseconds; -1 if there was nothing."""

    p50: float
    p99: float
    max: float


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the load client printed."""

    ok: int
    failed: int
    unfinished: int
    short_streams: int  # answers that were complete but had not the expected number of tokens
    wall_s: float
    events: int
    tokens: int
    first_token_ms: Quantiles
    completion_ms: Quantiles
    token_delay_ms: Quantiles
    started_us: int  # CLOCK_MONOTONIC, as time.monotonic() here
    first_error: str
    tokens_per_100ms: list[int]

    @property
    def complete(self) -> bool:
        return self.failed == 0 and self.unfinished == 0 and self.short_streams == 0

    def tokens_between(self, start: float, stop: float) -> int:
        """Tokens that arrived between two moments of time.monotonic()."""
        first, last = (int((moment - self.started_us / 1e6) * 10) for moment in (start, stop))
        return sum(self.tokens_per_100ms[first:last])


@dataclass(frozen=True, kw_only=True)
class Load:
    """`streams` at a time, `requests` in all; `mode` is what the fake model answers, `expect` how many tokens that is."""

    mode: str
    streams: int
    requests: int
    expect: int
    wire: Wire = SSE
    path: str = "/awp"
    body: str = ""  # default: an AG-UI request
    words: str = ""
    header: str = "x-load: 1"
    ramp: float = 0.0
    sessions: int = 0
    max_seconds: float = 60.0
    prefix: str = field(default_factory=lambda: f"b{os.getpid()}x{next(_serials)}")

    def argv(self, port: int, body: Path) -> list[str]:
        options = {
            "--port": port,
            "--path": self.path,
            "--body": body,
            "--accept": self.wire.accept,
            "--header": self.header,
            self.wire.count[0]: self.wire.count[1],
            "-c": self.streams,
            "-n": self.requests,
            "--expect": self.expect,
            "--ramp": self.ramp,
            "--sessions": self.sessions,
            "--max-seconds": self.max_seconds,
            "--prefix": self.prefix,
        }
        return [str(program("load")), *(str(part) for option in options.items() for part in option)]


class Running:
    """A load that is under way."""

    def __init__(self, load: Load, process: "subprocess.Popen[bytes]") -> None:
        self._load = load
        self._process = process
        self._started = time.monotonic()

    def wait_until(self, seconds: float) -> None:
        """Sleeps until so long after the start."""
        time.sleep(max(0.0, self._started + seconds - time.monotonic()))

    def result(self, *, must_complete: bool = True) -> LoadResult:
        out, _ = self._process.communicate(timeout=self._load.max_seconds + GRACE)
        result = msgspec.json.decode(out, type=LoadResult)
        if must_complete and not result.complete:
            raise CannotMeasureError(
                f"{self._load.mode} over {self._load.wire.name}: {result.failed} requests failed, "
                f"{result.unfinished} unfinished, {result.short_streams} without their {self._load.expect} tokens"
                + (f"; the first: {result.first_error}" if result.first_error else "")
            )
        return result


@contextmanager
def running(load: Load, port: int, scratch: Path) -> Iterator[Running]:
    body = scratch / f"{load.prefix}.json"
    body.write_text(load.body or agui_body(load.mode, load.words))
    process = subprocess.Popen(load.argv(port, body), stdout=subprocess.PIPE)
    try:
        os.sched_setaffinity(process.pid, cores()[0])
        yield Running(load, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def run_load(load: Load, port: int, scratch: Path) -> LoadResult:
    with running(load, port, scratch) as under_way:
        return under_way.result()
