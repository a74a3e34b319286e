"""The measures: each puts one load on a running server and returns one figure.

CPU is that of the server's process tree. The load is the same for every system, so that figures can be compared: the cost
of a paced token falls as load rises, because reads join.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load import Load, LoadResult, Quantiles, run_load, running
from benchmarks.processes import Server, anonymous_mib, cpu_seconds, pss_mib
from benchmarks.systems import BYTES, System, Wire

BURST_STREAMS, BURST_TOKENS = 64, 200
PACED_STREAMS, PACE = 20, 50
OPEN_STREAMS, LONG_STREAMS = 200, 50
TURNS, WORDS = 5, "x" * 200  # of a kept session: ten messages, those of the user this long
SETTLE = 1.0  # seconds before memory is read, for what ends a little later


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A server that runs, and how to ask it."""

    system: System
    server: Server
    scratch: Path

    def warm_up(self, **load: Any) -> None:
        """Connections, caches and lazy imports are not what is measured."""
        for wire in self.system.wires:
            self._run("fake-20", streams=8, requests=80, expect=20, wire=wire, **load)

    def burst(self, wire: Wire) -> float:
        """CPU µs per token: 64 streams, each 200 tokens as fast as they come."""
        load = self._load(
            f"fake-{BURST_TOKENS}",
            streams=BURST_STREAMS,
            requests=self.system.burst_requests,
            expect=BURST_TOKENS,
            wire=wire,
        )
        cpu, result = self.cpu_of(load)
        return cpu * 1e6 / result.tokens

    def paced(self, wire: Wire) -> float:
        """CPU µs per token: 20 streams at 50 tokens/s, within four seconds in which all of them run."""
        return self._paced(wire, PACED_STREAMS, seconds=5.2, window=(1.0, 5.0))[0]

    def held(self, wire: Wire, streams: int) -> bool:
        """Whether so many streams at 50 tokens/s come through: nothing lost, no token or start late."""
        result = self._paced(wire, streams, seconds=8.0, window=(2.0, 7.0), must_complete=False)[1]
        return result.complete and result.token_delay_ms.p99 < 100 and result.first_token_ms.p99 < 1000

    def request_ms(self, requests: int) -> Quantiles:
        """The time of a one-token answer, one after the other."""
        return self._run("fake-1", streams=1, requests=requests, expect=1).completion_ms

    def tool_turn_ms(self, turns: int) -> float:
        """CPU ms of a turn with one tool call: two model calls and a function in between. The first ones load code."""
        self._run("fake-tool-1", streams=1, requests=5, expect=1)
        cpu, result = self.cpu_of(self._load("fake-tool-1", streams=1, requests=turns, expect=1))
        return cpu * 1e3 / result.ok

    def mib_per_stream(self) -> float:
        """What 200 open streams add, each, when they have about four tokens: one per second."""
        return self._mib_per_stream("fake-6-1tps", expect=6, streams=OPEN_STREAMS, after=4.5)

    def mib_per_long_stream(self) -> float:
        """What 50 open streams add, each, when they have about 1,000 tokens: the log of a run grows with each."""
        return self._mib_per_stream("fake-1400-200tps", expect=1400, streams=LONG_STREAMS, after=7.0)

    def _mib_per_stream(self, mode: str, *, expect: int, streams: int, after: float) -> float:
        before = pss_mib(self.server.pid)
        load = self._load(mode, streams=streams, requests=streams, expect=expect, ramp=2.0)
        with running(load, self.server.port, self.scratch) as under_way:
            under_way.wait_until(after)
            grown = pss_mib(self.server.pid) - before
            under_way.result()
        return grown / streams

    def kib_per_session(self, sessions: int) -> float:
        """What a session of ten messages leaves behind. The warm-up of other sessions has grown what is used again."""
        for _ in range(2):
            self._talk(sessions // 4)
        before = self._settled_mib()
        self._talk(sessions)
        return (self._settled_mib() - before) * 1024 / sessions

    def _talk(self, sessions: int) -> None:
        self._run("fake-20", streams=8, requests=sessions * TURNS, expect=20, sessions=sessions, words=WORDS)

    def _settled_mib(self) -> float:
        time.sleep(SETTLE)
        return anonymous_mib(self.server.pid)

    def _paced(
        self, wire: Wire, streams: int, *, seconds: float, window: tuple[float, float], must_complete: bool = True
    ) -> tuple[float, LoadResult]:
        tokens = int(seconds * PACE)
        mode = f"fake-{tokens}-{PACE}tps"
        load = self._load(mode, streams=streams, requests=streams, expect=tokens, wire=wire, ramp=0.5)
        pid = self.server.pid
        with running(load, self.server.port, self.scratch) as under_way:
            under_way.wait_until(window[0])
            start, cpu = time.monotonic(), cpu_seconds(pid)
            under_way.wait_until(window[1])
            stop, cpu = time.monotonic(), cpu_seconds(pid) - cpu
            result = under_way.result(must_complete=must_complete)
        return cpu * 1e6 / max(1, result.tokens_between(start, stop)), result

    def cpu_of(self, load: Load) -> tuple[float, LoadResult]:
        before = cpu_seconds(self.server.pid)
        result = run_load(load, self.server.port, self.scratch)
        return cpu_seconds(self.server.pid) - before, result

    def put(self, mode: str, **load: Any) -> LoadResult:
        """Any load, for measuring something else than the above."""
        return self._run(mode, **load)

    def _run(self, mode: str, *, wire: Wire | None = None, **load: Any) -> LoadResult:
        return run_load(self._load(mode, wire=wire, **load), self.server.port, self.scratch)

    def _load(self, mode: str, *, wire: Wire | None = None, **load: Any) -> Load:
        return Load(mode=mode, wire=wire or self.system.wires[0], path=self.system.path, **load)


@contextmanager
def subject(
    system: System, model_port: int, scratch: Path, *, header: str = "x-load: 1", **env: str
) -> Iterator[Subject]:
    """Starts a system and warms it up; `header` is a line that each of those requests carries."""
    with system.start(model_port, scratch / "server.log", **env) as server:
        started = Subject(system=system, server=server, scratch=scratch)
        started.warm_up(header=header)
        yield started


def direct_request_ms(model_port: int, requests: int, scratch: Path) -> Quantiles:
    """As Subject.request_ms, without any server between load client and fake model."""
    body = json.dumps({"model": "fake-1", "stream": True, "messages": [{"role": "user", "content": "hello"}]})
    load = Load(
        mode="fake-1", streams=1, requests=requests, expect=1, wire=BYTES, path="/v1/chat/completions", body=body
    )
    return run_load(load, model_port, scratch).completion_ms
