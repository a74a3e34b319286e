"""Word documents as Markdown: headings, lists, tables, links, footnotes, headers and footers.

The format of a paragraph comes from its style as much as from itself: most headings and many lists are only styles.
Bold, colours and page layout are left out. An image is replaced by its description. Tracked changes and comments are
written in CriticMarkup: {++inserted++}, {--deleted--}, {>>comment<<}.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from holodeck.files.documents import markdown
from holodeck.files.documents.document import Document
from holodeck.files.documents.package import Package
from holodeck.files.documents.xml import Element

MAX_STYLE_CHAIN = 20  # styles are based on styles; a hostile file makes a cycle of them
_BODY_LEVEL = 9  # outline level of body text


@dataclass(frozen=True)
class Style:
    heading: int = 0
    list_id: str | None = None


class _Word:
    def __init__(self, package: Package, document: Document) -> None:
        self._package = package
        self._document = document
        self._main = package.main_part()
        relations = package.relations(self._main).items()
        self._links = {id_: target for id_, (kind, target) in relations if kind == "hyperlink"}
        self._styles = {s.attributes.get("styleId", ""): s for s in self._elements_of("styles", "style")}
        self._ordered = self._find_ordered()
        self._comments = {c.attributes.get("id", ""): c for c in self._elements_of("comments", "comment")}

    def _elements_of(self, kind: str, *tags: str) -> Iterator[Element]:
        for part in self._package.related(self._main, kind)[:1]:
            yield from self._package.elements(part, *tags)

    def _find_ordered(self) -> set[tuple[str, str]]:
        """Returns (list id, level) of the numbered lists; all others have bullets."""
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
        yield from self._page_lines("header")
        for block in self._package.elements(self._main, "p", "tbl"):
            yield from self._block(block)
        yield from self._notes("footnotes", "footnote", "")
        yield from self._notes("endnotes", "endnote", "e")
        yield from self._page_lines("footer")

    def _page_lines(self, kind: str) -> Iterator[str]:
        """Yields headers or footers, each once: sections and first pages often repeat them."""
        texts = (
            " ".join(self._text(element) for element in self._package.elements(part, "p", "tbl"))
            for part in self._package.related(self._main, kind)
        )
        for text in dict.fromkeys(" ".join(text.split()) for text in texts):
            if text:
                yield f"{kind.capitalize()}: {text}"

    def _notes(self, kind: str, tag: str, prefix: str) -> Iterator[str]:
        notes = ((note.attributes.get("id", "0"), self._text(note).strip()) for note in self._elements_of(kind, tag))
        lines = [f"[^{prefix}{id_}]: {' '.join(text.split())}" for id_, text in notes if text]
        if lines:
            yield "\n".join(lines)

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
            elif child.tag in _SPECIAL:
                yield _SPECIAL[child.tag](self, child)
            elif child.tag not in _NOT_TEXT:
                yield from self._pieces(child)
        if element.tag == "p":
            yield " "  # paragraphs of one cell or footnote

    def link(self, link: Element) -> str:
        return markdown.link(self._text(link), self._links.get(link.attributes.get("r:id", ""), ""))

    def inserted(self, element: Element) -> str:
        return self._changed("{++", self._text(element), "++}")

    def deleted(self, element: Element) -> str:
        removed = "".join(each.text for each in element.descendants("delText")) or self._text(element)
        return self._changed("{--", removed, "--}")

    def _changed(self, start: str, text: str, end: str) -> str:
        """Formats a tracked change. One without text (of a paragraph mark, of a format) is not shown."""
        if not text.strip():
            return text
        self._mention("tracked changes as {++inserted++} and {--deleted--}")
        return f"{start}{text}{end}"

    def comment(self, reference: Element) -> str:
        comment = self._comments.get(reference.attributes.get("id", ""))
        if comment is None:
            return ""
        self._mention("comments as {>>comment<<}")
        author = comment.attributes.get("author", "")
        return "{>>" + " ".join(f"{author}: {self._text(comment)}".split()).removeprefix(": ") + "<<}"

    def note(self, reference: Element) -> str:
        prefix = "e" if reference.tag == "endnoteReference" else ""
        return f"[^{prefix}{reference.attributes.get('id', '')}]"

    def drawing(self, drawing: Element) -> str:
        """Returns the description of an image. A text box becomes its own block."""
        if any(drawing.descendants("txbxContent")):
            return ""
        description = next((each.attributes.get("descr", "") for each in drawing.descendants("docPr")), "").strip()
        kinds = (("chart", "Chart"), ("relIds", "Diagram"))
        noun = next((noun for tag, noun in kinds if any(drawing.descendants(tag))), "Image")
        if not description and noun == "Image" and not any(drawing.descendants("pic", "imagedata", "blip")):
            return ""  # a line or an arrow
        return f"[{noun}: {description}]" if description else f"[{noun}]"

    def object(self, _element: Element) -> str:
        return "[Embedded object]"

    def _mention(self, detail: str) -> None:
        if detail not in self._document.details:
            self._document.details.append(detail)


_MARKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_NOT_TEXT = frozenset({"pPr", "rPr", "txbxContent"})  # text boxes are blocks of their own
_SPECIAL = {
    "hyperlink": _Word.link,
    "ins": _Word.inserted,
    "moveTo": _Word.inserted,
    "del": _Word.deleted,
    "moveFrom": _Word.deleted,
    "commentReference": _Word.comment,
    "footnoteReference": _Word.note,
    "endnoteReference": _Word.note,
    "drawing": _Word.drawing,
    "pict": _Word.drawing,
    "object": _Word.object,
}


def _heading_level(properties: Element | None) -> int:
    level = properties.value("outlineLvl") if properties else None
    return int(level) + 1 if level is not None and level.isdecimal() and int(level) < _BODY_LEVEL else 0


def _named_level(name: str) -> int:
    """Reads the heading level from a style's name: Word translates the ids of its styles, but not their names."""
    if name.casefold() == "title":
        return 1
    word, _, number = name.casefold().partition(" ")
    return int(number) if word == "heading" and number.isdecimal() else 0


def read(data: bytes) -> Document:
    document = Document()
    document.blocks = _Word(Package(data), document).blocks()
    return document
