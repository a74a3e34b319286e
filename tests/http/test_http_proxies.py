"""Through a proxy that the environment names: plainly, in a tunnel, with a password, or not at all."""

import asyncio
import logging
from base64 import b64encode

import pytest

from holodeck.errors import ModelRejected, ModelUnreachable
from holodeck.http.address import proxy_for
from holodeck.http.client import Client
from holodeck.http.failures import HttpError, NoConnection, NoProxy, NoTrust
from tests.http.peers import OK, Peer, Peers, answers
from tests.http.proxy import Passing
from tests.http.reading import ask, read, to_loopback
from tests.models.asking import KEY, PROMPT, asking, unused_port
from tests.models.endpoint import text_frames
from tests.models.recording_listener import RecordingListener

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
PASSWORD = "p:w ü-secret"
QUOTED = "us%40er:p%3Aw%20%C3%BC-secret"
USER = f"us@er:{PASSWORD}"


@pytest.fixture
def environment(monkeypatch):
    """Sets variables; none is there before."""
    for name in (*VARIABLES, *(name.upper() for name in VARIABLES)):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


def chat() -> bytes:
    body = b"".join(text_frames("Hello"))
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_a_plain_request_says_where_it_goes(client, environment):
    passing = Passing()
    async with Peers(answers(OK)) as peers, Peers(passing) as proxy:
        environment("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        for _ in range(2):
            assert await read(client, f"http://model.test:{peers.port}/v1?x=ü") == (200, b"Hi")
        assert (proxy.connections, peers.connections) == (1, 1)
        await client.close()
        await proxy.all_gone()
    (head,) = passing.heads
    assert head.startswith(b"POST http://model.test:%d/v1?x=%%C3%%BC HTTP/1.1\r\n" % peers.port)
    assert b"Host: model.test:%d\r\n" % peers.port in head
    assert b"Proxy-Authorization" not in head


@pytest.mark.parametrize(
    "established", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 Yes\r\nVia: x\r\n\r\n", b"HTTP/1.1 204 \r\n\r\n"]
)
async def test_a_secure_request_goes_through_a_tunnel(trusted, environment, established):
    passing = Passing(established=established)
    client = Client({"Authorization": f"Bearer {KEY}"}, 5.0)
    async with Peers(answers(OK), ssl=trusted.server()) as peers, Peers(passing) as proxy:
        environment("HTTPS_PROXY", f"127.0.0.1:{proxy.port}")  # many leave the scheme out
        for _ in range(3):
            assert await read(client, f"https://model.test:{peers.port}/v1") == (200, b"Hi")
        assert (proxy.connections, peers.connections) == (1, 1)
        assert peers.requests[0].startswith(b"POST /v1 HTTP/1.1\r\n")
        assert KEY.encode() in peers.requests[0]
        await client.close()
        await proxy.all_gone()
    place = b"model.test:%d" % peers.port
    assert passing.heads == [b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (place, place)]
    assert KEY.encode() not in passing.inside


@pytest.mark.parametrize("secure", [True, False])
async def test_a_proxy_that_wants_a_password(client, trusted, environment, secure):
    passing = Passing(USER)
    async with Peers(answers(OK), ssl=trusted.server() if secure else None) as peers, Peers(passing) as proxy:
        environment("ALL_PROXY", f"http://{QUOTED}@127.0.0.1:{proxy.port}")
        url = peers.url.replace("127.0.0.1", "model.test")
        assert await read(client, url) == (200, b"Hi")
    assert b"Proxy-Authorization: Basic " + b64encode(USER.encode()) in passing.heads[0]
    assert b"roxy" not in peers.requests[0]


@pytest.mark.parametrize("given", ["us%40er:wrong-secret@", ""])
async def test_a_proxy_that_does_not_let_us_through(client, environment, given, caplog):
    caplog.set_level(logging.DEBUG)
    async with Peers(Passing(USER)) as proxy:
        environment("ALL_PROXY", f"http://{given}127.0.0.1:{proxy.port}")
        with pytest.raises(NoProxy, match="407"):
            await ask(client, "https://model.test/v1")
        assert await read(client, "http://model.test/v1") == (407, b"no")
        async with asking("https://model.test/v1") as model:
            with pytest.raises(
                ModelUnreachable, match=r"model\.test cannot be reached: the proxy 127.*\(407\).*NO_PROXY"
            ) as caught:
                await model.reply(PROMPT, RecordingListener())
        async with asking("http://model.test/v1") as model:
            with pytest.raises(
                ModelRejected, match=r"model\.test cannot be reached: the proxy .*\(407\)"
            ) as also_caught:
                await model.reply(PROMPT, RecordingListener())
        await client.close()
        await proxy.all_gone()
    for text in (str(caught.value), str(also_caught.value), caplog.text):
        assert "secret" not in text
        assert "us@er" not in text
        assert "us%40er" not in text
        assert KEY not in text


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_not_there(client, environment, scheme):
    environment("ALL_PROXY", f"http://{QUOTED}@127.0.0.1:{unused_port()}")
    with pytest.raises(NoProxy, match=r"the proxy 127\.0\.0\.1:\d+ cannot be reached") as caught:
        await ask(client, f"{scheme}://model.test/v1")
    assert "secret" not in str(caught.value)
    async with asking(f"{scheme}://model.test/v1") as model:
        with pytest.raises(ModelUnreachable, match="Check HTTPS_PROXY") as caught:
            await model.reply(PROMPT, RecordingListener())
    assert "secret" not in str(caught.value)


async def test_a_proxy_that_says_nothing(environment):
    async def silent(peer: Peer) -> None:
        await peer.gone.wait()

    client = Client({}, 0.2)
    async with Peers(silent) as proxy:
        environment("ALL_PROXY", f"http://{QUOTED}@127.0.0.1:{proxy.port}")
        with pytest.raises(NoProxy, match=r"nothing came through the proxy 127\.0\.0\.1:\d+ within 0\.2 s") as caught:
            await ask(client, "https://model.test/v1")
        assert "secret" not in str(caught.value)
        await client.close()


@pytest.mark.parametrize("proxy", ["http://no-such-proxy.invalid:3128", "http://no..such:1"])
async def test_an_unknown_proxy_host(client, environment, proxy):
    environment("ALL_PROXY", proxy)
    with pytest.raises(NoProxy, match="cannot be reached"):
        await ask(client, "https://model.test/v1")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "http://[::1", "http://", "http://h:port"])
