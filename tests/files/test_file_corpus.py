"""Nothing in a document is dropped without a word: marked words in every corner of files that other programs write.

Each document holds words that occur nowhere else. What the model is shown has to contain every word, or a note that names
what is left out.
"""

import base64
import json
import sys
from collections import Counter
from collections.abc import Callable
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import docx
import msgspec
import openpyxl
import pptx
import pytest
from docx.enum.text import WD_BREAK
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.drawing.image import Image as SheetImage
from PIL import Image
from pptx.util import Inches
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Text as PdfComment

from holodeck.core.messages import MediaPart, TextPart
from holodeck.errors import InvalidRequest
from holodeck.files.documents import pdf, xlsx
from holodeck.files.limits import FileLimits, WorkerLimits
from holodeck.files.reader import FileReader
from holodeck.files.upload import Upload
from tests.files import documents as d

pytestmark = pytest.mark.timeout(400)
PATIENT = FileLimits(  # a busy machine must not decide what is read
    documents=WorkerLimits(cpu=60, wall=120.0),
    pictures=WorkerLimits(memory=1_536_000_000, cpu=60, wall=120.0),
    queue_seconds=120.0,
)


class Made(NamedTuple):
    make: Callable[[], bytes]
    shown: tuple[str, ...]


def _saved(document: object) -> bytes:
    file = BytesIO()
    document.save(file)
    return file.getvalue()


def workbook() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Ledger"
    sheet.append(["Item", "Price", "Total"])
    sheet.append(["lantern", 3.5, "=SUM(B2:B9)"])
    sheet["A2"].comment = Comment("checked-by-Ann", "Ann")
    sheet["E9"] = "far-corner"
    sheet.oddFooter.center.text = "printed-foot"
    sheet.merge_cells("A11:C11")
    sheet["A11"] = "merged-cells"
    sheet.row_dimensions[2].hidden = True
    chart = BarChart()
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=2))
    sheet.add_chart(chart, "H2")
    sheet.add_image(SheetImage(BytesIO(d.picture("x", size=(20, 20)))), "H20")
    book.create_sheet("Blank")
    secret = book.create_sheet("Hidden")
    secret["B2"] = "under-cover"
    secret.sheet_state = "hidden"
    return _saved(book)


def report() -> bytes:
    document = docx.Document()
    document.add_heading("Harbour-report", 0)
    paragraph = document.add_paragraph("main-text ")
    run = paragraph.add_run("bold-word")
    run.bold = True
    run.add_break(WD_BREAK.PAGE)
    document.add_comment(run, text="remark-of-Bob", author="Bob")
    document.sections[0].header.paragraphs[0].text = "letter-head"
    document.sections[0].footer.paragraphs[0].text = "page-foot"
    document.add_paragraph("bullet-point", style="List Bullet")
    table = document.add_table(2, 2)
    for number, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"cell-{number}"
    document.add_picture(BytesIO(d.picture("x", size=(20, 20))))
    return _saved(document)


