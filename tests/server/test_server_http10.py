"""HTTP/1.0, as nginx speaks it to the server behind it unless configured otherwise: no chunks, the connection is the end."""

import asyncio
import json
from typing import Any

import pytest

from holodeck.models.scripted import says
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.wires.agui.encode import SseEncoder
from tests.scenarios.uploading import CHAT
from tests.server.serving import PATIENCE, Gate, Served, ask, served, server_block, until

ALL = ServerSettings(protocols=tuple(WIRES))
PROTOBUF = "application/vnd.ag-ui.event+proto"
STREAMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "AG-UI over SSE": ("/awp", ask(run="r"), "*/*"),
    "AG-UI in protobuf": ("/awp", ask(run="r"), PROTOBUF),
    "CopilotKit": ("/copilotkit/agent/default/run", ask(run="r"), "*/*"),
    "CopilotKit's one route": ("/copilotkit", {"method": "agent/run", "body": ask(run="r")}, "*/*"),
    "REST": (f"{CHAT}/stream", {"message": "Hello"}, "*/*"),
    "chat-stream": ("/chat/stream", {"input": "Hello"}, "*/*"),
}
SAME = "Idempotency-Key: k1\r\nX-Request-ID: req_0123456789ab\r\n"  # what is asked twice is answered alike
every_stream = pytest.mark.parametrize(("path", "body", "accept"), STREAMS.values(), ids=list(STREAMS))


def post(path: str, body: Any, accept: str = "*/*", *, version: str = "1.0", more: str = "") -> bytes:
    data = json.dumps(body).encode()
    return (
        f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: {accept}\r\n"
        f"{SAME}Content-Length: {len(data)}\r\n{more}\r\n"
    ).encode() + data


