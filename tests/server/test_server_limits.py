"""How large and how slow a request may be, measured on real sockets."""

import asyncio
import json
import re
import socket
import time
from contextlib import suppress

import psutil
import pytest

from holodeck.config.limit_schema import RequestLimits
from holodeck.core.sizes import MB
from holodeck.models.scripted import says
from holodeck.server.connection import BodyRoom, MeteredBody, TooManyBodies
from tests.server.serving import PATIENCE, Gate, ask, served, until

HEAD = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

QUICK = RequestLimits(
    head_seconds=0.2, body_seconds=0.2, body_rate=1e6, idle_seconds=0.2, linger_seconds=0.2, max_body_mb=2
)


async def close(writer):
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def send_bytes(writer, total, framed):
    """Sends `total` bytes until the other side has had enough; how many it took."""
    piece = b"x" * 65536
    data = b"%x\r\n%b\r\n" % (len(piece), piece) if framed else piece
    sent = 0
    try:
        while sent < total:
            writer.write(data)
            await writer.drain()
            sent += len(piece)
    except ConnectionError:
        return sent
    return sent


@pytest.mark.req("T15")
@pytest.mark.parametrize("framed", [False, True], ids=["declared", "chunked"])
async def test_a_body_of_200_mb_is_refused_without_being_kept(framed):
    async with served() as s:
        reader, writer = await s.connect()
        before = psutil.Process().memory_info().rss
        size = b"Transfer-Encoding: chunked" if framed else b"Content-Length: %d" % (200 * MB)
        writer.write(HEAD + size + b"\r\n\r\n")
        reading = asyncio.create_task(send_bytes(writer, 200 * MB, framed))
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        grown = psutil.Process().memory_info().rss - before
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"application/problem+json" in answer
        assert grown < 5 * MB, f"{grown / MB:.1f} MB"
        assert await asyncio.wait_for(reading, PATIENCE) < 200 * MB  # the connection was cut, not drained for ever
        await close(writer)
        async with s.get("/health") as answer:
            assert answer.status == 200


@pytest.mark.req("T15")
@pytest.mark.parametrize(("more", "status"), [(0, b"200"), (1, b"413")])
async def test_a_body_that_does_not_say_its_size_may_have_so_much_and_no_more(more, status):
    body = json.dumps(ask()).encode()
    async with served(says("hello"), limits=RequestLimits(max_unmeasured_body_mb=len(body) / MB)) as s:
        reader, writer = await s.connect()
        body += b" " * more
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert answer.split()[1] == status
        await close(writer)


@pytest.mark.req("T15")
async def test_large_bodies_at_the_same_time_have_a_limit_together():
    """30 clients, each with half of an upload of 100 MB, took 1.5 GB."""
    padded = json.dumps(ask()).encode().ljust(1_040_000)  # aiohttp warns of more than 2**20
    async with served(*[says("hello")] * 4, limits=RequestLimits(max_bodies_mb=3)) as s:
        connections = [await s.connect() for _ in range(3)]
        for _, writer in connections:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (2 * MB) + b" " * 1_030_000)
        heads = [asyncio.ensure_future(reader.readuntil(b"\r\n\r\n")) for reader, _ in connections]
        refused, waiting = await asyncio.wait(heads, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        head = refused.pop().result()
        assert not refused
        assert head.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: 2\r\n" in head.lower()
        async with s.post() as answer:  # a small one
            assert answer.status == 200
        for _, writer in connections:
            await close(writer)
        await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: len(s.http.connections) <= 1)
        for _ in range(3):
            async with s.post(padded) as answer:
                assert answer.status == 200


@pytest.mark.req("T15")
async def test_the_slowest_large_body_makes_room_for_others(monkeypatch):
    """Five clients that stopped in the middle of an upload of 100 MB kept out all others' for a day: 1,000 bytes/s were enough."""
    loop, seconds = asyncio.get_running_loop(), [0.0]
    monkeypatch.setattr(loop, "time", lambda: seconds[0])
    room = BodyRoom(3 * MB)
    pieces = [asyncio.Queue() for _ in range(4)]
    stuck, small, quick, last = (MeteredBody(each.get, RequestLimits(), 2 * MB, room) for each in pieces)

    async def read(body, size, *, more=True):
        pieces[(stuck, small, quick, last).index(body)].put_nowait(
            {"type": "http.request", "body": b" " * size, "more_body": more}
        )
        return len((await body())["body"])

    assert await read(stuck, 1_100_000) == 1_100_000
    waiting = asyncio.ensure_future(stuck())
    assert await read(small, 900_000) == 900_000
    seconds[0] = 10.0
    assert await read(quick, 1_100_000) == 1_100_000
    with pytest.raises(TooManyBodies):
        await waiting
    assert await read(quick, 100, more=False) == 100
    assert await read(last, 800_000) == 800_000
    with pytest.raises(TooManyBodies):  # it is the only large one that has not arrived
        await read(last, 300_000)
    for body in (stuck, small, quick, last):
        body.release()
    assert room.taken == 0


