"""Real documents, made by hand: no library that writes them has a say in how they are read."""

import zlib
from io import BytesIO
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from PIL import Image, ImageDraw, ImageFont

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"


def archive(parts: dict[str, str | bytes]) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as zipped:
        for name, content in parts.items():
            zipped.writestr(name, content)
    return file.getvalue()


def relations(targets: dict[str, tuple[str, str]], *, mode: str = "") -> str:
    entries = "".join(
        f'<Relationship Id="{id_}" Type="{OFFICE}/{kind}" Target="{escape(target)}"{mode}/>'
        for id_, (kind, target) in targets.items()
    )
    return f'<?xml version="1.0"?><Relationships xmlns="{RELATIONS}">{entries}</Relationships>'


def office(main: str, parts: dict[str, str | bytes]) -> bytes:
    return archive(
        {
            "[Content_Types].xml": '<?xml version="1.0"?><Types/>',
            "_rels/.rels": relations({"rId1": ("officeDocument", main)}),
            **parts,
        }
    )


# Word


def paragraph(text: str, *, style: str = "", numbered: tuple[str, int] | None = None) -> str:
    dress = f'<w:pStyle w:val="{style}"/>' if style else ""
    if numbered:
        dress += f'<w:numPr><w:ilvl w:val="{numbered[1]}"/><w:numId w:val="{numbered[0]}"/></w:numPr>'
    return f'<w:p><w:pPr>{dress}</w:pPr><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def word_table(rows: list[list[str]]) -> str:
    cells = (
        "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) + "</w:tr>"
        for row in rows
    )  # fmt: skip
    return "<w:tbl>" + "".join(cells) + "</w:tbl>"


STYLES = f"""<?xml version="1.0"?><w:styles xmlns:w="{W}">
<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>
<w:style w:styleId="Mine"><w:name w:val="Chapter"/><w:basedOn w:val="berschrift1"/></w:style>
<w:style w:styleId="ListBullet"><w:name w:val="List Bullet"/><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>
</w:styles>"""
NUMBERING = f"""<?xml version="1.0"?><w:numbering xmlns:w="{W}">
<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="1"><w:lvl w:ilvl="0"><w:numFmt w:val="decimal"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>
</w:numbering>"""


def docx(body: str, *, extra: dict[str, str | bytes] | None = None, prolog: str = "") -> bytes:
    space = f'xmlns:w="{W}" xmlns:r="{OFFICE}"'
    related = {"rId1": ("styles", "styles.xml"), "rId2": ("numbering", "numbering.xml")}
    return office(
        "word/document.xml",
        {
            "word/document.xml": f'<?xml version="1.0"?>{prolog}<w:document {space}><w:body>{body}</w:body></w:document>',
            "word/_rels/document.xml.rels": relations(related),
            "word/styles.xml": STYLES,
            "word/numbering.xml": NUMBERING,
            **(extra or {}),
        },
    )


# Excel


def sheet(rows: str) -> str:
    return f'<?xml version="1.0"?><worksheet xmlns="{S}"><sheetData>{rows}</sheetData></worksheet>'


def row(*cells: str) -> str:
    return "<row>" + "".join(cells) + "</row>"


def cell(value: object, *, at: str = "", style: int = 0, kind: str = "") -> str:
    place = f' r="{at}"' if at else ""
    if isinstance(value, str) and not kind:
        return f'<c{place} t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f'<c{place} s="{style}"{f" t={chr(34)}{kind}{chr(34)}" if kind else ""}><v>{value}</v></c>'


def xlsx(
    sheets: dict[str, str], *, shared: list[str] | None = None, extra: dict[str, str | bytes] | None = None
) -> bytes:
    names = "".join(
        f'<sheet name="{escape(name)}" sheetId="{i}" r:id="rId{i}"/>' for i, name in enumerate(sheets, 1)
    )  # fmt: skip
    strings = "".join(f"<si><t>{escape(text)}</t></si>" for text in shared or [])
    related = {f"rId{i}": ("worksheet", f"worksheets/sheet{i}.xml") for i in range(1, len(sheets) + 1)}
    related |= {"rIdS": ("sharedStrings", "sharedStrings.xml"), "rIdT": ("styles", "styles.xml")}
    return office(
        "xl/workbook.xml",
        {
            "xl/workbook.xml": f'<?xml version="1.0"?><workbook xmlns="{S}" xmlns:r="{OFFICE}"><sheets>{names}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(related),
            "xl/sharedStrings.xml": f'<?xml version="1.0"?><sst xmlns="{S}">{strings}</sst>',
            "xl/styles.xml": (
                f'<?xml version="1.0"?><styleSheet xmlns="{S}"><numFmts><numFmt numFmtId="170" formatCode="dd\\.mm\\.yyyy"/>'
                '</numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="170"/><xf numFmtId="2"/></cellXfs></styleSheet>'
            ),
            **{f"xl/worksheets/sheet{i}.xml": xml for i, xml in enumerate(sheets.values(), 1)},
            **(extra or {}),
        },
    )


