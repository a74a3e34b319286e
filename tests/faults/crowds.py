"""A thousand clients that behave badly at the same time, with figures: readers that stop reading, half-sent requests."""

import asyncio
import contextlib
import json
import time

from tests.faults.client_faults import talking
from tests.faults.endpoint import Plan, marked
from tests.faults.house import House, until
from tests.faults.own_houses import own
from tests.faults.scene import Scene
from tests.models.endpoint import text_stream

CROWD = 1000
WORDS = 200  # of 100 characters each: more than the buffers of a socket that was told to have small ones
ALLOWED_GROWTH = 64.0  # MiB for a thousand deaf readers
HEAD = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SHAPES = (
    b"",
    b"POST /awp HTTP/1.1\r\nHost: loc",
    HEAD + b"Content-Length: 1000\r\n\r\n{",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nabc",
)
HEADS = (0, 1)  # the shapes that never were a request
HEADS_SECONDS, BODIES_SECONDS = 15.0, 45.0


async def deaf_crowd(scene: Scene, size: int = CROWD) -> None:
    """A thousand readers of a thousand runs stop reading. The runs finish, the readers are cut off, memory stays flat."""
    runs = {"stall_timeout": 2, "detach_grace": 5, "replay_window": 60, "max_concurrent": 2 * size}
    async with own(scene, server={"runs": runs}) as house:
        await _round(scene, house, size // 10, "warm")
        before, samples = house.rss(), [0.0]
        watching = asyncio.create_task(_sample(house, samples))
        try:
            seconds = await _round(scene, house, size, "deaf")
        finally:
            watching.cancel()
        after, peak = house.rss(), max(samples)
        scene.figures |= {"readers": size, "RSS before MiB": before, "RSS peak MiB": peak, "RSS after MiB": after}
        scene.figures |= {"seconds until all were cut": seconds}
        assert peak - before <= ALLOWED_GROWTH, f"{peak - before:.0f} MiB for {size} readers"
        await scene.goes_on()


async def _sample(house: House, samples: list[float]) -> None:
    while True:
        samples.append(house.rss())
        await asyncio.sleep(0.05)  # the sampling itself


async def _round(scene: Scene, house: House, size: int, name: str) -> float:
    """Seconds until every run has finished and every reader is gone."""
    plans: list[Plan] = []
    writers: list[asyncio.StreamWriter] = []
    at_once = asyncio.Semaphore(50)

    async def one(number: int) -> None:
        key = f"{scene.name}-{name}-{number}"
        plans.append(scene.endpoint.plan(key, text_stream(*["deaf " * 20] * WORDS)))
        message = {"id": key, "role": "user", "content": marked(key)}
        body = json.dumps({"threadId": key, "runId": key, "protocolVersion": "1.0", "messages": [message]}).encode()
        async with at_once:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.port, limit=1024)
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            writers.append(writer)
            await reader.readuntil(b"\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket has it

    begun = time.monotonic()
    await asyncio.gather(*map(one, range(size)))
    await asyncio.gather(*(plan.asked() for plan in plans))
    await asyncio.wait_for(asyncio.gather(*(plan.left_alone() for plan in plans)), 60)
    for number in (0, size // 2, size - 1):
        _, run = await house.get(f"/runs/{scene.name}-{name}-{number}")
        assert run["state"] == "finished", run
    ports = {writer.get_extra_info("sockname")[1] for writer in writers}
    await until(lambda: not _open(house, ports), 30, f"{size} readers to be cut off")
    for writer in writers:
        writer.transport.abort()
    return time.monotonic() - begun


def _open(house: House, ports: set[int]) -> bool:
    return any(each.raddr and each.raddr.port in ports for each in house.system.net_connections("tcp4"))


async def slow_loris(scene: Scene, size: int = CROWD) -> None:
    """A thousand requests that are never finished: all closed in time, others are served meanwhile."""
    async with own(scene) as house:
        begun, waits = time.monotonic(), [0.0]
        crowd = []
        for number in range(size):
            reader, writer = await house.connect()
            writer.write(SHAPES[number % len(SHAPES)])
            crowd.append(asyncio.create_task(_closed(reader, writer)))
        while (pending := [task for task in crowd if not task.done()]) and time.monotonic() - begun < BODIES_SECONDS:
            asked = time.monotonic()
            assert (await house.get("/health"))[0] == 200
            waits.append(time.monotonic() - asked)
            await asyncio.wait(pending, timeout=0.1)
        assert not pending, f"{len(pending)} of {size} are still open"
        heads = [await task - begun for number, task in enumerate(crowd) if number % len(SHAPES) in HEADS]
        bodies = [await task - begun for task in crowd]
        p99 = sorted(waits)[int(len(waits) * 0.99)]
        scene.figures |= {"clients": size, "half heads closed after s": max(heads), "all closed after s": max(bodies)}
        scene.figures |= {"health p99 ms": p99 * 1000}
        assert max(heads) < HEADS_SECONDS, f"{max(heads):.1f} s"
        assert p99 < 0.5, f"others waited {p99:.2f} s"
        await scene.goes_on()


async def _closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    """When the server closed it."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()
    return time.monotonic()


async def client_is_killed(scene: Scene) -> None:
    """A client process that gets kill -9 in mid-stream: its kernel says so, and the model is left after the grace."""
    async with own(scene) as house:
        turn = scene.turn(talking())
        body = json.dumps(scene.wire.body(turn.words, scene.session, turn.run_id))
        client = await asyncio.create_subprocess_exec(
            "curl", "-sN", house.url + scene.wire.path, "-H", "Content-Type: application/json", "-d", body,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert client.stdout is not None
        await client.stdout.readline()
        client.kill()
        begun = time.monotonic()
        await asyncio.wait_for(turn.plan.left_alone(), 5)
        scene.figures["upstream closed after, ms"] = (time.monotonic() - begun) * 1000
        await client.wait()
        assert time.monotonic() - begun < 1.5
        turn.left = True
        await scene.goes_on()
