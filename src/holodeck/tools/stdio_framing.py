"""Bytes in, lines out: bounded and linear, whatever arrives.

No I/O and no JSON. A line over the limit is announced once as soon as that is certain and once when it ends; what is
between is counted and forgotten.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEAD = 256
TAIL = 128


@dataclass(frozen=True)
class Oversize:
    """The two ends of a line that is too long; `ended` is False while it still goes on."""

    head: bytes
    tail: bytes
    ended: bool


class LineFramer:
    """Cuts a stream at newlines. `discarded` is how much of the current line was thrown away."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._head: bytes | None = None  # of the oversized line that is being discarded
        self._tail = b""
        self.discarded = 0

    def feed(self, data: bytes) -> Sequence[bytes | Oversize]:
        if not self._line and self._head is None and data.find(b"\n") == len(data) - 1 < self._limit:
            return (data[:-1],)  # one whole line, as nearly always
        lines: list[bytes | Oversize] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            lines += self._add(data[start:end])
            lines.append(self._finish())
            start = end + 1
        lines += self._add(data[start:])
        return lines

    def _add(self, piece: bytes) -> Iterator[Oversize]:
        if self._head is not None:
            self._discard(piece)
            return
        self._line += piece
        if len(self._line) > self._limit:
            self._head = bytes(self._line[:HEAD])
            self._discard(bytes(self._line))
            self._line = bytearray()  # a new one: clear() keeps the memory
            yield Oversize(self._head, b"", ended=False)

    def _discard(self, piece: bytes) -> None:
        self.discarded += len(piece)
        self._tail = (self._tail + piece[-TAIL:])[-TAIL:]

    def _finish(self) -> bytes | Oversize:
        if self._head is None:
            line, self._line = bytes(self._line), bytearray()
            return line
        oversize = Oversize(self._head, self._tail, ended=True)
        self._head, self._tail, self.discarded = None, b"", 0
        return oversize
