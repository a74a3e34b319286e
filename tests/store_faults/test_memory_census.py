"""What S30 prints about a server's memory with `--live`."""

import gc
import os

import pytest

from tests.store_faults.memory_census import MIB, install, taken

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
