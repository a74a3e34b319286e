"""The HTTP server with small applications: what it reads, what it writes, and when. On both event loops."""

import asyncio
import contextvars
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise, takewhile
from typing import Any

import h11
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holodeck.config.limit_schema import RequestLimits
from holodeck.server.connection import CONNECTION, NOT_COPIED, ConnectionLimit
from holodeck.server.listen import bind, bind_unix
from holodeck.server.protocol import HELD_SECONDS, MAX_UNREAD, HttpServer, ServerConnection, ServerExchange
from tests.examples import examples
from tests.server.serving import PATIENCE, until

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
MB = 1024 * 1024


async def body_of(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body += message["body"]
        if not message["more_body"]:
            return body


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says what it was asked, in chunks."""
    body = await body_of(receive)
    seen = {
        "method": scope["method"],
        "target": scope["raw_path"].decode() + ("?" + scope["query_string"].decode() if scope["query_string"] else ""),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": body.decode("latin-1"),
    }
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(seen).encode(), "more_body": True})
    await send({"type": "http.response.body"})


def answer(*pieces: bytes, status: int = 200, headers: Any = ()) -> Any:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})

    return app


class Fake:
    """A transport whose client is the test."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = self.is_ended = self.is_paused = False

    def write(self, data: bytes) -> None:
        assert not self.is_ended
        if data and not self.is_closed:
            self.written.append(bytes(data))

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("192.0.2.1", 1), "sockname": ("192.0.2.2", 80)}.get(name)

    @property
    def all(self) -> bytes:
        return b"".join(self.written)


def server_of(app: Any, **limits: Any) -> HttpServer:
    return HttpServer(app, RequestLimits(**limits), ConnectionLimit(1000, lambda _: None))


@asynccontextmanager
async def faked(app: Any, **limits: Any) -> AsyncIterator[tuple[ServerConnection, Fake]]:
    server = server_of(app, **limits)
    connection, transport = ServerConnection(server, asyncio.get_running_loop()), Fake()
    connection.connection_made(transport)  # type: ignore[arg-type]
    try:
        yield connection, transport
    finally:
        connection.connection_lost(None)
        if server.tasks:
            await asyncio.wait(server.tasks)
        await asyncio.sleep(0)


@asynccontextmanager
async def listening(app: Any, **limits: Any) -> AsyncIterator[tuple[HttpServer, int]]:
    server, listener = server_of(app, **limits), bind("127.0.0.1", 0)
    await server.listen([listener])
    try:
        yield server, listener.getsockname()[1]
    finally:
        await server.stop(0)
        listener.close()


async def answers_to(port: int, sent: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    received = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    return received


async def settle() -> None:
    """All that follows without a timer happens in fewer iterations."""
    for _ in range(30):
        await asyncio.sleep(0)


# What is read

REQUESTS = (
    b"POST /a%2Fb?c=d HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nx-two: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;name=value\r\nabc\r\n1\r\nd\r\n0\r\nX-Late: 1\r\n\r\n"
    b"\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
)
SEEN = [("POST", "/a%2Fb?c=d", "abcd"), ("GET", "/", ""), ("PUT", "/x", "hello")]


def answers_in(received: bytes, methods: list[bytes]) -> list[tuple[int, bytes]]:
    """As h11 reads them. Whatever it refuses raises."""
    client = h11.Connection(h11.CLIENT)
    found: list[tuple[int, bytes]] = []
    client.receive_data(received)
    for method in methods:
        client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"a")]))
        client.send(h11.EndOfMessage())
        status, body = 0, b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                assert isinstance(event, h11.InformationalResponse), event
        found.append((status, body))
        if client.our_state is h11.DONE and client.their_state is h11.DONE:
            client.start_next_cycle()
    return found


@pytest.mark.req("T32")
@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_requests_cut_into_pieces_of_any_size_are_the_same(size: int) -> None:
    async with faked(echo) as (connection, transport):
        for start in range(0, len(REQUESTS), size):
            connection.data_received(REQUESTS[start : start + size])
            await settle()
        seen = [json.loads(body) for _, body in answers_in(transport.all, [b"POST", b"GET", b"PUT"])]
        assert [(each["method"], each["target"], each["body"]) for each in seen] == SEEN
        assert seen[0]["headers"] == [["host", "a"], ["x-two", "1"], ["x-two", "2"], ["transfer-encoding", "chunked"]]
        assert transport.is_closed


