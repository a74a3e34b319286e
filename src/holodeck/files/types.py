"""The kinds of files that can be read: one table (SRV-13)."""

from typing import NamedTuple


class FileType(NamedTuple):
    """`read_as` is the word for people and for the worker; images become `ocr` or `image`."""

    mime: str
    label: str
    read_as: str
    endings: tuple[str, ...]
    aliases: tuple[str, ...] = ()

    @property
    def is_image(self) -> bool:
        return self.mime.startswith("image/")

    @property
    def is_text(self) -> bool:
        return self.read_as == "text"


_OFFICE = "application/vnd.openxmlformats-officedocument."
PNG = FileType("image/png", "PNG", "image", (".png",))
JPEG = FileType("image/jpeg", "JPEG", "image", (".jpg", ".jpeg"), ("image/jpg", "image/pjpeg"))
GIF = FileType("image/gif", "GIF", "image", (".gif",))
WEBP = FileType("image/webp", "WebP", "image", (".webp",))
PDF = FileType("application/pdf", "PDF", "pdf", (".pdf",), ("application/x-pdf",))
DOCX = FileType(_OFFICE + "wordprocessingml.document", "Word", "docx", (".docx",))
XLSX = FileType(_OFFICE + "spreadsheetml.sheet", "Excel", "xlsx", (".xlsx",))
PPTX = FileType(_OFFICE + "presentationml.presentation", "PowerPoint", "pptx", (".pptx",))
PLAIN = FileType("text/plain", "plain text", "text", (".txt",))
CSV = FileType(  # Windows declares CSV as Excel wherever Excel is installed
    "text/csv", "CSV", "text", (".csv",), ("application/csv", "text/x-csv", "application/vnd.ms-excel")
)
MARKDOWN = FileType("text/markdown", "Markdown", "text", (".md", ".markdown"), ("text/x-markdown",))

TYPES = (PNG, JPEG, GIF, WEBP, PDF, DOCX, XLSX, PPTX, PLAIN, CSV, MARKDOWN)
READABLE = "PNG, JPEG, GIF, WebP, PDF, Word, Excel and PowerPoint (docx, xlsx, pptx), plain text, CSV and Markdown"
_BY_MIME = {name: type_ for type_ in TYPES for name in (type_.mime, *type_.aliases)}


def of_mime(mime: str) -> FileType | None:
    return _BY_MIME.get(mime)


def of_name(name: str) -> FileType | None:
    return next((type_ for type_ in TYPES if name.casefold().endswith(type_.endings)), None)
