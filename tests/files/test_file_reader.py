"""Golden documents: what the model is shown of each kind of file."""

import asyncio
import base64

import pytest

from holodeck.core.messages import MediaPart, TextPart, UserMessage
from holodeck.errors import InvalidRequest, PayloadTooLarge, RateLimited, UnsupportedMediaType
from holodeck.files.extraction import Extraction
from holodeck.files.limits import FileLimits, WorkerLimits
from holodeck.files.reader import FileReader
from holodeck.files.upload import Upload
from tests.files import documents

GOLDEN = {
    "report.docx": (
        documents.report_docx,
        documents.DOCX,
        "docx",
        """File report.docx (Word):
# Quarterly report

Sales & costs of the Harbour branch.

# Results

- eggs
  - milk
1. first

| Month | Sum |
| --- | --- |
| May | 1\\|200 |
| June | 990 |
[End of report.docx]""",
    ),
    "accounts.xlsx": (
        documents.accounts_xlsx,
        documents.XLSX,
        "xlsx",
        """File accounts.xlsx (Excel, 2 sheets):
## Sheet Shopping

| Item | Price | Day |
| --- | --- | --- |
| eggs | 3.5 | 2024-01-01 |
| milk | 12 | 2024-01-02 18:00:00 |

## Sheet Places

| City | Lisbon |
| --- | --- |
| TRUE |  |
[End of accounts.xlsx]""",
    ),
    "talk.pptx": (
        documents.talk_pptx,
        documents.PPTX,
        "pptx",
        """File talk.pptx (PowerPoint, 2 slides):
## Slide 1: Roadmap 2027

- by the Lighthouse team

## Slide 2: Plans

- ship the boat
  - paint it blue

| Who | What |
| --- | --- |
| Ann | sails |

Notes: mention the weather
[End of talk.pptx]""",
    ),
    "letter.pdf": (
        documents.letter_pdf,
        "application/pdf",
        "pdf",
        """File letter.pdf (PDF, 3 pages):
Page 1
Dear harbour master,

Page 2
the boat is blue
and the sea is wide.

Page 3
Yours, Ann
[End of letter.pdf]""",
    ),
    "prices.csv": (
        lambda: "item,price\r\neggs,3.50\r\nKäse,8\r\n".encode("utf-8-sig"),
        "text/csv",
        "text",
        "File prices.csv (CSV):\nitem,price\neggs,3.50\nKäse,8\n[End of prices.csv]",
    ),
    "notes.md": (
        lambda: "# Notes\n\n- buy eggs".encode("utf-16"),
        "text/markdown",
        "text",
        "File notes.md (Markdown):\n# Notes\n\n- buy eggs\n[End of notes.md]",
    ),
}


@pytest.mark.req("SRV-13", "SRV-14")
@pytest.mark.parametrize("name", GOLDEN)
async def test_a_document_reaches_the_model_as_text(name):
    make, mime, read_as, expected = GOLDEN[name]
    [(part, note)] = await FileReader().read([Upload(name=name, data=make(), declared_type=mime)])
    assert part == TextPart(expected)
    shown = expected.split("\n", 1)[1].rsplit("\n", 1)[0]
    assert (note.name, note.mime_type, note.read_as, note.truncated) == (name, mime, read_as, False)
    assert note.characters == len(shown)


@pytest.mark.req("SRV-14")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_a_picture_reaches_a_model_that_sees_as_it_is(kind):
    data = documents.picture("Boat 4711", kind=kind)
    [(part, note)] = await FileReader(vision=True).read([Upload(name="boat", data=data)])
    assert isinstance(part, MediaPart)
    assert base64.b64decode(part.data or "") == data
    assert part.mime_type == note.mime_type == f"image/{kind.lower()}"
    assert (note.read_as, note.characters, part.filename) == ("image", 0, "boat")


