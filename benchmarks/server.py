"""`holodeck serve` under load, beside the limits in the same rounds. Targets: at most twice the work that has to be done.

Every round starts every server anew, so that a lucky or unlucky process (address layout, core) is one sample of several.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence

from benchmarks.load import Quantiles
from benchmarks.measures import Subject, direct_request_ms, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.report import Row, Target, ratios
from benchmarks.systems import COPY, DECODE, HOLODECK, PROTOBUF, RAW, SSE, System

LADDER = (150, 200, 250, 300, 350, 400, 500)
TRIES = 2  # of each step: a machine that others use too may stand still for a moment
SESSIONS = 1000
PACED, BURST = "CPU per token, paced 20 x 50/s", "CPU per token, burst 64 x 200"
REQUEST, SLOWEST = "added to a one-token request, p50", "added to a one-token request, p99"
TURN, HELD = "CPU per tool turn, after five others", "streams held at 50 tokens/s"
STREAM, LONG_STREAM = "memory per open stream of 4 tokens", "memory per open stream of 1,000 tokens"
SESSION, SESSION_AND_RUNS = (
    "memory per kept session of 10 messages, its runs forgotten",
    "memory per kept session of 10 messages, its runs kept for replay",
)

Samples = defaultdict[tuple[str, str], list[float]]
"""By measure and system."""


def streamed(system: System, wire_name: str) -> str:
    return f"{system.name}, {wire_name}" if len(system.wires) > 1 else system.name


def measure_streams(started: Subject, samples: Samples) -> None:
    """Burst and pace, on every wire that the system has."""
    for wire in started.system.wires:
        name = streamed(started.system, wire.name)
        samples[BURST, name].append(started.burst(wire))
        samples[PACED, name].append(started.paced(wire))


def measure_request(started: Subject, direct: Quantiles, requests: int, samples: Samples) -> None:
    taken = started.request_ms(requests)
    samples[REQUEST, started.system.name].append(taken.p50 - direct.p50)
    samples[SLOWEST, started.system.name].append(taken.p99 - direct.p99)


def measure_agent(started: Subject, turns: int, samples: Samples) -> None:
    """What only an agent does. Before any burst: it leaves the logs of finished runs behind, which are kept for a while."""
    name = started.system.name
    samples[STREAM, name].append(started.mib_per_stream())
    samples[LONG_STREAM, name].append(started.mib_per_long_stream())
    samples[TURN, name].append(started.tool_turn_ms(turns))


def measure_sessions(model_port: int, options: Options, samples: Samples) -> None:
    """With the default replay window, which everybody runs, and without: what the session itself costs."""
    for name, environment in ((SESSION, {"BENCH_REPLAY_WINDOW": "0"}), (SESSION_AND_RUNS, {})):
        with subject(HOLODECK, model_port, options.scratch, **environment) as started:
            samples[name, HOLODECK.name].append(started.kib_per_session(200 if options.quick else SESSIONS))


def measure_capacity(systems: Sequence[System], model_port: int, options: Options, samples: Samples) -> None:
    """Up the ladder, all systems on each step in turn: a figure is the last step that held.

    One system after the other would compare different minutes of a shared machine.
    """
    held = {system.name: 0 for system in systems}
    climbing = list(systems)
    for streams in LADDER:
        for system in list(climbing):
            with subject(system, model_port, options.scratch) as started:
                if any(started.held(system.wires[0], streams) for _ in range(TRIES)):
                    held[system.name] = streams
                else:
                    climbing.remove(system)
    for name, streams in held.items():
        samples[HELD, name].append(streams)


def measure(options: Options) -> Samples:
    samples: Samples = defaultdict(list)
    requests = 20 if options.quick else 200
    with fake_model() as model_port:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            direct = direct_request_ms(model_port, requests, options.scratch)
            for system in (RAW, COPY, DECODE, HOLODECK):
                with subject(system, model_port, options.scratch) as started:
                    if system is HOLODECK:
                        measure_agent(started, requests // 2, samples)
                    measure_request(started, direct, requests, samples)
                    measure_streams(started, samples)
        measure_sessions(model_port, options, samples)
        if options.capacity:
            measure_capacity((RAW, COPY, DECODE, HOLODECK), model_port, options, samples)
    return samples


REQUEST_RATIO = 2.4  # 1 ms beside the limit's 0.42 ms on the machine that the targets were set on
HELD_RATIO = 0.87  # 350 beside the limit's 400 there
UNITS = {  # in the order of the table: what a real model does before what none does
    PACED: "µs",
    BURST: "µs",
    REQUEST: "ms",
    SLOWEST: "ms",
    TURN: "ms",
    STREAM: "MiB",
    LONG_STREAM: "MiB",
    SESSION: "KiB",
    SESSION_AND_RUNS: "KiB",
    HELD: "",
}
TARGETS = {
    BURST: Target(limit=10),
    REQUEST: Target(limit=1),
    TURN: Target(limit=2),
    STREAM: Target(limit=0.05),
    SESSION: Target(limit=4),
    HELD: Target(limit=350, at_least=True),
}


def rows(samples: Samples) -> list[Row]:
    found = []
    for measure_name, unit in UNITS.items():
        for (each, system), values in samples.items():
            if each == measure_name:
                target = TARGETS.get(each) if system.startswith(HOLODECK.name) else None
                found.append(Row(measure=each, system=system, unit=unit, samples=values, target=target))
    return found


def relative(samples: Samples, measure_name: str, name: str, base: System, target: Target) -> Row:
    values = ratios(samples[measure_name, name], samples[measure_name, base.name])
    return Row(measure=measure_name, system=f"{name} / {base.name}", unit="x", samples=values, target=target)


def run(options: Options) -> list[Row]:
    samples = measure(options)
    wires = [streamed(HOLODECK, wire.name) for wire in (SSE, PROTOBUF)]
    found = [
        *rows(samples),
        *[relative(samples, BURST, name, DECODE, Target(limit=2)) for name in wires],
        *[relative(samples, PACED, name, COPY, Target(limit=1.3)) for name in wires],
        relative(samples, REQUEST, HOLODECK.name, DECODE, Target(limit=REQUEST_RATIO)),
    ]
    if all(samples[HELD, DECODE.name]) and options.capacity:  # on a machine where the limit holds anything
        target = Target(limit=HELD_RATIO, at_least=True)
        found.append(relative(samples, HELD, HOLODECK.name, DECODE, target))
    return found
