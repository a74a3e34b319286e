"""Requests that are sent before the one before them is answered: a few wait, the rest costs nothing (F1)."""

import asyncio
import gc
import json
import re
import socket
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count

import psutil
import pytest
import uvloop

from holodeck.models.scripted import says
from holodeck.server.listen import ACCEPTED_AT_ONCE, acceptors, bind
from holodeck.server.protocol import MAX_PIPELINED, STARTED_AT_ONCE, PacedStarts, ServerConnection, ServerExchange
from tests.server.serving import PATIENCE, Gate, ask, served, until

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
FLOOD = b"GET / HTTP/1.1\r\nHost:localhost\r\n\r\n" * 8000
MB = 1024 * 1024
_threads = count()


def post(body):
    data = json.dumps(body).encode()
    head = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(data) + data


def alive(kind):
    return sum(isinstance(each, kind) for each in gc.get_objects())


async def flooded(s, size):
    """`size` connections, each with a request that is being answered and 8,000 behind it."""
    connections = []
    for _ in range(size):
        reader, writer = await s.connect()
        writer.write(post(ask(thread=f"t{next(_threads)}")) + FLOOD)
        connections.append((reader, writer))
    for reader, _ in connections:
        await asyncio.wait_for(reader.readuntil(b"one"), PATIENCE)
    return connections


async def leave(connections):
    for _, writer in connections:
        writer.transport.abort()
    for _, writer in connections:
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.req("T17", "T15")
async def test_few_requests_wait_and_a_lost_connection_frees_them_at_once():
    gate = Gate()
    async with served(says("one two", pause=gate)) as s:
        await asyncio.gather(*(read_health(s) for _ in range(3)))  # what is loaded once
        gc.collect()
        before = alive(ServerConnection)
        connections = await flooded(s, 20)
        waiting = [len(each.waiting) for each in s.http.connections]
        assert max(waiting) == MAX_PIPELINED
        assert alive(ServerExchange) <= 20 * (MAX_PIPELINED + 1) + 5
        gc.disable()  # only reference counts may free them: a full collection is rare
        try:
            await leave(connections)
            await until(lambda: not any(each.waiting for each in s.http.connections))
            gate.open.set()
            await until(lambda: not s.server.runs.active)
            await until(lambda: alive(ServerExchange) <= 5, what="requests to be freed")
            await until(lambda: alive(ServerConnection) <= before, what="connections to be freed")
        finally:
            gc.enable()


async def read_health(s):
    async with s.get("/health") as answer:
        assert answer.status == 200
        await answer.read()


@pytest.mark.req("T17")
async def test_the_memory_of_many_such_connections_is_small():
    gate = Gate()
    async with served(says("one two", pause=gate)) as s:
        await leave(await flooded(s, 5))
        gc.collect()
        before = psutil.Process().memory_info().rss
        for _ in range(4):
            connections = await flooded(s, 25)
            await read_health(s)
            await leave(connections)
        grown = psutil.Process().memory_info().rss - before
        assert grown < 60 * MB, f"{grown / MB:.1f} MB"  # this process is the client as well; it was 1,000 MB
        gate.open.set()


async def test_as_many_as_may_wait_are_answered_in_order_and_one_more_ends_the_connection():
    gate = Gate()
    async with served(says("one two", pause=gate)) as s:
        reader, writer = await s.connect()
        writer.write(post(ask()) + GET * (MAX_PIPELINED + 3))
        received = await asyncio.wait_for(reader.readuntil(b"one"), PATIENCE)
        await until(lambda: any(len(each.waiting) == MAX_PIPELINED for each in s.http.connections))
        gate.open.set()
        with suppress(ConnectionError):  # what was sent beyond is not read: the kernel may say so with a reset
            while piece := await asyncio.wait_for(reader.read(65536), PATIENCE):
                received += piece
        assert received.count(b"RUN_FINISHED") == 1
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200"] * (MAX_PIPELINED + 1)
        assert re.findall(rb"connection: (\w+)", received) == [b"close"]  # in the last answer
        writer.close()


async def test_requests_that_never_wait_may_be_any_number():
    async with served() as s:
        reader, writer = await s.connect()
        for _ in range(3 * MAX_PIPELINED):
            writer.write(GET)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
        writer.close()