@pytest.mark.req("SRV-14")
async def test_the_text_of_a_picture_reaches_a_model_that_does_not_see():
    upload = Upload(name="boat.png", data=documents.picture("Boat number 4711"), declared_type="image/*")
    [(part, note)] = await FileReader().read([upload])
    assert isinstance(part, TextPart)
    assert part.text.startswith("File boat.png (PNG, 640 x 120 pixels, read by text recognition):\n")
    assert "4711" in part.text
    assert (note.read_as, note.mime_type) == ("ocr", "image/png")


@pytest.mark.req("SRV-14")
async def test_the_model_learns_about_a_picture_without_text():
    [(part, note)] = await FileReader().read([Upload(name="white.png", data=documents.picture("", size=(64, 64)))])
    assert isinstance(part, TextPart)
    assert "[No text was found in it.]" in part.text
    assert (note.read_as, note.characters) == ("ocr", 0)


REFUSED = {
    "an empty document": ("empty.docx", lambda: documents.docx(""), InvalidRequest, "empty.docx holds no text"),
    "an empty text": ("empty.txt", lambda: b" \n", InvalidRequest, "empty.txt holds no text"),
    "no bytes at all": ("none.md", lambda: b"", InvalidRequest, "none.md holds no text"),
    "a blank PDF": ("blank.pdf", lambda: documents.pdf([documents.stream(b"")]), InvalidRequest, "holds no text"),
    "pixels without end": (
        "huge.png",
        lambda: documents.picture("x")[:16] + (60_000).to_bytes(4, "big") * 2 + bytes(20),
        PayloadTooLarge,
        "60,000 x 60,000 pixels",
    ),
    "a program": ("tool.exe", lambda: b"MZ\x90\x00\x03", UnsupportedMediaType, "cannot be read; send text"),
}


@pytest.mark.req("SRV-13")
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_read_is_refused_with_a_sentence(case):
    name, make, error, words = REFUSED[case]
    with pytest.raises(error, match=words) as caught:
        await FileReader().read([Upload(name=name, data=make(), field="files[0]")])
    assert caught.value.status == {InvalidRequest: 422, PayloadTooLarge: 413, UnsupportedMediaType: 415}[error]
    if isinstance(caught.value, InvalidRequest):
        assert caught.value.field == "files[0]"


async def test_a_long_text_is_cut_and_says_so():
    reader = FileReader(FileLimits(max_characters=1_000))
    [(part, note)] = await reader.read([Upload(name="long.txt", data=("é" * 5_000).encode())])
    assert isinstance(part, TextPart)
    assert (note.characters, note.truncated) == (1_000, True)
    assert "[long.txt is longer; only its first 1,000 characters are shown.]" in part.text


async def test_a_long_document_is_cut_and_says_so():
    reader = FileReader(FileLimits(max_characters=1_000))
    body = "".join(documents.paragraph(f"Paragraph {i}") for i in range(500))
    [(part, note)] = await reader.read([Upload(name="long.docx", data=documents.docx(body))])
    assert isinstance(part, TextPart)
    assert (note.characters, note.truncated) == (1_000, True)
    assert "[long.docx is longer" in part.text


@pytest.mark.req("SRV-12", "SRV-13")
async def test_limits_on_number_and_size():
    reader = FileReader(FileLimits(max_files=2, max_file_bytes=10, max_request_bytes=15))
    with pytest.raises(InvalidRequest, match="3 files are too many; 2 is the limit"):
        await reader.read([Upload(data=b"a")] * 3)
    with pytest.raises(PayloadTooLarge, match="big has 11 bytes; 10 is the limit"):
        await reader.read([Upload(name="big", data=b"a" * 11)])
    with pytest.raises(PayloadTooLarge, match="more than 15 bytes in total"):
        await reader.read([Upload(data=b"a" * 8)] * 2)
    picture = documents.picture("x")
    with pytest.raises(PayloadTooLarge, match="limit for images"):
        await FileReader(FileLimits(max_image_bytes=10), vision=True).read([Upload(data=picture)])


