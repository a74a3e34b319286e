"""What we read is what aiohttp reads; and whatever is sent, no request hangs, and none gets another's bytes."""

import asyncio

import aiohttp
from hypothesis import given
from hypothesis import strategies as st

from holodeck.http.client import Client
from holodeck.http.failures import HttpError
from tests.examples import examples
from tests.http import well_formed
from tests.http.peers import Peer, Peers
from tests.http.reading import read

MARK = b"the answer to the second request"
MARKED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(MARK), MARK)
SETTLED = 20  # rounds of the loop in which all that was sent has arrived: both sides are in it


@st.composite
def cut_answers(draw: st.DrawFn) -> tuple[list[bytes], bool]:
    answer, ends = draw(well_formed.answers())
    return draw(well_formed.cut(answer)), ends


def saying(pieces: list[bytes], *, ends: bool):
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(*pieces)
            if ends:
                return peer.close()

    return script


@examples(50)
@given(cut_answers())
async def test_an_answer_is_read_as_aiohttp_reads_it(cut):
    pieces, ends = cut
    ours, theirs = [], []
    async with asyncio.timeout(20), Peers(saying(pieces, ends=ends)) as peers:
        client = Client({}, 20.0)
        for _ in range(2):
            body = bytearray()
            async with client.post(peers.url, b"{}") as response:
                await response.read_into(body.extend)
            ours.append((response.status, response.content_type, dict(response.headers), bytes(body)))
        await client.close()
        our_connections = peers.connections
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                async with session.post(peers.url, data=b"{}", allow_redirects=False) as response:
                    whole = await response.read()
                first = {name.lower(): response.headers[name] for name in response.headers}
                theirs.append((response.status, response.content_type, first, whole))
        their_connections = peers.connections - our_connections
    assert ours == theirs
    assert our_connections == their_connections


@examples(25)
@given(cut_answers(), st.data())
async def test_an_answer_that_is_cut_off_is_never_taken_for_a_whole_one(cut, data):
    pieces, ends = cut
    answer = b"".join(pieces)
    at = data.draw(st.integers(0, len(answer) - 1))
    async with asyncio.timeout(20), Peers(saying([answer[:at]] if at else [], ends=True)) as peers:
        client = Client({}, 20.0)
        try:
            _, body = await read(client, peers)
        except HttpError:
            pass
        else:
            assert ends or body == b""  # or the last line feed of what has no body was missing
        await client.close()
        await peers.all_gone()


@examples(60)
@given(well_formed.answers(), st.data())
async def test_whatever_is_sent_nothing_hangs_and_nothing_leaks(answer, data):
    bad = data.draw(well_formed.spoiled(answer[0]))
    pieces = data.draw(well_formed.cut(bad))
    ends = data.draw(st.booleans())
    sent = asyncio.Event()

    async def script(peer: Peer) -> None:
        if (await peer.request()).endswith(b"first"):
            try:
                await peer.say(*pieces)
            finally:  # also when the client has read enough
                sent.set()
            if ends:
                return
            await peer.request()
        await peer.say(MARKED)

    async with asyncio.timeout(20), Peers(script) as peers:
        client = Client({}, 20.0)
        asking = asyncio.create_task(read(client, peers, b"first"))
        await sent.wait()
        if not ends:
            for _ in range(SETTLED):
                await asyncio.sleep(0)
            asking.cancel()  # it waits for more, and rightly so
        (came,) = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(came, tuple | HttpError | asyncio.CancelledError), came
        assert isinstance(came, tuple | HttpError) or not ends
        for _ in range(SETTLED):
            await asyncio.sleep(0)
        assert await read(client, peers, b"second") == (200, MARK)
        await client.close()
        await peers.all_gone()
