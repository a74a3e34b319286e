"""Secure connections: which certificates are trusted, the errors for others, and that they carry a flood as others do."""

import asyncio
import contextlib
import gc
import socket
import ssl

import pytest

from holodeck.errors import ModelError, ModelUnreachable
from holodeck.http import dial
from holodeck.http.client import Client
from holodeck.http.failures import ConnectionBroken, HttpError, NoConnection, NotHttp, NoTrust
from tests.http.peers import OK, Peer, Peers, answers
from tests.http.reading import ask, read, to_loopback
from tests.http.turns import Turns
from tests.models.asking import KEY, PROMPT, asking
from tests.models.recording_listener import RecordingListener

STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nHi\r\n"


async def silence(peer: Peer) -> None:
    await peer.gone.wait()


async def refused(url: str, sentence: str) -> None:
    """The sentence that a user reads."""
    async with asking(url) as model:
        with pytest.raises(ModelUnreachable, match=sentence) as caught:
            await model.reply(PROMPT, RecordingListener())
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_trusted_server(client, trusted, host):
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            agreed = peer.writer.get_extra_info("ssl_object").selected_alpn_protocol().encode()
            await peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(agreed), agreed))

    async with Peers(script, ssl=trusted.server()) as peers:
        for _ in range(3):
            assert await read(client, f"https://{host}:{peers.port}/") == (200, b"http/1.1")
        assert peers.connections == 1


@pytest.mark.parametrize("name", ["model.test", "model.test.", "bücher.test"])
async def test_names_are_checked_as_a_certificate_says_them(trusted, name):
    async with Peers(answers(OK), ssl=trusted.server()) as peers:
        client = Client({}, 5.0, resolve=to_loopback)
        assert await read(client, f"https://{name}:{peers.port}/") == (200, b"Hi")
        with pytest.raises(NoTrust, match="not valid for"):
            await ask(client, f"https://other.{name}:{peers.port}/")
        await client.close()


async def test_an_untrusted_certificate_is_refused(client, authority, monkeypatch):
    async with Peers(answers(OK), ssl=authority.server()) as peers:
        with pytest.raises(NoTrust, match=r"certificate was not accepted \(unable to get local issuer"):
            await ask(client, peers)
        await refused(peers.url, r"No secure connection to 127\.0\.0\.1:\d+: its certificate was not accepted")
        assert peers.requests == []


async def test_a_certificate_of_another_owner(client, trusted):
    async with Peers(answers(OK), ssl=trusted.server("other.test")) as peers:
        with pytest.raises(NoTrust, match="certificate is not valid for 'localhost'"):
            await ask(client, f"https://localhost:{peers.port}/")
        await refused(peers.url, "IP address mismatch")
        assert peers.requests == []


async def test_a_certificate_of_yesterday(client, trusted):
    async with Peers(answers(OK), ssl=trusted.server(days_ago=3)) as peers:
        with pytest.raises(NoTrust, match="expired"):
            await ask(client, peers)
        await refused(peers.url, "certificate has expired")


