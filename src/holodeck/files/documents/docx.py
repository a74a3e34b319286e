"""Word documents as Markdown: headings, lists, tables, links, footnotes.

How a paragraph looks is read from its style as much as from itself: most headings and many lists are only styles.
Bold, colours and page layout are left out; a picture leaves its description behind.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from holodeck.files.documents import markdown
from holodeck.files.documents.document import Document
from holodeck.files.documents.package import Package
from holodeck.files.documents.xml import Element

MAX_STYLE_CHAIN = 20  # styles are based on styles; a hostile file makes a ring of them
_BODY_LEVEL = 9  # outline level of what is no heading


@dataclass(frozen=True)
class Style:
    heading: int = 0
    list_id: str | None = None


class _Word:
    def __init__(self, package: Package) -> None:
        self._package = package
        self._main = package.main_part()
        relations = package.relations(self._main).items()
        self._links = {id_: target for id_, (kind, target) in relations if kind == "hyperlink"}
        self._styles = {s.attributes.get("styleId", ""): s for s in self._elements_of("styles", "style")}
        self._ordered = self._find_ordered()

    def _elements_of(self, kind: str, *tags: str) -> Iterator[Element]:
        for part in self._package.related(self._main, kind)[:1]:
            yield from self._package.elements(part, *tags)

    def _find_ordered(self) -> set[tuple[str, str]]:
        """(list id, level) of the lists that count; all others have bullets."""
        abstract: dict[str, list[Element]] = {}
        ordered = set()
        for entry in self._elements_of("numbering", "abstractNum", "num"):
            if entry.tag == "abstractNum":
                abstract[entry.attributes.get("abstractNumId", "")] = [c for c in entry.children if c.tag == "lvl"]
                continue
            for level in abstract.get(entry.value("abstractNumId") or "", []):
                if level.value("numFmt") not in {"bullet", "none", None}:
                    ordered.add((entry.attributes.get("numId", ""), level.attributes.get("ilvl", "0")))
        return ordered

    def blocks(self) -> Iterator[str]:
        for block in self._package.elements(self._main, "p", "tbl"):
            yield from self._block(block)
        for kind, title in (("footnotes", "Footnotes"), ("endnotes", "Endnotes")):
            notes = [self._text(note).strip() for note in self._elements_of(kind, "footnote", "endnote")]
            if any(notes):
                yield "\n".join([f"{title}:", *(markdown.item(0, note) for note in notes if note)])

    def _block(self, block: Element) -> Iterator[str]:
        if block.tag == "tbl":
            yield markdown.table(self._row(row) for row in block.descendants("tr"))
            return
        if text := self._text(block).strip():
            yield self._dressed(block, text)
        for box in block.descendants("txbxContent"):
            for inner in box.children:
                yield from self._block(inner)

    def _row(self, row: Element) -> list[str]:
        cells = []
        for cell in row.descendants("tc"):
            span = cell.value("tcPr", "gridSpan") or "1"
            cells += [self._text(cell), *[""] * (min(int(span), 64) - 1 if span.isdecimal() else 0)]
        return cells

    def _dressed(self, paragraph: Element, text: str) -> str:
        style = self._style(paragraph.value("pPr", "pStyle"))
        if level := _heading_level(paragraph.child("pPr")) or style.heading:
            return markdown.heading(level, text)
        own = paragraph.value("pPr", "numPr", "numId")
        list_id = own if own is not None else style.list_id
        if list_id is None or list_id == "0":  # 0 takes a paragraph out of its style's list
            return text
        depth = paragraph.value("pPr", "numPr", "ilvl") or "0"
        marker = "1." if (list_id, depth) in self._ordered else "-"
        return markdown.item(int(depth) if depth.isdecimal() else 0, text, marker=marker)

    def _style(self, id_: str | None) -> Style:
        heading, list_id = 0, None
        for _ in range(MAX_STYLE_CHAIN):
            style = self._styles.get(id_ or "")
            if style is None:
                break
            properties = style.child("pPr")
            heading = heading or _named_level(style.value("name") or "") or _heading_level(properties)
            if list_id is None and properties is not None:
                list_id = properties.value("numPr", "numId")
            id_ = style.value("basedOn")
        return Style(heading, list_id)

    def _text(self, element: Element) -> str:
        return "".join(self._pieces(element))

    def _pieces(self, element: Element) -> Iterator[str]:
        for child in element.children:
            if child.tag == "t":
                yield child.text
            elif child.tag in _MARKS:
                yield _MARKS[child.tag]
            elif child.tag == "hyperlink":
                yield self._link(child)
            elif child.tag == "docPr":
                yield _picture(child)
            elif child.tag not in _NOT_TEXT:
                yield from self._pieces(child)
        if element.tag == "p":
            yield " "  # paragraphs of one cell or footnote

    def _link(self, link: Element) -> str:
        text, target = self._text(link), self._links.get(link.attributes.get("r:id", ""), "")
        return f"[{text}]({target})" if target.startswith(("https://", "http://", "mailto:")) else text


_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_NOT_TEXT = frozenset(
    {"pPr", "txbxContent", "del", "moveFrom"}
)  # text boxes are blocks of their own; what was deleted is gone


def _picture(properties: Element) -> str:
    description = properties.attributes.get("descr", "").strip()
    return f"[Image: {description}]" if description else ""


def _heading_level(properties: Element | None) -> int:
    level = properties.value("outlineLvl") if properties else None
    return int(level) + 1 if level is not None and level.isdecimal() and int(level) < _BODY_LEVEL else 0


def _named_level(name: str) -> int:
    """Word keeps the English names of its own styles in every language; only their ids are translated."""
    if name.casefold() == "title":
        return 1
    word, _, number = name.casefold().partition(" ")
    return int(number) if word == "heading" and number.isdecimal() else 0


def read(data: bytes) -> Document:
    return Document(_Word(Package(data)).blocks())
