"""What a file is, by its bytes; and whether that is what the client says.

Only a bounded part of the bytes is looked at, and nothing is unpacked: this runs in the server, on hostile data.
"""

import codecs
import struct
from collections.abc import Iterator

from holodeck.core.text import one_line
from holodeck.errors import UnsupportedMediaType
from holodeck.files import types
from holodeck.files.types import FileType
from holodeck.files.upload import Upload

HEAD = 65_536
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", types.PNG),
    (b"\xff\xd8\xff", types.JPEG),
    (b"GIF87a", types.GIF),
    (b"GIF89a", types.GIF),
)
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_FOLDERS = ((b"word/", types.DOCX), (b"xl/", types.XLSX), (b"ppt/", types.PPTX))
_NO_CLAIM = {"", "application/octet-stream", "binary/octet-stream"}
_TEXT_CONTROLS = frozenset("\t\n\r\f\x1b\x08")
_END = struct.Struct("<4s4H2LH")  # end of central directory
_ENTRY = struct.Struct("<4s6H3L5H2L")  # central directory entry
_MAX_DIRECTORY = 1 << 20
_MAX_NAMES = 2_000


def sniff(data: bytes) -> str | None:
    """The MIME type by the bytes alone; every kind of text is text/plain. None for what cannot be read."""
    found = _by_bytes(data)
    return found.mime if found else None


def identify(upload: Upload) -> FileType:
    """The type of a file. Raises UnsupportedMediaType when it is none of ours, or not what the client says."""
    found = _by_bytes(upload.data)
    claimed = _claim(upload.declared_type)
    if found is None:
        raise UnsupportedMediaType(f"{upload.name} {_complaint(upload, claimed)}")
    if found.is_text:
        return _kind_of_text(upload, claimed)
    if claimed and claimed != f"{found.mime.partition('/')[0]}/*" and types.of_mime(claimed) is not found:
        raise UnsupportedMediaType(f"{upload.name} is declared as {claimed}, but its bytes are {found.mime}")
    return found


def _claim(declared: str | None) -> str:
    claim = one_line(declared or "", 100).partition(";")[0].strip().lower()
    return "" if claim in _NO_CLAIM else claim


def _complaint(upload: Upload, claimed: str) -> str:
    if upload.data.startswith(_OLD_OFFICE):
        return "is an Office file of the old kind (doc, xls, ppt) or protected by a password; save it as docx, xlsx or pptx"
    named = types.of_mime(claimed) or (None if claimed else types.of_name(upload.name))
    if named:
        how = f"is declared as {claimed}" if claimed else f"is named like {named.mime}"
        what = "not UTF-8 or UTF-16 text" if named.is_text else "something else"
        return f"{how}, but its bytes are {what}"
    return f"is of a type that cannot be read{f' ({claimed})' if claimed else ''}; {types.READABLE} can"


def _kind_of_text(upload: Upload, claimed: str) -> FileType:
    """Bytes do not distinguish CSV from Markdown: the claim decides, then the name."""
    if not claimed or claimed == "text/*":
        named = types.of_name(upload.name)
        return named if named and named.is_text else types.PLAIN
    named = types.of_mime(claimed)
    if named is None:
        raise UnsupportedMediaType(f"{upload.name} is of type {claimed}, which cannot be read; {types.READABLE} can")
    if not named.is_text:
        raise UnsupportedMediaType(f"{upload.name} is declared as {claimed}, but its bytes are text/plain")
    return named


def _by_bytes(data: bytes) -> FileType | None:
    for magic, type_ in _MAGIC:
        if data.startswith(magic):
            return type_
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return types.WEBP
    if data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n\x00").startswith(b"%PDF-"):
        return types.PDF
    if data.startswith(b"PK"):
        return _office(data)
    return types.PLAIN if _is_text(data[:HEAD], whole=len(data) <= HEAD) else None


def _office(data: bytes) -> FileType | None:
    names = list(_names(data))
    if b"[Content_Types].xml" not in names:
        return None
    return next((type_ for folder, type_ in _FOLDERS if any(name.startswith(folder) for name in names)), None)


def _names(data: bytes) -> Iterator[bytes]:
    """Names in a zip file's directory, without trusting any figure in it."""
    end = data.rfind(b"PK\x05\x06", max(0, len(data) - 65_600))
    if end < 0 or len(data) - end < _END.size:
        return
    *_, start, _comment = _END.unpack_from(data, end)
    directory = data[start : min(end, start + _MAX_DIRECTORY)]
    at = 0
    for _ in range(_MAX_NAMES):
        if directory[at : at + 4] != b"PK\x01\x02" or len(directory) - at < _ENTRY.size:
            return
        fields = _ENTRY.unpack_from(directory, at)
        name, extra, comment = fields[10:13]
        at += _ENTRY.size
        yield directory[at : at + name]
        at += name + extra + comment


def encoding_of(data: bytes) -> str:
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return name
    return "utf-8"


def _is_text(head: bytes, *, whole: bool) -> bool:
    decoder = codecs.getincrementaldecoder(encoding_of(head))()
    try:
        text = decoder.decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return all(character >= " " or character in _TEXT_CONTROLS for character in set(text))
