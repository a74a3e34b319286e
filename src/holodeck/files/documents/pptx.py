"""PowerPoint presentations, slide by slide: title, bullets, tables, descriptions of pictures, speaker's notes."""

from collections.abc import Iterator

from holodeck.files.documents import markdown
from holodeck.files.documents.document import Document, counted
from holodeck.files.documents.package import Package
from holodeck.files.documents.xml import Element

MAX_SLIDES = 2_000
_TITLES = {"title", "ctrTitle"}
_FURNITURE = {"sldNum", "dt", "ftr", "hdr", "sldImg"}  # repeated on every slide
_SHAPES = ("sp", "graphicFrame", "pic", "grpSp", "cxnSp")


def _slides(package: Package) -> list[str]:
    main = package.main_part()
    relations = package.relations(main)
    ids = package.root(main, "presentation").child("sldIdLst")
    found = [relations.get(entry.attributes.get("r:id", ""), ("", ""))[1] for entry in ids.children] if ids else []
    return [part for part in found if package.has(part)]


def _blocks(package: Package, slides: list[str]) -> Iterator[str]:
    footers: dict[str, None] = {}
    for number, part in enumerate(slides[:MAX_SLIDES], 1):
        slide = package.root(part, "sld")
        own_footers = (_words(shape) for shape in slide.descendants("sp") if _placeholder(shape) == "ftr")
        footers |= dict.fromkeys(filter(None, own_footers))
        titles: list[Element] = []
        body: list[Element] = []
        for shape in _shapes(slide):
            (titles if _placeholder(shape) in _TITLES else body).append(shape)
        title = " ".join(filter(None, (_words(shape) for shape in titles)))
        content = [text for shape in body for text in _content(shape)]
        notes = [text for related in package.related(part, "notesSlide")[:1] for text in _notes(package, related)]
        notes += [text for related in package.related(part, "comments") for text in _comments(package, related)]
        if title or content or notes:
            hidden = " (hidden)" if slide.attributes.get("show") == "0" else ""
            yield markdown.heading(2, f"Slide {number}{hidden}: {title}" if title else f"Slide {number}{hidden}")
            yield from content
            yield from notes
    for footer in footers:
        yield f"Footer: {footer}"
    if len(slides) > MAX_SLIDES:
        yield f"[{len(slides) - MAX_SLIDES:,} more slides are left out.]"


def _comments(package: Package, part: str) -> Iterator[str]:
    for comment in package.elements(part, "cm"):
        text = "".join(each.text for each in comment.descendants("text")) or _words(comment)
        if text.strip():
            yield f"Comment: {' '.join(text.split())}"


def _shapes(element: Element) -> Iterator[Element]:
    """Yields shapes in the order of the slide, including those inside groups."""
    for shape in element.descendants(*_SHAPES):
        if shape.tag == "grpSp":
            yield from _shapes(shape)
        elif _placeholder(shape) not in _FURNITURE:
            yield shape


def _placeholder(shape: Element) -> str:
    found = next(shape.descendants("ph"), None)
    return found.attributes.get("type", "body") if found else ""


def _content(shape: Element) -> Iterator[str]:
    if shape.tag == "pic":
        description = next((p.attributes.get("descr", "") for p in shape.descendants("cNvPr")), "").strip()
        yield f"[Image: {description}]" if description else "[Image]"
        return
    if any(shape.descendants("chart")):
        yield "[Chart]"
    if any(shape.descendants("relIds")):
        yield "[Diagram]"
    for table in shape.descendants("tbl"):
        yield markdown.table([_words(cell) for cell in row.descendants("tc")] for row in table.descendants("tr"))
    for body in shape.descendants("txBody") if shape.tag != "graphicFrame" else ():
        yield from _bullets(body)


def _bullets(body: Element) -> Iterator[str]:
    for paragraph in body.children:
        if paragraph.tag == "p" and (text := _words(paragraph)):
            level = paragraph.value("pPr", of="lvl") or "0"
            yield markdown.item(int(level) if level.isdecimal() else 0, text)


def _notes(package: Package, part: str) -> Iterator[str]:
    texts = [_words(shape) for shape in _shapes(package.root(part, "notes"))]
    if any(texts):
        yield "Notes: " + " ".join(filter(None, texts))


def _words(element: Element) -> str:
    pieces = (piece.text if piece.tag == "t" else " " for piece in _text_pieces(element))
    return " ".join("".join(pieces).split())


def _text_pieces(element: Element) -> Iterator[Element]:
    for child in element.children:
        if child.tag in {"t", "br"}:
            yield child
        else:
            yield from _text_pieces(child)
    if element.tag == "p":
        yield element  # a paragraph ends: a space


def read(data: bytes) -> Document:
    package = Package(data)
    slides = _slides(package)
    return Document(_blocks(package, slides), [counted(len(slides), "slide")])
