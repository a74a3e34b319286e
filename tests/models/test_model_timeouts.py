"""Pauses, Retry-After and silence."""

import asyncio
import socket
import time
from datetime import UTC, datetime

import pytest
import uvloop

from holodeck.resilience.idle_timeout import IdleTimeout
from holodeck.resilience.retry import Backoff, retry_after
from tests.loop_clock import LIMIT, LoopClock

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


@pytest.mark.req("A01")
@pytest.mark.parametrize(("attempt", "full"), [(1, 0.5), (2, 1), (3, 2), (5, 8), (9, 8), (500, 8)])
def test_pauses_double_up_to_a_limit_and_are_shortened_at_random(attempt, full):
    backoff = Backoff()
    assert backoff.pause(attempt, lambda: 1.0) == full
    assert backoff.pause(attempt, lambda: 0.0) == full / 2


@pytest.mark.req("A18")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "5"}, 5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e99"}, 86_400),
        ({"retry-after": "inf"}, 86_400),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Sun, 15 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 -0000"}, 30),
        ({"retry-after": "Sun, 99 Nov 2026 12:00:30 GMT"}, None),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers, NOW) == seconds


@pytest.mark.req("A08")
async def test_silence_is_ended():
    with pytest.raises(TimeoutError):
        async with IdleTimeout(0.05):
            await asyncio.Event().wait()


@pytest.mark.req("A08")
async def test_output_keeps_it_going(monkeypatch):
    clock = LoopClock(monkeypatch)
    async with IdleTimeout(LIMIT) as silence:
        for _ in range(5):
            clock.advance(0.7 * LIMIT)
            silence.reset()
            await asyncio.sleep(0)  # the timer fires here, if it is due
    assert clock.ahead > 3 * LIMIT


@pytest.mark.req("A08")
async def test_the_limit_may_change_on_the_way():
    async def wait() -> None:
        async with IdleTimeout(LIMIT) as silence:  # more than pytest gives the test
            silence.allow(0.05)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()


async def test_an_ordinary_end_leaves_no_timer():
    async with IdleTimeout(0.01) as silence:
        pass
    assert silence._timer is not None
    assert silence._timer.cancelled()


@pytest.mark.req("D08")
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("talks", [True, False])
def test_a_paused_process_reads_what_came_meanwhile_before_it_reports_a_timeout(factory, talks):
    async def listen():
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            async with IdleTimeout(0.2) as silence:
                await asyncio.sleep(0)
                if talks:
                    theirs.send(b"here I am")
                time.sleep(0.5)  # noqa: ASYNC251  the whole process stands still
                listener = await reader.read(100)
                silence.reset()
                await asyncio.sleep(0.1)
                return listener
        finally:
            writer.close()
            theirs.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        if talks:
            assert runner.run(listen()) == b"here I am"
        else:
            with pytest.raises(TimeoutError):
                runner.run(listen())
