"""Streams: cut anywhere and joined again, left, stalled, crowded. The run does not care."""

import asyncio
import gc
import json
import time

import aiohttp
import psutil
import pytest

from holodeck.config.limit_schema import RequestLimits
from holodeck.core.events import Outcome, RunFinished
from holodeck.models.scripted import Turn, calls, says
from holodeck.runs.port import RunState
from holodeck.server.connection import unsent_bytes
from tests.agent.agent_fixture import PlainTools, echo
from tests.loop_clock import LIMIT, LoopClock
from tests.server.serving import PATIENCE, Gate, ask, frames, read_to, served, server_block, types, until
from tests.server.stalled_client import MB, encoded, stalled_client

EVENTS = (
    Turn(reasoning=["let", " me", " see"], text=["I", " will", " look"], calls=calls(("echo", '{"a": 1}')).calls),
    says(" ".join(f"word{n}" for n in range(180))),
)


@pytest.mark.req("C07")
async def test_a_stream_cut_at_any_event_and_resumed_is_the_uncut_one():
    async with served(*EVENTS, tools=PlainTools(echo=echo)) as s:
        body = ask(run="r")
        async with s.post(body) as answer:
            whole = await answer.read()
        ids = [number for number, _ in frames(whole)]
        events = len(s.run("r").log)
        assert events >= 200
        ends = [whole.index(b"\n\n", whole.index(f"id: r:{n}\n".encode())) + 2 for n in range(events)]
        for n, end in enumerate(ends):
            async with s.get("/runs/r/events", **{"Last-Event-ID": f"r:{n}"}) as rest:
                assert whole[:end] + await rest.read() == whole, n
                assert rest.status == (204 if n == events - 1 else 200)
        assert [number for number in ids if number] == [f"r:{n}" for n in range(events)]


@pytest.mark.req("C07")
async def test_a_stream_that_is_cut_while_the_run_continues_is_joined_without_gap():
    async with served(*EVENTS, tools=PlainTools(echo=echo)) as s:
        for cut in range(0, 190, 21):
            steps: asyncio.Queue[None] = asyncio.Queue()
            s.model.turns = [says(" ".join("abcdefghij" * 20), pause=steps.get)]
            s.model.prompts.clear()
            thread, run = f"thread {cut}", f"live {cut}"
            answer = await s.post(ask(thread=thread, run=run))
            for _ in range(cut):
                steps.put_nowait(None)
            first = await read_to(answer, f"id: {run}:{cut}\n")
            answer.close()  # the connection breaks
            resumed = await s.get(f"/runs/{run}/events".replace(" ", "%20"), **{"Last-Event-ID": f"{run}:{cut}"})
            for _ in range(400):
                steps.put_nowait(None)
            joined = first + await resumed.read()
            async with s.get(f"/runs/{run}/events".replace(" ", "%20")) as again:
                assert joined == await again.read(), cut


async def test_a_client_that_half_closes_its_connection_has_left():
    """The end of what it sends is all that is seen of a client that leaves, too."""
    gate = Gate()
    async with served(says("a b", pause=gate)) as s:
        reader, writer = await s.connect()
        body = json.dumps(ask(run="r")).encode()
        head = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await reader.readuntil(b"TEXT_MESSAGE_CONTENT")
        assert s.run("r").readers == 1
        writer.write_eof()
        await until(lambda: s.run("r").readers == 0)
        gate.open.set()
        await s.run("r").done()
        assert s.run("r").state is RunState.FINISHED, "the run has its time to be read again"
        writer.close()


async def test_a_client_that_leaves_is_noticed_within_a_second():
    never = server_block(keepalive=36_000, stall_timeout=36_000)  # so the connection reports it, and no timer
    async with served(says("a b c", pause=Gate()), block=never) as s:
        for number in range(10):  # a busy machine holds us up now and then, not every time
            answer = await s.post(ask(thread=f"t{number}", run=f"r{number}"))
            await read_to(answer, "TEXT_MESSAGE_CONTENT")
            run = s.run(f"r{number}")
            assert run.readers == 1
            left = time.monotonic()
            answer.close()
            await until(lambda run=run: run.readers == 0)
            if time.monotonic() - left < 1:
                return
        pytest.fail("it took longer ten times")


