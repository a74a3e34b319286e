"""Sheets of a workbook as Markdown, the same for Excel and OpenDocument."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from holodeck.files.documents import markdown


@dataclass(frozen=True)
class Sheet:
    title: str
    table: str
    remarks: list[str] = field(default_factory=list)  # comments, and a note of what is not shown


def blocks(sheets: Iterable[Sheet]) -> Iterator[str]:
    """Yields blocks. Empty sheets are named too, unless all are: a workbook of empty sheets has no text."""
    empty: list[str] = []
    any_text = False
    for sheet in sheets:
        heading = markdown.heading(2, f"Sheet {sheet.title}")
        if not sheet.table and not sheet.remarks:
            empty.append(f"{heading}\n\n[This sheet is empty.]")
            continue
        any_text = True
        yield from empty
        empty.clear()
        yield heading
        yield sheet.table
        yield from sheet.remarks
    if any_text:
        yield from empty