@pytest.mark.req("T32")
async def test_requests_cut_at_any_byte_are_the_same() -> None:
    for cut in range(len(REQUESTS)):
        async with faked(echo) as (connection, transport):
            connection.data_received(REQUESTS[:cut])
            await settle()
            connection.data_received(REQUESTS[cut:])
            await settle()
            seen = [json.loads(body) for _, body in answers_in(transport.all, [b"POST", b"GET", b"PUT"])]
            assert [(each["method"], each["target"], each["body"]) for each in seen] == SEEN, cut


tokens = st.text("abcXYZ-_09", min_size=1, max_size=8).map(str.encode)
values = st.text("abc ,;=\xe9", max_size=12).map(lambda text: text.strip().encode("latin-1"))
bodies = st.binary(max_size=40)


@st.composite
def request_bytes(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS"]))
    target = draw(st.sampled_from([b"/", b"/a/b", b"/a%20b?x=1&y=%2F", b"/x?"]))
    headers = [(b"Host", b"a"), *draw(st.lists(st.tuples(tokens.map(lambda name: b"X-" + name), values), max_size=4))]
    body, framing = draw(bodies), draw(st.sampled_from(["none", "length", "chunks"]))
    if framing == "length":
        headers.append((b"Content-Length", b"%d" % len(body)))
        framed = body
    elif framing == "chunks":
        headers.append((b"Transfer-Encoding", b"chunked"))
        cut = draw(st.integers(0, len(body)))
        chunks = [b"%x\r\n%b\r\n" % (len(each), each) for each in (body[:cut], body[cut:]) if each]
        framed = b"".join(chunks) + b"0\r\n" + draw(st.sampled_from([b"", b"X-Late: 1\r\n"])) + b"\r\n"
    else:
        framed = b""
    return b"\r\n".join([b"%b %b HTTP/1.1" % (method, target), *(b"%b: %b" % each for each in headers), b"", framed])


def as_h11_reads(data: bytes, most: int = 3) -> list[dict[str, Any]]:
    """The complete requests until one is refused."""
    found: list[dict[str, Any]] = []
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    server.receive_data(data)
    with suppress(h11.RemoteProtocolError):
        while len(found) < most:
            request, body = server.next_event(), b""
            if not isinstance(request, h11.Request):
                return found
            while isinstance(event := server.next_event(), h11.Data):
                body += bytes(event.data)
            if not isinstance(event, h11.EndOfMessage):
                return found
            headers = [[name.decode(), value.decode("latin-1")] for name, value in request.headers]
            target = request.target.decode().removesuffix("?")
            found.append(
                {
                    "method": request.method.decode(),
                    "target": target,
                    "headers": headers,
                    "body": body.decode("latin-1"),
                }
            )
            if server.their_state is not h11.DONE:
                return found
            server.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
            server.send(h11.EndOfMessage())
            server.start_next_cycle()
    return found


async def as_we_read(pieces: list[bytes]) -> tuple[list[dict[str, Any]], bytes]:
    """The requests that the application has seen whole, and all that the server wrote."""
    seen: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with suppress(ConnectionError):
            body = await body_of(receive)
            query = b"?" + scope["query_string"] if scope["query_string"] else b""
            headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
            target = (scope["raw_path"] + query).decode()
            seen.append(
                {"method": scope["method"], "target": target, "headers": headers, "body": body.decode("latin-1")}
            )
            await answer(b"ok")(scope, receive, send)

    async with faked(app) as (connection, transport):
        for piece in pieces:
            if not transport.is_closed:
                connection.data_received(piece)
            await settle()
        return seen, transport.all


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.req("T32")
@given(requests=st.lists(request_bytes(), min_size=1, max_size=3), places=st.lists(st.integers(0, 1000), max_size=6))
def test_requests_are_read_as_h11_reads_them(requests: list[bytes], places: list[int]) -> None:
    data = b"".join(requests)
    seen, received = asyncio.run(as_we_read(cut(data, places)))
    assert seen == as_h11_reads(data)
    assert len(seen) == len(requests)
    assert answers_in(received, [each["method"].encode() for each in seen]) == [(200, b"ok")] * len(requests)


@pytest.mark.req("T32")
@examples(200)
@given(
    request=request_bytes(),
    changes=st.lists(st.tuples(st.integers(0, 400), st.sampled_from(list(b"\r\n\t\0 :;,=+-0x1aG\xff"))), max_size=3),
    places=st.lists(st.integers(0, 400), max_size=3),
)
def test_what_is_accepted_of_damaged_requests_is_what_h11_accepts(
    request: bytes, changes: list[tuple[int, int]], places: list[int]
) -> None:
    """Ours may refuse what h11 reads. What both read is the same: method, target, headers and body."""
    damaged = bytearray(request)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    assume(b"  " not in damaged.partition(b"\r\n")[0])  # read as one blank, as RFC 9112, 3, allows; h11 does not
    data = bytes(damaged) + GET
    seen, received = asyncio.run(as_we_read(cut(data, places)))
    theirs = as_h11_reads(data)
    statuses = [int(each) for each in re.findall(rb"(?:^|ok|\r\n\r\n)HTTP/1.1 (\d+) ", received)]
    assert all(status in (200, 400, 413, 431, 501, 505) for status in statuses)
    known = list(
        takewhile(lambda each: [name for name, _ in each["headers"]].count("host") == 1, seen)
    )  # as the guard wants
    assert known == theirs[: len(known)]


@pytest.mark.req("T32")
async def test_blanks_around_a_value_are_not_part_of_it() -> None:
    async with faked(echo) as (connection, transport):
        connection.data_received(
            b"POST / HTTP/1.1\r\nHost:\ta \r\nExpect: 100-continue \r\nX:\ta b\t \r\nContent-Length: 1 \t\r\n\r\n"
        )
        await settle()
        assert transport.all == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.data_received(b"x")
        await settle()
        ((_, body),) = answers_in(transport.all, [b"POST"])
        assert json.loads(body)["headers"] == [
            ["host", "a"],
            ["expect", "100-continue"],
            ["x", "a b"],
            ["content-length", "1"],
        ]


# What the application gets


@pytest.mark.parametrize("family", ["tcp", "unix"])
async def test_the_scope_is_as_asgi_describes_it(family: str, tmp_path: Any) -> None:
    scopes: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await answer(b"")(scope, receive, send)

    server = server_of(app)
    path = str(tmp_path / "s")
    listener = bind_unix(path) if family == "unix" else bind("127.0.0.1", 0)
    await server.listen([listener])
    reader, writer = await (
        asyncio.open_unix_connection(path)
        if family == "unix"
        else asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
    )
    own = writer.get_extra_info("sockname")
    writer.write(b"GET /a%20b/%C3%A9?q=%20#f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    (scope,) = scopes
    assert isinstance(scope.pop("extensions")[CONNECTION], ServerExchange)
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/a b/é",
        "raw_path": b"/a%20b/%C3%A9",
        "query_string": b"q=%20",
        "root_path": "",
        "headers": [(b"host", b"a"), (b"connection", b"close")],
        "client": own[:2] if family == "tcp" else None,
        "server": ("127.0.0.1", listener.getsockname()[1]) if family == "tcp" else (path, None),
    }
    await server.stop(1)
    listener.close()


async def test_the_end_of_an_exchange_is_a_disconnect() -> None:
    received: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(b"ok")(scope, receive, send)
        received.append((await receive())["type"])

    async with listening(app) as (_, port):
        await answers_to(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await until(lambda: received == ["http.disconnect"])


@pytest.mark.parametrize("sent", [GET, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"])
async def test_a_client_that_leaves_is_a_disconnect_for_all_that_wait(sent: bytes) -> None:
    received: list[str] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        async def rest() -> None:
            while (message := await receive())["type"] != "http.disconnect":
                assert message["body"] in (b"", b"abc")
            received.append(message["type"])

        await asyncio.gather(rest(), rest())

    async with listening(app) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await until(lambda: server.tasks)
        writer.transport.abort()
        await until(lambda: len(received) == 2)


async def test_a_request_whose_client_left_before_it_began_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holodeck.server.protocol.STARTED_AT_ONCE", 0)  # it waits
    begun: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        begun.append(scope)

    async with faked(app) as (connection, _):
        connection.data_received(GET)
        starts = connection.server.starts
        assert len(starts._waiting) == 1
        connection.connection_lost(None)
        monkeypatch.undo()
        starts._next_turn()
        await settle()
        assert begun == []
        connection.connection_made(Fake())  # type: ignore[arg-type]  # `faked` ends it again


async def test_each_request_has_a_context_of_its_own() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nothing")
    found: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(variable.get())
        variable.set("something")
        await answer(b"")(scope, receive, send)

    variable.set("of the server")
    async with listening(app) as (_, port):
        await answers_to(port, GET * 2 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert found == ["nothing"] * 3


async def test_a_body_that_the_application_does_not_read_stays_in_the_kernel() -> None:
    reads, size = asyncio.Event(), 8 * MB
    bodies: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await reads.wait()
        bodies.append(len(await body_of(receive)))
        await answer(b"")(scope, receive, send)

    async with listening(app) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % size + b"x" * size)
        await until(lambda: any(each.read_paused for each in server.connections))
        (connection,) = server.connections
        reading = connection._reading
        assert reading is not None
        assert MAX_UNREAD < len(reading.body) < MB
        reads.set()
        assert (await asyncio.wait_for(reader.read(), PATIENCE)).startswith(b"HTTP/1.1 200")
        assert bodies == [size]
        writer.close()


@pytest.mark.parametrize("arrives", ["whole", "in two reads"])
async def test_after_a_large_body_that_the_application_does_not_read_the_next_request_is_read(arrives: str) -> None:
    async with faked(answer(b"ok")) as (connection, transport):
        request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (2 * MAX_UNREAD) + b"x" * (
            2 * MAX_UNREAD
        )
        places = [] if arrives == "whole" else [len(request) - 1]
        for piece in cut(request, places):
            connection.data_received(piece)
            await settle()
        assert not transport.is_paused
        connection.data_received(GET)
        await settle()
        assert answers_in(transport.all, [b"POST", b"GET"]) == [(200, b"ok")] * 2


# What is refused

CHUNKED = b"POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
INVALID = {
    "no request": b"\0\r\n\r\n",
    "an invalid header": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "another coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
    "an invalid chunk": CHUNKED + b"x\r\n",
}


@pytest.mark.req("T32")
@pytest.mark.parametrize("line", [b"GET /", b"GET /:HTTP/1.1", b"GET / HTTP/0.9", b"GET / HTTP/2.0"])
async def test_a_request_of_another_version_is_a_505(line: bytes) -> None:
    async with faked(echo) as (connection, transport):
        connection.data_received(line + b"\r\nHost: a\r\n\r\n" + GET)
        await settle()
        assert [status for status, _ in answers_in(transport.all, [b"GET"])] == [505]
        assert transport.is_ended


@pytest.mark.req("T32")
@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"identity"])
async def test_an_upgrade_with_a_coding_other_than_chunked_is_a_501(coding: bytes) -> None:
    async with faked(echo) as (connection, transport):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: %b\r\n\r\n"
        connection.data_received(head % coding + b"0\r\n\r\n" + GET)
        await settle()
        assert [status for status, _ in answers_in(transport.all, [b"POST"])] == [501]
        assert transport.is_ended


@pytest.mark.req("T32")
@pytest.mark.parametrize("invalid", INVALID.values(), ids=INVALID)
@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("is_started", [False, True])
async def test_the_requests_before_an_invalid_one_get_their_own_answers(
    invalid: bytes, before: int, *, is_started: bool
) -> None:
    gate, seen = asyncio.Event(), []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        seen.append(scope["raw_path"])
        if not is_started:
            await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await gate.wait()
        await send({"type": "http.response.body", "body": b"b"})

    async with faked(app) as (connection, transport):
        connection.data_received(GET * before)
        await settle()
        connection.data_received(invalid)
        connection.data_received(GET)
        await settle()
        gate.set()
        await settle()
        assert answers_in(transport.all, [b"GET"] * before) == [(200, b"ab")] * before
        assert seen == [b"/"] * before
        assert transport.is_closed


@pytest.mark.req("T32")
@pytest.mark.parametrize("is_complete", [False, True])
async def test_an_invalid_chunk_behind_an_early_answer_is_not_answered_again(*, is_complete: bool) -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"early", "more_body": not is_complete})
        while (await receive())["type"] != "http.disconnect":
            pass

    async with faked(app) as (connection, transport):
        connection.data_received(CHUNKED)
        await settle()
        connection.data_received(b"x\r\n" + GET)
        await settle()
        assert transport.all.count(b"HTTP/1.1 ") == 1
        assert transport.is_closed or transport.is_ended