@pytest.mark.req("T17")
async def test_few_requests_of_a_burst_begin_in_one_turn_of_the_loop_and_all_in_their_order(monkeypatch):
    loop, turn, begun = asyncio.get_running_loop(), count(), []
    now = [next(turn)]

    def tick():
        now[0] = next(turn)
        heart[0] = loop.call_soon(tick)

    heart = [loop.call_soon(tick)]
    start = ServerExchange.start

    def noted(self, app):
        begun.append((now[0], self.scope["client"][1]))
        start(self, app)

    monkeypatch.setattr(ServerExchange, "start", noted)
    async with served() as s:
        connections = [await s.connect() for _ in range(10 * STARTED_AT_ONCE)]
        for _, writer in connections:
            writer.write(GET.replace(b"/health", b"/nothing"))
        for reader, _ in connections:
            assert (await asyncio.wait_for(reader.readline(), PATIENCE)).startswith(b"HTTP/1.1 404")
        heart[0].cancel()
        turns = Counter(each for each, _ in begun)
        assert max(turns.values()) <= STARTED_AT_ONCE
        assert len(begun) == len(connections) == len({port for _, port in begun})
        for _, writer in connections:
            writer.close()


class Turns:
    """An event loop whose iterations are calls of `turn`."""

    def __init__(self):
        self.soon = []

    def call_soon(self, call):
        self.soon.append(call)

    def turn(self):
        calls, self.soon = self.soon, []
        for call in calls:
            call()


@pytest.mark.req("T17")
def test_after_a_group_of_requests_as_many_iterations_pass_before_the_next():
    loop, starts, begun, in_turn = Turns(), PacedStarts(), [], []
    for number in range(2 * STARTED_AT_ONCE + 3):
        starts.begin(partial(begun.append, number), loop)
    while True:
        in_turn.append(len(begun) - sum(in_turn))
        if not loop.soon:
            break
        loop.turn()
    group = [STARTED_AT_ONCE, *([0] * (STARTED_AT_ONCE - 1))]
    assert in_turn == [*group, *group, 3, 0, 0, 0]
    assert begun == sorted(begun)


@pytest.mark.req("T17")
def test_a_request_that_comes_alone_never_waits_and_one_that_comes_within_a_pause_begins_after_it():
    loop, starts, begun = Turns(), PacedStarts(), []
    for number in range(3):
        starts.begin(partial(begun.append, number), loop)
        assert begun[-1] == number
        loop.turn()
        assert not loop.soon
    for number in range(3, 6):
        starts.begin(partial(begun.append, number), loop)
    loop.turn()
    starts.begin(partial(begun.append, 6), loop)
    loop.turn()
    assert begun == [0, 1, 2, 3, 4, 5]
    loop.turn()
    assert begun == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.req("T17")
async def test_a_monitor_does_not_wait_for_the_requests_before_it(monkeypatch):
    monkeypatch.setattr("holodeck.server.protocol.STARTED_AT_ONCE", 0)  # no other request begins
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(GET.replace(b"/health", b"/nothing"))
        starts = s.http.starts
        await until(lambda: len(starts._waiting) == 1)
        await read_health(s)
        monkeypatch.undo()
        starts._next_turn()
        assert (await asyncio.wait_for(reader.readline(), PATIENCE)).startswith(b"HTTP/1.1 404")
        writer.close()


@pytest.mark.parametrize("is_shared", [False, True])
def test_connections_that_come_together_are_accepted_together_unless_other_workers_want_them(is_shared):
    """Each turn of uvloop's loop accepts one connection of a socket."""
    accepted = Counter()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport):
            accepted[turns[0]] += 1
            transport.close()

    turns = [0]

    async def serve(listener, clients):
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Accepting, sock=each) for each in acceptors(listener, is_shared=is_shared)]
        with ExitStack() as stack:
            for _ in range(clients):
                stack.enter_context(socket.create_connection(listener.getsockname()))
            while accepted.total() < clients:
                turns[0] += 1
                await asyncio.sleep(0)
        for server in servers:
            server.close()

    with bind("127.0.0.1", 0) as listener:
        uvloop.run(asyncio.wait_for(serve(listener, 3 * ACCEPTED_AT_ONCE), PATIENCE))
    assert max(accepted.values()) == (1 if is_shared else ACCEPTED_AT_ONCE)
