"""What starting costs: the command's help, the server on the demo agent, the todo server up to its first answer.

The best of several starts is taken: whatever disturbs a start only ever makes it slower.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.processes import cores, cpu_seconds, environment, rss_mib, serving
from benchmarks.report import CannotMeasureError, Row, Target

SETTLE = 0.5  # seconds of idling before memory is read

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "benchmarks", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_TODOS = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "list_todos", "arguments": {"user_id": "bench"}},
}


def command_cpu(*argv: str) -> float:
    """CPU seconds of a command that ends by itself."""
    process = subprocess.Popen([sys.executable, *argv], env=environment(), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise CannotMeasureError(f"{' '.join(argv)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def serve_demo(scratch: Path) -> dict[str, float]:
    """CPU until /ready and memory at rest, of the server's process alone and with its tool server."""
    argv = [sys.executable, "-m", "holodeck", "serve", "--demo", "--port", "{port}"]
    env = environment(XDG_DATA_HOME=str(scratch), PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    log = scratch / "serve.log"
    with serving(argv, ready="/ready", env=env, cwd=scratch, log=log, cpus=cores()[1]) as server:
        time.sleep(SETTLE)
        return {
            "cpu": server.start_cpu_alone,
            "cpu of all": server.start_cpu,
            "rss": rss_mib(server.pid, alone=True),
            "rss of all": rss_mib(server.pid),
        }


def todo_first_answer(database: Path) -> float:
    """CPU seconds of the todo server from its start to the answer of the first tool call, over stdio."""
    process = subprocess.Popen(
        [sys.executable, "-m", "holodeck.todo", "--db", str(database)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        _ask(process, INITIALIZE)
        _say(process, INITIALIZED)
        _ask(process, LIST_TODOS)
        spent = cpu_seconds(process.pid)
        process.terminate()
    return spent


def _say(process: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    if process.stdin:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()


def _ask(process: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    _say(process, message)
    for line in process.stdout or ():
        answer = json.loads(line)
        if answer.get("id") == message["id"]:
            if "error" in answer or answer["result"].get("isError"):
                raise CannotMeasureError(f"the todo server answered {line.strip()[:300]}")
            return
    raise CannotMeasureError("the todo server ended before it answered")


def run(options: Options) -> list[Row]:
    repeats = 1 if options.quick else options.rounds + 2
    helps = [command_cpu("-m", "holodeck", "--help") for _ in range(repeats)]
    todos = [todo_first_answer(options.scratch / f"todo{i}.sqlite3") for i in range(repeats)]
    serves = [serve_demo(options.scratch) for _ in range(options.rounds)]

    def of(key: str) -> list[float]:
        return [serve[key] for serve in serves]

    def row(measure: str, system: str, unit: str, samples: list[float], limit: float | None = None) -> Row:
        target = None if limit is None else Target(limit=limit)
        return Row(measure=measure, system=system, unit=unit, samples=samples, target=target, take=min)

    serve, both = "holodeck serve --demo", "with the todo server"
    return [
        row("CPU", "holodeck --help", "s", helps, 0.3),
        row("CPU until /ready", serve, "s", of("cpu"), 0.8),
        row("CPU until /ready", both, "s", of("cpu of all")),
        row("RSS at rest", serve, "MiB", of("rss"), 80),
        row("RSS at rest", both, "MiB", of("rss of all")),
        row("CPU until first answer", "holodeck-todo", "s", todos, 1.0),
    ]
