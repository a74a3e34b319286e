"""What a request says: its line, its headers, its length; and what none may say."""

import asyncio

import pytest

from holodeck.errors import ModelRejected
from holodeck.http.address import address_of
from holodeck.http.client import Client
from holodeck.http.failures import HttpError, NoHost, Unsendable
from tests.http.peers import OK, Peer, Peers, answers
from tests.http.reading import ask, read
from tests.models.asking import KEY, PROMPT, asking
from tests.models.recording_listener import RecordingListener

ON_ONE_LOOP = pytest.mark.asyncio(loop_factories=["uvloop"])  # where no loop makes a difference


async def sent(headers: dict[str, str], path: str = "", body: bytes = b"{}") -> list[str]:
    """The lines of a request's head, as a server got them."""
    client = Client(headers, 5.0)
    async with Peers(answers(OK)) as peers:
        await read(client, peers.url + path, body)
        await client.close()
    head = peers.requests[0].partition(b"\r\n\r\n")[0].decode("latin-1")
    return head.replace(str(peers.port), "PORT").split("\r\n")


async def test_a_request():
    assert await sent({}) == [
        "POST /v1 HTTP/1.1",
        "Host: 127.0.0.1:PORT",
        "Accept-Encoding: identity",
        "User-Agent: holodeck",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        "Content-Length: 2",
    ]


async def test_an_empty_body_has_a_length_too():
    assert "Content-Length: 0" in await sent({}, body=b"")


async def test_a_get_has_no_body(client):
    async with Peers(answers(OK)) as peers:
        async with client.get(peers.url) as response:
            await response.read_into(lambda _: False)
        assert peers.requests[0].startswith(b"GET /v1 HTTP/1.1\r\n")
        assert b"content" not in peers.requests[0].lower()


@ON_ONE_LOOP
async def test_users_headers_win_whatever_their_case():
    lines = await sent({"user-agent": "mine", "ACCEPT": "*/*", "content-type": "x/y", "X-Key": "ä\t1"})
    assert [line for line in lines if line.lower().startswith(("user-agent", "accept:", "content-type"))] == [
        "user-agent: mine",
        "content-type: x/y",
        "ACCEPT: */*",
    ]
    assert "X-Key: ä\t1".encode().decode("latin-1") in lines


@ON_ONE_LOOP
async def test_values_of_any_language_are_sent_in_utf8():
    assert "X-Team: 東京, Müller".encode().decode("latin-1") in await sent({"X-Team": "東京, Müller"})


@ON_ONE_LOOP
async def test_of_a_users_own_headers_in_two_cases_the_last_is_sent():
    lines = await sent({"X-Key": "1", "x-key": "2"})
    assert [line for line in lines if line.lower().startswith("x-key")] == ["x-key: 2"]


@ON_ONE_LOOP
@pytest.mark.parametrize("name", ["Content-Length", "content-length", "Transfer-Encoding", "CONNECTION"])
async def test_framing_is_not_the_users_to_say(name):
    lines = await sent({name: "7"})
    assert [line for line in lines if line.lower().startswith(name.lower())] == (
        ["Content-Length: 2"] if name.lower() == "content-length" else []
    )


UNSENDABLE = {
    "line feed": {"X-A": "a\nX-B: b"},
    "return": {"X-A": "a\rb"},
    "both": {"X-A": "a\r\n\r\nGET / HTTP/1.1"},
    "null": {"X-A": "a\0b"},
    "delete": {"X-A": "a\x7f"},
    "escape": {"X-A": "\x1b[31m"},
    "half a character": {"X-A": "\ud800"},
    "name with a line": {"X-A: 1\r\nX-B": "b"},
    "name with a colon": {"X-A:": "b"},
    "name with a blank": {"X A": "b"},
    "length with a blank": {"Content-Length ": "7"},
    "length with a tab": {"Transfer-Encoding\t": "chunked"},
    "name with an umlaut": {"X-Ä": "b"},
    "no name": {"": "b"},
}


@ON_ONE_LOOP
@pytest.mark.parametrize("what", UNSENDABLE)
async def test_headers_that_would_break_the_head_are_refused(what):
    client = Client(UNSENDABLE[what], 5.0)
    async with Peers(answers(OK)) as peers:
        for exchange in (client.post(peers.url, b"{}"), client.get(peers.url)):
            with pytest.raises(Unsendable):
                await exchange.__aenter__()
        assert peers.connections == 0
    await client.close()


@ON_ONE_LOOP
@pytest.mark.parametrize("what", ["half a character", "both"])  # settings refuse a name with a blank
async def test_a_model_says_that_it_cannot_be_asked_so(what):
    async with Peers(answers(OK)) as peers, asking(peers.url, headers=UNSENDABLE[what]) as model:
        with pytest.raises(ModelRejected, match=r"the header 'X.A' contains") as caught:
            await model.reply(PROMPT, RecordingListener())
        assert model.pauses == []
        assert KEY not in str(caught.value)
        with pytest.raises(ModelRejected):
            await model.check()
        assert peers.connections == 0


