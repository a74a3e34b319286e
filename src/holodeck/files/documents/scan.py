"""Reads one scanned page of a PDF: PDFium renders it, and the engine for images recognises its text."""

import pypdfium2 as pdfium  # type: ignore[import-untyped]

from holodeck.files.documents import picture
from holodeck.files.documents.document import Document, DocumentRefused
from holodeck.files.documents.pdf import opened


def read(data: bytes, page: int) -> Document:
    try:
        source = opened(data)[page - 1]
        scale = min(picture.LONG_SIDE / max(*source.get_size(), 1), 8)
        image = source.render(scale=scale).to_pil().convert("RGB")
    except (pdfium.PdfiumError, ValueError, OverflowError) as error:
        raise DocumentRefused("damaged", "is damaged: a page cannot be rendered") from error
    return Document(picture.lines(picture.for_engine(image)))
