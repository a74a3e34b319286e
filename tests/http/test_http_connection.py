"""The connection to an endpoint: every piece is passed on when it comes, and others have a turn meanwhile."""

import asyncio
import gc
import weakref

import pytest

from holodeck.http.client import Client
from tests.http.turns import Turns
from tests.models.endpoint import ModelEndpoint, Wire


async def test_an_endpoint_that_sends_without_end_leaves_others_their_turn():
    piece, pieces = b"x" * 1_000_000, 40

    async def flood(wire: Wire) -> None:
        await wire.head()
        await wire.send(*[piece] * pieces)
        await wire.end()

    client = Client({}, 20.0)
    async with ModelEndpoint(flood) as endpoint:
        async with Turns() as turns, client.post(endpoint.url, b"{}") as response:
            await response.read_into(turns.take)
        await client.close()
    assert turns.came == piece * pieces
    assert turns.most <= 600_000  # two reads of the largest size


@pytest.mark.parametrize("count", [16_000, 16_385, 40_000])
async def test_chunks_of_one_byte_are_all_read(count):
    more = asyncio.Event()
    body = bytearray()

    async def crumbs(wire: Wire) -> None:
        await wire.head()
        await wire.raw(b"1\r\n:\r\n" * count)
        await more.wait()
        await wire.send(b"\n", b"data: [DONE]\n\n")
        await wire.end()

    def take(data: bytes) -> bool:
        body.extend(data)
        if len(body) >= count:
            more.set()
        return False

    async with ModelEndpoint(crumbs) as endpoint:
        client = Client({}, 5.0)
        try:
            async with client.post(endpoint.url, b"{}") as response:
                await asyncio.wait_for(response.read_into(take), 20)
        finally:
            await client.close()
    assert body == b":" * count + b"\ndata: [DONE]\n\n"


@pytest.mark.req("D11")
async def test_a_connection_that_was_given_up_is_gone_without_the_collector():
    """With it the reader of the answer would stay: a stopped run and its log."""

    async def endless(wire: Wire) -> None:
        await wire.head()
        await wire.send(b"data: {}\n\n")
        await wire.gone.wait()

    client, begun = Client({}, 5.0), asyncio.Event()

    async def read() -> None:
        def take(_data: bytes) -> bool:
            begun.set()
            return False

        async with client.post(endpoint.url, b"{}") as response:
            await response.read_into(take)

    async with ModelEndpoint(endless) as endpoint:
        reading = asyncio.create_task(read())
        await asyncio.wait_for(begun.wait(), 20)
        (gone,) = map(weakref.ref, client._busy)
        gc.collect()
        gc.disable()
        try:
            reading.cancel()
            await asyncio.wait({reading})
            async with asyncio.timeout(20):
                while gone() is not None:
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
            await client.close()
