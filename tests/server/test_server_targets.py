"""What a request is for, and in which protocol: clients that ask for another one, and targets that are whole addresses."""

import asyncio
import json
import logging
import re

import pytest

from holodeck.server.options import ServerSettings
from holodeck.server.protocol import MAX_PIPELINED
from holodeck.server.wires import WIRES
from tests.scenarios.uploading import CHAT
from tests.server.serving import PATIENCE, Served, served

ALL = ServerSettings(protocols=tuple(WIRES))
BODY = json.dumps({"message": "Hello"}).encode()
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
H2C = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"  # Java's HttpClient
)
WEBSOCKET = b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n"
LAST = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def answers_to(s: Served, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection. Each piece arrives by itself."""
    reader, writer = await s.connect()
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    received = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    return received


def statuses(received: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1\.1 (\d+) ", received)


@pytest.mark.parametrize("upgrade", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize(
    "sent", [LENGTH + b"\r\n" + BODY, b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS], ids=["length", "chunks"]
)
@pytest.mark.parametrize("by", ["at once", "head first", "byte by byte"])
async def test_who_asks_for_another_protocol_is_answered_in_this_one(upgrade: bytes, sent: bytes, by: str) -> None:
    whole = HEAD + upgrade + sent + LAST
    end = whole.index(b"\r\n\r\n") + 4
    cut = {"at once": [whole], "head first": [whole[:end], whole[end:]], "byte by byte": [bytes([c]) for c in whole]}
    async with served(settings=ALL) as s:
        received = await answers_to(s, *cut[by])
        assert statuses(received) == [b"200", b"200"]
        assert b'"hello there"' in received
        (prompt,) = s.model.prompts
        assert prompt.messages[-1].content == "Hello"


async def test_an_upgrade_may_be_asked_for_again_and_again() -> None:
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + H2C + b"\r\n"
    async with served(settings=ALL) as s:
        sent = get * (MAX_PIPELINED - 2) + HEAD + H2C + LENGTH + b"\r\n" + BODY + get + LAST
        assert statuses(await answers_to(s, sent)) == [b"200"] * (MAX_PIPELINED + 1)


@pytest.mark.req("T32")
async def test_an_upgrade_makes_no_ambiguous_request_clear() -> None:
    async with served(settings=ALL) as s:
        for wrong in (LENGTH + b"Transfer-Encoding: chunked\r\n", LENGTH + b"Content-Length: 3\r\n"):
            assert statuses(await answers_to(s, HEAD + H2C + wrong + b"\r\n" + CHUNKS + LAST)) == [b"400"]
        assert s.model.prompts == []


async def test_nothing_is_left_of_a_head_that_was_read_twice() -> None:
    async with served(settings=ALL) as s:
        reader, writer = await s.connect()
        writer.write(HEAD + H2C + LENGTH + b"\r\n")
        writer.write(BODY)
        await reader.readuntil(b"hello there")
        (connection,) = s.http.connections
        assert (connection._in_head, connection._reading) == (False, None)
        writer.close()


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/health", b"405"),
        ("http://localhost/health", b"405"),
        ("http://localhost", b"405"),
        ("*", b"400"),
        ("evil.example:443", b"400"),
    ],
)
async def test_no_client_is_connected_with_another_server(
    target: str, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as s:
        tunnelled = LAST + b"\x16\x03\x01"
        received = await answers_to(s, f"CONNECT {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + tunnelled)
        assert statuses(received) == [status]
        assert b"application/problem+json" in received
        assert b"\r\nconnection: close\r\n" in received
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.req("T07")
@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/health", "localhost", b"200"),
        ("http://localhost:8000/health?x", "evil.example", b"200"),
        ("http://[::1]:8000/health", "localhost", b"200"),
        ("http://evil.example/health", "localhost", b"400"),
        ("http://localhost@evil.example/health", "localhost", b"400"),
        ("http://localhost/health", "localhost\r\nHost: localhost", b"400"),
        ("http:///health", "localhost", b"400"),
        ("http://localhost", "localhost", b"200"),  # an empty path is `/`
        ("http://localhost?x=1", "localhost", b"200"),
        ("http://evil.example", "localhost", b"400"),
        ("//evil.example/health", "localhost", b"404"),
        ("evil.example:80", "localhost", b"400"),
        ("*", "localhost", b"400"),
    ],
)
async def test_a_target_that_is_a_whole_address_says_whom_it_is_for(target: str, host: str, status: bytes) -> None:
    async with served() as s:
        asked = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        assert statuses(await answers_to(s, asked.encode())) == [status]


@pytest.mark.req("T07")
@pytest.mark.parametrize(
    ("target", "version", "status"),
    [
        ("http://localhost/health", "1.0", b"200"),
        ("http://evil.example/health", "1.0", b"400"),
        ("http://localhost/health", "1.1", b"400"),
    ],
)
async def test_a_target_says_it_also_where_there_is_no_host(target: str, version: str, status: bytes) -> None:
    async with served() as s:
        asked = f"GET {target} HTTP/{version}\r\nConnection: close\r\n\r\n"
        assert statuses(await answers_to(s, asked.encode())) == [status]
