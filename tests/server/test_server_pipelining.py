"""Requests that are sent before the one before them is answered: a few wait, the rest costs nothing (F1)."""

import asyncio
import gc
import json
import re
from contextlib import suppress
from itertools import count

import psutil
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from holodeck.models.scripted import says
from holodeck.server.protocol import MAX_PIPELINED, TimedProtocol
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
        before = alive(TimedProtocol)
        connections = await flooded(s, 20)
        waiting = [len(each.pipeline) for each in s.http.server_state.connections]
        assert max(waiting) == MAX_PIPELINED
        assert alive(RequestResponseCycle) <= 20 * (MAX_PIPELINED + 1) + 5
        gc.disable()  # only reference counts may free them: a full collection is rare
        try:
            await leave(connections)
            await until(lambda: not any(each.pipeline for each in s.http.server_state.connections))
            gate.open.set()
            await until(lambda: not s.server.runs.active)
            await until(lambda: alive(RequestResponseCycle) <= 5, what="requests to be freed")
            await until(lambda: alive(TimedProtocol) <= before, what="connections to be freed")
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
        await until(lambda: any(len(each.pipeline) == MAX_PIPELINED for each in s.http.server_state.connections))
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
