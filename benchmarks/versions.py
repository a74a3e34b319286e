"""What a request and a token cost beside an earlier version of HoloDeck.

The earlier version is a commit of this repository in an environment of its own; $BENCH_BEFORE names another one. The servers
run at the same time and take small loads in turn: a figure is the median of their ratios, which other work on the
machine does not move. `in memory` keeps sessions as the first versions did; `SQLite` is the default today.
"""

import io
import os
import statistics
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.added import agent_folder
from benchmarks.install import new_environment, pip
from benchmarks.measures import subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.peers import VENVS
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.stores import cpu_ms_of_requests, cpu_us_of_burst_tokens, cpu_us_of_paced_tokens
from benchmarks.systems import HOLODECK, System

FIRST = "d4f31e0"  # before stores, access and other protocols
ROUNDS, QUICK_ROUNDS, TOOL_TURNS = 15, 3, 20
SHORT_ROUNDS = 100  # of measures that take 0.1 s: the median of 15 is 0.03 off on a quiet machine, that of 100 0.01
SHORT = ("CPU of a one-token request", "CPU of a tool turn")
MEASURES = {
    "CPU of a one-token request": cpu_ms_of_requests,
    "CPU of a tool turn": lambda started: started.tool_turn_ms(TOOL_TURNS),
    "CPU per token, burst": cpu_us_of_burst_tokens,
    "CPU per token, paced": cpu_us_of_paced_tokens,
}


def run(options: Options) -> list[Row]:
    earlier = os.environ.get("BENCH_BEFORE", FIRST)
    memory, sqlite = "now, sessions in memory", "now, sessions in SQLite"
    systems = {
        earlier: before(earlier),
        memory: replace(HOLODECK, cwd=agent_folder(options, "memory", sessions="{store: memory}")),
        sqlite: replace(HOLODECK, cwd=agent_folder(options, "sqlite", sessions="{store: sqlite}")),
    }
    rows = []
    with fake_model() as port, ExitStack() as stack:
        started = {
            name: stack.enter_context(subject(system, port, options.scratch)) for name, system in systems.items()
        }
        for measure, figure in MEASURES.items():
            rounds = QUICK_ROUNDS if options.quick else SHORT_ROUNDS if measure in SHORT else ROUNDS
            samples = [{name: figure(each) for name, each in started.items()} for _ in range(rounds)]
            for name, limit in ((memory, Target(limit=1)), (sqlite, None)):
                ratio = statistics.median(each[name] / each[earlier] for each in samples)
                rows.append(Row(measure=measure, system=f"{name} / {earlier}", unit="x", samples=[ratio], target=limit))
    return rows


def before(commit: str) -> System:
    """The server of an earlier commit, on the agent file that its own benchmarks had. Installed once."""
    folder = VENVS / f"holodeck-{commit}"
    python, source = folder / "bin" / "python", folder / "source"
    if not source.exists():
        try:
            packed = subprocess.run(("git", "archive", commit), check=True, capture_output=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotMeasureError(f"git has no commit {commit!r} here") from error
        print(f"installing HoloDeck {commit} …", file=sys.stderr)
        new_environment(folder)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        unpacked = folder / "unpacked"
        pip(python, "install", "--quiet", "--constraint", str(unpacked / "constraints.txt"), str(unpacked))
        unpacked.rename(source)  # last: it shows that all is there
    return replace(HOLODECK, name=commit, argv=(str(python), *HOLODECK.argv[1:]), cwd=source / "benchmarks" / "agent")
