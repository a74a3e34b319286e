"""The agent behind our HTTP server and behind others: CPU of a request and of a token, and which faults of clients each holds.

All of them run in one environment, which is built once, with the same agent. They run at the same time and take small loads
in turn: a ratio is the median of the rounds. For the faults each server gets its own options with the same values, where
it has them.
"""

import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.added import agent_folder
from benchmarks.http_faults import CASES, LIMITS, STALL, flood
from benchmarks.install import PROJECT, new_environment, packages, pip
from benchmarks.measures import subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.peers import VENVS
from benchmarks.report import Row
from benchmarks.stores import cpu_ms_of_requests, cpu_us_of_burst_tokens
from benchmarks.systems import HOLODECK, SSE, System, uvicorn

NEEDS = ("granian>=2.8,<3", "hypercorn>=0.18,<1", "uvicorn[standard]>=0.54,<1")
ROUNDS, QUICK_ROUNDS = 15, 3
MEASURES = {
    "CPU of a one-token request": (cpu_ms_of_requests, "ms"),
    "CPU per token, burst": (cpu_us_of_burst_tokens, "µs"),
}
FAULT_OPTIONS = {
    "uvicorn": ("--timeout-keep-alive", "1"),
    "granian": ("--http1-header-read-timeout", "1000"),
    "hypercorn": ("--keep-alive", "1", "--read-timeout", "1"),
}


def environment() -> Path:
    """The Python that has the servers, and this HoloDeck as it is on disk."""
    folder = VENVS / "http-servers"
    complete, needs = folder / "complete", "\n".join(NEEDS)
    python = folder / "bin" / "python"
    if not complete.exists() or complete.read_text() != needs:
        print("installing the servers …", file=sys.stderr)
        new_environment(folder)
        pip(python, "install", "--quiet", "--constraint", "constraints.txt", "--editable", str(PROJECT), *NEEDS)
        complete.write_text(needs)
    return python


def systems(python: Path, agent: Path, *, strict: bool = False) -> list[System]:
    """`strict`: with the limits of the faults, as far as the command line of a server has them."""
    versions, command = packages(python), str(python)
    others = {
        "uvicorn": uvicorn(command, "asgi_app:app"),
        "granian": (
            command, "-m", "granian", "--interface", "asgi", "--loop", "uvloop", "--log-level", "warning",
            "--host", "127.0.0.1", "--port", "{port}", "asgi_app:app",
        ),
        "hypercorn": (
            command, "-m", "hypercorn", "--worker-class", "uvloop", "--log-level", "warning",
            "--bind", "127.0.0.1:{port}", "asgi_app:app",
        ),
    }  # fmt: skip
    found = [replace(HOLODECK, argv=(command, *HOLODECK.argv[1:]), cwd=agent, wires=(SSE,))]
    for name, argv in others.items():
        version = next(each for package, each in versions.items() if package.lower() == name)
        more = FAULT_OPTIONS[name] if strict else ()
        env = {"BENCH_AGENT": str(agent)}
        found.append(
            System(name=f"{name} {version}", argv=(*argv[:-1], *more, argv[-1]), path="/awp", ready="/ready", env=env)
        )
    return found


def strict_agent(options: Options) -> Path:
    """The agent with the limits of the faults."""
    folder = agent_folder(options, "strict", sessions="{store: memory}", server=LIMITS)
    file = folder / "agent.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("  runs: {", f"  runs: {{{STALL}, "), encoding="utf-8")
    return folder


def run(options: Options) -> list[Row]:
    python = environment()
    in_memory = agent_folder(options, "memory", sessions="{store: memory}")
    with fake_model() as port:
        costs = _costs(systems(python, in_memory), port, options)
        faults = [
            row
            for system in systems(python, strict_agent(options), strict=True)
            for row in _faults(system, port, options)
        ]
    return [*costs, *faults]


def _costs(compared: list[System], model_port: int, options: Options) -> list[Row]:
    rows = []
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with ExitStack() as stack:
        started = {each.name: stack.enter_context(subject(each, model_port, options.scratch)) for each in compared}
        for measure, (figure, unit) in MEASURES.items():
            samples = [{name: figure(each) for name, each in started.items()} for _ in range(rounds)]
            for name in started:
                rows.append(Row(measure=measure, system=name, unit=unit, samples=[each[name] for each in samples]))
                if name != HOLODECK.name:
                    ratio = statistics.median(each[name] / each[HOLODECK.name] for each in samples)
                    rows.append(Row(measure=measure, system=f"{name} / HoloDeck", unit="x", samples=[ratio]))
    return rows


def _faults(system: System, model_port: int, options: Options) -> list[Row]:
    """The cases at the same time, since most wait; the flood, which is measured by the server's memory, alone."""
    with system.start(model_port, options.scratch / "server.log") as server, ThreadPoolExecutor(len(CASES)) as threads:
        together = {name: threads.submit(held, server) for name, held in CASES.items() if held is not flood}
        results = {name: case.result() for name, case in together.items()}
        results |= {name: held(server) for name, held in CASES.items() if held is flood}
    return [Row(measure=name, system=system.name, unit="held", samples=[int(held)]) for name, held in results.items()]