@pytest.mark.req("T32")
async def test_an_invalid_chunk_before_an_answer_is_a_400_and_a_disconnect_for_the_application() -> None:
    received: list[str] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        received.append((await receive())["type"])

    async with faked(app) as (connection, transport):
        connection.data_received(CHUNKED)
        await settle()
        connection.data_received(b"x\r\n" + GET)
        await settle()
        assert [status for status, _ in answers_in(transport.all, [b"POST"])] == [400]
        assert received == ["http.disconnect"]
        assert transport.is_ended


# How long a head may take


@pytest.mark.req("T17")
@pytest.mark.parametrize("before", [b"", GET])
async def test_a_head_that_has_arrived_in_pieces_has_no_deadline_any_more(before: bytes) -> None:
    gate, seconds = asyncio.Event(), 0.05

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["raw_path"] == b"/long":
            await gate.wait()
        await answer(b"ok")(scope, receive, send)

    async with faked(app, head_seconds=seconds, idle_seconds=seconds) as (connection, transport):
        connection.data_received(before)
        await settle()
        connection.data_received(b"GET /long HTTP/1.1\r\nHo")
        await settle()
        connection.data_received(b"st: a\r\n\r\n")
        await asyncio.sleep(2 * seconds)  # a deadline that was still there would end before this
        gate.set()
        await settle()
        methods = [b"GET"] * (2 if before else 1)
        assert answers_in(transport.all, methods) == [(200, b"ok")] * len(methods)
        assert not transport.is_closed