def talk() -> bytes:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "deck-title"
    slide.placeholders[1].text = "first-bullet"
    slide.notes_slide.notes_text_frame.text = "speaker-note"
    box = slide.shapes.add_textbox(Inches(1), Inches(1), Inches(2), Inches(1))
    box.text_frame.text = "text-box"
    slide.shapes.add_picture(BytesIO(d.picture("x", size=(20, 20))), Inches(1), Inches(1))
    table = slide.shapes.add_table(1, 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text = "left-cell", "right-cell"
    return _saved(deck)


def form() -> bytes:
    """A page with text, a comment, a filled field and an attached file."""
    writer = PdfWriter(clone_from=PdfReader(BytesIO(d.letter_pdf())))
    writer.add_annotation(0, PdfComment(text="margin-remark", rect=(50, 550, 200, 650)))
    writer.add_attachment("annex.csv", b"a,b")
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def price_list(*, by_column: bool = False) -> bytes:
    rows = [["Item", "Price", "Stock"], ["Eggs", "3.50", "12"], ["Blue cheese", "8.00", ""], ["Milk", "1.20", "7"]]
    places = [(i, j) for i in range(4) for j in range(3)]
    if by_column:
        places.sort(key=lambda place: (place[1], place[0]))
    cells = b"".join(
        b"BT /F1 10 Tf 1 0 0 1 %d %d Tm (%s) Tj ET\n" % (72 + j * 120, 700 - i * 18, rows[i][j].encode())
        for i, j in places
    )
    intro = b"BT /F1 12 Tf 72 750 Td (Prices of the harbour shop, valid in May) Tj ET\n"
    return d.pdf([d.stream(intro + cells)])


def mail() -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ann@holodeck.test", "bob@holodeck.test", "Grüße-vom-Hafen"
    message["Cc"] = "carol@holodeck.test"
    message.set_content("plain-body\nsecond line")
    message.add_alternative("<p>html-body</p>", subtype="html")
    message.add_attachment(b"1,2,3", maintype="text", subtype="csv", filename="figures.csv")
    return bytes(message)


def html_mail() -> bytes:
    message = EmailMessage()
    message["From"], message["Subject"] = "ann@holodeck.test", "news"
    message.set_content(
        "<html><head><style>p {}</style></head><body><h1>big-news</h1><p>one &amp; two <a href='https://holodeck.test'>"
        "a-link</a></p><ul><li>item-one</li></ul><table><tr><th>k</th><th>v</th></tr><tr><td>key-cell</td><td>v1</td></tr>"
        "</table><img alt='a-boat'><script>evil()</script></body></html>",
        subtype="html",
    )
    return bytes(message)


def notebook() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# study-title\n", "some text"]},
        {
            "cell_type": "code",
            "source": "print('code-line')",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["printed-line\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBO", "text/plain": ["figure-words"]}},
                {"output_type": "error", "ename": "ValueError", "evalue": "wrong-value", "traceback": []},
            ],
        },
    ]
    return json.dumps({"nbformat": 4, "metadata": {"kernelspec": {"language": "python"}}, "cells": cells}).encode()


ODT_BODY = """<text:tracked-changes>
<text:changed-region text:id="c1"><text:deletion><text:p>old-words</text:p></text:deletion></text:changed-region>
<text:changed-region text:id="c2"><text:insertion/></text:changed-region></text:tracked-changes>
<text:h text:outline-level="2">open-title</text:h>
<text:p>before <text:span>styled-word</text:span> after<text:change text:change-id="c1"/><text:change-start text:change-id="c2"/>new-words<text:change-end text:change-id="c2"/>
<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>foot-note</text:p></text:note-body></text:note>
<office:annotation><dc:creator>Eve</dc:creator><text:p>side-remark</text:p></office:annotation>
<draw:frame><draw:image/><svg:desc>a-photograph</svg:desc></draw:frame>
<text:a xlink:href="https://holodeck.test">link-words</text:a></text:p>
<text:list><text:list-item><text:p>list-entry</text:p></text:list-item></text:list>
<table:table><table:table-row><table:table-cell><text:p>grid-cell</text:p></table:table-cell></table:table-row></table:table>"""
ODT_STYLES = """<style:master-page><style:header><text:p>top-line</text:p></style:header>
<style:footer><text:p>bottom-line</text:p></style:footer></style:master-page>"""
ODS_ROWS = """<table:table-row><table:table-cell><text:p>tide</text:p></table:table-cell>
<table:table-cell office:value-type="float" office:value="4.25"/>
<table:table-cell table:formula="of:=SUM([.A1:.A2])"/><table:table-cell table:number-columns-repeated="1000"/></table:table-row>"""
ODP_PAGE = """<draw:frame><draw:text-box><text:p>slide-words</text:p></draw:text-box></draw:frame>
<presentation:notes><draw:frame><draw:text-box><text:p>spoken-words</text:p></draw:text-box></draw:frame></presentation:notes>"""
CHAPTER = "<!DOCTYPE html><html><body><h1>chapter-one</h1><p>It was a <b>calm</b> night-watch.</p></body></html>"
RICH = (
    rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\header head-text}Dear M\'fcller,\par rich-words {\pict abc}\par}"
)

