"""Types by bytes; claims that do not match are refused with both named."""

import pytest

from holodeck.errors import UnsupportedMediaType
from holodeck.files.sniff import by_bytes, identify
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


def mime_of(data: bytes) -> str | None:
    found = by_bytes(data)
    return None if found is None else found.mime


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize("mime", BYTES)
def test_bytes_show_the_type(mime):
    assert mime_of(BYTES[mime]) == mime


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
        ("grün".encode("latin-1"), "text/plain"),  # which encoding it is the worker finds out
        ("grün".encode("latin-1") + b"\x01", None),
        (b"II*\x00\x08\x00", "image/tiff"),
        (b"MM\x00*\x00\x00", "image/tiff"),
        (b"BM" + bytes(12) + b"\x28\x00\x00\x00", "image/bmp"),
        (b"BMW is a maker of cars", "text/plain"),
        (b"\x00\x00\x00\x18ftypheic", "image/heic"),
        (b"\x00\x00\x00\x18ftypavif", "image/avif"),
        (b"\x00\x00\x00\x18ftypmp42", None),
        (b"{\\rtf1 hello}", "application/rtf"),
        (b"PK\x03\x04", None),
        (b"PK\x05\x06" + b"\xff" * 18, None),
        (b"PK\x01\x02" * 10_000 + b"PK\x05\x06" + bytes(18), "application/zip"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", None),
        (b"RIFF\x00\x00\x00\x00WAVE", None),
    ],
)
def test_odd_bytes(data, expected):
    assert mime_of(data) == expected


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
        ("data.json", "application/json", "application/json"),
        ("data.json", None, "application/json"),
        ("a.html", "text/html", "text/html"),
        ("code.py", "text/x-python", "text/x-python"),
        ("code.py", "application/x-something-of-a-browser", "text/x-python"),
        ("a.ts", "video/mp2t", "text/x-typescript"),  # what browsers call TypeScript
        ("a.yml", "application/x-yaml", "application/yaml"),
        ("a.svg", "image/svg+xml", "image/svg+xml"),
        ("mail.eml", "message/rfc822", "message/rfc822"),
        ("x.ipynb", None, "application/x-ipynb+json"),
        ("Makefile", None, "text/plain"),
    ],
)
def test_the_claim_and_then_the_name_decide_about_text(name, claim, expected):
    assert identify(Upload(name=name, data=b"a,b", declared_type=claim)).mime == expected


@pytest.mark.parametrize(
    ("upload", "words"),
    [
        (Upload(name="a.mp3", data=b"<p>", declared_type="audio/mpeg"), "audio/mpeg, but its bytes are text/plain"),
        (Upload(name="a.json", data=b"\x00{}"), "named like application/json, but its bytes are not text"),
        (Upload(name="a.mp3", data=b"ID3\x03\x00", declared_type="audio/mpeg"), r"\(audio/mpeg\)"),
        (Upload(name="a.png", data=b"\x00", declared_type="image/png"), "bytes are something else"),
        (Upload(name="a.csv", data=b"\xe4\x00"), "named like text/csv, but its bytes are not text"),
        (Upload(name="a.xls", data=b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "save it as docx"),
        (Upload(name="a", data=BYTES[d.DOCX], declared_type="audio/*"), r"declared as audio/\*"),
    ],
)
def test_the_sentence_says_what_is_wrong(upload, words):
    with pytest.raises(UnsupportedMediaType, match=words):
        identify(upload)
