"""python -m benchmarks [name …]: measures, prints tables, keeps every sample in benchmarks/results/.

Without names, all that need nothing from outside but pip. `peers` and `rest` build environments of their own and take
minutes; so does `instructions`, which needs valgrind.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    access,
    added,
    apis,
    bodies,
    conversation,
    http_servers,
    install,
    instructions,
    peers,
    pipelining,
    rest,
    server,
    start,
    stores,
    tokens,
    uploads,
    versions,
    walk,
    wires,
)
from benchmarks.options import Options
from benchmarks.report import CannotMeasureError, Row, keep, table

BENCHMARKS: dict[str, tuple[Callable[[Options], list[Row]], str]] = {
    "tokens": (tokens.run, "CPU per token through model client and loop, beside aiohttp alone and with msgspec"),
    "apis": (apis.run, "the same by each API: chat completions, Responses, Anthropic's Messages"),
    "install": (install.run, "packages and size of `pip install .` in a fresh environment"),
    "start": (start.run, "CPU and memory of `holodeck --help`, `holodeck serve --demo` and the todo server"),
    "server": (server.run, "`holodeck serve` under load: CPU per token and request, memory per stream and session"),
    "wires": (wires.run, "CPU per token of each streaming wire beside AG-UI"),
    "uploads": (uploads.run, "how long others wait while a 50 MB form, 10 MB of base64 and 9,999 messages arrive"),
    "bodies": (bodies.run, "how long each of 28 hostile bodies holds the event loop"),
    "access": (
        access.run,
        "what checking an API key and a token costs; paced streams beside 1,000 wrong keys a second",
    ),
    "added": (added.run, "what an API key and TLS to the model add to a one-token request"),
    "stores": (stores.run, "what SQLite and PostgreSQL with Valkey add to a request and a token; 2 workers beside 1"),
    "conversation": (
        conversation.run,
        "500 turns of one conversation: memory, and CPU of late turns beside early ones",
    ),
    "pipelining": (
        pipelining.run,
        "1,000 connections that pipeline 8,000 requests each: memory, and how late /health is",
    ),
    "walk": (walk.run, "calls inside holodeck that one request makes, and the files they are in"),
    "versions": (versions.run, "a request and a token beside an earlier version; only when asked for"),
    "instructions": (
        instructions.run,
        "the same work counted by valgrind, whatever else the machine does; only when asked for",
    ),
    "http-servers": (
        http_servers.run,
        "the agent behind uvicorn, granian and hypercorn beside our own server: CPU, and faults held; only when asked for",
    ),
    "peers": (peers.run, "the same load on pydantic-ai, openai-agents and agno; only when asked for"),
    "rest": (rest.run, "CPU per REST request beside FastAPI with pydantic-ai and openai-agents; only when asked for"),
}
ON_REQUEST = ("versions", "instructions", "http-servers", "peers", "rest")  # they take minutes
DEFAULT = [name for name in BENCHMARKS if name not in ON_REQUEST]
RESULTS = Path(__file__).parent / "results"
BUSY = 0.5  # load average above which figures are noisy


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"of {', '.join(BENCHMARKS)}; default: all but {', '.join(ON_REQUEST)}",
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and what each measures")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measure (3)")
    parser.add_argument("--capacity", action="store_true", help="server, peers: how many streams at 50 tokens/s hold")
    parser.add_argument("--quick", action="store_true", help="one short round, to try the harness out")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; see --list")
    return given


def about() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} x {platform.machine()}, Linux {platform.release()}",
        "load": os.getloadavg()[0],
    }


def main() -> int:
    given = arguments()
    if given.list:
        for name, (_, purpose) in BENCHMARKS.items():
            print(f"{name:12} {purpose}")
        return 0
    facts, failed = about(), False
    print(f"HoloDeck {facts['commit']}, Python {facts['python']}, {facts['machine']}, {facts['time']}")
    if facts["load"] > BUSY:
        print(f"The machine is busy (load {facts['load']:.1f}): read the figures with care.", file=sys.stderr)
    for name in given.names or DEFAULT:
        measure, purpose = BENCHMARKS[name]
        print(f"\n## {name}: {purpose}\n", flush=True)
        with tempfile.TemporaryDirectory(prefix="holodeck-bench-") as scratch:
            options = Options(
                scratch=Path(scratch),
                rounds=1 if given.quick else given.rounds,
                quick=given.quick,
                capacity=given.capacity,
            )
            try:
                rows = measure(options)
            except CannotMeasureError as error:
                print(f"not measured: {error}")
                failed = True
                continue
        print(table(rows), flush=True)
        keep(RESULTS / f"{name}.jsonl", name, rows, facts)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
