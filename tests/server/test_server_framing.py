"""Where a request ends is beyond doubt, or it is refused: a proxy in front of us cannot be made to see another one (T32)."""

import asyncio
import json

import pytest

from tests.server.serving import PATIENCE, ask, served

BODY = json.dumps(ask()).encode()
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
HEAD = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
PROBES = {
    "a length and chunks": HEAD + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunks and a length": HEAD + b"Transfer-Encoding: chunked\r\n" + LENGTH + b"\r\n" + CHUNKS,
    "two lengths": HEAD + LENGTH + b"Content-Length: 6\r\n\r\n" + BODY,
    "one length twice": HEAD + LENGTH + LENGTH + b"\r\n" + BODY,
    "a list of lengths": HEAD + b"Content-Length: 6, 6\r\n\r\n" + BODY,
    "a length with a sign": HEAD + b"Content-Length: +6\r\n\r\n" + BODY,
    "a negative length": HEAD + b"Content-Length: -6\r\n\r\n" + BODY,
    "a length in hex": HEAD + b"Content-Length: 0x6\r\n\r\n" + BODY,
    "a length with a space in it": HEAD + b"Content-Length: 6 6\r\n\r\n" + BODY,
    "an empty length": HEAD + b"Content-Length: \r\n\r\n" + BODY,
    "a length beyond 64 bits": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY,
    "a space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "chunks that are not the last coding": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS,
    "a coding and a length": HEAD + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY,
    "a control character before the coding": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "a folded header": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "a folded first header": b"POST /awp HTTP/1.1\r\n X: y\r\nHost: localhost\r\n\r\n",
    "lines that end with LF": HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 6\n\nabcdef",
    "a CR alone in a header": HEAD + b"X: a\rContent-Length: 6\r\n\r\n",
    "a NUL in a header": HEAD + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY,
    "a NUL in a name": HEAD + b"X\0: a\r\n" + LENGTH + b"\r\n" + BODY,
    "a version that is none": b"POST /awp HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "a chunk size with a sign": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "a chunk size with 0x": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a space after a chunk size": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "chunks that end with LF": CHUNKED + b"5\nhello\n0\n\n",
    "a chunk longer than it says": CHUNKED + b"3\r\nhello\r\n0\r\n\r\n",
}
CODINGS = (  # lines of a head: each may be understood otherwise by a proxy in front
    ("identity", "chunked"),
    ("foo", "chunked"),
    ("chunked", "chunked"),
    ("gzip, chunked",),
    (", chunked",),
    ("chunked,",),
    ("x, chunked",),
    ("deflate, gzip, chunked",),
)


async def answers_to(s, sent):
    """All that comes back until the server closes the connection."""
    reader, writer = await s.connect()
    try:
        writer.write(sent + SMUGGLED)
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()


@pytest.mark.req("T32")
async def test_an_ambiguous_request_is_refused_and_nothing_behind_it_is_read():
    async with served() as s:
        for name, sent in PROBES.items():
            received = await answers_to(s, sent)
            assert received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), name
            assert received.count(b"HTTP/1.1 ") == 1, name
        assert s.model.prompts == []


@pytest.mark.req("T32")
async def test_a_body_in_any_coding_but_one_chunked_is_refused_with_501_and_the_connection_closed():
    async with served() as s:
        for lines in CODINGS:
            codings = b"".join(b"Transfer-Encoding: %b\r\n" % line.encode() for line in lines)
            answer = await answers_to(s, HEAD + codings + b"\r\n" + CHUNKS)
            assert answer.startswith((b"HTTP/1.1 501", b"HTTP/1.1 400")), lines
            assert answer.count(b"HTTP/1.1 ") == 1, lines
            assert b"connection: close" in answer, lines
        for coding in (b"gzip, chunked", b", chunked"):
            answer = await answers_to(s, HEAD + b"Transfer-Encoding: %b\r\n\r\n" % coding + CHUNKS)
            assert answer.startswith(b"HTTP/1.1 501"), coding
        assert s.model.prompts == []


@pytest.mark.req("T32")
@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"  chunked "])
async def test_chunked_alone_is_read_however_it_is_spelled(coding):
    async with served() as s:
        answer = await answers_to(s, HEAD + b"Transfer-Encoding: %b\r\n\r\n" % coding + CHUNKS)
        assert answer.count(b"HTTP/1.1 200") == 2


@pytest.mark.req("T32")
@pytest.mark.parametrize("head", [HEAD + LENGTH + b"\r\n" + BODY, CHUNKED + CHUNKS], ids=["length", "chunks"])
async def test_what_follows_a_plain_request_is_the_next_one(head):
    """So that the probes above were refused for what is wrong in them."""
    async with served() as s:
        received = await answers_to(s, head)
        assert received.count(b"HTTP/1.1 200") == 2


REFUSED_BY_THE_SERVER = {
    "an invalid header": b" /health HTTP/1.1\r\nHost: localhost\r\nX\0: a\r\n\r\n",
    "an invalid version": b" /health HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "too many headers": b" /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 500 + b"\r\n",
    "an unfinished head that is too large": b" /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000,
    "an invalid chunk": b" /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
}


@pytest.mark.parametrize("rest", REFUSED_BY_THE_SERVER.values(), ids=REFUSED_BY_THE_SERVER)
async def test_the_refusal_of_a_head_request_has_no_body_and_that_of_another_has_one(rest):
    async with served() as s:
        for method, has_body in ((b"HEAD", False), (b"GET", True)):
            head, _, body = (await answers_to(s, method + rest)).rpartition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 ")
            assert bool(body) is has_body


async def test_bytes_that_are_no_request_are_refused_with_a_body_after_a_head_request():
    async with served() as s:
        reader, writer = await s.connect()
        writer.write(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        writer.write(b"\0\0\0\r\n\r\n")
        refusal = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        assert refusal.startswith(b"HTTP/1.1 400")
        assert refusal.endswith(b"}")
