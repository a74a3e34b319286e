"""A file as a client sent it: a name for people, a claim about its type, bytes.

The name is display text: it is never joined to a path. The claim is checked by `sniff.identify`.
"""

import asyncio
import base64
import binascii
import time

import msgspec

from holodeck.core.text import one_line
from holodeck.errors import InvalidRequest, PayloadTooLarge

MAX_NAME = 120
UNNAMED = "file"
_SLICE = 1 << 16  # characters of base64 at a time: decoding holds the interpreter's lock
_SMALL = 256_000


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """`field` is its position in the request, for errors: "files[2]". Any name may be given; see `display_name`."""

    data: bytes
    name: str = UNNAMED
    declared_type: str | None = None
    field: str = "files"
    base64: str | None = None  # set if the client sent base64: an image is passed on without encoding it again

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", display_name(self.name))

    @classmethod
    async def from_base64(
        cls, text: str, *, limit: int, field: str, name: str | None = None, declared_type: str | None = None
    ) -> "Upload":
        """Raises PayloadTooLarge (413) or InvalidRequest (422, with the field)."""
        shown = display_name(name)
        data = await decode_base64(text, limit=limit, field=field, name=shown)
        return cls(data=data, name=shown, declared_type=declared_type, field=field, base64=text)


def display_name(name: str | None) -> str:
    r"""The last part of the path that a client sends, on one line: `..\..\etc/passwd` is "passwd"."""
    last = (name or "").replace("\\", "/").rstrip("/").rpartition("/")[2]
    shown = one_line(last, MAX_NAME)
    return shown if shown.strip(". ") else UNNAMED


async def decode_base64(text: str, *, limit: int, field: str, name: str = UNNAMED) -> bytes:
    """Decodes strictly: whitespace, missing padding and the URL alphabet are errors. Long text is decoded in a thread."""
    if len(text) // 4 * 3 > limit + 2:
        raise PayloadTooLarge(f"{name} has more than {limit:,} bytes, the limit for files in JSON")
    try:
        data = _decoded(text) if len(text) < _SMALL else await asyncio.to_thread(_decoded, text)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{name} is not valid base64", field=field) from error
    if len(data) > limit:
        raise PayloadTooLarge(f"{name} has {len(data):,} bytes; {limit:,} is the limit for files in JSON")
    return data


def _decoded(text: str) -> bytes:
    pieces = []
    for start in range(0, len(text), _SLICE):
        piece = base64.b64decode(text[start : start + _SLICE], validate=True)
        if start + _SLICE < len(text) and len(piece) != _SLICE // 4 * 3:
            raise ValueError("padding before the end")
        pieces.append(piece)
        _let_others_run()
    return b"".join(pieces)


def _let_others_run() -> None:
    """Releases the interpreter's lock. Otherwise a thread keeps it for 5 ms each time the event loop wants it back."""
    time.sleep(0)


async def encode_base64(data: bytes) -> str:
    return _encoded(data) if len(data) < _SMALL else await asyncio.to_thread(_encoded, data)


def _encoded(data: bytes) -> str:
    step, pieces = _SLICE // 4 * 3, []
    for start in range(0, len(data), step):
        pieces.append(base64.b64encode(data[start : start + step]).decode("ascii"))
        _let_others_run()
    return "".join(pieces)
