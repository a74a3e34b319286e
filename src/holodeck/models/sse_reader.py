"""Server-sent events from bytes, as they arrive: pure, synchronous, incremental.

Follows the WHATWG rules for lines (LF, CRLF, CR), the byte order mark, comments and fields. It works on bytes, so that
a character cut between two reads, U+2028 or NEL never split a line. It knows nothing of what the events mean.
"""

from typing import TypeAlias

from holodeck.errors import ModelProtocolError

MAX_EVENT = 1_000_000

SseEvent: TypeAlias = tuple[bytes, bytes]
"""The event's name (empty when the stream gave none) and its data."""

_BOM = b"\xef\xbb\xbf"
_LF, _CR = (
    b"\n\r"  # as numbers: `number in bytes` is faster than `bytes in bytes`, which raises and catches an exception
)


class SseReader:
    """Takes bytes, returns complete events. Buffers at most `max_event` bytes."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max = max_event
        self._at_start = True
        self._after_cr = False
        self._partial: list[bytes] = []  # pieces of an incomplete line
        self._partial_size = 0
        self._data: list[bytes] = []  # lines of the event being read
        self._data_size = 0
        self._name = b""
        self._id = b""
        self.last_id = b""  # id of the last event that was returned, for `Last-Event-ID`

    def feed(self, chunk: bytes) -> list[SseEvent]:
        if self._at_start or self._after_cr:
            chunk = self._opening(chunk)
        if _LF not in chunk and _CR not in chunk:
            self._keep(chunk)
            return []
        if self._partial:
            chunk = b"".join([*self._partial, chunk])
            self._partial.clear()
            self._partial_size = 0
        if self._data or self._name or self._id is not self.last_id or _CR in chunk:
            return self._read_lines(chunk)
        return self._read_frames(chunk)

    def end(self) -> list[SseEvent]:
        """Events left when the stream ends without a blank line; the last one may be incomplete."""
        if not (self._partial or self._data or self._name):
            return []
        rest = b"".join(self._partial)
        self._partial.clear()
        return self._read_lines(rest + b"\n\n")

    def _opening(self, chunk: bytes) -> bytes:
        """Drops the byte order mark, and the LF of a CRLF that was cut between two reads."""
        if self._at_start:
            chunk = b"".join([*self._partial, chunk])
            self._partial.clear()
            self._partial_size = 0
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                return chunk
            self._at_start = False
            return chunk.removeprefix(_BOM)
        self._after_cr = not chunk
        return chunk.removeprefix(b"\n")

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._partial.append(piece)
            self._partial_size += len(piece)
            self._check(self._partial_size + self._data_size)

    def _check(self, size: int) -> None:
        if size > self._max:
            raise ModelProtocolError(
                f"The model endpoint sent an event of more than {self._max:,} bytes, which no chat model does."
            )

    def _read_frames(self, chunk: bytes) -> list[SseEvent]:
        """The ordinary case: plain events with a blank line after each, LF only. Anything else goes line by line."""
        whole, blank, rest = chunk.rpartition(b"\n\n")
        small = len(chunk) <= self._max
        events = _unnamed_events(whole) if small else []
        for frame in whole.split(b"\n\n") if blank and not events else ():
            if small and (plain := _plain_event(frame)) is not None:
                events.append(plain)
            else:
                events.extend(self._read_lines(frame + b"\n\n"))
        if rest:
            events.extend(self._read_lines(rest))
        return events

    def _read_lines(self, chunk: bytes) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in chunk.splitlines(keepends=True):  # bytes.splitlines splits at LF, CR and CRLF only
            content = line.rstrip(b"\r\n")
            if len(content) == len(line):
                self._keep(line)
            elif content:
                self._read_field(content)
            elif self._data or self._name:
                self._dispatch(events)
        self._after_cr = chunk.endswith(b"\r")
        return events

    def _read_field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
            self._check(self._data_size)
        elif field == b"event":
            self._check(len(value))
            self._name = value
        elif field == b"id":
            self._check(len(value))
            self._id = value

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append((self._name, b"\n".join(self._data)))
            self.last_id = self._id
        self._data.clear()
        self._data_size = 0
        self._name = b""


def _unnamed_events(frames: bytes) -> list[SseEvent]:
    """The events of frames that have only a `data:` line; an empty list if any frame is different.

    Nearly all tokens arrive like this, alone or many at once: they are split here in one call.
    """
    if not frames.startswith(b"data: "):
        return []
    lines = frames.split(b"\n\ndata: ")
    lines[0] = lines[0][6:]
    events = [(b"", line) for line in lines if _LF not in line]
    return events if len(events) == len(lines) else []


def _plain_event(frame: bytes) -> SseEvent | None:
    """The event of a frame that has only a `data:` line and an optional `event:` line; None for any other frame."""
    if frame.startswith(b"data: "):
        return (b"", frame[6:]) if _LF not in frame else None
    if not frame.startswith(b"event: "):
        return None
    name, _, rest = frame.partition(b"\n")
    return (name[7:], rest[6:]) if rest.startswith(b"data: ") and _LF not in rest else None
