"""Bodies that are compressed although the request did not ask for it."""

import gzip
import tracemalloc
import zlib
from types import SimpleNamespace

import pytest

from holodeck.http import unpacking
from holodeck.http.failures import ConnectionBroken, NotHttp
from holodeck.http.unpacking import MOST, unpacker
from tests.http.peers import Peers, answers
from tests.http.reading import read

ON_ONE_LOOP = pytest.mark.asyncio(loop_factories=["uvloop"])  # where no loop makes a difference
TEXT = b"".join(b'data: {"n": %d}\n\n' % number for number in range(500))


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def bare_stored(data: bytes) -> bytes:
    packer = zlib.compressobj(0, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def flushed(data: bytes, size: int = 100) -> bytes:
    """As a server packs a stream: flushed after each event."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces) + packer.flush()


PACKED = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip": ("X-GZIP", gzip.compress(TEXT)),
    "flushed": ("gzip", flushed(TEXT)),
    "members": ("gzip", gzip.compress(TEXT[:50]) + gzip.compress(b"") + gzip.compress(TEXT[50:])),
    "padding": ("gzip", gzip.compress(TEXT[:50]) + b"\0" * 9 + gzip.compress(TEXT[50:]) + b"\0" * 512),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "bare deflate": ("deflate", bare(TEXT)),
    "stored deflate": ("deflate", bare_stored(TEXT)),
    "deflate that is gzip": ("deflate", gzip.compress(TEXT)),
    "gzip, identity": ("gzip, identity", gzip.compress(TEXT)),
    "identity": ("identity", TEXT),
    "nothing": ("", TEXT),
    "none": ("none", TEXT),
    "a charset": ("UTF-8", TEXT),
}


def answer(coding: str, body: bytes, size: int) -> bytes:
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % coding.encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@ON_ONE_LOOP
@pytest.mark.parametrize("what", PACKED)
async def test_it_is_unpacked(client, what):
    coding, body = PACKED[what]
    async with Peers(answers(answer(coding, body, 1000))) as peers:
        for _ in range(2):
            assert await read(client, peers) == (200, TEXT)
        assert peers.connections == 1


@pytest.mark.parametrize("what", [name for name in PACKED if unpacker(PACKED[name][0])])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_wherever_it_is_cut(what, size):
    coding, body = PACKED[what]
    unpack = unpacker(coding)
    came = b"".join(unpack.take(body[at : at + size]) for at in range(0, len(body), size))
    assert came == TEXT
    assert unpack.whole


@ON_ONE_LOOP
@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, br", "gzip, gzip", "BR"])
async def test_what_we_cannot_unpack_is_refused(client, coding):
    async with Peers(answers(answer(coding, b"\x1b\x03\x00", 100))) as peers:
        with pytest.raises(NotHttp, match="compressed"):
            await read(client, peers)


@ON_ONE_LOOP
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
async def test_an_empty_body_is_not_unpacked(client, coding):
    head = b"HTTP/1.1 401 No\r\nContent-Encoding: %b\r\nContent-Length: 0\r\n\r\n" % coding.encode()
    async with Peers(answers(head)) as peers:
        assert await read(client, peers) == (401, b"")


@ON_ONE_LOOP
@pytest.mark.parametrize("what", ["gzip", "deflate", "bare deflate", "members"])
async def test_a_body_that_ends_in_the_middle_is_no_whole_one(client, what):
    coding, body = PACKED[what]
    came = bytearray()
    async with Peers(answers(answer(coding, body[:-9], 100))) as peers, client.post(peers.url, b"{}") as response:
        with pytest.raises(ConnectionBroken, match="compressed"):
            await response.read_into(came.extend)
    assert TEXT.startswith(came)
    assert came


@ON_ONE_LOOP
@pytest.mark.parametrize(
    "body",
    [TEXT, b"\x1f\x8b\x08garbage-garbage", gzip.compress(TEXT) + b"garbage", gzip.compress(TEXT)[:-8] + b"x" * 8],
)
async def test_what_is_not_compressed_as_it_says_is_refused(client, body):
    async with Peers(answers(answer("gzip", body, 100))) as peers:
        with pytest.raises(NotHttp, match="compressed"):
            await read(client, peers)


def bomb(size: int) -> bytes:
    """So many MiB of nothing."""
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return (packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)) * size


def test_a_bomb_takes_no_memory():
    packed = bomb(256)
    assert len(packed) < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(NotHttp, match="too large after decompression"):
            unpacker("deflate").take(packed)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 * MOST


class Counting:
    """Notes how many bytes are looked at."""

    looked_at = 0

    def __init__(self, form: int) -> None:
        self._real = zlib.decompressobj(form)

    def decompress(self, piece: bytes, most: int) -> bytes:
        Counting.looked_at += len(piece)
        return self._real.decompress(piece, most)

    def __getattr__(self, name: str):
        return getattr(self._real, name)


@pytest.mark.parametrize("member", [b"", b"x" * 900])
def test_what_is_left_is_not_looked_at_again_for_each_of_many_members(member, monkeypatch):
    """Thousands of copies of all that is left would take seconds in which the loop reads nothing else."""
    monkeypatch.setattr(unpacking, "zlib", SimpleNamespace(decompressobj=Counting, error=zlib.error))
    monkeypatch.setattr(Counting, "looked_at", 0)
    packed = gzip.compress(member)
    count = 2**18 // len(packed)
    unpack = unpacker("gzip")
    assert unpack.take(packed * count) == member * count
    assert unpack.whole
    assert Counting.looked_at < count * 16_384  # in one piece, it would be sixteen times as much


@ON_ONE_LOOP
async def test_an_unread_body_is_not_unpacked(client):
    async with Peers(answers(answer("gzip", b"no gzip at all", 100))) as peers:
        async with client.post(peers.url, b"{}") as response:
            assert response.headers["content-encoding"] == "gzip"  # who refuses it by that, has no more to do
        async with client.post(peers.url, b"{}") as response:
            with pytest.raises(NotHttp, match="compressed"):
                await response.read_into(lambda _: False)


@ON_ONE_LOOP
async def test_a_bomb_is_refused(client):
    async with Peers(answers(answer("deflate", bomb(64), 2**18))) as peers:
        with pytest.raises(NotHttp, match="too large after decompression"):
            await read(client, peers)


def test_a_lot_that_is_no_bomb_is_unpacked():
    body = TEXT * 800  # 7 MB
    assert unpacker("gzip").take(gzip.compress(body)) == body