async def test_a_client_that_leaves_is_noticed_and_its_run_cancelled_after_the_grace():
    async with served(says("a b c", pause=Gate()), detach_grace=0.5) as s:
        answer = await s.post(ask(run="r"))
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        run = s.run("r")
        assert run.readers == 1
        answer.close()
        await until(lambda: run.readers == 0)
        assert run.task is not None
        assert not run.task.done()
        await run.done()
        ending = run.log.since(len(run.log) - 1)[0]
        assert isinstance(ending, RunFinished)
        assert ending.outcome is Outcome.CANCELLED


async def test_a_client_that_comes_back_in_time_saves_the_run():
    gate = Gate()
    async with served(says("a b c", pause=gate), detach_grace=1) as s:
        answer = await s.post(ask(run="r"))
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        answer.close()
        run = s.run("r")
        await until(lambda: run.readers == 0)
        async with s.get("/runs/r/events") as back:
            await read_to(back, "TEXT_MESSAGE_CONTENT")
            await asyncio.sleep(1.1)  # longer than the grace that would have ended it
            gate.open.set()
            assert types(await back.read())[-1] == "RUN_FINISHED"
        assert run.state == "finished"


LONG = Turn(text=["x" * 1000] * 6000)  # more than the kernel keeps for a socket


@pytest.mark.req("C04")
async def test_a_reader_that_takes_nothing_is_cut_off_and_its_run_finishes():
    async with served(LONG, block=server_block(stall_timeout=0.3), detach_grace=30) as s:
        raw = await stalled_client(s, encoded(run="stalled"))
        await until(lambda: s.server.runs.busy == 0 and s.model.prompts)
        run = s.run("stalled")
        assert run.state == "finished"
        await until(lambda: run.readers == 0)
        await until(lambda: not s.http.connections)
        raw.close()
        async with s.get("/runs/stalled/events") as again:  # a client that reads gets everything
            assert len(await again.read()) > 6 * MB


@pytest.mark.req("C04")
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_the_rest_of_an_answer_does_not_wait_for_ever(connection):
    """Everything was emitted and written, but the client has not read it: the stream is over, the connection would stay."""
    async with served(Turn(text=["x" * 2000] * 200), limits=RequestLimits(flush_seconds=0.2)) as s:
        body = encoded(run="r")
        async with s.post(body, Connection="close") as answer:
            await answer.read()
        raw = await stalled_client(s, body, connection=connection)
        await until(lambda: any(each._flush for each in s.http.connections))
        assert s.run("r").readers == 0
        assert len(s.http.connections) == 1
        await until(lambda: not s.http.connections)
        raw.close()


@pytest.mark.req("C05")
async def test_a_slow_reader_is_kept_and_gets_everything(monkeypatch):
    clock = LoopClock(monkeypatch)
    async with served(LONG, block=server_block(stall_timeout=LIMIT)) as s:
        raw = await stalled_client(s, encoded(run="slow"), buffer=65536)
        await until(lambda: s.model.prompts and s.server.runs.busy == 0)  # a run has limits of its own
        loop, taken, last = asyncio.get_running_loop(), 0, b""
        while b"\r\n0\r\n\r\n" not in last:
            piece = await loop.sock_recv(raw, 300_000)
            assert piece, f"cut off after {taken} bytes and {clock.ahead} s"
            taken += len(piece)
            last = (last + piece)[-50:]
            if taken < 2 * MB:
                clock.advance(LIMIT / 4)  # the slowness itself: longer than the limit in sum
                await asyncio.sleep(0)
        raw.close()
        assert taken > 6 * MB
        assert clock.ahead > 1.5 * LIMIT


