"""Encodes AG-UI events as server-sent events, the default format.

Each frame is one JSON object on one `data:` line. Its `id` line is `<run>:<n>`, where n is the event's position in the
run's log. When one event becomes two frames, only the second has an id, so that a client which reconnects never misses the
second half. Deltas, nearly all of a stream, are appended to a prefix that is built once per message or call.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from holodeck.core.events import DELTAS, Event
from holodeck.wires import sse
from holodeck.wires.agui.profile import Profile
from holodeck.wires.agui.translate import MAX_FRAME_BYTES, TRANSLATIONS, left_out, translate

_encode_text = msgspec.json.Encoder().encode
_fields = msgspec.structs.astuple
_EMPTY_DELTA_END = len(b'""}')


class SseEncoder:
    """Writes one run for one reader."""

    content_type: ClassVar[str] = sse.CONTENT_TYPE
    keepalive: ClassVar[bytes] = sse.KEEPALIVE
    needs_all_events: ClassVar[bool] = False
    shows_metadata: ClassVar[bool] = True

    def __init__(self, run_id: str, profile: Profile = Profile.FULL) -> None:
        self._profile = profile
        self._id = sse.id_prefix(run_id)
        self._heads: dict[type[Event], dict[str, bytes]] = {kind: {} for kind in DELTAS}

    def encode(self, event: Event, n: int | None = None) -> bytes:
        return self.encode_many(((n, event),))

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
                out.append(b"%b%d%b%b}\n\n" % (self._id, n, head, _encode_text(delta)))
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
            frame = b"data: %b\n\n" % sse.json_bytes(wire)
            frames.append(frame if len(frame) <= MAX_FRAME_BYTES else sse.frame(left_out(wire)))
        if n is not None:
            frames[-1] = b"%b%d\n%b" % (self._id, n, frames[-1])
        return b"".join(frames)
