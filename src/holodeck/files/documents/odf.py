"""OpenDocument texts, spreadsheets and presentations (LibreOffice) as Markdown.

Text is mixed with elements here, so its order is kept. Tracked changes and comments are written in CriticMarkup, as for
Word: {++inserted++}, {--deleted--}, {>>comment<<}.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from holodeck.files.documents import markdown, sheets
from holodeck.files.documents.document import Document, DocumentRefused, counted
from holodeck.files.documents.package import Package
from holodeck.files.documents.sheets import Sheet
from holodeck.files.documents.xml import TEXT, Element

CONTENT = "content.xml"
MAX_ROWS = 5_000
MAX_COLUMNS = 256
_BLOCKS = ("p", "h", "list", "table", "section", "tracked-changes", "index-body", "numbered-paragraph")
_SILENT = {"tracked-changes", "sequence-decls", "variable-decls", "forms", "notes-configuration"}


@dataclass
class _OdfReader:
    package: Package
    document: Document
    deleted: dict[str, str] = field(default_factory=dict)  # change id → text
    inserted: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    # blocks

    def text(self) -> Iterator[str]:
        yield from self._page_lines("header")
        for element in self.package.elements(CONTENT, *_BLOCKS, mixed=True):
            yield from self.block(element)
        if self.notes:
            yield "\n".join(f"[^{number}]: {note}" for number, note in enumerate(self.notes, 1))
        yield from self._page_lines("footer")

    def _page_lines(self, kind: str) -> Iterator[str]:
        found = (self.inline(each).strip() for each in self.package.elements("styles.xml", kind, mixed=True))
        for text in dict.fromkeys(filter(None, found)):
            yield f"{kind.capitalize()}: {' '.join(text.split())}"

    def block(self, element: Element, depth: int = 0) -> Iterator[str]:
        if element.tag == "tracked-changes":
            self._learn_changes(element)
        elif element.tag == "h":
            level = element.attributes.get("outline-level", "1")
            yield markdown.heading(int(level) if level.isdecimal() else 1, self.inline(element))
        elif element.tag == "p":
            yield self.inline(element).strip()
        elif element.tag == "list":
            yield from self._items(element, depth)
        elif element.tag == "table":
            yield markdown.table(_row_cells(self, row) for row in element.descendants("table-row"))
        elif element.tag not in _SILENT and element.tag != TEXT:
            for child in element.children:
                yield from self.block(child, depth)

    def _items(self, element: Element, depth: int) -> Iterator[str]:
        for entry in element.children:
            for child in entry.children:
                if child.tag == "list":
                    yield from self._items(child, depth + 1)
                elif text := self.inline(child).strip():
                    yield markdown.item(depth, text)

    def _learn_changes(self, element: Element) -> None:
        for region in element.children:
            id_ = region.attributes.get("id", "")
            for change in region.children:
                if change.tag == "deletion":
                    self.deleted[id_] = " ".join(
                        self.inline(child) for child in change.children if child.tag in {"p", "h", "list", "table"}
                    ).strip()
                elif change.tag == "insertion":
                    self.inserted.add(id_)
        if self.deleted or self.inserted:
            self.document.details.append("tracked changes as {++inserted++} and {--deleted--}")

    # inline

    def inline(self, element: Element) -> str:
        return "".join(self._pieces(element))

    def _pieces(self, element: Element) -> Iterator[str]:
        for child in element.children:
            if child.tag == TEXT:
                yield child.text
            elif child.tag in _MARKS:
                yield _MARKS[child.tag]
            elif child.tag == "s":
                count = child.attributes.get("c", "1")
                yield " " * (min(int(count), 100) if count.isdecimal() else 1)
            elif child.tag in _SPECIAL:
                yield _SPECIAL[child.tag](self, child)
            elif child.tag not in _SILENT:
                yield from self._pieces(child)
                if child.tag in {"p", "h"}:
                    yield " "

    def link(self, element: Element) -> str:
        return markdown.link(self.inline(element), element.attributes.get("href", ""))

    def note(self, element: Element) -> str:
        self.notes.append(" ".join(self.inline(each) for each in element.children if each.tag == "note-body").strip())
        return f"[^{len(self.notes)}]"

    def comment(self, element: Element) -> str:
        author = "".join(self.inline(each) for each in element.children if each.tag == "creator")
        text = " ".join(self.inline(each) for each in element.children if each.tag in {"p", "list"})
        return "{>>" + " ".join(f"{author}: {text}".split()).removeprefix(": ") + "<<}"

    def change(self, element: Element) -> str:
        id_ = element.attributes.get("change-id", "")
        if element.tag == "change":
            return "{--" + self.deleted[id_] + "--}" if self.deleted.get(id_) else ""
        if id_ not in self.inserted:
            return ""
        return "{++" if element.tag == "change-start" else "++}"

    def frame(self, element: Element) -> str:
        """An image, a chart or a text box."""
        box = next(element.descendants("text-box"), None)
        if box is not None:
            return f" {self.inline(box).strip()} "
        words = (self.inline(each).strip() for each in element.children if each.tag in {"title", "desc"})
        description = " ".join(filter(None, words))
        noun = "Image" if any(element.descendants("image")) else "Object"
        return f"[{noun}: {description}]" if description else f"[{noun}]"


_MARKS = {"tab": "\t", "line-break": "\n"}
_SPECIAL = {
    "a": _OdfReader.link,
    "note": _OdfReader.note,
    "annotation": _OdfReader.comment,
    "change": _OdfReader.change,
    "change-start": _OdfReader.change,
    "change-end": _OdfReader.change,
    "frame": _OdfReader.frame,
}


# spreadsheets


def _sheets(reader: _OdfReader) -> Iterator[Sheet]:
    title: str | None = None
    rows: list[list[str]] = []
    left_out = number = 0
    for element in reader.package.elements(CONTENT, "table-row", announced=("table",), mixed=True):
        if element.tag == "table":
            if title is not None:
                yield _sheet(title, rows, left_out)
            number += 1
            title, rows, left_out = element.attributes.get("name", ""), [], 0
            continue
        cells = _row_cells(reader, element)
        room = MAX_ROWS - len(rows)
        wanted = _repeated(element, "number-rows-repeated") if cells else 0
        rows += [cells] * min(wanted, room)
        left_out += max(0, wanted - room)
    if title is not None:
        yield _sheet(title, rows, left_out)
    reader.document.details.append(counted(number, "sheet"))


def _sheet(title: str, rows: list[list[str]], left_out: int) -> Sheet:
    longer = f"[The sheet is longer; only its first {counted(len(rows), 'row')} with text are shown.]"
    return Sheet(title, markdown.table(rows), [longer] if left_out else [])


def _row_cells(reader: _OdfReader, row: Element) -> list[str]:
    """Returns the cells of a row without trailing empty ones: LibreOffice repeats one up to the last column."""
    cells: list[str] = []
    for cell in row.descendants("table-cell", "covered-table-cell"):
        cells += [_cell(reader, cell)] * min(_repeated(cell, "number-columns-repeated"), MAX_COLUMNS + 1 - len(cells))
    cells = cells if len(cells) <= MAX_COLUMNS else [*cells[:MAX_COLUMNS], cells[-1] and "[more columns are left out]"]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _repeated(element: Element, name: str) -> int:
    number = element.attributes.get(name, "1")
    return int(number) if number.isdecimal() and len(number) < 8 else 1  # noqa: PLR2004  a sheet has a million rows


def _cell(reader: _OdfReader, cell: Element) -> str:
    """Returns the displayed text of a cell. If none is saved: the value's attribute or the formula."""
    if text := reader.inline(cell).strip():
        return text
    attributes = cell.attributes
    for name in ("string-value", "date-value", "time-value", "boolean-value", "value"):
        if attributes.get(name):
            return attributes[name]
    formula = attributes.get("formula", "")
    return "=" + formula.partition("=")[2] if "=" in formula else formula


# presentations


def _slides(reader: _OdfReader) -> Iterator[str]:
    number = 0
    for page in reader.package.elements(CONTENT, "page", mixed=True):
        number += 1
        yield markdown.heading(2, f"Slide {number}")
        for part in page.children:
            if part.tag == "notes":
                if notes := " ".join(reader.inline(part).split()):
                    yield f"Notes: {notes}"
            elif part.tag != TEXT:
                yield from _shape(reader, part)
    reader.document.details.append(counted(number, "slide"))


def _shape(reader: _OdfReader, part: Element) -> Iterator[str]:
    found = list(part.descendants("p", "h", "list", "table"))
    for element in found:
        yield from reader.block(element)
    if not found and part.tag == "frame":
        yield reader.frame(part)


def read(data: bytes) -> Document:
    package = Package(data)
    if not package.has(CONTENT):
        raise DocumentRefused("damaged", "is damaged: its main part is missing")
    kind = package.bytes_of("mimetype").rpartition(b".")[2].strip()
    document = Document()
    reader = _OdfReader(package, document)
    if kind == b"spreadsheet":
        document.blocks = sheets.blocks(_sheets(reader))
    else:
        document.blocks = _slides(reader) if kind == b"presentation" else reader.text()
    return document
