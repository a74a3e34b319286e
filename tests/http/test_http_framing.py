"""Where an answer ends, and which connections can be used again afterwards."""

import asyncio
import contextlib

import pytest

from holodeck.http.failures import ConnectionBroken, HttpError, NoConnection, NotHttp
from tests.http.peers import OK, Peer, Peers
from tests.http.reading import ask, read

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_END = b"HTTP/1.1 200 OK\r\n\r\n"


def ending(answer: bytes, end: str):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)
        getattr(peer, end)()

    return script


def one_by_one(data: bytes):
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 2",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
    ids=["nothing", "status line", "header", "interim"],
)
async def test_an_end_in_the_head_is_a_broken_connection(client, answer, end):
    async with Peers(ending(answer, end)) as peers:
        with pytest.raises(ConnectionBroken):
            await ask(client, peers)


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nHi", b"Hi"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b""),
        (CHUNKED + b"2\r\nHi\r\n", b"Hi"),
        (CHUNKED + b"2\r\nHi", b"Hi"),
        (CHUNKED + b"a\r\nHi", b"Hi"),
        (CHUNKED + b"2\r\nHi\r\n0\r\n", b"Hi"),
        (CHUNKED + b"2\r\nHi\r\n0\r\nX-Trailer: 1\r\n", b"Hi"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nHi\r\n", b"Hi"),
    ],
)
async def test_an_end_in_the_body_is_a_broken_connection_and_what_came_was_passed_on(client, answer, body, end):
    came = bytearray()
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)
        await arrived.wait()
        getattr(peer, end)()

    def take(piece: bytes) -> bool:
        came.extend(piece)
        if len(came) == len(body):
            arrived.set()
        return False

    if not body:
        arrived.set()
    async with Peers(script) as peers, client.post(peers.url, b"{}") as response:
        with pytest.raises(ConnectionBroken):
            await response.read_into(take)
        assert not response.over
    assert came == body


async def test_a_body_until_the_end_is_whole_with_fin(client):
    async with Peers(ending(UNTIL_END + b"Hi", "close")) as peers:
        assert await read(client, peers) == (200, b"Hi")
        assert await read(client, peers) == (200, b"Hi")
        assert peers.connections == 2


async def test_a_body_until_the_end_is_broken_with_rst(client):
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(UNTIL_END + b"Hi")
        await arrived.wait()
        peer.reset()

    async with Peers(script) as peers, client.post(peers.url, b"{}") as response:
        with pytest.raises(ConnectionBroken):
            await response.read_into(lambda _: arrived.set())


async def test_a_body_until_the_end_is_not_whole_when_we_end_it(client):
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(UNTIL_END + b"Hi")
        await peer.gone.wait()

    async with Peers(script) as peers, client.post(peers.url, b"{}") as response:
        reading = asyncio.create_task(response.read_into(lambda _: arrived.set()))
        await arrived.wait()
        await client.close()
        with pytest.raises(ConnectionBroken):
            await reading


@pytest.mark.parametrize("piece", [b"x", b"X-Pad: 12345\r\n"], ids=["one header", "many"])
async def test_a_head_that_does_not_end_is_refused(client, piece):
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not peer.gone.is_set():
            await peer.say(piece * 500)
            sent += 500 * len(piece)

    async with Peers(script) as peers:
        with pytest.raises(NotHttp, match="too large"):
            await ask(client, peers)
        await peers.all_gone()


async def test_interim_answers_without_end_are_refused(client):
    async def script(peer: Peer) -> None:
        await peer.request()
        while not peer.gone.is_set():
            await peer.say(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)

    async with Peers(script) as peers:
        with pytest.raises(NotHttp):
            await ask(client, peers)
        await peers.all_gone()


@pytest.mark.parametrize("what", [b"X-Trailer: ", b"5;extension="], ids=["trailer", "chunk extension"])
async def test_endless_trailers_or_extensions_end_the_response(client, what):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nHi\r\n" + (b"0\r\n" if what.startswith(b"X") else b"") + what)
        while not peer.gone.is_set():
            await peer.say(b"x" * 200_000)

    async with Peers(script) as peers:
        with pytest.raises(NotHttp):
            await read(client, peers)
        await peers.all_gone()


async def test_a_head_of_just_less_than_the_limit_is_read(client):
    head = b"HTTP/1.1 200 OK\r\nX-Long: %b\r\nContent-Length: 2\r\n\r\n" % (b"x" * 65_000)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(*[head[at : at + 1000] for at in range(0, len(head), 1000)], b"Hi")
        await peer.request()

    async with Peers(script) as peers:
        assert await read(client, peers) == (200, b"Hi")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 099 What\r\nContent-Length: 5\r\n\r\nhello" + OK,
        b"HTTP/1.1 000 What\r\n\r\nhello",
        b"HTTP/3.7 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"220 mail.example ESMTP\r\n",
        b"<html>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nHi",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nHi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nHi",
    ],
)
async def test_a_response_that_is_not_http_is_refused_at_once(client, answer):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)
        await peer.gone.wait()

    async with Peers(script) as peers:
        with pytest.raises(NotHttp):
            await ask(client, peers)
        await peers.all_gone()