# PowerPoint


def shape(*lines: tuple[int, str], placeholder: str = "") -> str:
    paragraphs = "".join(
        f'<a:p><a:pPr lvl="{level}"/><a:r><a:t>{escape(text)}</a:t></a:r></a:p>' for level, text in lines
    )
    kind = f'<p:nvPr><p:ph type="{placeholder}"/></p:nvPr>' if placeholder else "<p:nvPr/>"
    return f"<p:sp><p:nvSpPr>{kind}</p:nvSpPr><p:txBody>{paragraphs}</p:txBody></p:sp>"


def slide_table(rows: list[list[str]]) -> str:
    cells = "".join(
        "<a:tr>"
        + "".join(f"<a:tc><a:txBody><a:p><a:r><a:t>{escape(c)}</a:t></a:r></a:p></a:txBody></a:tc>" for c in r)
        + "</a:tr>"
        for r in rows
    )
    return (
        f"<p:graphicFrame><a:graphic><a:graphicData><a:tbl>{cells}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
    )


def slide(*shapes: str, root: str = "sld") -> str:
    space = f'xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{OFFICE}"'
    return f'<?xml version="1.0"?><p:{root} {space}><p:cSld><p:spTree>{"".join(shapes)}</p:spTree></p:cSld></p:{root}>'


def pptx(slides: list[str], *, notes: dict[int, str] | None = None) -> bytes:
    ids = "".join(f'<p:sldId id="{255 + i}" r:id="rId{i}"/>' for i in range(1, len(slides) + 1))
    parts: dict[str, str | bytes] = {
        "ppt/presentation.xml": f'<?xml version="1.0"?><p:presentation xmlns:p="{P}" xmlns:r="{OFFICE}"><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>',
        "ppt/_rels/presentation.xml.rels": relations(
            {f"rId{i}": ("slide", f"slides/slide{i}.xml") for i in range(1, len(slides) + 1)}
        ),
        **{f"ppt/slides/slide{i}.xml": xml for i, xml in enumerate(slides, 1)},
    }
    for number, xml in (notes or {}).items():
        parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = relations(
            {"rId1": ("notesSlide", f"../notesSlides/notesSlide{number}.xml")}
        )
        parts[f"ppt/notesSlides/notesSlide{number}.xml"] = xml
    return office("ppt/presentation.xml", parts)


# OpenDocument and EPUB

OPEN = "urn:oasis:names:tc:opendocument:xmlns:"
SPACES = " ".join(
    f'xmlns:{name}="{OPEN}{name}:1.0"' for name in ("office", "text", "table", "style", "draw", "presentation", "svg")
)  # fmt: skip
SPACES += ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/"'


