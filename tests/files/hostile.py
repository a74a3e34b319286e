"""Documents made to hurt: bombs, rings, lies, broken ends. Each with what may come of it.

`expected` holds statuses; 0 stands for a result. A document that may end either way, depending on how fast the machine
is, says so.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from random import Random
from typing import NamedTuple
from zipfile import ZIP_BZIP2, ZIP_LZMA, ZIP_STORED, ZipFile

from pypdf import PdfReader, PdfWriter

from tests.files import documents as d

READ, BAD, LARGE, TYPE = 0, 422, 413, 415


class Hostile(NamedTuple):
    name: str
    make: Callable[[], bytes]
    expected: frozenset[int]


def _flagged(data: bytes) -> bytes:
    """Every entry of the directory claims to be encrypted."""
    return data.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00")


def _resized(data: bytes, size: int) -> bytes:
    """Every entry of the directory claims to have this size."""
    out, at = bytearray(data), data.find(b"PK\x01\x02")
    while at >= 0:
        struct.pack_into("<L", out, at + 24, size)
        at = data.find(b"PK\x01\x02", at + 4)
    return bytes(out)


def _stored(parts: dict[str, bytes], method: int = ZIP_STORED) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", method) as zipped:
        for name, content in parts.items():
            zipped.writestr(name, content)
    return file.getvalue()


def _overlapping() -> bytes:
    """One body, three hundred names for it: 1.2 GB of 4 MB (after Fifield's zip bomb)."""
    data = d.archive({"[Content_Types].xml": "<Types/>", "word/document.xml": b" " * 4_000_000})
    start, end = data.find(b"PK\x01\x02"), data.find(b"PK\x05\x06")
    second = data.find(b"PK\x01\x02", start + 4)
    entries = data[start:second] + data[second:end] * 300
    return data[:start] + entries + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 301, 301, len(entries), start, 0)


def _nested(tag: str, depth: int) -> str:
    return f"<{tag}>" * depth + f"</{tag}>" * depth


def _random_text(size: int) -> str:
    return Random(7).randbytes(size // 2).hex()


LAUGHS = (
    "<!DOCTYPE x [<!ENTITY a0 'ha'>" + "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10)) + "]>"
)
QUADRATIC = f"<!DOCTYPE x [<!ENTITY a '{'a' * 100_000}'>]>"