CORPUS = {
    "ledger.xlsx": Made(
        workbook,
        (
            *("lantern", "3.5", "=SUM(B2:B9)", "A2: checked-by-Ann", "far-corner", "printed-foot", "merged-cells"),
            *("1 chart", "1 image", "## Sheet Blank", "[This sheet is empty.]", "Hidden (hidden)", "under-cover"),
        ),
    ),
    "report.docx": Made(
        report,
        (
            *("Harbour-report", "main-text", "bold-word", "{>>Bob: remark-of-Bob<<}", "Header: letter-head"),
            *("Footer: page-foot", "- bullet-point", "| cell-0 | cell-1 |", "[Image]", "comments as {>>comment<<}"),
        ),
    ),
    "talk.pptx": Made(
        talk,
        (
            "deck-title",
            "first-bullet",
            "Notes: speaker-note",
            "text-box",
            "[Image: image.png]",
            "| left-cell | right-cell |",
        ),
    ),
    "form.pdf": Made(form, ("Dear harbour master", "Comment: margin-remark", "annex.csv", "not read")),
    "prices.pdf": Made(
        price_list,
        ("Prices of the harbour shop", "| Item | Price | Stock |", "| Blue cheese | 8.00 |  |", "| Milk | 1.20 | 7 |"),
    ),
    "columns.pdf": Made(lambda: price_list(by_column=True), ("| Eggs | 3.50 | 12 |", "| Blue cheese | 8.00 |  |")),
    "mail.eml": Made(
        mail,
        (
            *("From: ann@holodeck.test", "Cc: carol@holodeck.test", "Subject: Grüße-vom-Hafen", "plain-body"),
            "figures.csv (text/csv, 5 bytes)",
        ),
    ),
    "news.eml": Made(
        html_mail,
        (
            *("# big-news", "one & two [a-link](https://holodeck.test)", "- item-one", "| key-cell | v1 |"),
            "[Image: a-boat]",
        ),
    ),
    "study.ipynb": Made(
        notebook,
        (
            *("# study-title", "```python\nprint('code-line')\n```", "printed-line", "figure-words"),
            *("an image (image/png)", "ValueError: wrong-value"),
        ),
    ),
    "open.odt": Made(
        lambda: d.odt(ODT_BODY, styles=ODT_STYLES),
        (
            *("## open-title", "before styled-word after", "{--old-words--}", "{++new-words++}", "[^1]: foot-note"),
            *("{>>Eve: side-remark<<}", "[Image: a-photograph]", "[link-words](https://holodeck.test)", "- list-entry"),
            *("| grid-cell |", "Header: top-line", "Footer: bottom-line"),
        ),
    ),
    "tides.ods": Made(
        lambda: d.ods({"Tides": ODS_ROWS, "None": ""}),
        ("## Sheet Tides", "| tide | 4.25 | =SUM([.A1:.A2]) |", "## Sheet None", "[This sheet is empty.]", "2 sheets"),
    ),
    "deck.odp": Made(lambda: d.odp([ODP_PAGE]), ("## Slide 1", "slide-words", "Notes: spoken-words", "1 slide")),
    "sea.epub": Made(
        lambda: d.epub({"one.xhtml": CHAPTER}, chapters=["one.xhtml", "two.xhtml"]),
        ("# The Sea\nby Ann", "# chapter-one", "a calm night-watch.", "two.xhtml is missing"),
    ),
    "letter.rtf": Made(lambda: RICH, ("Dear Müller,", "rich-words", "Not shown: 1 image, 1 header")),
    "all.zip": Made(
        lambda: d.archive({"src/main.py": "print()", "data.bin": b"\0" * 1_000}),
        ("src/main.py", "data.bin", "1,000", "listed, not read", "2 files"),
    ),
    "data.json": Made(lambda: b'{"key": "json-value"}', ('{"key": "json-value"}', "(JSON)")),
    "page.html": Made(lambda: b"<p>as <b>it</b> is</p>", ("<p>as <b>it</b> is</p>", "(HTML)")),
    "boat.svg": Made(lambda: b"<svg><text>drawn-words</text></svg>", ("<text>drawn-words</text>", "(SVG)")),
    "main.rs": Made(lambda: b"fn main() {}", ("fn main() {}", "(Rust source)")),
    "server.log": Made(lambda: b"12:00 started\n12:01 failed\n", ("12:01 failed", "(log)")),
}


