"""A thousand clients that behave badly at the same time, with figures: readers that stop reading, half-sent requests."""

import asyncio
import contextlib
import json
import time
from collections.abc import Coroutine

from holodeck.server.connection import ANSWERED_OVER_LIMIT
from tests.faults.client_faults import talking
from tests.faults.own_servers import own
from tests.faults.planned_endpoint import Plan, marked
from tests.faults.scenario import FaultScenario
from tests.faults.server_process import ServerProcess, until
from tests.models.endpoint import text_stream

MANY = 1000
ROOM, FAR_BEYOND = 30, 200  # connections that are served, and that come beside them
WORDS = 200  # of 100 characters each: more than the buffers of a socket with small ones
ALLOWED_GROWTH = 64.0  # MiB for a thousand stalled readers
ALLOWED_LEAK = 16.0  # MiB between two times: what an allocator does, not what a leak does
HEAD = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SHAPES = (
    b"",
    b"POST /awp HTTP/1.1\r\nHost: loc",
    HEAD + b"Content-Length: 1000\r\n\r\n{",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nabc",
)
HEADS = (0, 1)  # the shapes that never were a request
HEADS_SECONDS, BODIES_SECONDS = 15.0, 45.0


async def clients_that_stop_reading(scenario: FaultScenario, size: int = MANY) -> None:
    """A thousand readers of a thousand runs stop reading. The runs finish, the readers are cut off, memory stays flat.

    What a thousand runs cost is known from a thousand clients that do read: stalled ones may cost little more.
    """
    runs = {"stall_timeout": 2, "detach_grace": 5, "replay_window": 2, "max_concurrent": 2 * size}
    async with own(scenario, server={"runs": runs}, sessions={"ttl_seconds": 2}) as server:
        await _round(scenario, server, size // 10, "warm", stalled=False)
        before = server.rss()
        reading, _ = await _peak_of(server, _round(scenario, server, size, "reading", stalled=False))
        stalled, seconds = await _peak_of(server, _round(scenario, server, size, "stalled", stalled=True))
        again, _ = await _peak_of(server, _round(scenario, server, size, "again", stalled=True))
        scenario.figures |= {"readers": size, "RSS before MiB": before, "peak, all read MiB": reading}
        scenario.figures |= {
            "peak, none reads MiB": stalled,
            "peak, none reads again MiB": again,
            "after MiB": server.rss(),
        }
        scenario.figures |= {"seconds until all were cut": seconds}
        assert stalled - reading <= ALLOWED_GROWTH, f"{stalled - reading:.0f} MiB more for {size} stalled readers"
        assert again - stalled <= ALLOWED_LEAK, f"{again - stalled:.0f} MiB more the second time"
        await scenario.continues()


async def _peak_of(server: ServerProcess, work: Coroutine[None, None, float]) -> tuple[float, float]:
    """The largest memory while something went on, and what came of it."""
    task, peak = asyncio.create_task(work), 0.0
    while not task.done():
        peak = max(peak, server.rss())
        await asyncio.wait({task}, timeout=0.05)
    return peak, await task


async def _round(scenario: FaultScenario, server: ServerProcess, size: int, name: str, *, stalled: bool) -> float:
    """Seconds until every run has finished and every reader is gone."""
    plans: list[Plan] = []
    writers: list[asyncio.StreamWriter] = []
    at_once = asyncio.Semaphore(50)
    requests = [f"req_{scenario.random.getrandbits(48):012x}" for _ in range(size)]

    async def one(number: int) -> None:
        key = f"{scenario.name}-{name}-{number}"
        plans.append(scenario.endpoint.plan(key, text_stream(*["word " * 20] * WORDS)))
        message = {"id": key, "role": "user", "content": marked(key)}
        body = json.dumps({"threadId": key, "runId": key, "protocolVersion": "1.0", "messages": [message]}).encode()
        head = b"X-Request-ID: %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        async with at_once:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
            writer.write(HEAD + head % (requests[number].encode(), len(body)) + body)
            writers.append(writer)
            await reader.readuntil(b"\r\n\r\n")
            if stalled:
                writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket has it
            else:
                await reader.read()

    begun = time.monotonic()
    await asyncio.gather(*map(one, range(size)))
    await asyncio.wait_for(asyncio.gather(*(plan.asked() for plan in plans)), 60)
    await until(lambda: all(server.endings(each) == 1 for each in requests), 60, "every run to finish")
    ports = {writer.get_extra_info("sockname")[1] for writer in writers}
    await until(lambda: not _open(server, ports), 30, f"{size} readers to be cut off")
    for writer in writers:
        writer.transport.abort()
    return time.monotonic() - begun


def _open(server: ServerProcess, ports: set[int]) -> bool:
    return any(each.raddr and each.raddr.port in ports for each in server.system.net_connections("tcp4"))


async def too_many_connections(scenario: FaultScenario) -> None:
    """C13: a stream goes on while hundreds connect. Those beyond the limit get an answer, or are closed; monitors are answered."""
    server = scenario.server
    turn = scenario.turn(talking(0.02, 60))
    running = asyncio.create_task(scenario.finish(turn))
    await turn.plan.asked()
    connection_limit = [await server.connect() for _ in range(ROOM + FAR_BEYOND)]
    # The kernel completes connections before the server accepts them. A request that is there by then would be answered
    # and its connection closed before the next is accepted: on a busy machine none would be far beyond the limit.
    refused = FAR_BEYOND - ANSWERED_OVER_LIMIT
    await until(lambda: sum(_is_closed(reader) for reader, _ in connection_limit) >= refused, what="all to be accepted")
    results = [asyncio.create_task(_asked(reader, writer)) for reader, writer in connection_limit[-FAR_BEYOND:]]
    assert (await running).ending == "finished", turn.view
    answers = await asyncio.wait_for(asyncio.gather(*results), 10)
    assert set(answers) == {b"HTTP/1.1 503 Service Unavailable", b""}, set(answers)
    assert answers.count(b"") >= FAR_BEYOND - 2 * ANSWERED_OVER_LIMIT, "more were heard than there is room for"
    await until(
        lambda: server.fds() <= server.idle_fds + ROOM + ANSWERED_OVER_LIMIT + 10, 5, "those far beyond to be closed"
    )
    assert (await server.get("/health"))[0] == 200
    for _, writer in connection_limit:
        writer.transport.abort()
    await until(lambda: server.fds() <= server.idle_fds + ROOM // 2, 5, "the connection_limit to be gone")
    await scenario.continues()


def _is_closed(reader: asyncio.StreamReader) -> bool:
    return reader.at_eof() or reader.exception() is not None


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The first line of the answer; nothing if there is none."""
    with contextlib.suppress(ConnectionError):
        writer.write(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
        answer = await reader.read()
        assert not answer or b"retry-after: 2\r\n" in answer, answer
        return answer.partition(b"\r\n")[0]
    return b""


async def slow_loris(scenario: FaultScenario, size: int = MANY) -> None:
    """A thousand requests that are never finished: all closed in time, others are served meanwhile."""
    async with own(scenario) as server:
        begun, waits = time.monotonic(), [0.0]
        connection_limit = []
        for number in range(size):
            reader, writer = await server.connect()
            writer.write(SHAPES[number % len(SHAPES)])
            connection_limit.append(asyncio.create_task(_closed(reader, writer)))
        while (
            pending := [task for task in connection_limit if not task.done()]
        ) and time.monotonic() - begun < BODIES_SECONDS:
            asked = time.monotonic()
            assert (await server.get("/health"))[0] == 200
            waits.append(time.monotonic() - asked)
            await asyncio.wait(pending, timeout=0.1)
        assert not pending, f"{len(pending)} of {size} are still open"
        heads = [await task - begun for number, task in enumerate(connection_limit) if number % len(SHAPES) in HEADS]
        bodies = [await task - begun for task in connection_limit]
        p99 = sorted(waits)[int(len(waits) * 0.99)]
        scenario.figures |= {
            "clients": size,
            "half heads closed after s": max(heads),
            "all closed after s": max(bodies),
        }
        scenario.figures |= {"health p99 ms": p99 * 1000}
        assert max(heads) < HEADS_SECONDS, f"{max(heads):.1f} s"
        assert p99 < 0.5, f"others waited {p99:.2f} s"
        await scenario.continues()


async def _closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    """When the server closed it."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()
    return time.monotonic()


async def client_is_killed(scenario: FaultScenario) -> None:
    """A client process that gets kill -9 in mid-stream: its kernel says so, and the model is left after the grace."""
    async with own(scenario) as server:
        turn = scenario.turn(talking())
        body = json.dumps(scenario.wire.body(turn.words, scenario.session, turn.run_id))
        client = await asyncio.create_subprocess_exec(
            "curl", "-sN", server.url + scenario.wire.path, "-H", "Content-Type: application/json", "-d", body,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert client.stdout is not None
        await client.stdout.readline()
        client.kill()
        begun = time.monotonic()
        await asyncio.wait_for(turn.plan.left_alone(), 5)
        scenario.figures["upstream closed after, ms"] = (time.monotonic() - begun) * 1000
        await client.wait()
        assert time.monotonic() - begun < 1.5
        turn.left = True
        await scenario.continues()
