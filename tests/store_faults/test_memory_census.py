"""What S30 judges of a server's memory."""

import gc
import os

import pytest

from tests.store_faults import memory_census
from tests.store_faults.memory_census import MIB, OF_RUNS, Census, install, taken

HERE = f"{__name__}.Kept"


class Kept:
    """An object that a cycle keeps, or a list."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def census(tmp_path, monkeypatch):
    """Takes a census of this process, as the rig does of a server."""
    monkeypatch.chdir(tmp_path)
    install()
    gc.collect()
    gc.disable()
    yield lambda: taken(tmp_path, os.getpid())
    gc.enable()


async def test_a_census_separates_what_is_kept_from_what_waits_for_the_collector(census):
    before = await census()
    kept = [Kept() for _ in range(1000)]
    for _ in range(100):
        Kept()
    after = await census()
    assert (len(kept), after.objects[HERE], after.in_cycles[HERE]) == (1000, 1000, 100)
    printed = after.since(before)
    assert f"+1000 {HERE}" in printed
    assert f"100 {HERE}" in printed.partition("in cycles: ")[2]


async def test_a_census_measures_what_both_allocators_use(census):
    before = await census()
    small = [bytes(200 + number % 50) for number in range(10 * MIB // 250)]
    large = [bytes(100_000) for _ in range(100)]
    after = await census()
    assert after.python_held >= after.python_used > before.python_used + 8, len(small)
    assert after.c_held >= after.c_used > before.c_used + 8, len(large)


@pytest.mark.parametrize(("seconds", "asked"), [(50, 3), (0, 1)], ids=["it has none in time", "the time is over"])
async def test_a_server_at_rest_is_one_without_runs_in_memory(seconds, asked, monkeypatch, tmp_path):
    sizes = {"rss": 1.0, "python_used": 2.0, "python_held": 3.0, "c_used": 4.0, "c_held": 5.0}
    waiting = [Census(**sizes, in_cycles={"a": 1}, objects=dict.fromkeys(OF_RUNS, left)) for left in (2, 1, 0)]
    given = []

    async def next_one(*where):
        assert where == (tmp_path, 7)
        given.append(waiting[len(given)])
        return given[-1]

    monkeypatch.setattr(memory_census, "taken", next_one)
    monkeypatch.setattr(memory_census, "PAUSE", 0)
    found = await memory_census.taken_at_rest(tmp_path, 7, seconds)
    assert (len(given), found.runs, found.in_cycles) == (asked, given[-1].runs, {"a": asked})
    assert found.live == 6.0
