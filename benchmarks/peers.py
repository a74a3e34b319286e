"""The same load on other agent servers, in the same rounds as HoloDeck and the limits. Builds one virtual environment for each.

Each peer is served the way its own documentation shows: see servers/peer_*.py.
"""

import sys
from collections import defaultdict
from pathlib import Path

from benchmarks.install import new_environment, packages, pip
from benchmarks.measures import direct_request_ms, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.report import Row, Target, ratios
from benchmarks.server import (
    BURST,
    PACED,
    Samples,
    measure_agent,
    measure_capacity,
    measure_request,
    measure_streams,
    rows,
    streamed,
)
from benchmarks.systems import COPY, DECODE, HOLODECK, SSE, System, uvicorn

VENVS = Path(__file__).parent / "venvs"
PEERS = {  # package → what its server needs
    "pydantic-ai": ("pydantic-ai-slim[openai,ag-ui]", "fastapi", "uvicorn[standard]"),
    "openai-agents": ("openai-agents", "fastapi", "uvicorn[standard]"),
    "agno": ("agno", "openai", "ag-ui-protocol", "fastapi", "python-multipart", "uvicorn[standard]", "sqlalchemy"),
}
PATHS = {"agno": "/agui"}
LIMITS = (COPY, DECODE)
REQUESTS = 100


def peer(package: str) -> System:
    """A peer that is ready to be started; its environment is built once and kept until its needs change."""
    python = VENVS / package / "bin" / "python"
    complete = VENVS / package / "complete"
    needs = "\n".join(PEERS[package])
    if not complete.exists() or complete.read_text() != needs:
        print(f"installing {package} …", file=sys.stderr)
        new_environment(VENVS / package)
        pip(python, "install", "--quiet", *PEERS[package])
        complete.write_text(needs)
    versions = packages(python)
    version = versions.get(package) or versions[f"{package}-slim"]
    return System(
        name=f"{package} {version}",
        argv=uvicorn(str(python), f"peer_{package.replace('-', '_')}:app"),
        path=PATHS.get(package, "/"),
        env={"DO_NOT_TRACK": "1", "AGNO_TELEMETRY": "false", "OTEL_SDK_DISABLED": "true", "OPENAI_API_KEY": "x"},
    )


def measure(systems: list[System], options: Options) -> Samples:
    samples: Samples = defaultdict(list)
    requests = 20 if options.quick else REQUESTS
    with fake_model() as model_port:
        for number in range(options.rounds):
            direct = direct_request_ms(model_port, requests, options.scratch)
            for system in systems:
                print(f"round {number + 1} of {options.rounds}: {system.name}", file=sys.stderr)
                with subject(system, model_port, options.scratch) as started:
                    if system not in LIMITS:
                        measure_agent(started, requests // 2, samples)
                    measure_request(started, direct, requests, samples)
                    measure_streams(started, samples)
        if options.capacity:
            measure_capacity(systems, model_port, options, samples)
    return samples


def run(options: Options) -> list[Row]:
    peers = [peer(package) for package in PEERS]
    samples = measure([*LIMITS, HOLODECK, *peers], options)
    ours = streamed(HOLODECK, SSE.name)
    found = rows(samples)
    for measure_name, target in ((BURST, Target(limit=10, at_least=True)), (PACED, None)):
        best = [min(values) for values in zip(*(samples[measure_name, each.name] for each in peers), strict=True)]
        values = ratios(best, samples[measure_name, ours])
        found.append(Row(measure=measure_name, system=f"best peer / {ours}", unit="x", samples=values, target=target))
    return found