def get(path: str, *, version: str = "1.0", host: str = "Host: localhost\r\n", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/{version}\r\n{host}\r\n".encode()


async def answer_to(s: Served, sent: bytes) -> tuple[bytes, dict[str, str], bytes]:
    """Status line, headers, and all that follows until the server closes the connection."""
    reader, writer = await s.connect()
    writer.write(sent)
    received = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status.encode(), dict(line.split(": ", 1) for line in lines), body


async def chunked_body(s: Served, sent: bytes) -> bytes:
    """What HTTP/1.1 says to the same, without its framing."""
    reader, writer = await s.connect()
    writer.write(sent)
    assert b"transfer-encoding: chunked" in await reader.readuntil(b"\r\n\r\n")
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    writer.close()
    return b"".join(pieces)


@every_stream
async def test_a_stream_has_no_chunks_and_ends_with_its_connection(path: str, body: Any, accept: str) -> None:
    async with served(says("one two three"), settings=ALL) as s:
        status, headers, received = await answer_to(s, post(path, body, accept))
        assert status == b"HTTP/1.1 200 OK"
        assert headers["connection"] == "close"
        assert not {"transfer-encoding", "content-length"} & {*headers}
        assert b" three" in received
        assert received == await chunked_body(s, post(path, body, accept, version="1.1"))
        assert received.startswith(b"\0\0" if accept == PROTOBUF else (b"id: ", b"event: "))


@every_stream
async def test_each_piece_leaves_when_it_is_there(path: str, body: Any, accept: str) -> None:
    steps: asyncio.Queue[None] = asyncio.Queue()
    often = ServerSettings(protocols=tuple(WIRES), block=server_block(keepalive=0.02))
    async with served(says("one two three", pause=steps.get), settings=often) as s:
        reader, writer = await s.connect()
        writer.write(post(path, body, accept))
        for word in (b"one", b"two", b"three"):
            await asyncio.wait_for(reader.readuntil(word), PATIENCE)
            if accept != PROTOBUF:
                await asyncio.wait_for(reader.readuntil(b"\n\n: keepalive\n\n"), PATIENCE)
            steps.put_nowait(None)
        assert b"\r\n" not in await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()


async def test_a_run_is_read_again() -> None:
    async with served(says("one two three")) as s:
        _, _, whole = await answer_to(s, post("/awp", ask(run="r")))
        status, headers, again = await answer_to(s, get("/runs/r/events"))
        assert (status, again) == (b"HTTP/1.1 200 OK", whole)
        assert "transfer-encoding" not in headers
        _, _, rest = await answer_to(s, get("/runs/r/events?after=2"))
        assert rest
        assert whole.endswith(rest)


async def test_who_leaves_is_noticed() -> None:
    async with served(says("one two", pause=Gate())) as s:
        reader, writer = await s.connect()
        writer.write(post("/awp", ask(run="r")))
        await reader.readuntil(b"one")
        run = s.run("r")
        assert run.readers == 1
        writer.transport.abort()
        await until(lambda: run.readers == 0)


async def test_an_answer_that_breaks_off_has_no_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    encode_many = SseEncoder.encode_many

    def breaks(self: SseEncoder, batch: Any) -> bytes:
        encoded = encode_many(self, batch)
        if b"RUN_FINISHED" in encoded:
            raise RuntimeError("a defect of ours")
        return encoded

    monkeypatch.setattr(SseEncoder, "encode_many", breaks)
    gate = Gate()
    async with served(says("one two", pause=gate)) as s:
        reader, writer = await s.connect()
        writer.write(post("/awp", ask(run="r")))
        await reader.readuntil(b"one")
        gate.open.set()
        assert b"RUN_FINISHED" not in await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (get("/health"), b"HTTP/1.1 200 OK"),
        (get("/nowhere"), b"HTTP/1.1 404 Not Found"),
        (post(CHAT, {"message": "Hello"}), b"HTTP/1.1 200 OK"),
        (post("/awp", {}), b"HTTP/1.1 422 Unprocessable Content"),
    ],
    ids=["health", "nowhere", "chat", "refused"],
)
async def test_other_answers_say_how_long_they_are(sent: bytes, status: bytes) -> None:
    async with served(settings=ALL) as s:
        received, headers, body = await answer_to(s, sent)
        assert received.split(b" ")[1] == status.split(b" ")[1]
        assert headers["content-length"] == str(len(body))
        assert headers["connection"] == "close"
        assert json.loads(body)


@pytest.mark.parametrize("path", ["/health", "/runs/r/events"])
async def test_head_has_no_body(path: str) -> None:
    async with served() as s:
        await answer_to(s, post("/awp", ask(run="r")))
        status, headers, body = await answer_to(s, get(path, method="HEAD"))
        assert (status, body) == (b"HTTP/1.1 200 OK", b"")
        assert "transfer-encoding" not in headers


async def test_no_client_is_asked_to_continue() -> None:
    """RFC 9110, 10.1.1: a client of HTTP/1.0 would take `100 Continue` for its answer."""
    async with served() as s:
        status, _, body = await answer_to(s, post("/awp", ask(), more="Expect: 100-continue\r\n"))
        assert status == b"HTTP/1.1 200 OK"
        assert b"HTTP/1.1" not in body


async def test_keep_alive_is_not_granted() -> None:
    async with served() as s:
        _, headers, _ = await answer_to(s, post("/awp", ask(), more="Connection: keep-alive\r\n"))
        assert headers["connection"] == "close"


@pytest.mark.req("T07")
@pytest.mark.parametrize(
    ("host", "version", "status"),
    [
        ("", "1.0", b"200"),  # as HAProxy's checks ask, if they have no name
        ("", "1.1", b"400"),
        ("Host: evil.example\r\n", "1.0", b"400"),
        ("Host: localhost\r\nHost: localhost\r\n", "1.0", b"400"),
    ],
)
async def test_only_http10_may_leave_out_the_host(host: str, version: str, status: bytes) -> None:
    async with served() as s:
        host += "Connection: close\r\n"
        received, _, _ = await answer_to(s, get("/health", version=version, host=host))
        assert received.split(b" ")[1] == status
