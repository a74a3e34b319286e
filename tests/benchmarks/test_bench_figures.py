"""What `make bench` prints, and in which order: a real pace before a burst, what is missed beside what is met."""

from pathlib import Path

from benchmarks import server
from benchmarks.__main__ import DEFAULT
from benchmarks.systems import COPY, DECODE, HOLODECK, RAW

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_every_run_measures_what_was_once_left_out():
    """Sessions with the default window, streams of 4 and of 1,000 tokens, the median and the slowest of requests."""
    assert {
        server.SESSION_AND_RUNS, server.STREAM, server.LONG_STREAM, server.REQUEST, server.SLOWEST, server.HELD,
    } <= set(server.UNITS)  # fmt: skip
    assert {"added", "conversation", "pipelining", "walk", "uploads"} <= set(DEFAULT)
    assert "p50" in server.REQUEST
    assert "p99" in server.SLOWEST


def test_a_real_pace_comes_before_a_burst():
    order = list(server.UNITS)
    assert order.index(server.PACED) < order.index(server.BURST)
    assert README.index("20 streams at 50 tokens/s") < README.index("64 streams at once")


def test_capacity_is_measured_step_by_step_for_all_systems_in_turn(monkeypatch, tmp_path):
    """One system after the other would compare different minutes of a shared machine."""
    asked = []

    class Started:
        def __init__(self, system):
            self.system = system

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def held(self, _wire, streams):
            asked.append((streams, self.system.name))
            return streams <= server.LADDER[1]

    monkeypatch.setattr(server, "subject", lambda system, *_: Started(system))
    samples = server.defaultdict(list)
    systems = (RAW, COPY, DECODE, HOLODECK)
    server.measure_capacity(systems, 0, server.Options(scratch=tmp_path), samples)
    first = list(dict.fromkeys(asked))[: 2 * len(systems)]
    assert first == [(streams, system.name) for streams in server.LADDER[:2] for system in systems]
    assert samples[server.HELD, HOLODECK.name] == [server.LADDER[1]]