@pytest.mark.req("T17")
async def test_the_first_byte_of_a_connection_does_not_win_time_and_that_of_a_later_request_does() -> None:
    async with faked(echo, head_seconds=10, idle_seconds=600) as (connection, _):

        def deadline() -> float:
            assert connection._deadline is not None
            return connection._deadline.when()

        accepted = deadline()
        await asyncio.sleep(0.01)  # the clock of some loops has a resolution of a millisecond
        connection.data_received(b"G")
        assert deadline() == accepted
        connection.data_received(GET[1:])
        await settle()
        idle = deadline()
        assert idle > accepted + 500
        connection.data_received(b"G")
        assert accepted < deadline() < idle


# What is written


@pytest.mark.parametrize("continues", [False, True])
async def test_100_continue_is_sent_when_the_application_reads_the_body(*, continues: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if continues:
            await body_of(receive)
        await answer(b"ok")(scope, receive, send)

    async with listening(app) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert first.startswith(b"HTTP/1.1 100 Continue\r\n" if continues else b"HTTP/1.1 200 OK\r\n")
        if continues:
            writer.write(b"{}")
            assert (await asyncio.wait_for(reader.readline(), PATIENCE)).startswith(b"HTTP/1.1 200 OK")
        writer.close()


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("status", [200, 204, 304, 599])
@pytest.mark.parametrize("headers", [[], [(b"Content-Length", b"4")], [(b"Transfer-Encoding", b"chunked")]])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_every_answer_is_framed_as_its_client_expects(
    method: bytes, status: int, headers: Any, version: bytes
) -> None:
    has_body = method == b"GET" and status not in (204, 304)
    app = answer(b"ab", b"cd", status=status, headers=headers)
    async with faked(app) as (connection, transport):
        connection.data_received(b"%b / HTTP/%b\r\nHost: a\r\n\r\n" % (method, version))
        await settle()
        head, _, body = transport.all.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert (b"content-length: 4" in head.lower()) == (headers[:1] == [(b"Content-Length", b"4")])
        chunked = b"transfer-encoding" in head.lower()
        assert chunked == (has_body and version == b"1.1" and b"content-length" not in head.lower())
        assert transport.is_closed == (b"connection: close" in head) == (version == b"1.0")
        assert body == (b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n" if chunked else b"abcd" if has_body else b"")
        assert re.search(rb"\r\ndate: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT(\r\n|$)", head)
        if version == b"1.1":  # the next request is understood
            connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await settle()
            assert transport.all.count(b"HTTP/1.1 %d " % status) == 2


@pytest.mark.parametrize(
    "app",
    [
        answer(b"ok", headers=[(b"x", b"a\r\nSet-Cookie: b")]),
        answer(b"ok", headers=[(b"x: y\r\nz", b"a")]),
        answer(b"ok", headers=[(b"", b"a")]),
    ],
)
async def test_a_header_that_would_be_two_is_not_sent(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(app) as (_, port):
        received = await answers_to(port, GET)
    assert received.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"ookie" not in received
    assert "invalid header" in caplog.text


@pytest.mark.parametrize(("pieces", "length"), [((b"abc",), b"2"), ((b"abc", b"d"), b"3"), ((b"ab",), b"3")])
async def test_a_body_that_is_not_as_long_as_it_says_ends_the_connection(
    pieces: tuple[bytes, ...], length: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(answer(*pieces, headers=[(b"content-length", length)])) as (_, port):
        received = await answers_to(port, GET * 2)
    assert received.count(b"HTTP/1.1") == 1
    assert "not as long" in caplog.text


async def test_an_application_that_fails_before_its_answer_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(*_: Any) -> None:
        raise ValueError("a defect")

    async def silent(*_: Any) -> None:
        pass

    for app in (fails, silent):
        async with listening(app) as (_, port):
            received = await answers_to(port, GET)
        assert received.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert json.loads(received.partition(b"\r\n\r\n")[2])["type"].endswith("/internal-error")
        assert b"defect" not in received
    assert "a defect" in caplog.text
    assert "without a complete answer" in caplog.text


@pytest.mark.parametrize("fails", [False, True])
async def test_an_answer_that_breaks_off_does_not_look_complete(*, fails: bool) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if fails:
            raise ValueError

    async with listening(app) as (_, port):
        received = await answers_to(port, GET)
    assert received.endswith(b"\r\n\r\n4\r\nhalf\r\n")


async def test_an_answer_that_breaks_off_unread_does_not_keep_its_connection() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 32 * MB, "more_body": True})
        raise ValueError

    async with listening(app, flush_seconds=0.1) as (server, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(GET)
            await until(lambda: server.connections and not server.tasks)
            await until(lambda: not server.connections)


async def test_an_application_that_sends_out_of_order_gets_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.body"})

    async with listening(app) as (_, port):
        assert (await answers_to(port, GET)).startswith(b"HTTP/1.1 500")
    assert "sent 'http.response.body' at the wrong time" in caplog.text


async def test_a_head_leaves_with_the_first_piece_of_its_body() -> None:
    async with faked(answer(b"one", b"two")) as (connection, transport):
        connection.data_received(GET)
        await settle()
        first, second = transport.written
        assert first.endswith(b"\r\n\r\n3\r\none\r\n")
        assert second == b"3\r\ntwo\r\n0\r\n\r\n"


async def test_a_head_alone_waits_a_little_for_what_follows_and_then_leaves() -> None:
    follows = asyncio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await follows.wait()
        await send({"type": "http.response.body", "body": b"late"})

    async with faked(app) as (connection, transport):
        connection.data_received(GET)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.written == []
        async with asyncio.timeout(PATIENCE):
            while not transport.written:
                await asyncio.sleep(HELD_SECONDS)
        assert transport.all.endswith(b"\r\n\r\n")
        follows.set()
        await settle()
        assert transport.written[1] == b"4\r\nlate\r\n0\r\n\r\n"


async def test_a_long_body_is_written_whole() -> None:
    body = bytes(range(256)) * 4096
    assert len(body) > NOT_COPIED
    async with listening(answer(body, body)) as (_, port):
        received = await answers_to(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert answers_in(received, [b"GET"]) == [(200, body + body)]


async def test_a_slow_reader_holds_up_the_application_and_gets_everything() -> None:
    sent = 0

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b"x" * MB, "more_body": True})
            sent += 1
        await send({"type": "http.response.body"})

    async with listening(app) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()
        writer.write(GET)
        await until(lambda: any(each.drained is not None for each in server.connections))
        assert sent < 32
        writer.transport.resume_reading()
        taken = 0
        while taken < 64 * MB:
            taken += len(await asyncio.wait_for(reader.read(MB), PATIENCE))
        assert sent == 64
        writer.close()


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
async def test_a_chunk_is_written_at_once_unless_it_would_have_to_wait(version: bytes) -> None:
    written: list[int | None] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        exchange = scope["extensions"][CONNECTION]
        written.append(exchange.write_at_once(lambda: b"too early"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        pieces = b"one", b"", b"x" * (NOT_COPIED + 1)
        written.extend([exchange.write_at_once(lambda piece=piece: piece) for piece in pieces])
        exchange._connection.pause_writing()
        written.append(exchange.write_at_once(lambda: b"paused"))
        exchange._connection.resume_writing()
        await send({"type": "http.response.body"})
        written.append(exchange.write_at_once(lambda: b"too late"))

    async with faked(app) as (connection, transport):
        connection.data_received(b"GET / HTTP/%b\r\nHost: a\r\n\r\n" % version)
        await settle()
        expected = [None, 3, 0, NOT_COPIED + 1, None, None] if version == b"1.1" else [None] * 6
        assert written == expected
        if version == b"1.1":
            assert answers_in(transport.all, [b"GET"]) == [(200, b"one" + b"x" * (NOT_COPIED + 1))]
            assert len(transport.written) == 3  # the head with the first piece, the long one, the end


# When a connection ends


async def test_nothing_is_read_behind_the_last_request() -> None:
    for last in (b"Connection: close\r\n\r\n", b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"):
        async with faked(echo) as (connection, transport):
            connection.data_received(b"GET /a HTTP/1.1\r\nHost: a\r\n" + last + GET)
            connection.data_received(GET)
            await settle()
            ((_, body),) = answers_in(transport.all, [b"GET"])
            assert json.loads(body)["target"] == "/a"
            assert transport.is_closed


async def test_a_server_that_stops_finishes_the_answers_that_it_has_begun() -> None:
    gate = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        await answer(b"done")(scope, receive, send)

    async with listening(app) as (server, port):
        idle, _idle = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET * 2)
        await until(lambda: any(each.waiting for each in server.connections))
        stopping = asyncio.create_task(server.stop(PATIENCE))
        assert await asyncio.wait_for(idle.read(), PATIENCE) == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        gate.set()
        received = await asyncio.wait_for(reader.read(), PATIENCE)
        assert answers_in(received, [b"GET", b"GET"]) == [(200, b"done")] * 2
        assert received.count(b"connection: close") == 1
        await stopping
        assert (server.connections, server.tasks) == (set(), set())
        for each in (writer, _idle):
            each.close()


async def test_a_server_that_stops_cuts_off_what_takes_too_long() -> None:
    ended = asyncio.Event()

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        try:
            while True:
                await asyncio.sleep(3600)
        finally:
            ended.set()

    async with listening(app) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await until(lambda: server.tasks)
        await server.stop(0.01)
        await asyncio.wait_for(ended.wait(), PATIENCE)
        with suppress(ConnectionError):
            assert not (await asyncio.wait_for(reader.read(), PATIENCE)).startswith(b"HTTP/1.1 200")
        writer.close()
