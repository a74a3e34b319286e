"""One system call for the head of an answer and what follows at once; a head with nothing behind it does not wait long."""

import asyncio

import pytest

from holodeck.server.protocol import HELD_SECONDS, JoinedHead


class Transport:
    def __init__(self) -> None:
        self.writes, self.closed = [], False

    def write(self, data):
        assert not self.closed
        self.writes.append(data)

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


@pytest.fixture
def transport():
    return Transport()


@pytest.fixture
async def head(transport):
    return JoinedHead(transport, asyncio.get_running_loop())


async def test_a_head_leaves_with_the_first_piece_of_the_body(head, transport):
    head.write(b"head ")
    assert transport.writes == []
    head.write(b"body")
    head.write(b"more")
    await asyncio.sleep(0)
    assert transport.writes == [b"head body", b"more"]


async def test_a_head_alone_waits_a_little_for_what_follows_and_then_leaves(head, transport):
    head.write(b"head")
    await asyncio.sleep(0)
    assert transport.writes == []
    async with asyncio.timeout(30):
        while not transport.writes:
            await asyncio.sleep(HELD_SECONDS)
    assert transport.writes == [b"head"]
    head.write(b"body")
    assert transport.writes == [b"head", b"body"]


async def test_closing_loses_nothing(head, transport):
    head.write(b"head")
    head.close()
    assert (transport.writes, transport.closed, head.is_closing()) == ([b"head"], True, True)
    await asyncio.sleep(0)
