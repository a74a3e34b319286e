"""The result of every document reader, and its refusal.

Readers know nothing of limits on text: they yield blocks as long as the caller asks for the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Why: TypeAlias = Literal["damaged", "encrypted", "too_large", "not_text"]


class DocumentRefused(Exception):
    """The document cannot be read. The text ends a sentence that starts with the file's name: "report.pdf …"."""

    def __init__(self, why: Why, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why


@dataclass
class Document:
    """A document as a reader returns it. `details` go into the header line: "3 pages", "2 sheets".

    A reader may extend `details` and `scans` while it yields blocks. `scans` are numbers of pages that are images without text: the server has them read one by one.
    """

    blocks: Iterator[str] = field(default_factory=lambda: iter(()))
    details: list[str] = field(default_factory=list)
    scans: list[int] = field(default_factory=list)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def scan_mark(page: int) -> str:
    """The block that stands for a scanned page until its text has been recognized."""
    return f"Page {page}\n[This page is a scan.]"