def _office() -> Iterator[tuple[str, Callable[[], bytes], set[int]]]:
    text = d.paragraph("hello")
    yield "bomb.docx", lambda: d.docx(text, extra={"word/media/x": b"\0" * 30_000_000}), {LARGE}
    yield "claims-much.docx", lambda: _resized(d.docx(text), 0x7FFFFFFF), {LARGE}
    yield "claims-little.docx", lambda: _resized(d.docx(text * 100), 20), {BAD}
    yield "overlapping.docx", _overlapping, {LARGE}
    yield "many.docx", lambda: d.docx(text, extra={f"word/{i}": b"" for i in range(1_990)}), {READ}
    yield "very-many.docx", lambda: d.docx(text, extra={f"word/{i}": b"" for i in range(20_000)}), {LARGE}
    yield "zip-in-zip.docx", lambda: d.docx(text, extra={"word/document.xml": d.docx(text)}), {BAD}
    yield "deep.docx", lambda: d.docx(_nested("w:tbl", 60_000)), {BAD}
    yield "deep-paragraph.docx", lambda: d.docx("<w:p>" + _nested("w:r", 260) + "</w:p>" + text), {BAD}
    yield "wide.docx", lambda: d.docx("<w:p/>" * 300_000 + text), {READ, BAD}
    yield "laughs.docx", lambda: d.docx("<w:p><w:r><w:t>&a9;</w:t></w:r></w:p>", prolog=LAUGHS), {BAD}
    yield (
        "quadratic.docx",
        lambda: d.docx("<w:p><w:r><w:t>" + "&a;" * 10_000 + "</w:t></w:r></w:p>", prolog=QUADRATIC),
        {BAD},
    )
    yield (
        "style-ring.docx",
        lambda: d.docx(d.paragraph("x", style="a"), extra={"word/styles.xml": _style_ring()}),
        {READ},
    )
    yield (
        "span.docx",
        lambda: d.docx(
            f'<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="{10**9}"/></w:tcPr>{text}</w:tc></w:tr></w:tbl>'
        ),
        {READ},
    )
    yield "level.docx", lambda: d.docx(d.paragraph("x", numbered=("1", 10**9))), {READ}
    yield "attribute.docx", lambda: d.docx(f'<w:p w:x="{_random_text(2_000_000)}"/>' + text), {READ}
    yield "one-word.docx", lambda: d.docx(d.paragraph(_random_text(4_000_000))), {READ}
    yield "half.docx", lambda: d.docx(text)[: len(d.docx(text)) // 2], {TYPE}
    yield "no-directory.docx", lambda: d.docx(text).replace(b"PK\x05\x06", b"PK\x05\x07"), {TYPE}
    yield "directory-lies.docx", lambda: d.docx(text).replace(b"PK\x03\x04", b"PK\x03\x05"), {BAD, TYPE}
    yield "locked.docx", lambda: _flagged(d.docx(text)), {BAD}
    yield "old.doc", lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(5_000), {TYPE}
    yield "no-main.docx", lambda: d.archive({"[Content_Types].xml": "", "word/x.xml": ""}), {BAD}
    yield "broken.docx", lambda: d.docx("<w:p><w:r></w:p>"), {BAD}
    yield "empty.docx", lambda: d.docx(""), {BAD}
    yield "just.zip", lambda: d.archive({"a.txt": "hello"}), {READ}
    yield "bomb.zip", lambda: d.archive({"a.txt": b"\0" * 50_000_000}), {READ}
    yield "overlapping.zip", lambda: _overlapping().replace(b"[Content_Types].xml", b"[content_types].xml"), {READ}
    yield "very-many.zip", lambda: d.archive({f"{i}": b"" for i in range(20_000)}), {READ}
    yield "locked.zip", lambda: _flagged(d.archive({"a.txt": "hello"})), {READ}
    yield "lzma.docx", lambda: _stored({"[Content_Types].xml": b"", "word/d.xml": b"x" * 100}, ZIP_LZMA), {BAD}
    yield (
        "bzip2-bomb.docx",
        lambda: _stored({"[Content_Types].xml": b"", "word/d.xml": bytes(20_000_000)}, ZIP_BZIP2),
        {LARGE},
    )
    yield "outside.docx", lambda: _with_target("../../../../../../etc/passwd"), {BAD}
    yield "remote.docx", _remote, {READ}
    yield (
        "far.xlsx",
        lambda: d.xlsx({"s": d.sheet(d.row(d.cell("a", at="A1")) + d.row(d.cell("z", at="XFD1048576")))}),
        {READ},
    )
    yield "columns.xlsx", lambda: d.xlsx({"s": d.sheet(d.row(*(d.cell("c") for _ in range(20_000))))}), {READ}
    yield "rows.xlsx", lambda: d.xlsx({"s": d.sheet(d.row(d.cell(1)) * 200_000)}), {READ, BAD, LARGE}
    yield (
        "index.xlsx",
        lambda: d.xlsx({"s": d.sheet(d.row(d.cell("9" * 5_000, kind="s"), d.cell(-1, kind="s"), d.cell("x")))}),
        {READ},
    )
    yield (
        "numbers.xlsx",
        lambda: d.xlsx(
            {"s": d.sheet(d.row(d.cell("1e999", kind="n"), d.cell("nan", kind="n"), d.cell(1e300, style=1)))}
        ),
        {READ},
    )
    yield (
        "reference.xlsx",
        lambda: d.xlsx({"s": d.sheet(d.row(d.cell("x", at="ZZZZZZZZ99999999999"), d.cell("y", at="")))}),
        {READ},
    )
    yield "sheets.xlsx", lambda: d.xlsx({f"s{i}": d.sheet(d.row(d.cell("x"))) for i in range(900)}), {READ}
    yield "empty.xlsx", lambda: d.xlsx({"s": d.sheet("")}), {BAD}
    yield "repeated.pptx", lambda: d.pptx([d.slide(d.shape((0, "x")))] * 1_500), {READ, BAD, LARGE}
    yield (
        "groups.pptx",
        lambda: d.pptx([d.slide("<p:grpSp>" * 240 + d.shape((0, "deep")) + "</p:grpSp>" * 240)]),
        {READ},
    )
    yield "notes-ring.pptx", lambda: d.pptx([d.slide(d.shape((0, "x")))], notes={1: d.slide(root="notes")}), {READ}


def _style_ring() -> str:
    styles = (
        '<w:style w:styleId="a"><w:basedOn w:val="b"/></w:style><w:style w:styleId="b"><w:basedOn w:val="a"/></w:style>'
    )
    return f'<?xml version="1.0"?><w:styles xmlns:w="{d.W}">{styles}</w:styles>'


def _with_target(target: str) -> bytes:
    return d.archive(
        {"[Content_Types].xml": "", "word/x": "", "_rels/.rels": d.relations({"r": ("officeDocument", target)})}
    )


def _remote() -> bytes:
    """A template and a picture at an address that must never be asked."""
    targets = {"rId1": ("attachedTemplate", "http://127.0.0.1:9/t.dotm"), "rId2": ("image", "http://127.0.0.1:9/x.png")}
    related = d.relations(targets, mode=' TargetMode="External"')
    return d.docx(d.paragraph("hello"), extra={"word/_rels/document.xml.rels": related})


def _pdf() -> Iterator[tuple[str, Callable[[], bytes], set[int]]]:
    page = d.stream(d.show("hello"))
    yield "flate.pdf", lambda: d.pdf([d.flate(bytes(90_000_000))]), {READ, BAD, LARGE}
    yield (
        "flate-twice.pdf",
        lambda: d.pdf(
            [d.stream(zlib.compress(zlib.compress(bytes(80_000_000))), b"/Filter [/FlateDecode /FlateDecode]")]
        ),
        {READ, BAD, LARGE},
    )
    yield (
        "filters.pdf",
        lambda: d.pdf([d.stream(d.show("x"), b"/Filter [" + b"/ASCIIHexDecode " * 5_000 + b"]")]),
        {READ, BAD},
    )
    yield "operators.pdf", lambda: d.pdf([d.flate(b"BT /F1 12 Tf (a) Tj ET " * 400_000)]), {READ, BAD, LARGE}
    yield (
        "xref-ring.pdf",
        lambda: d.pdf([page], trailer=b"/Prev 9").replace(b"/Prev 9", b"/Prev %d" % d.pdf([page]).find(b"xref\n0")),
        {READ, BAD},
    )
    yield (
        "page-ring.pdf",
        lambda: d.pdf_file([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"]),
        {BAD},
    )
    yield "page-tree.pdf", _page_tree, {BAD, LARGE}
    yield "count.pdf", lambda: d.pdf([page]).replace(b"/Count 1", b"/Count 999999999"), {READ, BAD}
    yield "pages.pdf", lambda: _same_page(8_000), {READ, BAD}
    yield "brackets.pdf", lambda: d.pdf_file([b"<< /Type /Catalog /Pages 2 0 R >>", b"[" * 200_000]), {BAD}
    yield "half.pdf", lambda: d.letter_pdf()[:400], {BAD, READ}
    yield "header.pdf", lambda: b"%PDF-1.7\n", {BAD}
    yield "no-xref.pdf", lambda: d.letter_pdf().replace(b"startxref", b"startxxxx"), {READ, BAD}
    yield "bad-xref.pdf", lambda: d.letter_pdf().replace(b"startxref\n", b"startxref\n99999999"), {READ, BAD}
    yield "locked.pdf", _locked, {BAD}
    yield "odd-lock.pdf", lambda: d.pdf([page], trailer=b"/Encrypt << /Filter /Mystery /V 9 >> /ID [<00> <00>]"), {BAD}
    yield "lzw.pdf", lambda: d.pdf([d.stream(Random(3).randbytes(200_000), b"/Filter /LZWDecode")]), {READ, BAD}
    yield (
        "runs.pdf",
        lambda: d.pdf([d.stream(b"\x81 " * 200_000 + b"\x80", b"/Filter /RunLengthDecode")]),
        {READ, BAD, LARGE},
    )
    yield (
        "ascii85.pdf",
        lambda: d.pdf([d.stream(b"z" * 800_000 + b"~>", b"/Filter /ASCII85Decode")]),
        {READ, BAD, LARGE},
    )
    yield "glyphs.pdf", _glyphs, {READ, BAD, LARGE}
    yield "self-content.pdf", lambda: d.pdf([b"[5 0 R 5 0 R]"]), {BAD}
    yield "form-ring.pdf", _form_ring, {READ, BAD}
    yield "length.pdf", lambda: d.pdf([page]).replace(b"/Length ", b"/Length 99999"), {READ, BAD}
    yield "size.pdf", lambda: d.pdf([page]).replace(b"/Size ", b"/Size 99999999"), {READ, BAD}
    yield "noise.pdf", lambda: b"%PDF-1.4\n" + Random(5).randbytes(300_000), {BAD}


def _page_tree() -> bytes:
    """Thirty nodes, each twice the next: a billion pages."""
    nodes = [b"<< /Type /Pages /Kids [%d 0 R %d 0 R] /Count 2 >>" % (i, i) for i in range(3, 33)]
    return d.pdf_file([b"<< /Type /Catalog /Pages 2 0 R >>", *nodes, b"<< /Type /Page /Parent 2 0 R >>"])


def _same_page(number: int) -> bytes:
    return d.pdf([d.stream(d.show("hello"))]).replace(b"[4 0 R]", b"[" + b"4 0 R " * number + b"]")


def _locked() -> bytes:
    writer = PdfWriter(clone_from=PdfReader(BytesIO(d.letter_pdf())))
    writer.encrypt("secret", algorithm="AES-256")
    file = BytesIO()
    writer.write(file)
    return file.getvalue()


def _glyphs() -> bytes:
    """A font that maps four billion codes."""
    cmap = b"1 begincodespacerange <00000000> <FFFFFFFF> endcodespacerange 1 beginbfrange <00000000> <FFFFFFFF> <0041> endbfrange"
    font = b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 6 0 R >>"
    return d.pdf([d.stream(d.show("hello"))], more=[d.stream(cmap)]).replace(
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>", font
    )


def _form_ring() -> bytes:
    form = d.stream(
        b"/X Do " * 50, b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >>"
    )
    return d.pdf([d.stream(b"/X Do")], more=[form]).replace(b"/Font << /F1 3 0 R >>", b"/XObject << /X 6 0 R >>")


def _pictures() -> Iterator[tuple[str, Callable[[], bytes], set[int]]]:
    yield "huge.png", lambda: _png(60_000, 60_000, b""), {LARGE}
    yield "zero.png", lambda: _png(0, 10, b""), {BAD}
    yield "bomb.png", lambda: _png(7_000, 7_000, zlib.compress(bytes(7_001 * 7_000)), grey=True), {READ, BAD, LARGE}
    yield "half.png", lambda: d.picture("hello")[:300], {BAD}
    yield (
        "comment.png",
        lambda: _png(8, 8, b"", chunks=_chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(50_000_000)))),
        {BAD},
    )
    yield (
        "frame.gif",
        lambda: b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x08" + b"\xff" * 5_000,
        {READ, BAD, LARGE},
    )
    yield "screen.gif", lambda: b"GIF89a\xff\xff\xff\xff\0\0\0;", {LARGE}
    yield "no-frame.jpg", lambda: b"\xff\xd8\xff\xe0\0\x02" + b"\xff\xe1\0\x02" * 100_000, {BAD}
    yield "pages.tiff", _ring_tiff, {READ, BAD, LARGE}
    yield "huge.tiff", lambda: _tiff(60_000, 60_000), {LARGE}
    yield "half.bmp", lambda: d.picture("hello", kind="BMP")[:3_000], {BAD}
    yield (
        "huge.bmp",
        lambda: d.picture("x", kind="BMP")[:18] + struct.pack("<ll", 60_000, 60_000) + bytes(50),
        {BAD, LARGE},
    )
    yield "noise.heic", lambda: b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + Random(2).randbytes(5_000), {BAD}
    yield "noise.avif", lambda: b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + Random(2).randbytes(5_000), {BAD}
    yield "noise.webp", lambda: b"RIFF\xff\xff\0\0WEBPVP8 " + Random(1).randbytes(2_000), {BAD, LARGE}


def _tiff(width: int, height: int, *, following: int = 0) -> bytes:
    """A TIFF without pixels; `following` is where its next page begins."""
    entries = [
        (256, width),
        (257, height),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 200),
        (277, 1),
        (278, height),
        (279, 64),
    ]
    directory = b"".join(struct.pack("<HHLL", tag, 4, 1, value) for tag, value in entries)
    return b"II*\0" + struct.pack("<LH", 8, len(entries)) + directory + struct.pack("<L", following) + bytes(200)