@pytest.mark.req("SRV-13", "SRV-14")
@pytest.mark.parametrize("name", CORPUS)
async def test_nothing_is_dropped_without_a_word(name):
    made = CORPUS[name]
    [(part, note)] = await FileReader(PATIENT).read([Upload(name=name, data=made.make())])
    assert isinstance(part, TextPart)
    missing = [words for words in made.shown if words not in part.text]
    assert missing == [], part.text
    assert not note.truncated


ENCODED = {
    "cp1252": "Größe;Preis;Währung\nBrötchen;3,50;€\nKäse;8,00;€\n",
    "latin-1": "Élève;Noël;À bientôt, naïve façade\n",
    "cp1250": "Zażółć gęślą jaźń\nPchnąć w tę łódź jeża lub ośm skrzyń fig\n",
    "cp1251": "имя;цена\nхлеб;30\nмолоко и сыр;12\n",  # noqa: RUF001
    "cp932": "日本語のテキストです。これは試験です。\n",
    "gb18030": "中文文本,这是一个测试文件。\n",
    "koi8_r": "Привет, мир! Это обычный текст.\n",
}


@pytest.mark.parametrize("encoding", ENCODED)
async def test_text_in_older_encodings_is_read_and_the_encoding_named(encoding):
    text = ENCODED[encoding]
    upload = Upload(name="table.csv", data=text.encode(encoding), declared_type="text/csv")
    [(part, note)] = await FileReader(PATIENT).read([upload])
    assert text.strip() in part.text
    assert "(CSV, read as " in part.text
    assert (note.mime_type, note.read_as) == ("text/csv", "text")


async def test_short_western_text_is_not_taken_for_another_alphabet():
    for text in ("Käse;8", "5 µm ±0,1 °C; Ø 12 mm", "naïve – “quoted” text’s end, 100 €", "Año;¿Qué? ¡Hola!"):  # noqa: RUF001
        [(part, _)] = await FileReader(PATIENT).read([Upload(name="a.txt", data=text.encode("cp1252"))])
        assert text in part.text
        assert "read as Windows-1252" in part.text


async def test_a_scanned_pdf_is_read_page_by_page():
    steps: list[tuple[str, int, int]] = []
    data = d.scanned_pdf("Invoice number 4711", "Total due 43.50 EUR")
    [(part, note)] = await FileReader(PATIENT).read(
        [Upload(name="scan.pdf", data=data)], progress=lambda *step: steps.append(step)
    )
    assert steps == [("scan.pdf", 1, 2), ("scan.pdf", 2, 2)]
    assert "Page 1 (a scan, read by text recognition)" in part.text
    assert "4711" in part.text
    assert "43.50" in part.text
    assert (note.read_as, note.truncated) == ("pdf", False)


def _with_image(text: bytes, size: tuple[int, int]) -> bytes:
    """A page of 612 x 792 points with text and an image of this size."""
    image = b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8"
    drawn = b"q %d 0 0 %d 0 0 cm /X Do Q " % size
    return d.pdf([d.stream(drawn + d.show(text.decode()))], more=[d.stream(b"\x80", image)]).replace(
        b"/Resources << /Font << /F1 3 0 R >> >>", b"/Resources << /Font << /F1 3 0 R >> /XObject << /X 6 0 R >> >>"
    )


def test_images_beside_text_are_mentioned_and_logos_are_not():
    (page, _) = pdf.read(_with_image(b"A long report. " * 10, (300, 300))).blocks
    assert page.endswith("[1 image on this page.]")
    (page, _) = pdf.read(_with_image(b"A long report. " * 10, (30, 30))).blocks
    assert "image" not in page


def test_a_page_with_only_a_page_number_over_an_image_is_a_scan():
    document = pdf.read(_with_image(b"12", (612, 792)))
    assert list(document.blocks) == ["Page 1\n12", "Page 1\n[This page is a scan.]", ""]
    assert document.scans == [1]


def test_running_text_in_columns_is_no_table():
    """A two-column article: its lines stand side by side, but its cells are sentences."""
    lines = [f"line {i} of a column that goes on for a while" for i in range(6)]
    text = b"".join(
        b"BT /F1 9 Tf 1 0 0 1 %d %d Tm (%s) Tj ET\n" % (x, 700 - 12 * i, line.encode())
        for x in (50, 320)
        for i, line in enumerate(lines)
    )
    (page, _) = pdf.read(d.pdf([d.stream(text)])).blocks
    assert "|" not in page
    assert page.count("line 5 of a column") == 2


