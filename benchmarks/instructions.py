"""How many instructions a token, a request and a tool turn take, and how often they miss the L2 cache.

valgrind counts the instructions and simulates the caches, so the figures are the same on a busy machine as on a quiet one.
They say nothing of what the kernel does. Most of the code of a request runs once in it, and all of it together is larger
than an L2 cache: a request that needs one more library, or some more functions, misses all of their lines each time. Each
miss takes about 20 ns. So the CPU time of a request grows faster than its instructions.

$BENCH_BEFORE names an earlier commit to count beside, and beside sessions in memory, which the first versions had.

Of a server with workers the instructions of all its processes count together. The figure is an upper bound, so it has no
target: what such a server does by the clock (heartbeats, the parent's look at its workers; 1.5 million instructions a
second, most of it in the parent) counts for each token as often as valgrind is slower than the processor.

Each figure is the difference of two runs, a short and a long one, so that neither start nor warm-up is in it. Under
valgrind everything is fifty times slower: reads join more than they would, for all systems alike.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.added import agent_folder
from benchmarks.measures import BURST_STREAMS, BURST_TOKENS, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.processes import cpu_seconds, tree
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.stores import workers
from benchmarks.systems import DECODE, HOLODECK, System
from benchmarks.versions import before

_TOTAL = re.compile(r"^(?:summary|totals): ([\d ]+)", re.MULTILINE)
_CACHES = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,8,64")  # of one core; LL is its L2
PATIENCE = 900.0  # seconds for the requests of one run
PAUSE, STILL = 2.0, 0.2  # seconds, and of CPU in them, at most, while a server has nothing to do
SMALL_BURST = 8  # streams: with more, a worker under valgrind is busy for so long that the other takes it for dead
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
WORKERS_TOKEN = Work(
    name=f"a token of a burst, {SMALL_BURST} x {BURST_TOKENS}",
    mode=f"fake-{BURST_TOKENS}",
    streams=SMALL_BURST,
    tokens=BURST_TOKENS,
    short=2 * SMALL_BURST,
    long=12 * SMALL_BURST,
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
    one, two = workers(options, 1), workers(options, 2)
    plan += [(one, WORKERS_TOKEN), (two, WORKERS_TOKEN)]
    with fake_model() as port:
        counts = {(system.name, work.name): counted(system, work, port, options) for system, work in plan}
    rows = [each for (system, work), count in counts.items() for each in rows_of(work, system, count)]
    ratio = counts[HOLODECK.name, TOKEN.name].instructions / counts[DECODE.name, TOKEN.name].instructions
    relative = f"{HOLODECK.name} / {DECODE.name}"
    beside_one = counts[two.name, WORKERS_TOKEN.name].instructions / counts[one.name, WORKERS_TOKEN.name].instructions
    return [
        *rows,
        Row(measure=TOKEN.name, system=relative, unit="x", samples=[ratio], target=Target(limit=2)),
        Row(
            measure=WORKERS_TOKEN.name,
            system="2 workers / 1",
            unit="x",
            samples=[beside_one],
            target=Target(limit=1.11),
        ),
    ]


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
    written = f"{system.name.replace(' ', '-')}.{work.mode}.{requests}.callgrind"
    valgrind = (
        "valgrind",
        "--tool=callgrind",
        "--trace-children=yes",
        "--instr-atstart=no",
        *_CACHES,
        f"--callgrind-out-file={options.scratch}/{written}.%p",
        f"--log-file={options.scratch}/valgrind.%p",
    )
    under = replace(system, argv=(*valgrind, *system.argv), env={**system.env, "PYTHONHASHSEED": "0"})
    with subject(under, model_port, options.scratch, BENCH_REPLAY_WINDOW="5", BENCH_WATCHDOG="false") as started:
        processes = at_rest(started.server.pid)
        for each in processes:
            subprocess.run(("callgrind_control", "--instr=on", str(each)), check=True, capture_output=True)
        work.put_on(started, requests)
        end(started.server.pid)
    found = [_TOTAL.search((options.scratch / f"{written}.{pid}").read_text()) for pid in processes]
    if None in found:
        raise CannotMeasureError("valgrind did not write down what it counted")
    figures = [[int(each) for each in total[1].split()] for total in found if total]
    return Count(sum(each[0] for each in figures), sum(sum(each[-_MISSES:]) for each in figures))


def end(pid: int) -> None:
    """Ends a server, whose processes then write down what they counted: later than a server is usually given."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            raise CannotMeasureError("the server under valgrind does not end")
        time.sleep(0.1)


def at_rest(pid: int) -> list[int]:
    """The processes of a server when none has anything to do: one worker serves before the others have started."""
    before = -1.0
    while (now := cpu_seconds(pid)) - before > STILL:
        before = now
        time.sleep(PAUSE)
    return tree(pid)
