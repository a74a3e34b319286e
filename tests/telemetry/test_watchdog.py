"""The watchdog against a planted block."""

import asyncio
import os
import select
import threading
import time

import pytest

from holodeck.telemetry import logs
from holodeck.telemetry.watchdog import Watchdog
from tests.server.serving import PATIENCE, until
from tests.telemetry.test_logs import read_lines


@pytest.fixture
def log_pipe():
    read, write = os.pipe()
    output = logs.configure(fd=write)

    def lines():
        output.close()
        return read_lines(read)

    lines.read = read
    yield lines
    for fd in (read, write):
        os.close(fd)


def hold_up(seconds):
    time.sleep(seconds)  # the planted bug: blocks the thread, and with it the loop


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "loop watchdog"]


@pytest.mark.req("D12")
async def test_the_stack_of_what_holds_up_the_loop_is_logged_while_it_does(log_pipe):
    lags: list[float] = []
    watchdog = Watchdog(lags.append)
    watchdog.start()
    await until(lambda: lags)
    hold_up(1)
    await until(lambda: max(lags) > 0.2)
    watchdog.close()
    await until(lambda: not watchers())
    written = [line for line in log_pipe() if line["event"].startswith("event_loop")]
    ours = [n for n, line in enumerate(written) if "hold_up: time.sleep(seconds)" in str(line["details"])]
    assert len(ours) == 1, "others may be: a busy machine holds up a loop as well"
    blocked, free = written[ours[0] : ours[0] + 2]
    assert [blocked["event"], free["event"]] == ["event_loop_blocked", "event_loop_free"]
    assert blocked["level"] == "warning"
    assert 200 <= blocked["duration_ms"] < 1000
    assert "hold_up: time.sleep(seconds)" in blocked["details"]["stack"][-1]
    assert free["duration_ms"] > blocked["duration_ms"]


@pytest.mark.req("D12")
async def test_a_loop_that_is_never_free_again_is_reported_all_the_same(log_pipe):
    """The line comes during the block, not after it."""
    watchdog = Watchdog(lambda _: None, interval=0.01, report_after=0.05)
    watchdog.start()
    select.select([log_pipe.read], [], [], PATIENCE)  # the block, until something is written
    lines = log_pipe()  # the loop has not run since
    watchdog.close()
    assert [line["event"] for line in lines] == ["event_loop_blocked"]


async def test_a_loop_that_only_has_much_to_do_is_left_in_peace(log_pipe):
    lags: list[float] = []
    watchdog = Watchdog(lags.append, interval=0.005, report_after=1)
    watchdog.start()
    begun = time.monotonic()
    while len(lags) < 10 or time.monotonic() - begun < 1.2:
        hold_up(0.002)
        await asyncio.sleep(0)
    watchdog.close()
    await until(lambda: not watchers())
    assert [line for line in log_pipe() if line["event"].startswith("event_loop")] == []


def test_a_loop_that_is_closed_ends_the_watch(log_pipe):
    async def start():
        Watchdog(lambda _: None, interval=0.01).start()

    asyncio.run(start())
    deadline = time.monotonic() + PATIENCE
    while watchers():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert log_pipe() == []
