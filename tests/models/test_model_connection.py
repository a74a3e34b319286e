"""The connection to an endpoint: it stops reading while nobody takes what came, and goes on when somebody does."""

import asyncio

import pytest

from holodeck.models.connection import Connection, Unhurried
from tests.models.endpoint import ModelEndpoint, Wire
from tests.server.serving import until

PIECE, PIECES = b"x" * 10_000, 400  # more than socket buffers and aiohttp hold together, in chunks of their own


async def test_an_endpoint_that_sends_more_than_is_read_has_to_wait_and_nothing_is_lost():
    async def flood(wire: Wire) -> None:
        await wire.head()
        await wire.send(*[PIECE] * PIECES)
        await wire.end()

    async with ModelEndpoint(flood) as endpoint:
        connection = Connection({}, 5.0)
        try:
            async with connection.post(endpoint.url, b"{}") as response:
                protocol = response.connection.protocol
                assert type(protocol) is Unhurried  # else a newer aiohttp makes its handlers in another way
                paused, size = 0, 0
                while data := await response.content.readany():
                    size += len(data)
                    for _ in range(20):  # let more come than may be held
                        await asyncio.sleep(0)
                    paused += protocol._reading_paused
                assert size == len(PIECE) * PIECES
                assert paused > 0
        finally:
            await connection.close()


@pytest.mark.parametrize("count", [16_000, 16_385, 40_000])
async def test_chunks_that_are_too_many_to_be_held_are_all_read(count):
    """aiohttp pauses at some number of them, however small; what its parser then holds back has to come out again."""
    more = asyncio.Event()

    async def crumbs(wire: Wire) -> None:
        await wire.head()
        await wire.raw(b"1\r\n:\r\n" * count)
        await more.wait()
        await wire.send(b"\n", b"data: [DONE]\n\n")
        await wire.end()

    async with ModelEndpoint(crumbs) as endpoint:
        connection = Connection({}, 5.0)
        try:
            async with connection.post(endpoint.url, b"{}") as response:
                content, protocol = response.content, response.connection.protocol
                await until(lambda: content.total_bytes == count or protocol._reading_paused)
                body = b""
                while data := await asyncio.wait_for(content.readany(), 5):
                    body += data
                    if len(body) >= count:
                        more.set()
                assert body == b":" * count + b"\ndata: [DONE]\n\n"
        finally:
            await connection.close()
