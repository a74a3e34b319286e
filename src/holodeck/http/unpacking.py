"""Decompresses bodies that arrive compressed although we did not ask for it."""

import zlib
from typing import Protocol

from holodeck.http.failures import NotHttp

MOST = 8 * 2**20  # bytes that one read may expand to: more is a bomb, or would block the event loop too long
_SLICE = 16_384
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_BARE = -zlib.MAX_WBITS
_KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
_UNKNOWN = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})


class Unpacker(Protocol):
    """Decompresses pieces of a body. `whole`: the body may end here."""

    whole: bool

    def take(self, piece: bytes, /) -> bytes: ...


def unpacker(encoding: str) -> Unpacker | None:
    """Returns None if the body is not compressed, even if the header names `none` or a charset."""
    if not encoding:
        return None
    names = [name for name in (part.strip().lower() for part in encoding.split(",")) if name not in ("", "identity")]
    if len(names) == 1 and names[0] in _KNOWN:
        return _Zipped(may_be_bare=names[0] == "deflate")
    return None if _UNKNOWN.union(_KNOWN).isdisjoint(names) else _Refusing()


class _Refusing:
    whole = True

    def take(self, _: bytes) -> bytes:
        raise NotHttp("the server's response is compressed with an encoding that was not requested")


class _Zipped:
    def __init__(self, *, may_be_bare: bool) -> None:
        self._may_be_bare = may_be_bare
        self._stream: zlib._Decompress | None = None
        self.whole = True

    def take(self, piece: bytes) -> bytes:
        unpacked = bytearray()
        for start in range(0, len(piece), _SLICE):
            self._take(piece[start : start + _SLICE], unpacked)
        return bytes(unpacked)

    def _take(self, piece: bytes, unpacked: bytearray) -> None:
        while piece:
            if self._stream is None:
                self._stream = zlib.decompressobj(self._form(piece[0]))
            elif self._stream.eof:  # another member, or the padding that may follow one
                piece = piece.lstrip(b"\0")
                if not piece:
                    break
                self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                unpacked += self._stream.decompress(piece, MOST + 1 - len(unpacked))
            except zlib.error as error:
                raise NotHttp("the server's response is marked as compressed, but it is not") from error
            if len(unpacked) > MOST:
                raise NotHttp("the server's response is too large after decompression")
            piece = self._stream.unused_data  # each member copies all that is left: hence slices
            self.whole = self._stream.eof

    def _form(self, first: int) -> int:
        """Detects the format: some servers mean the bare one by "deflate". Neither gzip nor zlib begins like it."""
        is_wrapped = first == 0x1F or first & 0x0F == 0x08  # noqa: PLR2004  RFC 1952 and RFC 1950
        return _BARE if self._may_be_bare and not is_wrapped else _GZIP_OR_ZLIB