def _ring_tiff() -> bytes:
    """A page whose next page is itself."""
    return _tiff(8, 8, following=8)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def _png(width: int, height: int, data: bytes, *, grey: bool = False, chunks: bytes = b"") -> bytes:
    head = struct.pack(">LLBBBBB", width, height, 8, 0 if grey else 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + chunks + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _texts() -> Iterator[tuple[str, Callable[[], bytes], set[int]]]:
    yield "nul.txt", lambda: bytes(100_000), {TYPE}
    yield "windows.csv", lambda: "Käse;8".encode("cp1252"), {READ}
    yield "8-bit-noise.txt", lambda: bytes(b | 0x80 for b in Random(4).randbytes(60_000)), {READ, TYPE}
    yield "8-bit.txt", lambda: "Käse;8\n".encode("cp1252") * 2_000_000, {READ}
    yield "braces.rtf", lambda: b"{\\rtf1 " + b"{" * 200_000, {READ, BAD}
    yield "words.rtf", lambda: b"{\\rtf1 " + b"\\par\\u99999999? " * 200_000 + b"}", {READ, BAD, LARGE}
    yield "deep.eml", _deep_mail, {READ, BAD}
    yield "no.eml", lambda: b"hello", {BAD}
    yield "parts.eml", lambda: _mail(b"--b\r\n\r\nx\r\n" * 50_000), {READ, BAD}
    yield "nested.html.eml", lambda: _html_mail("<table><tr><td>" * 100_000), {READ, BAD}
    yield "deep.ipynb", lambda: b'{"cells": ' + b"[" * 100_000, {BAD}
    yield "odd.ipynb", lambda: b'{"cells": [1, {"source": 7, "cell_type": "code", "outputs": [3, {"data": 4}]}]}', {BAD}
    yield "no.ipynb", lambda: b'["x"]', {BAD}
    yield "odd.txt", lambda: "hello".encode("utf-16") + b"x", {TYPE}
    yield "surrogates.txt", lambda: b"\xed\xa0\x80" * 1_000, {READ, TYPE}
    yield "long.txt", lambda: b"a" * 49_000_000, {READ}
    yield "escapes.md", lambda: b"\x1b]52;c;ZXZpbA==\x07 hello", {TYPE}
    yield "late-binary.txt", lambda: b"a" * 70_000 + b"\xff\x00\xfe" * 1_000, {READ}
    yield "elf.txt", lambda: b"\x7fELF\x02\x01\x01" + bytes(1_000), {TYPE}


def _mail(body: bytes) -> bytes:
    return b"From: a@b.test\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" + body


def _html_mail(html: str) -> bytes:
    return b"From: a@b.test\r\nContent-Type: text/html\r\n\r\n" + html.encode()


def _deep_mail() -> bytes:
    """Mails in mails, a thousand levels deep."""
    return b"From: a@b.test\r\n" + b"Content-Type: message/rfc822\r\n\r\n" * 1_000 + b"hello"


def _open_documents() -> Iterator[tuple[str, Callable[[], bytes], set[int]]]:
    wide = '<table:table-cell table:number-columns-repeated="999999999"><text:p>x</text:p></table:table-cell>'
    row = f'<table:table-row table:number-rows-repeated="1048576">{wide}</table:table-row>'
    yield "repeated.ods", lambda: d.ods({"s": row}), {READ}
    yield "empty.ods", lambda: d.ods({"s": ""}), {BAD}
    yield "laughs.odt", lambda: d.odt("<text:p>&a9;</text:p>", prolog=LAUGHS), {BAD}
    yield "spaces.odt", lambda: d.odt('<text:p>x<text:s text:c="999999999"/>y</text:p>'), {READ}
    yield "deep.odt", lambda: d.odt("<text:list><text:list-item>" * 120 + "</text:list-item></text:list>" * 120), {BAD}
    yield "no-content.odt", lambda: d.open_document("text", {"x": ""}), {BAD}
    yield "no-book.epub", lambda: d.epub({}, chapters=[]), {BAD}
    yield "tags.epub", lambda: d.epub({"c.xhtml": "<div>" * 300_000}, chapters=["c.xhtml"]), {READ, BAD}
    yield "outside.epub", lambda: d.epub({}, chapters=["../../../../etc/passwd"]), {READ}


def hostile() -> list[Hostile]:
    everything = [*_office(), *_open_documents(), *_pdf(), *_pictures(), *_texts()]
    return [Hostile(name, make, frozenset(expected)) for name, make, expected in everything]
