"""What every reader returns, and how it says no.

Readers know nothing of limits on text: they yield blocks for as long as the caller asks for the next one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Why: TypeAlias = Literal["damaged", "encrypted", "too_large"]


class DocumentRefused(Exception):
    """The document cannot be read. The text ends a sentence that starts with the file's name: "report.pdf …"."""

    def __init__(self, why: Why, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why


@dataclass(frozen=True)
class Document:
    """`detail` is for the header line: "3 pages", "2 sheets"."""

    blocks: Iterator[str]
    detail: str = ""


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
