"""How many instructions a token, a request and a tool turn take: valgrind counts them, so the figures are the same on a
busy machine as on a quiet one. They say nothing of caches and of what the kernel does.

Each figure is the difference of two runs, a short and a long one, so that neither start nor warm-up is in it. Under
valgrind everything is fifty times slower: reads join more than they would, for all systems alike.
"""

import re
import shutil
import sys
from dataclasses import dataclass, replace

from benchmarks.measures import BURST_STREAMS, BURST_TOKENS, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.systems import DECODE, HOLODECK, System

_TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Work:
    """`short` and `long` are how many requests; `per` is how many of the unit one request has."""

    name: str
    mode: str
    streams: int
    tokens: int
    short: int
    long: int
    per: int = 1

    def put_on(self, started: Subject, requests: int) -> None:
        started.put(self.mode, streams=self.streams, requests=requests, expect=self.tokens)


TOKEN = Work(
    name=f"a token of a burst, {BURST_STREAMS} x {BURST_TOKENS}",
    mode=f"fake-{BURST_TOKENS}",
    streams=BURST_STREAMS,
    tokens=BURST_TOKENS,
    short=BURST_STREAMS,
    long=3 * BURST_STREAMS,
    per=BURST_TOKENS,
)
REQUEST = Work(name="a one-token request", mode="fake-1", streams=8, tokens=1, short=40, long=240)
TURN = Work(name="a tool turn", mode="fake-tool-1", streams=1, tokens=1, short=20, long=100)


def run(options: Options) -> list[Row]:
    if shutil.which("valgrind") is None:
        raise CannotMeasureError("valgrind counts the instructions, and is not installed (apt-get install valgrind)")
    with fake_model() as port:
        limit = [counted(DECODE, work, port, options) for work in (TOKEN, REQUEST)]
        ours = [counted(HOLODECK, work, port, options) for work in (TOKEN, REQUEST, TURN)]
    rows = [row(work, DECODE.name, figure) for work, figure in zip((TOKEN, REQUEST), limit, strict=True)]
    rows += [row(work, HOLODECK.name, figure) for work, figure in zip((TOKEN, REQUEST, TURN), ours, strict=True)]
    ratio = ours[0] / limit[0]
    relative = f"{HOLODECK.name} / {DECODE.name}"
    return [*rows, Row(measure=TOKEN.name, system=relative, unit="x", samples=[ratio], target=Target(limit=2))]


def row(work: Work, system: str, figure: float) -> Row:
    return Row(measure=work.name, system=system, unit="thousand", samples=[figure / 1000])


def counted(system: System, work: Work, model_port: int, options: Options) -> float:
    short, long = (total(system, work, requests, model_port, options) for requests in (work.short, work.long))
    return (long - short) / (work.long - work.short) / work.per


def total(system: System, work: Work, requests: int, model_port: int, options: Options) -> int:
    """Instructions of a whole life of a server with so many requests in it."""
    print(f"{system.name}: {work.name}, {requests} requests", file=sys.stderr)
    written = options.scratch / f"{work.mode}.{requests}.callgrind"
    valgrind = (
        "valgrind",
        "--tool=callgrind",
        f"--callgrind-out-file={written}",
        f"--log-file={options.scratch}/valgrind",
    )
    under = replace(system, argv=(*valgrind, *system.argv), env={**system.env, "PYTHONHASHSEED": "0"})
    with subject(under, model_port, options.scratch, BENCH_REPLAY_WINDOW="5", BENCH_WATCHDOG="false") as started:
        work.put_on(started, requests)
    found = _TOTAL.search(written.read_text())
    if found is None:
        raise CannotMeasureError("valgrind did not write down what it counted")
    return int(found[1])
