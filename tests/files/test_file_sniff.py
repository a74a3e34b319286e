"""Types by bytes; claims that do not match are refused with both named."""

import pytest

from holodeck.errors import UnsupportedMediaType
from holodeck.files.sniff import identify, sniff
from holodeck.files.upload import Upload
from tests.files import documents as d

BYTES = {
    "image/png": d.picture("x"),
    "image/jpeg": d.picture("x", kind="JPEG"),
    "image/gif": d.picture("x", kind="GIF"),
    "image/webp": d.picture("x", kind="WEBP"),
    "application/pdf": d.letter_pdf(),
    d.DOCX: d.report_docx(),
    d.XLSX: d.accounts_xlsx(),
    d.PPTX: d.talk_pptx(),
    "text/plain": b"hello",
}


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize("mime", BYTES)
def test_bytes_tell_the_type(mime):
    assert sniff(BYTES[mime]) == mime


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "text/plain"),
        ("grün".encode(), "text/plain"),
        ("grün".encode("utf-16"), "text/plain"),
        ("grün".encode("utf-8-sig"), "text/plain"),
        (b"x" + ("é" * 40_000).encode(), "text/plain"),  # a character across the end of what is looked at
        (b"\n\n %PDF-1.4", "application/pdf"),
        (b"see %PDF-1.4 in the standard", "text/plain"),
        (b"\x00\x01\x02", None),
        (b"\xff\xfe\x00", None),
        ("grün".encode("latin-1"), None),
        (b"PK\x03\x04", None),
        (b"PK\x05\x06" + b"\xff" * 18, None),
        (b"PK\x01\x02" * 10_000 + b"PK\x05\x06" + bytes(18), None),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", None),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
    ],
)
def test_odd_bytes(data, expected):
    assert sniff(data) == expected


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize("claimed", BYTES)
@pytest.mark.parametrize("actual", BYTES)
def test_a_claim_must_match_the_bytes(claimed, actual):
    upload = Upload(name="file", data=BYTES[actual], declared_type=claimed)
    if claimed == actual:
        assert identify(upload).mime == actual
        return
    with pytest.raises(UnsupportedMediaType) as caught:
        identify(upload)
    assert claimed in caught.value.message
    assert actual in caught.value.message
    assert caught.value.status == 415


@pytest.mark.parametrize("claim", [None, "", "application/octet-stream", "image/*", "IMAGE/PNG", "image/png; q=1"])
def test_a_claim_that_says_nothing_or_the_same_is_fine(claim):
    assert identify(Upload(data=BYTES["image/png"], declared_type=claim)).mime == "image/png"


@pytest.mark.parametrize(
    ("name", "claim", "expected"),
    [
        ("a", None, "text/plain"),
        ("a.csv", None, "text/csv"),
        ("A.MD", None, "text/markdown"),
        ("a.markdown", "application/octet-stream", "text/markdown"),
        ("a.csv", "text/plain", "text/plain"),
        ("a.txt", "text/markdown", "text/markdown"),
        ("a.csv", "application/vnd.ms-excel", "text/csv"),
        ("a.csv", "text/csv; charset=utf-8", "text/csv"),
        ("a.md", "text/*", "text/markdown"),
        ("a.pdf", None, "text/plain"),
    ],
)
def test_the_claim_and_then_the_name_decide_about_text(name, claim, expected):
    assert identify(Upload(name=name, data=b"a,b", declared_type=claim)).mime == expected


@pytest.mark.parametrize(
    ("upload", "words"),
    [
        (Upload(name="a.html", data=b"<p>", declared_type="text/html"), "text/html, which cannot be read"),
        (Upload(name="a.mp3", data=b"ID3\x03\x00", declared_type="audio/mpeg"), r"\(audio/mpeg\)"),
        (Upload(name="a.png", data=b"\x00", declared_type="image/png"), "bytes are something else"),
        (Upload(name="a.csv", data=b"\xe4"), "named like text/csv, but its bytes are not UTF-8"),
        (Upload(name="a.xls", data=b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "save it as docx"),
        (Upload(name="a", data=BYTES[d.DOCX], declared_type="audio/*"), r"declared as audio/\*"),
    ],
)
def test_the_sentence_says_what_is_wrong(upload, words):
    with pytest.raises(UnsupportedMediaType, match=words):
        identify(upload)
