"""AG-UI events as length-prefixed protobuf: 4 bytes big-endian, then one `Event` (SRV-06).

What is written is the JSON of the SSE encoder, read back: so both wires say the same, whatever values an event holds.
Deltas take a short cut, as they do there. Event numbers have no place in this format, and neither has a keep-alive: the
client takes an empty frame for a broken one.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from holodeck.core.events import DELTAS, Event
from holodeck.wires.agui.profile import Profile
from holodeck.wires.agui.protobuf import SHAPES, varint, write_body, write_event
from holodeck.wires.agui.translate import MAX_FRAME_BYTES, left_out, translate
from holodeck.wires.sse import json_bytes

CONTENT_TYPE = "application/vnd.ag-ui.event+proto"  # exactly: the client compares the whole header

_decode = msgspec.json.Decoder().decode
_fields = msgspec.structs.astuple
_MAX_KEPT = 64  # bytes of a delta: tokens are short, and few sizes need no bound


class ProtoEncoder:
    """Writes one run for one reader."""

    content_type: ClassVar[str] = CONTENT_TYPE
    keepalive: ClassVar[bytes] = b""
    needs_all_events: ClassVar[bool] = False
    shows_metadata: ClassVar[bool] = True

    def __init__(self, run_id: str, profile: Profile = Profile.FULL) -> None:
        self.run_id = run_id
        self._profile = profile
        self._heads: dict[type[Event], dict[str, _Heads]] = {kind: {} for kind in DELTAS}

    def encode(self, event: Event, n: int | None = None) -> bytes:
        return self.encode_many(((n, event),))

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        """One buffer for all that waits; the numbers are there to be equal to the SSE encoder."""
        out: list[bytes] = []
        for _, event in batch:
            heads = self._heads.get(type(event))
            if heads is None:
                out.append(self._whole(event))
                continue
            key, delta = _fields(event)
            by_size = heads.get(key)
            if by_size is None:
                by_size = heads[key] = self._heads_of(event, key)
            try:
                text = delta.encode()
            except UnicodeEncodeError:  # half a surrogate pair: the slow way mends it
                text = b""
            out += (by_size[len(text)], text) if text else (self._whole(event),)
        return b"".join(out)

    def _heads_of(self, event: Any, key: str) -> "_Heads":
        wire = self._wires(type(event)(key, ""))[0]
        shape = SHAPES[wire["type"]]
        return _Heads(shape.arm, write_body(wire) + (shape.delta or b""))

    def _whole(self, event: Event) -> bytes:
        return b"".join(map(_frame, self._wires(event)))

    def _wires(self, event: Event) -> list[dict[str, Any]]:
        return [_decode(json_bytes(wire)) for wire in translate(event, self._profile)]


class _Heads(dict[int, bytes]):
    """All that stands before a delta of so many bytes, in the frames of one message or call."""

    def __init__(self, arm: bytes, body: bytes) -> None:
        """`body` is everything in the event up to the length of the delta."""
        super().__init__()
        self._arm, self._body = arm, body

    def __missing__(self, size: int) -> bytes:
        body = self._body + varint(size)
        event = self._arm + varint(len(body) + size) + body
        head = (len(event) + size).to_bytes(4, "big") + event
        if size <= _MAX_KEPT:
            self[size] = head
        return head


def _frame(wire: dict[str, Any]) -> bytes:
    event = write_event(wire)
    if len(event) > MAX_FRAME_BYTES:
        event = write_event(left_out(wire))
    return len(event).to_bytes(4, "big") + event
