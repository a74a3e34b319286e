"""Bodies that come compressed although we asked for none of it."""

import zlib
from collections.abc import Callable

from holodeck.http.failures import NotHttp

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_PLAIN = frozenset({"", "identity"})
_KNOWN = frozenset({"gzip", "x-gzip", "deflate"})


def unpacker(encoding: str) -> Callable[[bytes], bytes] | None:
    """Turns pieces of a body into what they mean; None when they mean themselves."""
    name = encoding.strip().lower()
    if name in _PLAIN:
        return None
    if name not in _KNOWN:
        return _refuse
    return _Unpacker().take


def _refuse(_: bytes) -> bytes:
    raise NotHttp("the server's answer is compressed in a way that nobody asked for")


class _Unpacker:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    def take(self, piece: bytes) -> bytes:
        try:
            data = self._unpack(piece)
        except zlib.error as error:
            raise NotHttp("the server's answer says that it is compressed, and is not") from error
        self._begun = True
        return data

    def _unpack(self, piece: bytes) -> bytes:
        try:
            return self._stream.decompress(piece)
        except zlib.error:
            if self._begun:
                raise
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)  # some mean the bare format by "deflate"
            return self._stream.decompress(piece)