TARGETS = {
    "": "/v1",
    "/chat": "/v1/chat",
    "/a b": "/v1/a%20b",
    "/ü": "/v1/%C3%BC",
    "/%C3%BC%20": "/v1/%C3%BC%20",
    "/a%2Fb": "/v1/a%2Fb",
    "?api-version=2024-10-21&x=a b": "/v1?api-version=2024-10-21&x=a%20b",
    "/x?q=ü&r=%26": "/v1/x?q=%C3%BC&r=%26",
    "/x#fragment": "/v1/x",
    "/x?": "/v1/x",
    "/\x7f": "/v1/%7F",
    '/a"b<c>{d}|\\^`': "/v1/a%22b%3Cc%3E%7Bd%7D%7C%5C%5E%60",
    "/models/gpt:4@x,y;z=1": "/v1/models/gpt:4@x,y;z=1",
}


@ON_ONE_LOOP
@pytest.mark.parametrize("path", TARGETS)
async def test_paths_and_queries(path):
    assert (await sent({}, path))[0] == f"POST {TARGETS[path]} HTTP/1.1"


@pytest.mark.parametrize(
    ("url", "host", "port", "authority"),
    [
        ("http://example.com", "example.com", 80, "example.com"),
        ("https://example.com:443/x", "example.com", 443, "example.com"),
        ("https://example.com:80/x", "example.com", 80, "example.com:80"),
        ("http://EXAMPLE.com:8080", "example.com", 8080, "example.com:8080"),
        ("http://bücher.example/", "xn--bcher-kva.example", 80, "xn--bcher-kva.example"),
        ("http://faß.example/", "xn--fa-hia.example", 80, "xn--fa-hia.example"),  # not fass, which is another's
        ("http://[::1]:8080/", "::1", 8080, "[::1]:8080"),
        ("https://[2001:db8::1]/", "2001:db8::1", 443, "[2001:db8::1]"),
    ],
)
def test_hosts(url, host, port, authority):
    address = address_of(url)
    assert (address.host, address.port, address.authority) == (host, port, authority)


@ON_ONE_LOOP
@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com",
        "http://",
        "http:///path",
        "http://host:port/",
        "http://host:99999/",
        "http://[::1/",
        "http://host]/",
        "http://\u2100.example/",
        "http://" + "ü" * 70 + "/",
        "http://ü..example/",
        "http://host/\ud800",
    ],
)
async def test_an_invalid_url_is_refused(client, url):
    with pytest.raises(Unsendable):
        await ask(client, url)


@ON_ONE_LOOP
@pytest.mark.parametrize("url", ["http://a\0b/", "http://a\x01b/", "http://a\x7fb/"])
async def test_a_host_with_control_characters_is_refused(client, url):
    with pytest.raises(Unsendable):
        await ask(client, url)


@pytest.mark.parametrize("host", ["a b", "a..b", "x" * 70, "-", "%00"])
async def test_a_host_that_there_cannot_be(client, host):
    with pytest.raises((NoHost, Unsendable)):
        await ask(client, f"http://{host}.invalid/")


async def test_ipv6(client):
    async with Peers(answers(OK), host="::1") as peers:
        assert await read(client, peers) == (200, b"Hi")
        assert f"Host: [::1]:{peers.port}\r\n".encode() in peers.requests[0]


async def test_a_name_with_two_addresses_of_which_one_answers(client):
    async with Peers(answers(OK)) as peers:  # on IPv4 only
        assert await read(client, f"http://localhost:{peers.port}/") == (200, b"Hi")


BIG = b"x" * 20_000_000


async def test_a_large_body_arrives_whole(client):
    async with Peers(answers(OK)) as peers:
        assert await read(client, peers, BIG) == (200, b"Hi")
        assert peers.requests[0].endswith(b"\r\n\r\n" + BIG)


TOO_LARGE = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno"


async def test_an_answer_before_all_was_sent_is_read_and_the_connection_not_used_again(client):
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.writer.transport.pause_reading()
        await peer.say(TOO_LARGE)
        await read_it.wait()
        peer.writer.transport.resume_reading()
        await peer.gone.wait()

    read_it = asyncio.Event()
    async with Peers(script) as peers:
        for number in (1, 2):
            assert await read(client, peers, BIG) == (413, b"no")
            assert peers.connections == number
        read_it.set()
        await peers.all_gone()


async def test_an_early_refusal_that_ends_with_the_connection(client):
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.say(TOO_LARGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        peer.writer.write_eof()
        while await peer.reader.read(2**16):
            pass  # as servers do that want their answer to be read

    async with Peers(script) as peers:
        assert await read(client, peers, BIG) == (413, b"no")
        await peers.all_gone()


async def test_an_early_end_in_the_middle_of_a_request_is_typed(client):
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.reset()

    async with Peers(script) as peers:
        with pytest.raises(HttpError):
            await read(client, peers, BIG)
