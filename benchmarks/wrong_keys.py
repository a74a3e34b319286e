"""How late tokens of 100 paced streams are while another client sends 1,000 wrong keys a second, and without it."""

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator

from benchmarks.added import secured
from benchmarks.load import Load, run_load
from benchmarks.measures import PACE, Subject, subject
from benchmarks.native import fake_model
from benchmarks.options import Options
from benchmarks.report import CannotMeasureError, Row, Target
from benchmarks.systems import HOLODECK
from holodeck.access.key_file import change_key_file

STREAMS, RATE, SECONDS = 100, 1000, 6.0
QUICK_STREAMS, QUICK_RATE, QUICK_SECONDS = 10, 100, 1.0
CONNECTIONS = 10
REACHED = 0.8  # of the rate: with less there is nothing to see
MEASURE = "p99 delay of a token beside 1,000 wrong keys a second"
REFUSED = (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.TOO_MANY_REQUESTS)


class Guesser:
    """Sends wrong keys at a steady rate, over connections that are kept."""

    def __init__(self, port: int, rate: int) -> None:
        self._port, self._pause = port, CONNECTIONS / rate
        self._over = threading.Event()
        self._counts = [0] * CONNECTIONS
        self._threads = [threading.Thread(target=self._guess, args=(n,), daemon=True) for n in range(CONNECTIONS)]

    @contextlib.contextmanager
    def guessing(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    @property
    def sent(self) -> int:
        return sum(self._counts)

    def _guess(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        due = time.monotonic()
        while not self._over.is_set():
            connection.request("GET", "/me", headers={"Authorization": f"Bearer hdk_{number}_{self._counts[number]}"})
            answer = connection.getresponse()
            answer.read()
            if answer.status not in REFUSED:
                raise CannotMeasureError(f"a wrong key was answered {answer.status}")
            self._counts[number] += 1
            due += self._pause
            self._over.wait(max(0.0, due - time.monotonic()))
        connection.close()


def delays(started: Subject, header: str, options: Options) -> tuple[float, float]:
    """Milliseconds at p99, without and with the wrong keys."""
    streams, rate = (QUICK_STREAMS, QUICK_RATE) if options.quick else (STREAMS, RATE)
    tokens = int((QUICK_SECONDS if options.quick else SECONDS) * PACE)

    def paced() -> float:
        load = Load(
            mode=f"fake-{tokens}-{PACE}tps",
            streams=streams,
            requests=streams,
            expect=tokens,
            wire=started.system.wires[0],
            path=started.system.path,
            header=header,
            ramp=0.5,
        )
        return run_load(load, started.server.port, options.scratch).token_delay_ms.p99

    alone = paced()
    guesser, begun = Guesser(started.server.port, rate), time.monotonic()
    with guesser.guessing():
        beside = paced()
    reached = guesser.sent / (time.monotonic() - begun)
    if reached < REACHED * rate and not options.quick:
        raise CannotMeasureError(f"only {reached:.0f} wrong keys a second were sent, not {rate}")
    return alone, beside


def run(options: Options) -> list[Row]:
    system = secured(options, "guessed")
    _, key = change_key_file(system.cwd / "keys.json", lambda keys: keys.add(name="bench"))
    header = f"authorization: Bearer {key}"
    with fake_model() as port, subject(system, port, options.scratch, header=header) as started:
        samples = [delays(started, header, options) for _ in range(options.rounds)]
    ratios = [beside / max(alone, 0.1) for alone, beside in samples]
    return [
        Row(measure=MEASURE, system=HOLODECK.name, unit="ms", samples=[beside for _, beside in samples]),
        Row(measure=MEASURE, system="with / without", unit="x", samples=ratios, target=Target(limit=2)),
    ]
