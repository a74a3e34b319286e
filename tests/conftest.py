"""What every test may use: the requirement marker. And how several workers share the tests."""

import asyncio
import gc
import os
import signal
from collections.abc import Generator
from types import FrameType
from typing import Any

import pytest
import uvloop
from hypothesis import settings

from tests.examples import examples
from tests.scheduling import InOurOrder, urgency


def pytest_configure(config: pytest.Config) -> None:
    os.environ["HOLODECK_BANNER"] = "1"  # by it tests know that a server is ready; on its own it is for terminals
    config.addinivalue_line("markers", "req(*ids): the requirements that this test shows (tests/requirements.py)")
    settings.register_profile("ours", examples(50))
    settings.load_profile("ours")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end. To look for garbage in it, again and again, took a third of the collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: urgency(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """uvloop logs what a signal's handler raises, and goes on: a test that hangs there would hang for ever."""
    done = yield
    fail = signal.getsignal(signal.SIGALRM)

    def end(number: int, frame: FrameType | None) -> None:
        if isinstance(loop := asyncio._get_running_loop(), uvloop.Loop):
            for task in asyncio.all_tasks(loop):
                task.cancel("it took too long")
        if callable(fail):
            fail(number, frame)

    signal.signal(signal.SIGALRM, end)
    return done


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InOurOrder:
    config.option.loadscopereorder = False  # by the number of tests, which says nothing about their length
    return InOurOrder(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a worker often waits for a program that it has started."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1
