"""Encodes AG-UI events: as server-sent events, or as length-prefixed protobuf for clients that name it (SRV-06).

A frame of server-sent events is one JSON object on one `data:` line. Its `id` line is `<run>:<n>`, where n is the event's
position in the run's log. When one event becomes two frames, only the second has an id, so that a client which reconnects
never misses the second half. Deltas, nearly all of a stream, are appended to a prefix that is built once per message or call.

A protobuf frame is 4 bytes big-endian and one `Event`, made from the JSON of the other encoder: so both formats say the
same. It has no event numbers and no keep-alive: the client takes an empty frame for a broken one.

curl and every HTTP library send `*/*`, and binary is useless on a terminal, so wildcards mean server-sent events here,
unlike in the TypeScript encoder. Clients before 1.0 cannot read ten of the protobuf events and never get them.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from holodeck.core.encoder import Encoder
from holodeck.core.events import DELTAS, Event
from holodeck.wires import sse
from holodeck.wires.agui.profile import Profile
from holodeck.wires.agui.protobuf import SHAPES, varint, write_body, write_event
from holodeck.wires.agui.translate import MAX_FRAME_BYTES, TRANSLATIONS, left_out, translate

_encode = msgspec.json.Encoder().encode
_fields = msgspec.structs.astuple
_EMPTY_DELTA_END = len(b'""}')

PROTOBUF = "application/vnd.ag-ui.event+proto"  # exactly: the client compares the whole header

_decode = msgspec.json.Decoder().decode
_MAX_KEPT = 64  # bytes of a delta: tokens are short, and few sizes need no bound


class SseEncoder(sse.FrameEncoder):
    """Writes one run for one reader."""

    needs_all_events: ClassVar[bool] = False
    shows_metadata: ClassVar[bool] = True

    def __init__(self, run_id: str, profile: Profile = Profile.FULL) -> None:
        self._profile = profile
        self._id = sse.id_prefix(run_id)
        self._heads: dict[type[Event], dict[str, bytes]] = {kind: {} for kind in DELTAS}

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        """One buffer for all that waits. `enumerate(events, first)` is a batch; without a number there is no id line."""
        out: list[bytes] = []
        for n, event in batch:
            heads = self._heads.get(type(event))
            if heads is None or n is None:
                out.append(self._whole(event, n))
                continue
            key, delta = _fields(event)
            head = heads.get(key) or self._head(heads, event, key)
            try:
                out.append(b"%b%d%b%b}\n\n" % (self._id, n, head, _encode(delta)))
            except UnicodeEncodeError:  # half a surrogate pair: the slow way mends it
                out.append(self._whole(event, n))
        return b"".join(out)

    def _head(self, heads: dict[str, bytes], event: Any, key: str) -> bytes:
        """Everything between the number and the delta of such a frame."""
        (wire,) = translate(type(event)(key, ""), self._profile)
        heads[key] = head = b"\ndata: " + sse.json_bytes(wire)[:-_EMPTY_DELTA_END]
        return head

    def _whole(self, event: Event, n: int | None) -> bytes:
        frames: list[bytes] = []
        for wire in TRANSLATIONS[type(event)](event, self._profile):
            try:
                frame = b"data: %b\n\n" % _encode(wire)
            except Exception:  # noqa: BLE001  a value that cannot be written as it is: `json_bytes` replaces it
                frame = sse.frame(wire)
            frames.append(frame if len(frame) <= MAX_FRAME_BYTES else sse.frame(left_out(wire)))
        if n is not None:
            frames[-1] = b"%b%d\n%b" % (self._id, n, frames[-1])
        return b"".join(frames)


class ProtoEncoder(sse.FrameEncoder):
    """Writes one run for one reader."""

    content_type: ClassVar[str] = PROTOBUF
    keepalive = b""
    needs_all_events: ClassVar[bool] = False
    shows_metadata: ClassVar[bool] = True

    def __init__(self, run_id: str, profile: Profile = Profile.FULL) -> None:
        self.run_id = run_id
        self._profile = profile
        self._heads: dict[type[Event], dict[str, _Heads]] = {kind: {} for kind in DELTAS}

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
        return [_decode(sse.json_bytes(wire)) for wire in translate(event, self._profile)]


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


def encoder_for(accept: str | None, profile: Profile, run_id: str) -> Encoder:
    """The encoder for one reader of one run."""
    if profile is Profile.FULL and _prefers_protobuf(accept or ""):
        return ProtoEncoder(run_id, profile)
    return SseEncoder(run_id, profile)


def _prefers_protobuf(accept: str) -> bool:
    wishes = dict(map(_wish, accept.split(",")))
    return wishes.get(PROTOBUF, 0.0) > 0 and wishes[PROTOBUF] >= wishes.get(sse.CONTENT_TYPE, 0.0)


def _wish(media_range: str) -> tuple[str, float]:
    name, *parameters = media_range.split(";")
    weight = 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            weight = _weight(value.strip())
    return name.strip().lower(), weight


def _weight(text: str) -> float:
    """0 to 1; what is no number, or no such number, counts as a refusal."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
