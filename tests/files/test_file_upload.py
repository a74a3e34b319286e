"""Names that are only shown, and base64 that is either right or refused."""

import base64
import os

import pytest

from holodeck.errors import InvalidRequest, PayloadTooLarge
from holodeck.files.upload import decode_base64, display_name, encode_base64


@pytest.mark.req("T16")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, "file"),
        ("", "file"),
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\windows\\win.ini", "win.ini"),
        ("C:\\Users\\ann\\a b.txt", "a b.txt"),
        ("/", "file"),
        ("..", "file"),
        ("a/..", "file"),
        ("a\r\nSet-Cookie: x", "a Set-Cookie: x"),
        ("a\x00b.txt", "ab.txt"),
        ("\x1b]52;c;ZXZpbA==\x07x.txt", "x.txt"),
        ("safe\u202etxt.exe", "safetxt.exe"),
        ("\ud800.txt", "\ufffd.txt"),
        ("x" * 500, "x" * 119 + "…"),
        ("größe.csv", "größe.csv"),
    ],
)
def test_a_name_is_display_text(name, shown):
    assert display_name(name) == shown


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1_000, 300_000, 786_432, 786_433, 2_000_001])
async def test_base64_round_trip(size):
    data = os.urandom(size)
    encoded = await encode_base64(data)
    assert encoded == base64.b64encode(data).decode()
    assert await decode_base64(encoded, limit=3_000_000, field="files[0].content") == data


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize(
    "text",
    ["a", "abc", "====", "ab=c", "YWJj\n", " YWJj", "YW-_", "YWJj!", "ÄÄÄÄ", "\ud800aaa", "A" * (1 << 20) + "="],
)
async def test_wrong_base64_is_refused_with_its_field(text):
    with pytest.raises(InvalidRequest, match=r"a\.png is not valid base64") as caught:
        await decode_base64(text, limit=3_000_000, field="files[0].content", name="a.png")
    assert (caught.value.status, caught.value.field) == (422, "files[0].content")


async def test_padding_in_the_middle_of_a_long_text_is_refused():
    piece = base64.b64encode(b"x" * (786_432 - 1)).decode()
    assert len(piece) == 1 << 20
    with pytest.raises(InvalidRequest):
        await decode_base64(piece * 2, limit=3_000_000, field="f")


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False), (10_000, False)])
async def test_the_limit_counts_decoded_bytes(size, fits):
    encoded = base64.b64encode(bytes(size)).decode()
    if fits:
        assert len(await decode_base64(encoded, limit=100, field="f")) == size
        return
    with pytest.raises(PayloadTooLarge, match="limit for files in JSON"):
        await decode_base64(encoded, limit=100, field="f")