async def test_results_come_in_the_order_of_the_files():
    names = ["letter.pdf", "notes.md", "report.docx", "prices.csv", "talk.pptx"]
    found = await FileReader().read([Upload(name=name, data=GOLDEN[name][0]()) for name in names])
    assert [note.name for _, note in found] == names


async def test_a_document_that_was_read_lately_is_not_read_again(monkeypatch):
    reader = FileReader()
    upload = Upload(name="report.docx", data=documents.report_docx())
    first = await reader.read([upload])
    monkeypatch.setattr(reader._extraction, "read", None)  # would fail
    assert await reader.read([upload]) == first


async def test_what_was_read_for_a_tenant_is_read_again_for_another(monkeypatch):
    reader, extract, kinds = FileReader(), Extraction.read, []

    async def counted(self, kind, data, limits, **options):
        kinds.append(kind)
        return await extract(self, kind, data, limits, **options)

    monkeypatch.setattr(Extraction, "read", counted)
    upload = Upload(name="report.docx", data=documents.report_docx())
    media = MediaPart(mime_type=documents.DOCX, data=base64.b64encode(upload.data).decode(), filename="report.docx")
    for tenant in ("acme", "other", "acme", "other"):
        await reader.read([upload], tenant=tenant)
        await reader.resolve([UserMessage(content=(media,))], tenant=tenant)
    assert kinds == ["docx", "docx"]


async def test_a_server_that_has_its_hands_full_says_so():
    reader = FileReader(FileLimits(workers=1, queue_seconds=0.05))
    async with reader._workers:
        with pytest.raises(RateLimited, match="Too many files"):
            await reader.read([Upload(name="report.docx", data=documents.report_docx())])
    assert len(await reader.read([Upload(name="report.docx", data=documents.report_docx())])) == 1


async def test_the_first_failure_stops_the_others():
    slow = documents.pdf([documents.flate(documents.show("word") * 300_000)])
    limits = FileLimits(documents=WorkerLimits(cpu=20, wall=30))
    reading = FileReader(limits).read([Upload(name="empty.txt", data=b" "), Upload(name="slow.pdf", data=slow)])
    async with asyncio.timeout(10):
        with pytest.raises(InvalidRequest, match="holds no text"):
            await reading


WAV, MP3 = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(40), b"ID3\x04" + bytes(40)


@pytest.mark.req("MOD-01")
@pytest.mark.parametrize(
    ("data", "mime"), [(WAV, "audio/wav"), (MP3, "audio/mpeg"), (b"\xff\xfb\x90" + bytes(40), "audio/mpeg")]
)
async def test_audio_goes_to_models_that_listen_and_is_refused_for_the_others(data, mime):
    upload = Upload(name="note", data=data, declared_type=mime)
    ((part, note),) = await FileReader(native={"audio"}).read([upload])
    assert (part.mime_type, base64.b64decode(part.data), note.read_as) == (mime, data, "native")
    with pytest.raises(UnsupportedMediaType, match="does not accept"):
        await FileReader().read([upload])
    with pytest.raises(PayloadTooLarge):
        await FileReader(FileLimits(max_native_bytes=10), native={"audio"}).read([upload])


@pytest.mark.req("MOD-01")
async def test_a_pdf_goes_to_models_that_read_it_unless_it_is_large():
    data = documents.letter_pdf()
    upload = Upload(name="letter.pdf", data=data, declared_type="application/pdf")
    ((part, note),) = await FileReader(native={"pdf"}).read([upload])
    assert (part.mime_type, base64.b64decode(part.data), part.filename) == ("application/pdf", data, "letter.pdf")
    assert note.read_as == "native"
    for reader in (FileReader(), FileReader(FileLimits(max_native_bytes=10), native={"pdf"})):
        ((part, note),) = await reader.read([upload])
        assert isinstance(part, TextPart)
        assert note.read_as == "pdf"
