"""Reads width and height of a picture from its first bytes, so that a bomb is refused before anything decodes it."""

import struct

from holodeck.files import types
from holodeck.files.types import FileType

_SIZES_IN_JPEG = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # start of frame: all but DHT, JPG, DAC
_MAX_SEGMENTS = 1_000
_MARKER = 0xFF  # may be repeated as padding


def image_size(data: bytes, type_: FileType) -> tuple[int, int] | None:
    """Returns (width, height), or None if the header is broken."""
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