async def test_a_server_that_speaks_no_tls(client):
    async def script(peer: Peer) -> None:
        await peer.reader.read(1)
        await peer.say(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await peer.gone.wait()

    async with Peers(script) as peers:
        url = peers.url.replace("http:", "https:")
        with pytest.raises(NoTrust, match="did you mean http://"):
            await ask(client, url)
        await refused(url, "it does not speak TLS; did you mean http://")
        await peers.all_gone()


async def test_certificates_that_cannot_be_read(client, monkeypatch):
    def unreadable() -> ssl.SSLContext:
        raise ssl.SSLError("no certificates")

    monkeypatch.setattr(dial, "_trust", unreadable)
    async with Peers(silence) as peers:
        with pytest.raises(NoTrust):
            await ask(client, peers.url.replace("http:", "https:"))
        await peers.all_gone()


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_server_that_hangs_up_in_the_handshake(client, end):
    async def script(peer: Peer) -> None:
        await peer.reader.read(1)
        getattr(peer, end)()

    async with Peers(script) as peers:
        url = peers.url.replace("http:", "https:")
        with pytest.raises((NoConnection, NoTrust)):
            await ask(client, url)
        await refused(url, "No connection to|No secure connection to")


async def test_a_server_that_speaks_nothing_but_tls(client, trusted):
    async with Peers(answers(OK), ssl=trusted.server()) as peers:
        url = peers.url.replace("https:", "http:")
        with pytest.raises((NotHttp, ConnectionBroken)):
            await ask(client, url)
        async with asking(url) as model:
            with pytest.raises(ModelError):
                await model.reply(PROMPT, RecordingListener())


async def test_an_answer_that_comes_with_the_handshake_does_not_hang(client, trusted):
    async def script(peer: Peer) -> None:
        await peer.say(OK)
        await peer.gone.wait()

    async with Peers(script, ssl=trusted.server()) as peers:
        for _ in range(3):
            with contextlib.suppress(HttpError):
                assert await read(client, peers) == (200, b"Hi")
            await client.close()
            await peers.all_gone()


@pytest.mark.parametrize("framed", [True, False], ids=["chunked", "until the end"])
async def test_a_flood_arrives_whole_and_leaves_others_their_turn(client, trusted, framed):
    piece, pieces = bytes(range(250)) * 4000, 12

    async def flood(peer: Peer) -> None:
        await peer.request()
        if framed:
            chunks = [b"%x\r\n%b\r\n" % (len(piece), piece)] * pieces
            await peer.say(STREAM.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", *chunks, b"0\r\n\r\n")
        else:
            await peer.say(b"HTTP/1.1 200 OK\r\n\r\n", *[piece] * pieces)
            peer.close()

    async with (
        Peers(flood, ssl=trusted.server()) as peers,
        Turns() as turns,
        client.post(peers.url, b"{}") as response,
    ):
        await response.read_into(turns.take)
    assert turns.came == piece * pieces
    assert turns.most <= 600_000  # two reads of the largest size


async def test_a_large_request(client, trusted):
    body = bytes(range(250)) * 20_000
    async with Peers(answers(OK), ssl=trusted.server()) as peers:
        assert await read(client, peers, body) == (200, b"Hi")
        assert peers.requests[0].endswith(b"\r\n\r\n" + body)


async def test_a_reset_in_the_body(client, trusted):
    came = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(STREAM)
        await came.wait()
        peer.reset()

    async with Peers(script, ssl=trusted.server()) as peers, client.post(peers.url, b"{}") as response:
        with pytest.raises(ConnectionBroken):
            await response.read_into(lambda _: came.set())


async def test_an_idle_connection_that_the_server_ends_is_not_used_again(client, trusted):
    async with Peers(answers(OK, then_close=True), ssl=trusted.server()) as peers:
        await read(client, peers)
        await peers.all_gone()
        for lines in client._idle.values():  # none if the end came with the answer
            while not lines[0].lost:
                await asyncio.sleep(0)
        assert await read(client, peers) == (200, b"Hi")


async def test_cancelling_in_the_handshake_ends_the_connection(client):
    async with Peers(silence) as peers:
        task = asyncio.create_task(ask(client, peers.url.replace("http:", "https:")))
        await peers.until(lambda: len(peers.open) == 1)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await peers.all_gone()


async def test_a_handshake_takes_no_longer_than_a_connection_may():
    client = Client({}, 0.1)
    async with Peers(silence) as peers:
        with pytest.raises(NoConnection, match="within"):
            await ask(client, peers.url.replace("http:", "https:"))
        await peers.all_gone()
    await client.close()


@pytest.mark.parametrize("steps", range(0, 40, 4))
async def test_cancelling_after_any_number_of_steps_leaves_nothing(client, trusted, steps, recwarn):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(STREAM)
        await peer.gone.wait()

    async with Peers(script, ssl=trusted.server()) as peers:
        task = asyncio.create_task(read(client, peers))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await peers.all_gone()
        assert client._busy == set()
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


async def test_closing_ends_busy_and_idle_connections(trusted, recwarn):
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await peer.say(STREAM if b"endless" in request else OK)

    client = Client({}, 5.0)
    came = asyncio.Event()
    async with Peers(script, ssl=trusted.server()) as peers:
        async with client.post(peers.url, b"endless") as response:
            await read(client, peers)
            reading = asyncio.create_task(response.read_into(lambda _: came.set()))
            await came.wait()
            await client.close()
            with pytest.raises(ConnectionBroken):
                await reading
        await peers.all_gone()
    del response, client
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


async def test_nothing_is_left_in_the_kernel(trusted):
    """After `close`, the socket is closed, not only ours no more."""
    client = Client({}, 5.0)
    async with Peers(answers(OK), ssl=trusted.server()) as peers:
        await read(client, peers)
        (line,) = next(iter(client._idle.values()))
        held: socket.socket = line.transport.get_extra_info("socket")
        await client.close()
        assert held.fileno() == -1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_second_connection_resumes_the_session_of_the_first(client, trusted, version):
    async def script(peer: Peer) -> None:
        await peer.request()
        reused.append(peer.writer.get_extra_info("ssl_object").session_reused)
        await peer.say(OK)
        await peer.gone.wait()

    reused: list[bool] = []
    server = trusted.server()
    server.minimum_version = server.maximum_version = version
    async with Peers(script, ssl=server) as peers:
        for _ in range(3):
            assert await read(client, f"https://localhost:{peers.port}/") == (200, b"Hi")
            await client.close()
            await peers.all_gone()
    assert reused == [False, True, True]


async def test_a_session_is_not_resumed_with_another_host(client, trusted):
    async with Peers(answers(OK), ssl=trusted.server()) as first:
        assert await read(client, f"https://localhost:{first.port}/") == (200, b"Hi")
    async with Peers(answers(OK), ssl=trusted.server("other.test")) as other:
        with pytest.raises(NoTrust):
            await ask(client, f"https://localhost:{other.port}/")
