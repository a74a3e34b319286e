"""EPUB books: their chapters in reading order, as Markdown."""

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

from holodeck.files.documents import hypertext, markdown
from holodeck.files.documents.document import Document, DocumentRefused, counted
from holodeck.files.documents.package import Package
from holodeck.files.documents.xml import Element


def read(data: bytes) -> Document:
    package = Package(data)
    container = package.root("META-INF/container.xml", "container")
    root = next((file.attributes.get("full-path", "") for file in container.descendants("rootfile")), "")
    if not package.has(root):
        raise DocumentRefused("damaged", "is damaged: it does not name its main document")
    book = package.root(root, "package")
    chapters = _chapters(book, posixpath.dirname(root))
    return Document(_blocks(package, book, chapters), [counted(len(chapters), "chapter")])


def _chapters(book: Element, folder: str) -> list[str]:
    items = {item.attributes.get("id", ""): item.attributes.get("href", "") for item in book.descendants("item")}
    order = (items.get(entry.attributes.get("idref", ""), "") for entry in book.descendants("itemref"))
    return [posixpath.normpath(posixpath.join(folder, unquote(href))) for href in order if href]


def _blocks(package: Package, book: Element, chapters: list[str]) -> Iterator[str]:
    title = next((each.text.strip() for each in book.descendants("title")), "")
    authors = [each.text.strip() for each in book.descendants("creator") if each.text.strip()]
    if title:
        yield markdown.heading(1, title) + (f"\nby {', '.join(authors)}" if authors else "")
    for chapter in chapters:
        if not package.has(chapter):
            yield f"[The chapter {posixpath.basename(chapter)} is missing from the file.]"
            continue
        yield from hypertext.blocks(package.bytes_of(chapter).decode("utf-8", "replace"))
