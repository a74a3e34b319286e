"""`python -m tests.faults.soak`: 500 streams at 20 events a second for minutes. Memory must not grow, nothing may be left.

The load and the model are the C programs of `benchmarks`: Python could not keep up with the server. Sessions and finished
runs are kept for half a minute here, so that after the first minute as much is forgotten as is begun.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from benchmarks.load import Load, Running, running
from benchmarks.native import compiler, fake_model
from benchmarks.processes import Server
from benchmarks.systems import SSE, System

STREAMS, PACE = 500, 20
ANSWER = 20  # seconds of one answer
SETTLED = 60.0  # seconds until memory is compared
ALLOWED = 0.05
SAMPLE = 2.0
POOL = (os.cpu_count() or 1) + 4  # threads of asyncio's own pool, which come with the first use and stay
MIB = 2**20

AGENT = {
    "name": "soak",
    "model": {"provider": "openai_compatible", "name": "fake", "endpoint": "${BENCH_MODEL_URL}", "api_key": "none"},
    "loop": {"iteration_timeout": 120},
    "sessions": {"ttl_seconds": 30},
    "server": {"runs": {"replay_window": 10, "max_concurrent": 4 * STREAMS}},
}


@dataclass(frozen=True)
class Sample:
    seconds: float
    rss: float
    fds: int
    threads: int


def sampled(process: psutil.Process, begun: float) -> Sample:
    with process.oneshot():
        rss = process.memory_info().rss / MIB
        return Sample(time.monotonic() - begun, rss, process.num_fds(), process.num_threads())


def active_runs(server: Server) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health/agent", timeout=10) as answer:
        return int(json.loads(answer.read())["active_runs"])


def tasks(server: Server) -> int:
    """Tasks of the server's event loop, as its own page counts them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("holodeck_event_loop_tasks "))


def until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def watch(process: psutil.Process, under_way: Running, seconds: float) -> list[Sample]:
    samples, begun = [], time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        samples.append(sampled(process, begun))
        under_way.wait_until(passed + SAMPLE)
        if int(passed) % 30 < SAMPLE:
            sys.stdout.write(f"{passed:5.0f} s  RSS {samples[-1].rss:6.1f} MiB  {samples[-1].fds} descriptors\n")
            sys.stdout.flush()
    return samples


def growth(samples: Sequence[Sample]) -> float | None:
    """How much more memory the last tenth of the samples takes than the first tenth of the settled time.

    None for a run that is too short to judge: before that, more is begun than forgotten.
    """
    steady = [sample.rss for sample in samples if sample.seconds >= SETTLED]
    if len(steady) * SAMPLE < SETTLED / 2:
        return None
    tenth = max(1, len(steady) // 10)
    first, last = sum(steady[:tenth]) / tenth, sum(steady[-tenth:]) / tenth
    return last / first - 1


def shown(grown: float | None) -> str:
    return "not known after so short a time" if grown is None else f"{grown:+.1%}"


def soak(minutes: float, streams: int, folder: Path) -> list[str]:
    """What is wrong; nothing, if all is well."""
    seconds = minutes * 60
    (folder / "agent.yaml").write_text(yaml.safe_dump(AGENT))
    argv = (sys.executable, "-m", "holodeck", "serve", "agent.yaml", "--port", "{port}")
    system = System(name="HoloDeck", argv=argv, cwd=folder, path="/awp", ready="/ready", wires=(SSE,))
    tokens = ANSWER * PACE
    load = Load(
        mode=f"fake-{tokens}-{PACE}tps",
        streams=streams,
        requests=max(streams, int(streams * seconds / ANSWER)),
        expect=tokens,
        ramp=min(10.0, seconds / 4),
        max_seconds=seconds + 120,
    )
    with fake_model() as port, system.start(port, folder / "log") as server:
        process = psutil.Process(server.pid)
        before, tasks_before = sampled(process, 0), tasks(server)
        with running(load, server.port, folder) as under_way:
            samples = watch(process, under_way, seconds - ANSWER)
            result = under_way.result(must_complete=False)
        grown = growth(samples)
        wrong = (
            []
            if result.complete
            else [
                f"{result.failed} failed, {result.unfinished} unfinished, {result.short_streams} short: {result.first_error}"
            ]
        )
        if grown is not None and grown > ALLOWED:
            wrong.append(f"memory grew by {grown:.1%}")
        if not until(lambda: active_runs(server) == 0, 20):
            wrong.append(f"{active_runs(server)} runs are left")
        if not until(lambda: sampled(process, 0).fds <= before.fds + 1, 40):  # one for the log or the resolver
            wrong.append(f"{sampled(process, 0).fds} descriptors, {before.fds} before")
        if not until(lambda: tasks(server) <= tasks_before, 20):
            wrong.append(f"{tasks(server)} tasks, {tasks_before} before")
        after, tasks_after = sampled(process, 0), tasks(server)
        if after.threads > before.threads + POOL:
            wrong.append(f"{after.threads} threads, {before.threads} before")
    sys.stdout.write(
        f"{result.ok} answers, {result.tokens:,} tokens ({result.tokens / result.wall_s:,.0f}/s), "
        f"delay p99 {result.token_delay_ms.p99:.0f} ms; RSS {samples[-1].rss:.1f} MiB, growth {shown(grown)}; "
        f"descriptors {before.fds} → {after.fds}, tasks {tasks_before} → {tasks_after}\n"
    )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=STREAMS)
    given = parser.parse_args()
    if compiler() is None:
        sys.stderr.write("the load is written in C, and there is no C compiler (cc, gcc, clang)\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        wrong = soak(given.minutes, given.streams, Path(folder))
    sys.stdout.writelines(f"{line}\n" for line in wrong or ["nothing is left behind that should not be"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