def calls_to_read(rows: int) -> int:
    """How many functions are called to read a workbook with so many rows of 30 cells."""
    book = openpyxl.Workbook()
    for number in range(rows):
        book.active.append([f"name {number * 7919 % 100_003}" if j % 5 == 0 else number * j / 7 for j in range(30)])
    data, calls = _saved(book), Counter()
    sys.setprofile(lambda _frame, event, _value: calls.update([event]))
    try:
        texts = list(xlsx.read(data).blocks)
    finally:
        sys.setprofile(None)
    assert f"name {(rows - 1) * 7919 % 100_003}" in "".join(texts)
    return calls["call"] + calls["c_call"]


def test_twice_as_many_rows_of_a_workbook_are_twice_the_work():
    """Counted in calls, because a busy machine makes each of them slower."""
    some, twice, thrice = (calls_to_read(rows) for rows in (100, 200, 300))
    assert 0.9 < (thrice - twice) / (twice - some) < 1.1
    assert (thrice - twice) / (100 * 30) < 60, "for each cell"


async def test_scanned_pages_beyond_the_limit_are_named():
    reader = FileReader(msgspec.structs.replace(PATIENT, max_scans=1))
    data = d.scanned_pdf("Invoice number 4711", "Total due 43.50 EUR")
    [(part, _)] = await reader.read([Upload(name="scan.pdf", data=data)])
    assert "Page 2\n[This page is a scan.]" in part.text
    assert "[1 more scanned pages were not read; 1 is the limit.]" in part.text


async def test_a_scan_without_any_text_is_refused():
    with pytest.raises(InvalidRequest, match=r"blank\.pdf is a scan, and text recognition found no text"):
        await FileReader(PATIENT).read([Upload(name="blank.pdf", data=d.scanned_pdf(""))])


def _heic(text: str) -> bytes:
    from pillow_heif import register_heif_opener

    register_heif_opener()
    return d.picture(text, kind="HEIF")


def _fax(*texts: str) -> bytes:
    pages = [Image.open(BytesIO(d.picture(text))).convert("1") for text in texts]
    file = BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:])
    return file.getvalue()


IMAGES = {
    "boat.tiff": (lambda: d.picture("Boat 4711", kind="TIFF"), "image/tiff"),
    "boat.bmp": (lambda: d.picture("Boat 4711", kind="BMP"), "image/bmp"),
    "boat.heic": (lambda: _heic("Boat 4711"), "image/heic"),
    "boat.avif": (lambda: d.picture("Boat 4711", kind="AVIF"), "image/avif"),
}


@pytest.mark.parametrize("name", IMAGES)
async def test_images_that_models_do_not_take_are_converted(name):
    make, mime = IMAGES[name]
    [(image, note)] = await FileReader(PATIENT, vision=True).read([Upload(name=name, data=make(), declared_type=mime)])
    assert isinstance(image, MediaPart)
    assert image.mime_type == "image/jpeg"
    assert Image.open(BytesIO(base64.b64decode(image.data))).size == (640, 120)
    assert (note.mime_type, note.read_as) == (mime, "image")


async def test_images_of_phones_are_read():
    [(part, note)] = await FileReader(PATIENT).read([Upload(name="boat.heic", data=_heic("Boat 4711"))])
    assert "4711" in part.text
    assert "640 x 120 pixels, read by text recognition" in part.text
    assert (note.mime_type, note.read_as) == ("image/heic", "ocr")


async def test_every_page_of_a_fax_is_read_also_for_a_model_with_vision():
    data = _fax("Boat number 4711", "Price 43.50")
    [(part, note)] = await FileReader(PATIENT, vision=True).read([Upload(name="fax.tif", data=data)])
    assert "Page 1\n" in part.text
    assert "4711" in part.text
    assert "43.50" in part.text
    assert "2 pages" in part.text
    assert note.read_as == "ocr"


def test_the_documentation_names_every_ending():
    page = Path("docs/files.md").read_text(encoding="utf-8")
    assert [name for name in CORPUS if f"`.{name.rpartition('.')[2]}`" not in page] == []