@pytest.mark.parametrize("chunks", [b"x\r\n", b"-1\r\nHi", b"fffffffffffffffff\r\nHi", b"2\r\nHiX\r\n", b"\r\n\r\n"])
async def test_chunks_that_are_none_are_refused_at_once(client, chunks):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nOK\r\n" + chunks)
        await peer.gone.wait()

    came = bytearray()
    async with Peers(script) as peers:
        async with client.post(peers.url, b"{}") as response:
            with pytest.raises(NotHttp):
                await response.read_into(came.extend)
        await peers.all_gone()
    assert came.startswith(b"OK")


@pytest.mark.parametrize(
    "coding",
    [
        b"gzip, chunked",
        b"gzip",
        b"gzip\r\nTransfer-Encoding: chunked",
        b"chunked\r\nTransfer-Encoding: gzip",
        b"xchunked",
        b"chunked, gzip",
    ],
)
async def test_a_transfer_coding_that_no_one_asked_for_is_refused(client, coding):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + coding + b"\r\n\r\n2\r\nHi\r\n0\r\n\r\n")
        await peer.gone.wait()

    async with Peers(script) as peers:
        with pytest.raises(NotHttp):
            await read(client, peers)
        await peers.all_gone()


AGAIN = {
    "length": (OK, True),
    "chunked": (CHUNKED + b"2\r\nHi\r\n0\r\n\r\n", True),
    "chunked with trailer": (CHUNKED + b"2\r\nHi\r\n0\r\nX-T: Connection: close\r\n\r\n", True),
    "interim before": (b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + OK, True),
    "interim with a body": (b"HTTP/1.1 199 Wait\r\nContent-Length: 5\r\n\r\nhello" + OK, True),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", True),
    "Connection: close": (OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False),
    "Connection: Close, x": (OK.replace(b"\r\n\r\n", b"\r\nConnection: Close, x\r\n\r\n"), False),
    "HTTP/1.0": (OK.replace(b"1.1", b"1.0"), False),
    "HTTP/1.0 keep-alive": (
        OK.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"),
        True,
    ),
    "offer of an upgrade": (OK.replace(b"\r\n\r\n", b"\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"), True),
    "two answers at once": (OK + OK, False),
    "an answer and a half": (OK + b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", False),
    "half an answer more": (OK + b"HTTP/1.1 20", False),
    "garbage after the end": (OK + b"garbage", False),
    "garbage after the chunks": (CHUNKED + b"0\r\n\r\nxx", False),
    "garbage after close": (OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"garbage", False),
}


@pytest.mark.parametrize("what", AGAIN)
async def test_a_connection_is_used_again_only_if_nothing_is_odd(client, what):
    answer, again = AGAIN[what]
    body = b"" if what in ("empty", "204", "304", "garbage after the chunks") else b"Hi"

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.say(answer)

    async with Peers(script) as peers:
        for _ in range(3):
            status, came = await read(client, peers)
            assert came == body
            assert status in (200, 204, 304)
        assert peers.connections == (1 if again else 3)
        if not again:
            await peers.all_gone()


@pytest.mark.parametrize("late", [OK, b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", b"x", b"\r\n"])
async def test_unsolicited_data_closes_the_connection(client, late):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(OK)
        if peer.number == 1:
            await idle.wait()
            await peer.say(late)
        await peer.request()
        await peer.say(OK)

    idle = asyncio.Event()
    async with Peers(script) as peers:
        assert await read(client, peers) == (200, b"Hi")
        idle.set()
        await peers.all_gone()
        assert await read(client, peers) == (200, b"Hi")
        assert peers.connections == 2


async def test_an_answer_before_it_was_asked_does_not_hang(client):
    """It cannot be distinguished from a quick one, once the request is on its way."""

    async def script(peer: Peer) -> None:
        await peer.say(OK.replace(b"Hi", b"No"))
        await peer.gone.wait()

    async with Peers(script) as peers:
        for _ in range(3):
            with contextlib.suppress(HttpError):
                assert await read(client, peers) == (200, b"No")
            await client.close()
            await peers.all_gone()


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_server_that_hangs_up_at_once(client, end):
    async def script(peer: Peer) -> None:
        getattr(peer, end)()

    async with Peers(script) as peers:
        for _ in range(5):
            with pytest.raises((ConnectionBroken, NoConnection)):
                await ask(client, peers)


async def test_an_answer_byte_by_byte(client):
    answer = CHUNKED + b"2;x=y\r\nHi\r\n4 \r\n you\r\n0\r\nX-T: 1\r\n\r\n"

    async def script(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
            await peer.say(*one_by_one(answer))

    async with Peers(script) as peers:
        assert await read(client, peers) == (200, b"Hi you")
        assert await read(client, peers) == (200, b"Hi you")
        assert peers.connections == 1


async def test_leaving_before_the_body_is_over_ends_the_connection(client):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED + b"2\r\nHi\r\n")
        await peer.gone.wait()

    async with Peers(script) as peers:
        async with client.post(peers.url, b"{}") as response:
            await response.read_into(lambda _: True)
        await peers.all_gone()


async def test_answers_of_many_requests_do_not_mix(client):
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            body = request.partition(b"\r\n\r\n")[2] * 50
            await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body[:70], body[70:])

    async def one(number: int) -> None:
        for turn in range(5):
            line = b"%d.%d " % (number, turn)
            assert await read(client, peers, line) == (200, line * 50)

    async with Peers(script) as peers:
        await asyncio.gather(*(one(number) for number in range(20)))
        assert peers.connections == 20
