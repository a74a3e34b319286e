"""Finer points of the readers, called where they stand: no worker is needed to read what is known to be harmless."""

from io import BytesIO

import pytest
from pypdf import PdfReader, PdfWriter

from holodeck.files import worker
from holodeck.files.documents import docx, pdf, pptx, xlsx
from tests.files import documents as d

MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"


def blocks(reader, data: bytes) -> list[str]:
    return [block for block in reader.read(data).blocks if block]


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


WORD = {
    "a tab and a line break": ("<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r></w:p>", ["a\tb\nc"]),
    "tab stops are no tabs": ('<w:p><w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr>' + run("x") + "</w:p>", ["x"]),
    "tracked changes": (
        (f"<w:p>{run('kept')}<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:moveFrom>{run('moved')}</w:moveFrom>"
        f"<w:ins>{run(' new')}</w:ins></w:p>"),
        ["kept{--gone--}{--moved--}{++ new++}"],
    ),
    "content controls are transparent": (f"<w:sdt><w:sdtContent>{d.paragraph('inside')}</w:sdtContent></w:sdt>", ["inside"]),
    "a text box, written once": (
        (f'<w:p>{run("before")}<w:r><mc:AlternateContent xmlns:mc="{MC}"><mc:Choice><w:txbxContent>{d.paragraph("box")}'
        f"</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent>{d.paragraph('box')}</w:txbxContent></mc:Fallback>"
        "</mc:AlternateContent></w:r></w:p>"),
        ["before", "box"],
    ),
    "a picture leaves its description": (
        '<w:p><w:r><w:drawing><wp:docPr xmlns:wp="x" descr="a blue boat"/></w:drawing></w:r></w:p>',
        ["[Image: a blue boat]"],
    ),
    "a level of its own makes a heading": (
        f'<w:p><w:pPr><w:outlineLvl w:val="2"/></w:pPr>{run("deep")}</w:p>',
        ["### deep"],
    ),
    "a paragraph may leave its style's list": (
        f'<w:p><w:pPr><w:pStyle w:val="ListBullet"/><w:numPr><w:numId w:val="0"/></w:numPr></w:pPr>{run("free")}</w:p>',
        ["free"],
    ),
    "a cell over two columns": (
        (f'<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{d.paragraph("wide")}</w:tc></w:tr>'
        f"<w:tr><w:tc>{d.paragraph('a')}</w:tc><w:tc>{d.paragraph('b')}{d.paragraph('c')}</w:tc></w:tr></w:tbl>"),
        ["| wide |  |\n| --- | --- |\n| a | b c |"],
    ),
    "a table in a table": (
        f"<w:tbl><w:tr><w:tc>{d.word_table([['x', 'y']])}</w:tc></w:tr></w:tbl>",
        ["| x y |\n| --- |"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WORD)
def test_word(case):
    body, expected = WORD[case]
    assert [block.strip() for block in blocks(docx, d.docx(body))] == expected


def test_word_links_and_footnotes():
    related = d.relations(
        {"rId1": ("footnotes", "footnotes.xml"), "rId9": ("hyperlink", "https://holodeck.test/?a=1&b")}
    )
    external = related.replace('&amp;b"/>', '&amp;b" TargetMode="External"/>')
    notes = (
        f'<w:footnotes xmlns:w="{d.W}"><w:footnote/><w:footnote>{d.paragraph("see page 9")}</w:footnote></w:footnotes>'
    )
    body = f'<w:p>{run("go ")}<w:hyperlink r:id="rId9">{run("there")}</w:hyperlink></w:p>'
    data = d.docx(body, extra={"word/_rels/document.xml.rels": external, "word/footnotes.xml": notes})
    assert blocks(docx, data) == ["go [there](https://holodeck.test/?a=1&b)", "[^0]: see page 9"]


def test_the_main_part_may_have_any_name():
    data = d.office(
        "word/document2.xml", {"word/document2.xml": f'<w:document xmlns:w="{d.W}">{d.paragraph("x")}</w:document>'}
    )
    assert blocks(docx, data) == ["x"]


def test_excel_values():
    rich = '<c t="inlineStr"><is><r><t>ri</t></r><r><t>ch</t></r><rPh><t>no</t></rPh></is></c>'
    cells = [
        (rich, "rich"),
        (d.cell("#DIV/0!", kind="e"), "#DIV/0!"),
        (d.cell("sum", kind="str"), "sum"),
        (d.cell(0, kind="b"), "FALSE"),
        (d.cell(0.1 + 0.2, style=3), "0.3"),
        (d.cell(1e20), "1e+20"),
        (d.cell(-7), "-7"),
        (d.cell(0.5, style=1), "12:00:00"),
        (d.cell(45292.0, style=2), "2024-01-01"),
        (d.cell(99_999_999, style=1), "99999999"),
        ('<c s="1"/>', ""),
    ]
    header = "<row>" + "".join(d.cell(str(i)) for i in range(len(cells))) + "</row>"
    data = d.xlsx({"s": d.sheet(header + d.row(*(xml for xml, _ in cells)))})
    last = blocks(xlsx, data)[-1].splitlines()[-1]
    assert [cell.strip() for cell in last.strip("|").split("|")] == [text for _, text in cells]


def test_excel_epoch_and_hidden_sheets():
    data = d.xlsx({"Old": d.sheet(d.row(d.cell(1, style=1)))})
    plain = d.xlsx({"s": d.sheet(d.row(d.cell("x")))})
    assert blocks(xlsx, data)[-1].startswith("| 1899-12-31 |")
    assert blocks(xlsx, plain)[0] == "## Sheet s"
    book = (
        f'<workbook xmlns="{d.S}" xmlns:r="{d.OFFICE}"><workbookPr date1904="1"/>'
        '<sheets><sheet name="Old" state="hidden" r:id="rId1"/></sheets></workbook>'
    )
    old = d.xlsx({"Old": d.sheet(d.row(d.cell(1, style=1)))}, extra={"xl/workbook.xml": book})
    assert blocks(xlsx, old) == ["## Sheet Old (hidden)", "| 1904-01-02 |\n| --- |"]


def test_a_sheet_that_continues_says_so(monkeypatch):
    monkeypatch.setattr(xlsx, "MAX_ROWS", 2)
    found = blocks(xlsx, d.xlsx({"s": d.sheet(d.row(d.cell("x")) * 5)}))
    assert found[-1] == "[The sheet is longer; only its first 2 rows with text are shown.]"


def test_slides_in_their_order_with_groups_pictures_and_hidden_ones():
    picture = '<p:pic><p:nvPicPr><p:cNvPr id="1" descr="a map"/></p:nvPicPr></p:pic>'
    grouped = f"<p:grpSp>{d.shape((0, 'in a group'))}</p:grpSp>"
    hidden = d.slide(d.shape((0, "secret"))).replace("<p:sld ", '<p:sld show="0" ')
    found = blocks(pptx, d.pptx([d.slide(picture, grouped), hidden, d.slide()]))
    assert found == ["## Slide 1", "[Image: a map]", "- in a group", "## Slide 2 (hidden)", "- secret"]


def test_a_pdf_that_is_only_locked_against_printing_is_read():
    writer = PdfWriter(clone_from=PdfReader(BytesIO(d.letter_pdf())))
    writer.encrypt(user_password="", owner_password="owner", algorithm="AES-128")
    file = BytesIO()
    writer.write(file)
    assert blocks(pdf, file.getvalue())[-1] == "Page 3\nYours, Ann"


def test_a_damaged_page_does_not_hide_the_others():
    broken = d.pdf([d.stream(d.show("good")), d.stream(d.show("gone"))]).replace(
        b"/Kids [4 0 R 6 0 R]", b"/Kids [4 0 R 9 0 R]"
    )
    assert blocks(pdf, broken) == ["Page 1\ngood", "Page 2\n[This page is damaged.]"]


def test_a_server_without_the_extra_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(worker.READERS, "pdf", "no_such_module")
    answer = worker._answer("pdf", b"", 100, None, [].append)
    assert answer["refused"] == "no_reader"
    assert "extra 'files'" in answer["sentence"]
