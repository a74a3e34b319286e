"""Detects the type of a file by its bytes, and checks the client's claim.

Only a bounded part of the bytes is read, and nothing is unpacked: this runs in the server, on hostile data.
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
    (b"II*\0", types.TIFF),
    (b"MM\0*", types.TIFF),
    (b"{\\rtf", types.RTF),
)
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_FOLDERS = ((b"word/", types.DOCX), (b"xl/", types.XLSX), (b"ppt/", types.PPTX))
_BRANDS = {  # ISO base media files: the major brand after "ftyp"
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"), types.HEIC),
    **dict.fromkeys((b"avif", b"avis"), types.AVIF),
}
_BITMAP_HEADERS = {12, 40, 52, 56, 64, 108, 124}  # sizes of the header that follows the file header
_FIRST_MEMBER = 30  # offset of the name of a zip file's first member
_NO_CLAIM = {"", "application/octet-stream", "binary/octet-stream"}
_NEVER_TEXT = ("audio/", "font/", "image/", "video/")
_TEXT_CONTROLS = frozenset("\t\n\r\f\x1b\x08")
_END = struct.Struct("<4s4H2LH")  # end of central directory
_ENTRY = struct.Struct("<4s6H3L5H2L")  # central directory entry
_MAX_DIRECTORY = 1 << 20
_MAX_NAMES = 2_000


def sniff_audio(data: bytes) -> str | None:
    """Returns the MIME type of audio that models accept, or None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "audio/wav"
    is_mp3 = data[:3] == b"ID3" or (data[:1] == b"\xff" and len(data) > 1 and data[1] in (0xFB, 0xF3, 0xF2, 0xFA))
    return "audio/mpeg" if is_mp3 else None


def identify(upload: Upload) -> FileType:
    """Returns the type of a file. Raises UnsupportedMediaType if we do not support it, or the claim is wrong."""
    found = by_bytes(upload.data)
    claimed = _claim(upload.declared_type)
    if found is None:
        raise UnsupportedMediaType(f"{upload.name} {_complaint(upload, claimed)}")
    if found.is_text:
        return _kind_of_text(upload, claimed)
    if claimed and not _agrees(claimed, found):
        raise UnsupportedMediaType(f"{upload.name} is declared as {claimed}, but its bytes are {found.mime}")
    return found


def _agrees(claimed: str, found: FileType) -> bool:
    """Returns whether a claim fits. Clients call an unknown format built on zip a zip file."""
    named = types.of_mime(claimed)
    in_zip = found in {types.DOCX, types.XLSX, types.PPTX, types.ODT, types.ODS, types.ODP, types.EPUB}
    return claimed == f"{found.mime.partition('/')[0]}/*" or named is found or (in_zip and named is types.ZIP)


def _claim(declared: str | None) -> str:
    claim = one_line(declared or "", 100).partition(";")[0].strip().lower()
    return "" if claim in _NO_CLAIM else claim


def _complaint(upload: Upload, claimed: str) -> str:
    if upload.data.startswith(_OLD_OFFICE):
        return "is an old Office file (doc, xls, ppt) or protected by a password; save it as docx, xlsx or pptx"
    named = types.of_mime(claimed) or (None if claimed else types.of_name(upload.name))
    if named:
        how = f"is declared as {claimed}" if claimed else f"is named like {named.mime}"
        what = "not text" if named.is_text else "something else"
        return f"{how}, but its bytes are {what}"
    return f"is of a type that cannot be read{f' ({claimed})' if claimed else ''}; send {types.READABLE}"


def _kind_of_text(upload: Upload, claimed: str) -> FileType:
    """Decides the kind of text by the claim, then by the name: bytes do not distinguish CSV from Markdown.

    Clients have many names for the types of text. An unknown claim contradicts the bytes only if it names sound,
    pictures or fonts.
    """
    named = types.of_mime(claimed)
    if named is not None and named.is_text:
        return named
    if named is not None or claimed.startswith(_NEVER_TEXT):
        raise UnsupportedMediaType(f"{upload.name} is declared as {claimed}, but its bytes are text/plain")
    by_name = types.of_name(upload.name)
    return by_name if by_name and by_name.is_text else types.PLAIN


def by_bytes(data: bytes) -> FileType | None:
    """Returns the type by the bytes alone; every kind of text is plain text. None for files that cannot be read."""
    if (image := _magic(data)) is not None:
        return image
    if data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n\x00").startswith(b"%PDF-"):
        return types.PDF
    if data.startswith(b"PK"):
        return _zipped(data)
    head = data[:HEAD]
    return types.PLAIN if is_unicode(head, whole=len(data) <= HEAD) or _may_be_8_bit(head) else None


def _magic(data: bytes) -> FileType | None:
    for magic, type_ in _MAGIC:
        if data.startswith(magic):
            return type_
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return types.WEBP
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BITMAP_HEADERS:
        return types.BMP
    return _BRANDS.get(data[8:12]) if data[4:8] == b"ftyp" else None


def _zipped(data: bytes) -> FileType | None:
    names = list(_names(data))
    if not names:
        return None
    if b"[Content_Types].xml" in names:
        office = (type_ for folder, type_ in _FOLDERS if any(name.startswith(folder) for name in names))
        return next(office, types.ZIP)
    # OpenDocument and EPUB begin with a member that holds their type.
    member = data[_FIRST_MEMBER : _FIRST_MEMBER + 100]
    for type_ in (types.ODT, types.ODS, types.ODP, types.EPUB):
        if member.startswith(b"mimetype" + type_.mime.encode() + b"PK"):
            return type_
    return types.ZIP


def _names(data: bytes) -> Iterator[bytes]:
    """Yields the names in a zip file's directory, without trusting any number in it."""
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


def is_unicode(head: bytes, *, whole: bool) -> bool:
    """Returns whether these bytes, the beginning of a file or all of it, are UTF-8 or UTF-16 text."""
    decoder = codecs.getincrementaldecoder(encoding_of(head))()
    try:
        text = decoder.decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return all(character >= " " or character in _TEXT_CONTROLS for character in set(text))


def _may_be_8_bit(head: bytes) -> bool:
    """Returns whether it may be Windows-1252 or the like: no control characters. The worker finds the encoding."""
    try:
        head.decode(encoding_of(head))
    except UnicodeDecodeError:
        return all(byte >= ord(" ") or chr(byte) in _TEXT_CONTROLS for byte in set(head))
    return False


_SIZES_IN_JPEG = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # start of frame: all but DHT, JPG, DAC
_MAX_SEGMENTS = 1_000
_MARKER = 0xFF  # may be repeated as padding


def image_size(data: bytes, type_: FileType) -> tuple[int, int] | None:
    """Returns (width, height) by the first bytes, so that a bomb is refused before anything decodes it.

    None if the header is broken.
    """
    try:
        return _READERS[type_](data)
    except (struct.error, IndexError):
        return None


def _png(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">LL", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    """Returns the size of the screen. Frames may be larger than it, and decoders make room for both."""
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = data[24:27], data[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if kind == b"VP8L":
        bits = struct.unpack_from("<L", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        marker, kind, length = struct.unpack_from(">BBH", data, at)
        if marker != _MARKER:
            return None
        if kind == _MARKER:
            at += 1
            continue
        if kind in _SIZES_IN_JPEG:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None


_READERS = {types.PNG: _png, types.GIF: _gif, types.WEBP: _webp, types.JPEG: _jpeg}