@pytest.mark.req("C04", "B09")
async def test_a_hundred_clients_that_do_not_read_cost_little_and_end():
    count = 100
    text = Turn(text=["x" * 100] * 3000)
    async with served(text, block=server_block(stall_timeout=5), max_log_events=100_000) as s:
        first = await stalled_client(s, encoded(run="first", thread="first"))
        await until(lambda: s.server.runs.busy == 0 and s.model.prompts)
        shared = s.run("first")  # all others read this one: what is measured is readers, not runs
        gc.collect()
        before = psutil.Process().memory_info().rss
        body = s.model.prompts and encoded(run="first", thread="first", message=shared.request.messages[0].id)
        others = await asyncio.gather(*(stalled_client(s, body) for _ in range(count)))
        await until(lambda: shared.readers >= count)
        await asyncio.sleep(0)
        grown = (psutil.Process().memory_info().rss - before) / count
        assert grown < 256 * 1024, f"{grown / 1024:.0f} kB a reader"
        await until(lambda: shared.readers == 0)
        for raw in (first, *others):
            raw.close()


async def test_what_waits_is_sent_together():
    """A wake-up is one write, however many events there are: the chunks are far fewer than the events."""
    async with served(Turn(text=["x"] * 1000)) as s:
        async with s.post(ask(run="r")) as answer:
            await answer.read()
        reader, writer = await s.connect()
        writer.write(b"GET /runs/r/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = await reader.read()
        writer.close()
        chunks = [line for line in received.split(b"\r\n")[1:] if line.strip(b"0123456789abcdef") == b"" and line]
        assert 4 <= len(chunks) <= 7


async def test_a_queued_request_whose_client_left_never_reaches_the_model():
    gate = Gate()
    async with served(says("one", pause=gate), detach_grace=0.05) as s:
        async with s.post(ask(run="one", thread="t")) as one:
            await read_to(one, "TEXT_MESSAGE_CONTENT")
            leaving = asyncio.create_task(s.client.post(s.url + "/awp", json=ask(run="two", thread="t")))
            await until(lambda: s.server.runs.busy == 2)
            two = s.run("two")
            (await leaving).close()
            await two.done()
            assert two.state == "cancelled"
            gate.open.set()
            await one.read()
        assert len(s.model.prompts) == 1


async def test_a_client_that_left_before_its_stream_began_is_noticed():
    """While its files are read, say. Only the connection knows, and it reports that once."""
    reading, read = asyncio.Event(), asyncio.Event()
    async with served(says("a b c", pause=Gate()), detach_grace=0.05) as s:
        resolve = s.server.files.resolve

        async def slowly(*given, **more):
            reading.set()
            await read.wait()
            return await resolve(*given, **more)

        s.server.files.resolve = slowly
        raw = await stalled_client(s, encoded(text=[{"type": "text", "text": "Read it"}], run="r"))
        await reading.wait()
        raw.close()
        await until(lambda: not s.http.connections)
        read.set()
        await until(lambda: s.server.runs.busy)
        run = s.run("r")
        await asyncio.wait_for(run.done(), PATIENCE)
        assert run.state == "cancelled"
        assert run.readers == 0


async def test_a_socket_that_is_closed_has_nothing_unsent():
    async with served() as s:
        _, writer = await s.connect()
        writer.close()
        await writer.wait_closed()
        assert unsent_bytes(writer.transport) == 0


async def test_nothing_is_printed_in_the_middle_of_another_answer():
    """A request, one behind it, and then what is no request: a 400 would be read as a part of the first answer. Both get theirs."""
    gate = Gate()
    async with served(says("a b c", pause=gate)) as s:
        reader, writer = await s.connect()
        body = encoded(run="r")
        head = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await reader.readuntil(b"RUN_STARTED")
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nno request at all\r\n\r\n")
        await until(lambda: any(each.waiting and not each.waiting[-1].keep_alive for each in s.http.connections))
        gate.open.set()
        stream, _, health = (await asyncio.wait_for(reader.read(), PATIENCE)).partition(
            b"\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"
        )
        assert b"RUN_FINISHED" in stream
        assert health.endswith(b"}")
        assert b"HTTP/1.1" not in stream + health
        writer.close()


async def test_a_reader_that_falls_behind_what_is_kept_is_cut_off_and_warned_when_it_comes_back(caplog):
    gate = Gate()
    async with served(says("w " * 5000, pause=gate), max_log_events=1000) as s:
        async with s.post(ask(run="fast")) as answer:
            gate.open.set()  # the model says all of it at once, before any reader gets its turn
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        async with s.get("/runs/fast/events?after=3") as again:
            assert again.status == 410
