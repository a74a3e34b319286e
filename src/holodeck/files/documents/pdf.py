"""PDF, page by page. pypdf reads it: pure Python, so a broken file ends in an exception and not in a core dump."""

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO

from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError

from holodeck.files.documents.document import Document, DocumentRefused, counted

MAX_PAGES = 2_000
# What pure-Python parsers raise on what they did not expect.
FAULTS = (
    *(PyPdfError, DependencyError, struct.error, zlib.error),
    *(ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
)


def read(data: bytes) -> Document:
    try:
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):  # most are locked against printing, not against reading
            raise DocumentRefused("encrypted", "is protected by a password")
        number = len(reader.pages)
    except DependencyError as error:
        raise DocumentRefused("encrypted", "is protected in a way that cannot be opened here") from error
    except FAULTS as error:
        raise DocumentRefused("damaged", "is damaged: it cannot be read as PDF") from error
    return Document(_pages(reader, number), counted(number, "page"))


def _pages(reader: PdfReader, number: int) -> Iterator[str]:
    failed = 0
    for index in range(min(number, MAX_PAGES)):
        try:
            text = reader.pages[index].extract_text().strip()
        except FAULTS as error:
            failed += 1
            if failed == number:
                raise DocumentRefused("damaged", "is damaged: none of its pages can be read") from error
            text = "[This page is damaged.]"
        if text:
            yield f"Page {index + 1}\n{text}"
    if number > MAX_PAGES:
        yield f"[{number - MAX_PAGES:,} more pages are left out.]"
