"""One long conversation at the defaults: what its turns leave in memory, and whether late ones cost more than early ones."""

import http.client
import json
import statistics
import time

from benchmarks.measures import SETTLE, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.processes import cpu_seconds, rss_mib
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.systems import HOLODECK

TURNS, QUICK_TURNS = 500, 60
WORDS = "x" * 200
EARLY, LATE, WINDOW = 210, 490, 10  # turns around which CPU is compared


def run(options: Options) -> list[Row]:
    turns = QUICK_TURNS if options.quick else TURNS
    with fake_model() as port, subject(HOLODECK, port, options.scratch) as started:
        talk(started, "warm-up", 20)
        before = rss_mib(started.server.pid)
        cpu = talk(started, "long", turns)
        time.sleep(SETTLE)
        grown = rss_mib(started.server.pid) - before
    of = {"system": HOLODECK.name}
    rows = [
        Row(
            measure=f"memory after {turns} turns of one conversation",
            unit="MiB",
            samples=[grown],
            target=Target(limit=10),
            **of,
        )
    ]
    if turns > LATE + WINDOW - 1:
        early, late = (statistics.median(cpu[turn - WINDOW : turn + WINDOW]) for turn in (EARLY, LATE))
        rows.append(
            Row(
                measure=f"turn {LATE} / turn {EARLY}",
                unit="x CPU",
                samples=[late / early],
                target=Target(limit=1.5),
                **of,
            )
        )
    return rows


def talk(started: Subject, thread: str, turns: int) -> list[float]:
    """CPU seconds of each turn. The client sends its last message only."""
    connection = http.client.HTTPConnection("127.0.0.1", started.server.port, timeout=60)
    figures = []
    for turn in range(turns):
        message = {"id": f"{thread}-m{turn}", "role": "user", "content": f"{WORDS} [[fake-20]]"}
        body = {"threadId": thread, "runId": f"{thread}-r{turn}", "protocolVersion": "1.0", "messages": [message]}
        body |= {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
        before = cpu_seconds(started.server.pid)
        connection.request("POST", started.system.path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if b"RUN_FINISHED" not in answer.read():
            raise CannotMeasureError(f"turn {turn} did not finish")
        figures.append(cpu_seconds(started.server.pid) - before)
    connection.close()
    return figures