@pytest.mark.req("T15")
async def test_a_body_that_never_has_room_is_too_large():
    """It got 503, which asks the client to try again."""
    padded = json.dumps(ask()).encode().ljust(1_040_000)
    async with served(limits=RequestLimits(max_bodies_mb=1)) as s, s.post(padded) as answer:
        assert (answer.status, "1,000,000 bytes" in await answer.text()) == (413, True)


@pytest.mark.req("T15")
async def test_a_body_whose_run_is_answered_as_a_whole_counts_only_until_the_run_begins():
    """50 runs with a file of 10 MB each, and further files got 503 until one of these runs had ended."""
    gate, path = Gate(), "/agent/tester/chat"
    padded = json.dumps({"message": "hi"}).encode().ljust(1_040_000)
    turns = [says("hello", pause=gate), says("hello", pause=gate), says("hello")]
    async with served(*turns, limits=RequestLimits(max_bodies_mb=3)) as s:
        waiting = [asyncio.ensure_future(s.post(padded, path)) for _ in range(2)]
        await until(lambda: len(s.model.prompts) == 2)
        async with s.post(padded, path) as answer:
            assert answer.status == 200
        gate.open.set()
        for each in waiting:
            assert (await each).status == 200


@pytest.mark.req("T15")
async def test_a_refused_client_that_reads_gets_the_whole_problem_and_keeps_its_connection():
    async with served(limits=RequestLimits(max_body_mb=100_000 / MB)) as s:
        async with s.post(b"x" * 200_000) as answer:
            assert answer.status == 413
            result = await answer.json(content_type=None)
            assert result["type"].endswith("/payload-too-large")
        async with s.get("/health") as answer:
            assert answer.status == 200


@pytest.mark.req("T15")
@pytest.mark.parametrize("around", [b"0\r\n", b"0\r\nX: ", b"1;"], ids=["trailers", "one trailer", "an extension"])
async def test_framing_around_a_chunked_body_is_bounded(around):
    piece = b"x: " + b"y" * 65_000 + b"\r\n" if around == b"0\r\n" else b"y" * 65_536
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + around)
        sent = 0
        with suppress(ConnectionError):
            while sent < 100 * MB:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
        assert sent < 50 * MB  # what was taken, and what is in the kernel's buffers
        await until(lambda: not s.http.connections)
        assert s.server.connection_limit.present == 0
        await close(writer)
        reader.feed_eof()


async def test_trailers_are_not_headers_of_the_request():
    async with served() as s:
        app, seen = s.http.app, []

        async def noted(scope, receive, send):
            seen.append(scope["headers"])
            await app(scope, receive, send)

        s.http.app = noted
        reader, writer = await s.connect()
        body = json.dumps(ask()).encode()
        chunks = b"%x\r\n%b\r\n0\r\nX-Late: 1\r\nHost: evil.example\r\n\r\n" % (len(body), body)
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        await asyncio.wait_for(reader.readuntil(b"RUN_FINISHED"), PATIENCE)
        assert [name for name, _ in seen[0]] == [b"host", b"content-type", b"transfer-encoding"]
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"HTTP/1.1 200" in await asyncio.wait_for(reader.read(), PATIENCE)
        await close(writer)


@pytest.mark.req("T17")
async def test_a_body_that_waits_behind_another_request_has_its_own_time():
    gate = Gate()
    async with served(says("one two", pause=gate), says("three")) as s:
        reader, writer = await s.connect()
        first, second = json.dumps(ask()).encode(), json.dumps(ask(thread="t2")).encode()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(first) + first)
        await asyncio.wait_for(reader.readuntil(b"one"), PATIENCE)
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(second) + second[:5])
        await until(lambda: any(each.waiting for each in s.http.connections))
        gate.open.set()
        await asyncio.wait_for(reader.readuntil(b"RUN_FINISHED"), PATIENCE)
        (connection,) = s.http.connections
        await until(lambda: not connection.waiting)
        assert connection._deadline is None  # it is no client that has its answer and lingers
        writer.write(second[5:])
        assert b"HTTP/1.1 200" in await asyncio.wait_for(reader.readuntil(b"three"), PATIENCE)
        await close(writer)


@pytest.mark.req("T17")
async def test_a_body_that_drips_is_given_up():
    async with served(limits=QUICK) as s:
        reader, writer = await s.connect()
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)
        assert answer.startswith(b"HTTP/1.1 408")
        await close(writer)


SHAPES = {
    "nothing": b"",
    "half a head": b"POST /awp HTTP/1.1\r\nHost: loc",
    "half a body": HEAD + b"Content-Length: 1000\r\n\r\n{",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nabc",
    "idle after an answer": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "empty lines after an answer": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\r\n" * 3,
    "a body nobody wants": b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nabc",
    "half a head after an answer": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea",
}


