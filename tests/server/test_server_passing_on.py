"""What comes piece by piece is passed on by plain calls, without the stream's own task. Clients must not notice."""

import asyncio
import gc
import weakref

import aiohttp
import pytest

from holodeck.models.scripted import Turn, says
from holodeck.runs.middleware import EventMiddleware
from holodeck.runs.middleware import log as log_stage
from holodeck.server import streaming_response as streams
from holodeck.server.streaming_response import EventStream
from holodeck.telemetry.log_context import current
from holodeck.wires.agui.encode import SseEncoder
from tests.server.serving import PATIENCE, ask, read_to, served, server_block, until
from tests.server.stalled_client import MB, encoded, stalled_client


async def test_an_encoder_that_breaks_ends_its_stream_and_not_the_run(monkeypatch, caplog):
    steps: asyncio.Queue[None] = asyncio.Queue()
    encode_many = SseEncoder.encode_many

    def breaks(self, batch):
        encoded = encode_many(self, batch)
        if b" three" in encoded:
            raise RuntimeError("a defect of ours")
        return encoded

    monkeypatch.setattr(SseEncoder, "encode_many", breaks)
    async with served(says("one two three four", pause=steps.get)) as s:
        async with s.post(ask(run="r")) as answer:
            for text in ("one", "two"):
                await read_to(answer, text)
                steps.put_nowait(None)
            with pytest.raises(aiohttp.ClientPayloadError):
                await asyncio.wait_for(answer.read(), PATIENCE)
        run = s.run("r")
        assert run.state == "running"
        steps.put_nowait(None)
        steps.put_nowait(None)
        await asyncio.wait_for(run.done(), PATIENCE)
        assert run.state == "finished"
    assert "a defect of ours" in caplog.text


async def test_an_answer_continues_while_the_next_request_waits_behind_it():
    steps: asyncio.Queue[None] = asyncio.Queue()
    async with served(says("one two three", pause=steps.get)) as s:
        reader, writer = await s.connect()
        body = encoded(run="r")
        head = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await reader.readuntil(b'"one"')
        writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await until(lambda: any(each.waiting for each in s.http.connections))
        for text in (b'" two"', b'" three"', b"RUN_FINISHED"):
            steps.put_nowait(None)
            assert b"HTTP/1.1" not in await asyncio.wait_for(reader.readuntil(text), PATIENCE)
        assert (await asyncio.wait_for(reader.readuntil(b"HTTP/1.1 200"), PATIENCE)).count(b"0\r\n\r\n") == 1
        writer.close()


@pytest.mark.req("C04")
async def test_a_reader_that_takes_nothing_of_a_slow_answer_costs_no_more_than_its_buffers():
    passed_on = 0

    async def next_turn() -> None:
        nonlocal passed_on
        passed_on += 1
        await asyncio.sleep(0)

    async with served(Turn(text=["x" * 1000] * 6000, pause=next_turn), block=server_block(stall_timeout=60)) as s:
        raw = await stalled_client(s, encoded(run="stalled"))
        await until(lambda: s.server.runs.busy == 0 and passed_on == 6000)
        (connection,) = s.http.connections
        assert 0 < connection.transport.get_write_buffer_size() < MB // 2
        raw.close()


async def test_a_middleware_that_has_no_more_ends_its_stream():
    steps: asyncio.Queue[None] = asyncio.Queue()

    def stage(batch):
        events = list(batch)
        return next(iter(())) if any(getattr(event, "delta", "") == " two" for _, event in events) else events

    script = says("one two three", pause=steps.get)
    async with served(script, middleware=lambda: EventMiddleware([stage])) as s, s.post(ask(run="r")) as answer:
        await read_to(answer, "one")
        steps.put_nowait(None)
        with pytest.raises(aiohttp.ClientPayloadError):
            await asyncio.wait_for(answer.read(), PATIENCE)


@pytest.mark.req("ORC-09")
async def test_what_a_middleware_logs_names_the_request_that_reads():
    steps: asyncio.Queue[None] = asyncio.Queue()
    named: dict[str, set[str]] = {}

    def middleware() -> EventMiddleware:
        reader = current().request_id
        return EventMiddleware(
            [log_stage(lambda *_: named.setdefault(reader, set()).add(current().request_id), deltas=True)]
        )

    first, second = "req_aaaaaaaaaaaa", "req_bbbbbbbbbbbb"
    script = says("one two three", pause=steps.get)
    async with served(script, middleware=middleware) as s, s.post(ask(run="r"), **{"X-Request-ID": first}) as one:
        await read_to(one, "one")
        async with s.get("/runs/r/events", **{"X-Request-ID": second}) as two:
            await read_to(two, "one")
            for word in ("two", "three", "RUN_FINISHED"):
                steps.put_nowait(None)
                await asyncio.gather(read_to(one, word), read_to(two, word))
    assert named == {first: {first}, second: {second}}


@pytest.mark.req("C04")
async def test_readers_that_leave_a_silent_run_leave_nothing_behind(monkeypatch):
    alive: weakref.WeakSet[EventStream] = weakref.WeakSet()
    init = EventStream.__init__

    def counted(self, *given, **more):
        init(self, *given, **more)
        alive.add(self)

    monkeypatch.setattr(EventStream, "__init__", counted)
    steps: asyncio.Queue[None] = asyncio.Queue()
    script, often = says("one two", pause=steps.get), server_block(keepalive=0.02)
    async with served(script, block=often) as s, s.post(ask(run="r")) as answer:
        await read_to(answer, "one")
        run = s.run("r")
        for _ in range(20):
            reader, writer = await s.connect()
            writer.write(b"GET /runs/r/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b": keepalive")
            writer.transport.abort()
        await until(lambda: run.readers == 1 and len(s.http.connections) == 1)
        gc.collect()
        assert len(alive) == 1
        assert len(run.log._waiting) == 1
        steps.put_nowait(None)
        steps.put_nowait(None)
        await answer.read()


class Ticks:
    """A loop whose time the test sets, and a connection that a client reads from."""

    def __init__(self, stall):
        self.now, self.unsent, self.dropped = 0.0, 0, False
        self.stream = EventStream(None, [], server_block(keepalive=1000, stall_timeout=stall), content_type="x")
        self.stream._loop = self.stream._connection = self.transport = self
        self.stream._sending = True
        self.stream._waiter = None

    def time(self):
        return self.now

    def call_later(self, _seconds, _callback):
        return None

    def abort(self):
        self.dropped = True

    def tick(self, seconds, unsent):
        self.now += seconds
        self.unsent = unsent
        self.stream._tick()


@pytest.mark.req("C04", "C05")
def test_a_reader_that_is_slow_is_kept_and_one_that_takes_nothing_is_not(monkeypatch):
    monkeypatch.setattr(streams, "unsent_bytes", lambda ticks: ticks.unsent)
    ticks = Ticks(stall=30)
    for taken in range(100):  # a byte every 20 s, for half an hour
        ticks.tick(20, 1_000 - taken)
        assert not ticks.dropped
    for _ in range(2):
        ticks.tick(14, 901)
        assert not ticks.dropped
    ticks.tick(14, 901)
    assert ticks.dropped


@pytest.mark.req("C05")
def test_a_pause_of_the_server_itself_does_not_count_against_its_readers(monkeypatch):
    monkeypatch.setattr(streams, "unsent_bytes", lambda ticks: ticks.unsent)
    ticks = Ticks(stall=30)
    ticks.tick(10, 900)
    ticks.tick(600, 900)
    assert not ticks.dropped
    for _ in range(2):
        ticks.tick(10, 900)
    assert ticks.dropped
