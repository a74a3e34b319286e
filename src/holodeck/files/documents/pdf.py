"""PDF, page by page: text, tables, form fields, comments. `scan` reads pages that are images.

The parser is PDFium, Chromium's engine. It is C++, and a broken file may crash it: then the worker dies and the
document is refused. Compared with pypdf it is ten times faster, keeps the cells of a table's row on one line, and
renders the pages of a scan.
"""

import ctypes
from collections import Counter
from collections.abc import Iterator

import pypdfium2 as pdfium  # type: ignore[import-untyped]
import pypdfium2.raw as api  # type: ignore[import-untyped]

from holodeck.files.documents import markdown
from holodeck.files.documents.document import Document, DocumentRefused, counted, scan_mark
from holodeck.files.documents.pdf_tables import MAX_PIECES, Piece, with_tables

MAX_PAGES = 2_000
MAX_ANNOTATIONS = 500  # annotations per page
MAX_IMAGES = 1_000  # images per page
FEW_CHARACTERS = 100  # characters that a scanner may add to a page: a number, its name
MOST_OF_PAGE, DECORATION = 0.5, 0.02  # shares of a page: more is an image of the whole page, less is a logo
_COMMENTS = {api.FPDF_ANNOT_TEXT, api.FPDF_ANNOT_FREETEXT, api.FPDF_ANNOT_HIGHLIGHT, api.FPDF_ANNOT_STRIKEOUT}
_LOCKED = {api.FPDF_ERR_PASSWORD, api.FPDF_ERR_SECURITY}


def opened(data: bytes) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == api.FPDF_ERR_PASSWORD:
            raise DocumentRefused("encrypted", "is protected by a password") from error
        if getattr(error, "err_code", None) in _LOCKED:
            raise DocumentRefused("encrypted", "is encrypted in a way that is not supported") from error
        raise DocumentRefused("damaged", "is damaged: it cannot be read as PDF") from error


def read(data: bytes) -> Document:
    source = opened(data)
    document = Document(details=[counted(len(source), "page")])
    document.blocks = _pages(source, document)
    return document


def _pages(source: pdfium.PdfDocument, document: Document) -> Iterator[str]:
    number = len(source)
    damaged = 0
    for index in range(min(number, MAX_PAGES)):
        try:
            page = source[index]
        except pdfium.PdfiumError as error:
            damaged += 1
            if damaged == number:
                raise DocumentRefused("damaged", "is damaged: none of its pages can be read") from error
            yield f"Page {index + 1}\n[This page is damaged.]"
            continue
        text = "\n\n".join(filter(None, (_text(page), _annotations(page))))
        pictures = _image_shares(page)
        is_scan = bool(pictures) and (not text or (len(text) < FEW_CHARACTERS and max(pictures) > MOST_OF_PAGE))
        shown = [share for share in pictures if share > DECORATION]
        if text:
            note = f"\n\n[{counted(len(shown), 'image')} on this page.]" if shown and not is_scan else ""
            yield f"Page {index + 1}\n{text}{note}"
        if is_scan:
            document.scans.append(index + 1)
            yield scan_mark(index + 1)
        page.close()
    if number > MAX_PAGES:
        yield f"[{number - MAX_PAGES:,} more pages are left out.]"
    yield _attachments(source)


def _text(page: pdfium.PdfPage) -> str:
    text_page = page.get_textpage()
    plain = text_page.get_text_range().replace("\r\n", "\n").replace("\ufffe", "").strip()
    number = text_page.count_rects()
    pieces = []
    for index in range(number if number <= MAX_PIECES else 0):
        left, bottom, right, top = text_page.get_rect(index)
        if words := " ".join(text_page.get_text_bounded(left, bottom, right, top).split()):
            pieces.append(Piece(left, bottom, right, top, words))
    text_page.close()
    tabled = with_tables(pieces)
    return tabled if tabled is not None and not _lost(plain, tabled) else plain


def _lost(plain: str, tabled: str) -> bool:
    """Returns whether the tables lost a letter or digit of the page: then the plain text is shown."""
    return bool(Counter(filter(str.isalnum, plain)) - Counter(filter(str.isalnum, tabled)))


def _image_shares(page: pdfium.PdfPage) -> list[float]:
    width, height = page.get_size()
    shares = []
    for image in page.get_objects(filter=[api.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = image.get_bounds()
        shares.append(abs((right - left) * (top - bottom)) / max(width * height, 1.0))
        if len(shares) >= MAX_IMAGES:
            break
    return shares


def _annotations(page: pdfium.PdfPage) -> str:
    """Returns filled form fields and comments: neither is part of the page's text."""
    lines = []
    for index in range(min(api.FPDFPage_GetAnnotCount(page), MAX_ANNOTATIONS)):
        annotation = api.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        kind = api.FPDFAnnot_GetSubtype(annotation)
        if kind == api.FPDF_ANNOT_WIDGET and (value := _string(annotation, b"V")):
            lines.append(markdown.item(0, f"Form field {_string(annotation, b'T')}: {value}"))
        elif kind in _COMMENTS and (text := _string(annotation, b"Contents")):
            lines.append(markdown.item(0, f"Comment: {text}"))
        api.FPDFPage_CloseAnnot(annotation)
    return "\n".join(lines)


def _string(annotation: object, key: bytes) -> str:
    size = api.FPDFAnnot_GetStringValue(annotation, key, None, 0)
    if size <= 2:  # noqa: PLR2004  the final NUL of UTF-16
        return ""
    buffer = ctypes.create_string_buffer(min(size, 65_536))
    api.FPDFAnnot_GetStringValue(annotation, key, ctypes.cast(buffer, ctypes.POINTER(api.FPDF_WCHAR)), len(buffer))
    return buffer.raw.decode("utf-16-le", "replace").rstrip("\0")


def _attachments(source: pdfium.PdfDocument) -> str:
    try:
        names = [source.get_attachment(index).get_name() for index in range(min(source.count_attachments(), 100))]
    except pdfium.PdfiumError:
        return ""
    return (
        "\n".join(["Attached files, which are not read:", *(markdown.item(0, name) for name in names)]) if names else ""
    )