@pytest.mark.req("T17")
async def test_connections_that_hang_are_closed_and_the_service_continues():
    async with served(limits=QUICK) as s:
        opened = [(name, *(await s.connect())) for name in SHAPES for _ in range(20)]
        for name, _, writer in opened:
            writer.write(SHAPES[name])
        async with asyncio.timeout(PATIENCE), s.get("/health") as answer:
            assert answer.status == 200
        for name, reader, writer in opened:
            try:
                await asyncio.wait_for(reader.read(), PATIENCE)  # to its end
            except ConnectionResetError:
                pass
            except TimeoutError:
                pytest.fail(f"{name}: still open")
            await close(writer)
        assert len(s.http.connections) <= 1  # the test's own client


@pytest.mark.req("T17")
async def test_bytes_that_drip_into_a_head_do_not_win_time():
    async with served(limits=QUICK) as s:
        reader, writer = await s.connect()
        begun = time.monotonic()
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            writer.write(b"X-A: b\r\n")
            await asyncio.sleep(0.02)  # the drip itself
            assert time.monotonic() - begun < PATIENCE
        assert (await answer).startswith(b"HTTP/1.1 408")
        await close(writer)


def head_of(lines, size):
    """A whole head with so many lines and bytes."""
    start, end = b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"Connection: close\r\n\r\n"
    each = (size - len(start) - len(end)) // (lines - 2)
    filler = b"X: " + b"y" * (each - 5) + b"\r\n"
    return start + filler * (lines - 2) + end


@pytest.mark.req("T17", "T15")
@pytest.mark.parametrize(
    ("lines", "size", "status"),
    [
        (100, 60_000, b"200"),
        (128, 4_000, b"200"),
        (129, 4_000, b"431"),
        (24_000, 240_000, b"431"),
        (10, 80 * 1024, b"431"),
        (10, 120 * 1024, b"431"),
    ],
)
async def test_a_head_that_comes_in_one_read_has_a_size_and_a_number_of_lines(lines, size, status):
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(head_of(lines, size))
        assert (await asyncio.wait_for(reader.read(), PATIENCE)).split()[1] == status
        await close(writer)


@pytest.mark.req("T15")
@pytest.mark.parametrize("text", ["x" * 1_000_001, "\ud800" * 168_000], ids=["plain", "half surrogates"])
async def test_a_message_that_is_too_long_is_413_and_nothing_is_kept(text):
    async with served() as s:
        async with s.post(ask(text)) as answer:
            assert answer.status == 413
            assert (await answer.json(content_type=None))["type"].endswith("/payload-too-large")
        async with s.get("/sessions/t1") as answer:
            assert answer.status == 404
        assert s.model.prompts == []


@pytest.mark.req("T17")
async def test_a_refusal_reaches_a_client_that_is_still_sending():
    """The kernel answers what arrives at a closed socket with a reset, and the client loses the answer."""
    async with served(limits=QUICK) as s:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", s.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
            await until(lambda: all(each._ignores_input for each in s.http.connections))
            for _ in range(3):
                await loop.sock_sendall(client, b"X-A: b\r\n")
                await asyncio.sleep(0)
            assert (await loop.sock_recv(client, 65536)).startswith(b"HTTP/1.1 408")


@pytest.mark.req("T15")
@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
async def test_a_client_that_writes_all_of_a_large_body_before_it_reads_gets_its_413(closing):
    size = 40 * 1024 * 1024  # in whole pieces
    async with served(limits=RequestLimits(max_body_mb=1)) as s:
        reader, writer = await s.connect()
        reader._transport.pause_reading()  # Python's http.client and many others look only when all is sent
        writer.write(HEAD + closing + b"Content-Length: %d\r\n\r\n" % size)
        assert await asyncio.wait_for(send_bytes(writer, size, framed=False), PATIENCE) == size
        reader._transport.resume_reading()
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)).startswith(b"HTTP/1.1 413")
        await close(writer)


@pytest.mark.req("T17")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: %b\r\n" % (b"b" * 8000) * 20,
        b"GET /" + b"a" * 200_000,
    ],
)
async def test_a_head_without_end_is_refused(head):
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(head)
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE)).startswith(b"HTTP/1.1 431")
        await close(writer)


async def test_a_slow_but_steady_body_is_taken():
    limits = RequestLimits(body_seconds=0.1, body_rate=10)  # whatever else the machine does between two pieces
    async with served(limits=limits) as s:
        reader, writer = await s.connect()
        body = b'{"threadId":"t","runId":"r","messages":[{"id":"m","role":"user","content":"%b"}]}' % (b"x" * 400)
        writer.write(HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
        for start in range(0, len(body), 50):
            writer.write(body[start : start + 50])
            await asyncio.sleep(0.02)  # the slowness itself
        assert (await asyncio.wait_for(reader.read(), PATIENCE)).startswith(b"HTTP/1.1 200")
        await close(writer)


async def test_requests_in_a_row_on_one_connection_are_answered_in_order():
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        received = await asyncio.wait_for(reader.read(), PATIENCE)
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"404"]
        await close(writer)