def with_mimetype(mime: str, parts: dict[str, str | bytes]) -> bytes:
    """A zip whose first member names its type, stored without compression."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as zipped:
        zipped.writestr("mimetype", mime, compress_type=ZIP_STORED)
        for name, content in parts.items():
            zipped.writestr(name, content)
    return file.getvalue()


def open_document(kind: str, parts: dict[str, str | bytes]) -> bytes:
    return with_mimetype(f"application/vnd.oasis.opendocument.{kind}", parts)


def _open_content(kind: str, body: str, prolog: str = "") -> str:
    inner = f"<office:{kind}>{body}</office:{kind}>"
    return (
        f'<?xml version="1.0"?>{prolog}<office:document-content {SPACES}><office:body>{inner}</office:body>'
        "</office:document-content>"
    )


def odt(body: str, *, styles: str = "", prolog: str = "") -> bytes:
    parts: dict[str, str | bytes] = {"content.xml": _open_content("text", body, prolog)}
    if styles:
        parts["styles.xml"] = f"<office:document-styles {SPACES}>{styles}</office:document-styles>"
    return open_document("text", parts)


def ods(sheets: dict[str, str]) -> bytes:
    tables = "".join(f'<table:table table:name="{name}">{rows}</table:table>' for name, rows in sheets.items())
    return open_document("spreadsheet", {"content.xml": _open_content("spreadsheet", tables)})


def odp(pages: list[str]) -> bytes:
    body = "".join(f"<draw:page>{page}</draw:page>" for page in pages)
    return open_document("presentation", {"content.xml": _open_content("presentation", body)})


def epub(parts: dict[str, str | bytes], *, chapters: list[str]) -> bytes:
    """A book; without chapters it lacks its main part too."""
    items = "".join(f'<item id="c{i}" href="{name}"/>' for i, name in enumerate(chapters))
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(chapters)))
    book = (
        '<package xmlns:dc="x"><metadata><dc:title>The Sea</dc:title><dc:creator>Ann</dc:creator></metadata>'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>"
    )
    main: dict[str, str | bytes] = {"book/main.opf": book} if chapters else {}
    container = '<container><rootfiles><rootfile full-path="book/main.opf"/></rootfiles></container>'
    members = {f"book/{name}": content for name, content in parts.items()}
    return with_mimetype("application/epub+zip", {"META-INF/container.xml": container, **main, **members})


# PDF


def pdf_file(objects: list[bytes], *, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start)
    return bytes(out)


def stream(content: bytes, extra: bytes = b"") -> bytes:
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(content), extra, content)


def flate(content: bytes, extra: bytes = b"") -> bytes:
    return stream(zlib.compress(content), b"/Filter /FlateDecode " + extra)


def show(text: str) -> bytes:
    lines = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)").split("\n")
    return (
        b"BT /F1 12 Tf 72 720 Td 14 TL " + b" T* ".join(b"(%s) Tj" % line.encode("latin-1") for line in lines) + b" ET"
    )


def pdf(contents: list[bytes], *, trailer: bytes = b"", more: list[bytes] | None = None) -> bytes:
    """One page for each content stream. Objects: 1 catalogue, 2 pages, 3 font, then page and content in turn."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(contents)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for i, content in enumerate(contents):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
            % (5 + 2 * i)
        )
        objects.append(content)
    return pdf_file(objects + (more or []), trailer=trailer)


def scanned_pdf(*texts: str) -> bytes:
    """A PDF whose pages are images, as scanners write it."""
    pages = [Image.open(BytesIO(picture(text, size=(1_000, 400)))).convert("L") for text in texts]
    file = BytesIO()
    pages[0].save(file, "PDF", save_all=True, append_images=pages[1:], resolution=100)
    return file.getvalue()


# images


def picture(text: str, *, kind: str = "PNG", size: tuple[int, int] = (640, 120)) -> bytes:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((20, 40), text, fill="black", font=ImageFont.load_default(36))
    file = BytesIO()
    image.save(file, kind)
    return file.getvalue()


# the golden ones


def report_docx() -> bytes:
    return docx(
        paragraph("Quarterly report", style="berschrift1")
        + paragraph("Sales & costs of the Harbour branch.")
        + paragraph("Results", style="Mine")
        + paragraph("eggs", style="ListBullet")
        + paragraph("milk", numbered=("1", 1))
        + paragraph("first", numbered=("2", 0))
        + word_table([["Month", "Sum"], ["May", "1|200"], ["June", "990"]])
    )


def accounts_xlsx() -> bytes:
    first = sheet(
        row(cell(0, kind="s"), cell(1, kind="s"), cell("Day"))
        + row(cell("eggs"), cell(3.5), cell(45292, style=1))
        + row(cell("milk"), cell(12), cell(45293.75, style=2))
    )
    second = sheet(row(cell("City", at="A1"), cell("Lisbon", at="C1")) + row(cell(1, at="A9", kind="b")))
    return xlsx({"Shopping": first, "Places": second}, shared=["Item", "Price"])


def talk_pptx() -> bytes:
    return pptx(
        [
            slide(shape((0, "Roadmap 2027"), placeholder="ctrTitle"), shape((0, "by the Lighthouse team"))),
            slide(
                shape((0, "Plans"), placeholder="title"),
                shape((0, "ship the boat"), (1, "paint it blue"), placeholder="body"),
                slide_table([["Who", "What"], ["Ann", "sails"]]),
                shape((0, "7"), placeholder="sldNum"),
            ),
        ],
        notes={2: slide(shape((0, "mention the weather"), placeholder="body"), root="notes")},
    )


def letter_pdf() -> bytes:
    return pdf(
        [
            stream(show("Dear harbour master,")),
            flate(show("the boat is blue\nand the sea is wide.")),
            stream(show("Yours, Ann")),
        ]
    )
