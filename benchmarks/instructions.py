"""How many instructions a token, a request and a tool turn take, and how often they miss the L2 cache.

valgrind counts the instructions and simulates the caches, so the figures are the same on a busy machine as on a quiet one.
They say nothing of what the kernel does. Most of the code of a request runs once in it, and all of it together is larger
than an L2 cache: a request that needs one more library, or some more functions, misses all of their lines each time. Each
miss takes about 20 ns. So the CPU time of a request grows faster than its instructions.

$BENCH_BEFORE names an earlier commit to count beside, and beside sessions in memory, which the first versions had.

Each figure is the difference of two runs, a short and a long one, so that neither start nor warm-up is in it. Under
valgrind everything is fifty times slower: reads join more than they would, for all systems alike.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.added import agent_folder
from benchmarks.measures import BURST_STREAMS, BURST_TOKENS, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.systems import DECODE, HOLODECK, System
from benchmarks.versions import before

_TOTAL = re.compile(r"^(?:summary|totals): ([\d ]+)", re.MULTILINE)
_CACHES = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,8,64")  # of one core; LL is its L2
PATIENCE = 900.0  # seconds for the requests of one run
_MISSES = 3  # the last figures of a total: reads of instructions, reads and writes of data that miss LL


class Count(NamedTuple):
    instructions: float
    misses: float  # of the L2 cache


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
        started.put(self.mode, streams=self.streams, requests=requests, expect=self.tokens, max_seconds=PATIENCE)


TOKEN = Work(
    name=f"a token of a burst, {BURST_STREAMS} x {BURST_TOKENS}",
    mode=f"fake-{BURST_TOKENS}",
    streams=BURST_STREAMS,
    tokens=BURST_TOKENS,
    short=BURST_STREAMS,
    long=3 * BURST_STREAMS,
    per=BURST_TOKENS,
)
REQUEST = Work(name="a one-token request", mode="fake-1", streams=1, tokens=1, short=40, long=240)
TURN = Work(name="a tool turn", mode="fake-tool-1", streams=1, tokens=1, short=20, long=100)


def run(options: Options) -> list[Row]:
    if shutil.which("valgrind") is None:
        raise CannotMeasureError("valgrind counts the instructions, and is not installed (apt-get install valgrind)")
    systems = [HOLODECK]
    if earlier := os.environ.get("BENCH_BEFORE"):
        in_memory = agent_folder(options, "memory", sessions="{store: memory}")
        systems += [replace(HOLODECK, name="HoloDeck, sessions in memory", cwd=in_memory), before(earlier)]
    plan = [(DECODE, TOKEN), (DECODE, REQUEST)]
    plan += [(system, work) for system in systems for work in (TOKEN, REQUEST, TURN)]
    with fake_model() as port:
        counts = {(system.name, work.name): counted(system, work, port, options) for system, work in plan}
    rows = [each for (system, work), count in counts.items() for each in rows_of(work, system, count)]
    ratio = counts[HOLODECK.name, TOKEN.name].instructions / counts[DECODE.name, TOKEN.name].instructions
    relative = f"{HOLODECK.name} / {DECODE.name}"
    return [*rows, Row(measure=TOKEN.name, system=relative, unit="x", samples=[ratio], target=Target(limit=2))]


def rows_of(work: str, system: str, count: Count) -> list[Row]:
    return [
        Row(measure=work, system=system, unit="thousand", samples=[count.instructions / 1000]),
        Row(measure=work, system=system, unit="L2 misses", samples=[count.misses]),
    ]


def counted(system: System, work: Work, model_port: int, options: Options) -> Count:
    short, long = (total(system, work, requests, model_port, options) for requests in (work.short, work.long))
    units = (work.long - work.short) * work.per
    return Count((long.instructions - short.instructions) / units, (long.misses - short.misses) / units)


def total(system: System, work: Work, requests: int, model_port: int, options: Options) -> Count:
    """The count of so many requests. Counting begins after the warm-up: the start alone would take minutes."""
    print(f"{system.name}: {work.name}, {requests} requests", file=sys.stderr)
    written = options.scratch / f"{work.mode}.{requests}.callgrind"
    valgrind = (
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        *_CACHES,
        f"--callgrind-out-file={written}",
        f"--log-file={options.scratch}/valgrind",
    )
    under = replace(system, argv=(*valgrind, *system.argv), env={**system.env, "PYTHONHASHSEED": "0"})
    with subject(under, model_port, options.scratch, BENCH_REPLAY_WINDOW="5", BENCH_WATCHDOG="false") as started:
        begin = ("callgrind_control", "--instr=on", str(started.server.pid))
        subprocess.run(begin, check=True, capture_output=True)
        work.put_on(started, requests)
    found = _TOTAL.search(written.read_text())
    if found is None:
        raise CannotMeasureError("valgrind did not write down what it counted")
    figures = [int(each) for each in found[1].split()]
    return Count(figures[0], sum(figures[-_MISSES:]))
