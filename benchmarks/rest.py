"""REST: CPU of one whole answer of one token, beside FastAPI with other agent libraries in the same rounds.

Requests come one after the other over one connection. The peers call the model without streaming, which is the cheapest
way they have; HoloDeck always streams.
"""

import http.client
import json
import sys
from collections import defaultdict
from dataclasses import replace

from benchmarks.measures import Subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.peers import peer
from benchmarks.processes import cpu_seconds
from benchmarks.report import CannotMeasureError, Row, Target, ratios
from benchmarks.systems import HOLODECK_REST, System, uvicorn

LIBRARIES = ("pydantic-ai", "openai-agents")
REQUESTS, WARM_UP = 300, 50
MEASURE = "CPU per REST request, one token"
ASKED = json.dumps({"message": "hello [[fake-1]]"})
JSON = {"Content-Type": "application/json"}


def fastapi_with(package: str) -> System:
    library = peer(package)
    app = f"rest_{package.replace('-', '_')}:app"
    return replace(library, name=f"FastAPI + {library.name}", argv=uvicorn(library.argv[0], app), path="/chat")


def cpu_ms(started: Subject, requests: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", started.server.port, timeout=30)
    try:
        _ask(connection, started.system.path, WARM_UP)
        before = cpu_seconds(started.server.pid)
        _ask(connection, started.system.path, requests)
        return (cpu_seconds(started.server.pid) - before) * 1e3 / requests
    finally:
        connection.close()


def _ask(connection: http.client.HTTPConnection, path: str, times: int) -> None:
    for _ in range(times):
        connection.request("POST", path, ASKED, JSON)
        answer = connection.getresponse()
        received = answer.read()
        if answer.status != http.HTTPStatus.OK or not json.loads(received)["content"].strip().startswith("@"):
            raise CannotMeasureError(f"{path} answered {answer.status}: {received[:200]!r}")


def run(options: Options) -> list[Row]:
    peers = [fastapi_with(package) for package in LIBRARIES]
    samples: defaultdict[str, list[float]] = defaultdict(list)
    requests = REQUESTS // 10 if options.quick else REQUESTS
    with fake_model() as model_port:
        for number in range(options.rounds):
            for system in (HOLODECK_REST, *peers):
                print(f"round {number + 1} of {options.rounds}: {system.name}", file=sys.stderr)
                with system.start(model_port, options.scratch / "server.log") as server:
                    started = Subject(system=system, server=server, scratch=options.scratch)
                    samples[system.name].append(cpu_ms(started, requests))
    rows = [Row(measure=MEASURE, system=name, unit="ms", samples=values) for name, values in samples.items()]
    best = [min(values) for values in zip(*(samples[each.name] for each in peers), strict=True)]
    compared = ratios(best, samples[HOLODECK_REST.name])
    target = Target(limit=8, at_least=True)
    return [*rows, Row(measure=MEASURE, system="best peer / HoloDeck", unit="x", samples=compared, target=target)]