async def test_an_unsupported_proxy_url_is_refused(client, environment, proxy):
    environment("ALL_PROXY", proxy)
    with pytest.raises(NoProxy, match="must begin with http"):
        await ask(client, "https://model.test/v1")
    async with asking("https://model.test/v1") as model:
        with pytest.raises(ModelUnreachable, match=r"model\.test cannot be reached"):
            await model.reply(PROMPT, RecordingListener())


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 2", b"SSH-2.0-x\r\n\r\n", ESTABLISHED, ESTABLISHED + b"HTTP/1.1 400 Bad\r\n\r\n"]
)
@pytest.mark.parametrize("end", ["close", "reset", None])
async def test_a_proxy_that_fails_in_the_middle(environment, sent, end):
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(sent)
        await (peer.gone.wait() if end is None else asyncio.sleep(0))
        getattr(peer, end or "close")()

    client = Client({}, 0.1)
    async with Peers(script) as proxy:
        environment("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises((NoProxy, NoConnection, NoTrust)):
            await ask(client, "https://model.test/v1")
        await proxy.all_gone()
    await client.close()


@pytest.mark.parametrize("exception", ["model.test", "*", ".test", "other.test, model.test"])
async def test_hosts_that_are_asked_directly(environment, exception):
    client = Client({}, 5.0, resolve=to_loopback)
    environment("ALL_PROXY", f"http://127.0.0.1:{unused_port()}")
    environment("NO_PROXY", exception)
    async with Peers(answers(OK)) as peers:
        assert await read(client, f"http://model.test:{peers.port}/") == (200, b"Hi")
        await client.close()


async def test_a_client_that_asks_no_proxy(environment):
    client = Client({}, 5.0, resolve=to_loopback, proxied=False)
    environment("ALL_PROXY", f"http://127.0.0.1:{unused_port()}")
    async with Peers(answers(OK)) as peers:
        assert await read(client, f"http://model.test:{peers.port}/") == (200, b"Hi")
        await client.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_this_machine_is_asked_directly(environment, host):
    environment("ALL_PROXY", "http://proxy.test:3128")
    assert proxy_for(f"http://{host}:8000/v1") is None
    assert proxy_for("http://model.test/v1") == "http://proxy.test:3128"


def test_each_scheme_has_its_own_proxy(environment):
    environment("HTTP_PROXY", "http://one.test:1")
    environment("https_proxy", "http://two.test:2")
    assert proxy_for("http://model.test/") == "http://one.test:1"
    assert proxy_for("https://model.test/") == "http://two.test:2"


@pytest.mark.parametrize("secure", [True, False])
async def test_a_proxy_that_is_secure_itself(client, trusted, environment, secure):
    """TLS inside TLS, where the model is asked securely too."""
    passing = Passing(USER)
    server = trusted.server()
    async with Peers(answers(OK), ssl=server if secure else None) as peers, Peers(passing, ssl=server) as proxy:
        environment("ALL_PROXY", f"https://{QUOTED}@localhost:{proxy.port}")
        url = peers.url.replace("127.0.0.1", "model.test")
        body = bytes(range(250)) * 1000
        for _ in range(2):
            assert await read(client, url, body) == (200, b"Hi")
        assert peers.requests[1].endswith(body)
        assert (proxy.connections, peers.connections) == (1, 1)
        await client.close()
        await proxy.all_gone()


async def test_a_proxy_with_an_untrusted_certificate_is_refused(client, authority, environment):
    async with Peers(Passing(), ssl=authority.server()) as proxy:
        environment("ALL_PROXY", f"https://localhost:{proxy.port}")
        with pytest.raises(NoProxy):
            await ask(client, "https://model.test/v1")


async def test_an_untrusted_endpoint_behind_a_proxy_is_refused(client, authority, environment):
    async with Peers(answers(OK), ssl=authority.server()) as peers, Peers(Passing()) as proxy:
        environment("ALL_PROXY", f"http://localhost:{proxy.port}")
        with pytest.raises(NoTrust, match="certificate"):
            await ask(client, f"https://model.test:{peers.port}/v1")
        await proxy.all_gone()


@pytest.mark.parametrize("sent", [b"", ESTABLISHED], ids=["CONNECT", "handshake"])
async def test_cancelling_on_the_way_ends_the_connection(client, environment, sent):
    there = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(sent)
        if sent:
            await peer.reader.read(1)  # the handshake has begun
        there.set()
        await peer.gone.wait()

    async with Peers(script) as proxy:
        environment("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        task = asyncio.create_task(ask(client, "https://model.test/v1"))
        await there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await proxy.all_gone()


async def test_a_whole_answer_of_a_model_through_a_tunnel(trusted, environment):
    async with Peers(answers(chat()), ssl=trusted.server()) as peers, Peers(Passing(USER)) as proxy:
        environment("HTTPS_PROXY", f"http://{QUOTED}@127.0.0.1:{proxy.port}")
        async with asking(f"https://model.test:{peers.port}/v1") as model:
            reply = await model.reply(PROMPT, RecordingListener())
            await model.reply(PROMPT, RecordingListener())
        assert reply.text == "Hello"
        assert proxy.connections == 1


async def test_requests_with_and_without_a_proxy_share_no_connection(environment):
    client = Client({}, 5.0, resolve=to_loopback)
    async with Peers(answers(OK)) as peers, Peers(Passing()) as proxy:
        assert await read(client, f"http://model.test:{peers.port}/a") == (200, b"Hi")
        environment("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert await read(client, f"http://model.test:{peers.port}/b") == (200, b"Hi")
        assert (proxy.connections, peers.connections) == (1, 2)
        await client.close()


async def test_no_error_on_the_way_is_anything_but_an_http_error(environment):
    """Whatever the order in which proxy and time run out."""
    client = Client({}, 0.001)
    async with Peers(Passing()) as proxy:
        environment("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        for _ in range(10):
            with pytest.raises(HttpError):
                await ask(client, f"https://model.test:{unused_port()}/v1")
    await client.close()
