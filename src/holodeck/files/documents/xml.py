"""A streaming reader of the XML in Office and OpenDocument files.

Names lose their namespaces: the transitional and the strict dialect of OOXML do not differ otherwise, as far as we read
them. Attributes that point to relationships keep an `r:`, because slides have both an `id` and an `r:id`. The parser
itself refuses a DOCTYPE, in any encoding: no entity is ever declared, so none expands.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import IO
from xml.parsers import expat

from holodeck.files.documents.document import DocumentRefused

MAX_DEPTH = 256
MAX_TEXT = 1_000_000  # characters of one element: a cell holds 32,767, and appending without end is quadratic
CHUNK = 65_536
TEXT = "#text"  # the tag of text between elements, where its position matters
_SKIPPED = "Fallback"  # mc:Fallback duplicates mc:Choice for old readers


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def child(self, *path: str) -> "Element | None":
        """Returns the first child, grandchild, … of these names."""
        here: Element | None = self
        for tag in path:
            here = next((child for child in here.children if child.tag == tag), None) if here else None
        return here

    def value(self, *path: str, of: str = "val") -> str | None:
        found = self.child(*path)
        return found.attributes.get(of) if found else None

    def descendants(self, *tags: str) -> Iterator["Element"]:
        """Yields the outermost elements of these names, in document order."""
        for child in self.children:
            if child.tag in tags:
                yield child
            else:
                yield from child.descendants(*tags)


def elements(
    stream: IO[bytes], tags: Collection[str], *, announced: Collection[str] = (), mixed: bool = False
) -> Iterator[Element]:
    """Yields every outermost element of these names as soon as it is complete. What surrounds them is not kept.

    `announced` names elements that are yielded when they begin, without children: the table around the rows. With
    `mixed`, text becomes children named TEXT, in document order.
    """
    builder = _Builder(tags, announced, mixed=mixed)
    try:
        while chunk := stream.read(CHUNK):
            builder.parser.Parse(chunk)
            yield from builder.take()
        builder.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DocumentRefused("damaged", "is damaged: its XML is incomplete or malformed") from error
    yield from builder.take()


class _Builder:
    def __init__(self, tags: Collection[str], announced: Collection[str], *, mixed: bool) -> None:
        self._tags = tags
        self._announced = announced
        self._mixed = mixed
        self._open: list[Element] = []
        self._done: list[Element] = []
        self._depth = 0
        self._skipping = 0  # the depth at which it began
        self._names: dict[str, str] = {}
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.StartDoctypeDeclHandler = self._doctype

    def take(self) -> list[Element]:
        done, self._done = self._done, []
        return done

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise DocumentRefused("damaged", f"is nested more than {MAX_DEPTH} levels deep")
        tag = name.rpartition("}")[2]
        if self._skipping or tag == _SKIPPED:
            self._skipping = self._skipping or self._depth
        elif self._open or tag in self._tags:
            element = Element(tag, {self._attribute(key): value for key, value in attributes.items()})
            if self._open:
                self._open[-1].children.append(element)
            self._open.append(element)
        elif tag in self._announced:
            self._done.append(Element(tag, {self._attribute(key): value for key, value in attributes.items()}))

    def _end(self, _name: str) -> None:
        if self._skipping:
            self._skipping = 0 if self._skipping == self._depth else self._skipping
        elif self._open:
            element = self._open.pop()
            if not self._open:
                self._done.append(element)
        self._depth -= 1

    def _data(self, text: str) -> None:
        if not self._open or self._skipping:
            return
        if self._mixed:
            self._open[-1].children.append(Element(TEXT, {}, text=text))
        elif len(self._open[-1].text) < MAX_TEXT:
            self._open[-1].text += text

    def _doctype(self, *_: object) -> None:
        raise DocumentRefused("damaged", "declares a document type, which no Office program writes")

    def _attribute(self, name: str) -> str:
        known = self._names.get(name)
        if known is None:
            space, _, local = name.rpartition("}")
            known = self._names[name] = f"r:{local}" if space.endswith("/relationships") else local
        return known
