"""Connections that are kept: which one is used next, how long they wait, and that none is left behind."""

import asyncio
import gc
import socket
import threading
import weakref
from contextvars import ContextVar
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holodeck.http import client as client_module
from holodeck.http.client import Client, keepalive_of
from holodeck.http.failures import ConnectionBroken, HttpError, NoConnection
from tests.http.peers import OK, Peer, Peers, answers
from tests.http.reading import ask, read

STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nHi\r\n"


def numbered(gate: asyncio.Event | None = None):
    """Says which connection it is."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            if gate is not None:
                await gate.wait()
            number = b"%d" % peer.number
            await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(number), number))

    return script


async def kept(client: Client, peers: Peers, gate: asyncio.Event, count: int) -> None:
    """So many idle connections, given back in the order of their numbers."""
    gate.clear()
    before = len(peers.requests)
    reading = [asyncio.create_task(read(client, peers)) for _ in range(count)]
    await peers.until(lambda: len(peers.requests) == before + count)
    gate.set()
    await asyncio.gather(*reading)


async def test_the_connection_used_last_is_used_first(client):
    gate = asyncio.Event()
    async with Peers(numbered(gate)) as peers:
        await kept(client, peers, gate, 3)
        (idle,) = client._idle.values()
        last = idle[-1]
        for _ in range(3):
            async with client.post(peers.url, b"{}") as response:
                assert last in client._busy
                assert len(idle) == 2
                await response.read_into(lambda _: False)
        assert idle[-1] is last
        assert peers.connections == 3


async def test_connections_that_waited_too_long_are_ended(client, monkeypatch):
    gate = asyncio.Event()
    async with Peers(numbered(gate)) as peers:
        await kept(client, peers, gate, 3)
        (idle,) = client._idle.values()
        idle[0].idle_since -= client_module.KEEPALIVE_SECONDS
        client._sweep()
        await peers.until(lambda: len(peers.open) == 2)
        assert await read(client, peers)
        assert peers.connections == 3
        for line in idle:
            line.idle_since -= client_module.KEEPALIVE_SECONDS
        client._sweep()
        await peers.all_gone()
        assert client._idle == {}
        assert client._sweeper is None  # nothing to look after
        assert await read(client, peers) == (200, b"4")


async def test_the_sweep_comes_by_itself(client, monkeypatch):
    monkeypatch.setattr(client_module, "KEEPALIVE_SECONDS", 0.02)
    async with Peers(answers(OK)) as peers:
        await read(client, peers)
        await peers.all_gone()


async def test_a_connection_that_waited_too_long_is_not_used_though_no_one_swept(client):
    async with Peers(numbered()) as peers:
        assert await read(client, peers) == (200, b"1")
        (idle,) = client._idle.values()
        idle[0].idle_since -= client_module.KEEPALIVE_SECONDS
        assert await read(client, peers) == (200, b"2")
        await peers.until(lambda: len(peers.open) == 1)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_server_that_ends_idle_connections(client, end):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        await idle.wait()
        getattr(peer, end)()

    idle = asyncio.Event()
    async with Peers(script) as peers:
        await read(client, peers)
        idle.set()
        await peers.all_gone()
        (lines,) = client._idle.values()
        while not lines[0].lost:
            await asyncio.sleep(0)
        assert await read(client, peers) == (200, b"Hi")
        assert peers.connections == 2


async def test_two_hosts_do_not_share_connections(client):
    async with Peers(answers(OK)) as one, Peers(answers(OK.replace(b"Hi", b"Ho"))) as other:
        for _ in range(2):
            assert await read(client, one) == (200, b"Hi")
            assert await read(client, other) == (200, b"Ho")
            assert await read(client, f"http://localhost:{one.port}/") == (200, b"Hi")
        assert (one.connections, other.connections) == (2, 1)


async def test_closing_ends_busy_and_idle_connections():
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await peer.say(STREAM if b"endless" in request else OK)

    client = Client({}, 5.0)
    async with Peers(script) as peers:
        async with client.post(peers.url, b"endless") as reading, client.post(peers.url, b"endless"):
            await read(client, peers)
            came = asyncio.Event()
            task = asyncio.create_task(reading.read_into(lambda _: came.set()))
            await came.wait()
            assert len(peers.open) == 3
            await client.close()
            with pytest.raises(ConnectionBroken):
                await task
            await peers.all_gone()
        assert client._idle == {}
        assert client._sweeper is None


async def test_closing_ends_a_request_that_waits_for_its_answer():
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone.wait()

    client = Client({}, 5.0)
    async with Peers(script) as peers:
        task = asyncio.create_task(read(client, peers))
        await peers.until(lambda: len(peers.requests) == 1)
        await client.close()
        with pytest.raises(ConnectionBroken):
            await task
        await peers.all_gone()


async def test_closing_ends_a_connection_that_is_being_made():
    client = Client({}, 5.0)
    async with Peers(answers(OK)) as peers:
        task = asyncio.create_task(read(client, peers))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(HttpError):
            await task
        await peers.all_gone()
        assert client._idle == {}


async def test_a_closed_client_can_be_used_and_closed_again():
    client = Client({}, 5.0)
    async with Peers(answers(OK)) as peers:
        for _ in range(2):
            assert await read(client, peers) == (200, b"Hi")
            await client.close()
            await client.close()
            await peers.all_gone()
        assert peers.connections == 2


@pytest.mark.parametrize("steps", range(12))
async def test_cancelling_after_any_number_of_steps_leaves_nothing(client, steps, recwarn):
    """Name, connection, head, body: each is reached by one of these."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(STREAM)
        await peer.gone.wait()

    async with Peers(script) as peers:
        task = asyncio.create_task(read(client, f"http://localhost:{peers.port}/"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        await peers.all_gone()
        assert client._busy == set()
        assert not any(client._idle.values())
    gc.collect()
    assert not list(recwarn)


async def test_cancelling_while_the_head_is_awaited(client):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone.wait()

    async with Peers(script) as peers:
        task = asyncio.create_task(ask(client, peers))
        await peers.until(lambda: len(peers.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await peers.all_gone()
        assert client._busy == set()


async def test_a_failure_and_a_cancellation_at_once_leave_nothing_unsaid(client, caplog):
    """The future holds an exception that no task awaits any more."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone.wait()

    async with Peers(script) as peers:
        task = asyncio.create_task(ask(client, peers))
        await peers.until(lambda: len(peers.requests) == 1)
        (line,) = client._busy
        line.connection_lost(ConnectionResetError())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
        await peers.all_gone()
    assert "never retrieved" not in caplog.text


async def test_many_in_parallel_that_are_cancelled_leave_nothing(client):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(STREAM)
        await peer.gone.wait()

    async with Peers(script) as peers:
        tasks = [asyncio.create_task(read(client, peers)) for _ in range(30)]
        await peers.until(lambda: len(peers.requests) >= 10)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(error) for error in ended} == {asyncio.CancelledError}
        await peers.all_gone()


async def test_no_answer_in_time():
    """A server whose queue of connections is full says nothing at all."""
    client = Client({}, 0.05)
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex(address)
        with pytest.raises(NoConnection, match="within"):
            await ask(client, f"http://127.0.0.1:{address[1]}/")
    await client.close()


class Always(BaseHTTPRequestHandler):
    """Answers, and keeps the connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"Hi")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def ask_in_two_loops(url: str) -> None:
    client = Client({}, 5.0)

    async def once() -> bytes:
        body = bytearray()
        async with client.get(url) as response:
            await response.read_into(body.extend)
        return bytes(body)

    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(once(), 20)) == b"Hi"
        assert [len(lines) for lines in client._idle.values()] == [1]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the loops' connections have no owner any more
def test_a_client_used_in_another_loop_opens_new_connections():
    """What is kept belongs to a loop that is gone: it could only hang."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Always) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            ask_in_two_loops(f"http://127.0.0.1:{server.server_port}/")
            gc.collect()  # here, where it is expected; with the connections their threads end
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 60),
        ("timeout=5", 4),
        ("timeout=120, max=1000", 119),
        ("max=100, Timeout = 30", 29),
        ('timeout="75"', 74),
        ("timeout=0", 0),
        ("timeout=100000", 300),
        ("timeout=-3", 60),
        ("timeout=x", 60),
    ],
)
def test_a_connection_waits_as_long_as_its_server_does(header, seconds):
    assert keepalive_of(header) == seconds


async def test_the_servers_keep_alive_header_is_respected(client):
    answer = OK.replace(b"\r\n", b"\r\nKeep-Alive: timeout=%d\r\n", 1)
    async with Peers(answers(answer % 20)) as short, Peers(answers(answer % 90)) as long, Peers(answers(OK)) as silent:
        for peers, seconds in ((short, 19), (long, 89), (silent, 60)):
            await read(client, peers)
            (line,) = next(lines for route, lines in client._idle.items() if route.port == peers.port)
            assert line.keepalive == seconds
        assert client._sweep_at == pytest.approx(
            min(each.idle_since + each.keepalive for (each,) in client._idle.values())
        )


async def test_connections_that_may_not_wait_are_given_back_together(client):
    """The first has a timer that is due at once."""
    answer = OK.replace(b"\r\n", b"\r\nKeep-Alive: timeout=1\r\n", 1)
    async with Peers(answers(answer)) as peers:
        async with client.post(peers.url, b"{}") as one, client.post(peers.url, b"{}") as other:
            for response in (one, other):
                await response.read_into(lambda _: False)
        await peers.all_gone()


@pytest.mark.parametrize("secure", [False, True])
async def test_a_kept_connection_does_not_keep_the_context_of_the_request_that_dialled_it(client, trusted, secure):
    class Run:
        """Stands for a run, which a context variable references while its model is asked."""

    variable: ContextVar[Run] = ContextVar("run")

    async def in_a_run(peers: Peers) -> weakref.ref[Run]:
        run = Run()
        variable.set(run)
        assert await read(client, peers) == (200, b"Hi")
        return weakref.ref(run)

    async with Peers(answers(OK), ssl=trusted.server() if secure else None) as peers:
        reference = await asyncio.create_task(in_a_run(peers))
        assert [len(lines) for lines in client._idle.values()] == [1], "the connection is kept"
        await asyncio.sleep(0)
        gc.collect()
        assert reference() is None
