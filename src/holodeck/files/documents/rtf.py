"""RTF as plain text, by striprtf. It omits images, notes and headers; a note counts them."""

import re
from collections.abc import Iterator

from striprtf.striprtf import rtf_to_text

from holodeck.files.documents.document import Document, DocumentRefused, counted

_LEFT_OUT = {
    "image": re.compile(r"\\pict\b"),
    "footnote": re.compile(r"\\footnote\b"),
    "comment": re.compile(r"\\annotation\b"),
    "header": re.compile(r"\\header[flr]?\b"),
    "footer": re.compile(r"\\footer[flr]?\b"),
    "embedded object": re.compile(r"\\objdata\b"),
    "text box": re.compile(r"\\shptxt\b"),
}


def read(data: bytes) -> Document:
    source = data.decode("latin-1")  # RTF is ASCII; other characters are escaped
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DocumentRefused("damaged", "is damaged: it cannot be read as RTF") from error
    return Document(_blocks(text, source))


def _blocks(text: str, source: str) -> Iterator[str]:
    yield text.strip()
    found = [
        counted(len(pattern.findall(source)), noun) for noun, pattern in _LEFT_OUT.items() if pattern.search(source)
    ]
    if found and text.strip():
        yield f"[Not shown: {', '.join(found)}.]"
