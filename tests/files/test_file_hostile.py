"""No document can hurt the server: it answers every one in time, stays small, keeps ticking and leaves nothing behind.

All are read by one reader, two at a time, as a server would; the tests look at what came of each.
"""

import asyncio
import gc
import sys
import time
from typing import NamedTuple

import psutil
import pytest

from holodeck.errors import RequestError
from holodeck.files.limits import FileLimits, WorkerLimits
from holodeck.files.reader import FileReader
from holodeck.files.upload import Upload
from tests.files.hostile import Hostile, hostile
from tests.processes import NewChildren

MB = 1_000_000
LIMITS = FileLimits(
    documents=WorkerLimits(cpu=2, wall=8.0),
    pictures=WorkerLimits(memory=1_536 * MB, cpu=3, wall=14.0),
    queue_seconds=600,
)
CASES = hostile()


class Outcome(NamedTuple):
    status: int  # 0: it was read
    message: str
    seconds: float


class Watched(NamedTuple):
    outcomes: dict[str, Outcome]
    growth: int  # bytes, at its peak
    stall: float  # seconds in which nothing else ran, at the longest
    busy: float  # of them spent by our own loop: what a machine full of other work does not change
    left: list[psutil.Process]


async def _outcome(reader: FileReader, case: Hostile, data: bytes) -> Outcome:
    started = time.monotonic()
    try:
        [(_, note)] = await reader.read([Upload(name=case.name, data=data)])
    except RequestError as error:
        return Outcome(error.status, error.message, time.monotonic() - started)
    return Outcome(0, note.read_as, time.monotonic() - started)


class _Pulse:
    """Another coroutine of the same loop, and a look at the process's memory."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._start = self._process.memory_info().rss
        self.growth = 0
        self.stall = 0.0
        self.busy = 0.0

    async def beat(self) -> None:
        while True:
            before, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.005)
            self.stall = max(self.stall, time.perf_counter() - before - 0.005)
            self.busy = max(self.busy, time.thread_time() - worked)
            self.growth = max(self.growth, self._process.memory_info().rss - self._start)


async def _watch() -> Watched:
    reader = FileReader(LIMITS)
    children = NewChildren()
    made = [(case, case.make()) for case in CASES]
    gc.collect()
    pulse = _Pulse()
    beating = asyncio.create_task(pulse.beat())
    turns = asyncio.Semaphore(LIMITS.workers)  # the time of each is its own, without waiting for others

    async def one(case: Hostile, data: bytes) -> Outcome:
        async with turns:
            return await _outcome(reader, case, data)

    outcomes = await asyncio.gather(*(one(case, data) for case, data in made))
    beating.cancel()
    left = children.now()
    named = {case.name: outcome for case, outcome in zip(CASES, outcomes, strict=True)}
    return Watched(named, pulse.growth, pulse.stall, pulse.busy, left)


@pytest.fixture(scope="module")
def watched():
    return asyncio.run(_watch())


pytestmark = pytest.mark.timeout(300)


def test_there_are_enough_of_them():
    assert len({case.name for case in CASES}) >= 40


@pytest.mark.req("T19")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_document_is_answered_in_time(watched, case):
    outcome = watched.outcomes[case.name]
    assert outcome.status in case.expected, outcome
    assert outcome.seconds < 30, outcome  # the longest wall of all, and as much for a busy machine
    if outcome.status:
        assert case.name in outcome.message


@pytest.mark.req("T19")
def test_the_server_stays_as_it_was(watched):
    assert watched.left == []
    assert watched.growth < 20 * MB
    assert watched.busy < 0.05


if __name__ == "__main__":  # the figures, for people: python -m tests.files.test_file_hostile
    result = asyncio.run(_watch())
    rows = [
        f"{name:24} {seen.status:4} {seen.seconds:6.2f} s  {seen.message}" for name, seen in result.outcomes.items()
    ]
    total = f"+{result.growth / MB:.1f} MB, longest stall {result.stall * 1000:.0f} ms ({result.busy * 1000:.0f} ms of it our own work), {len(result.left)} processes left"
    sys.stdout.write("\n".join([*rows, total, ""]))
