"""Streams of named events: `event:` and one line of JSON, as the REST and chat-stream wires have them.

Knows frames and their numbers. What an event of a run means on a wire is told by that wire's mapper, which gives frames
without their `id` line. It is `<run>:<n>`, n being the event's place in the run's log; of several frames that tell one
event only the last has it, so that a client which comes back never misses half.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from holodeck.core.events import Event
from holodeck.wires import sse


class StreamEvent(msgspec.Struct, frozen=True):
    """One frame before it is bytes."""

    event: str
    data: Any

    def frame(self) -> bytes:
        return sse.frame(self.data, event=self.event)


class EventMapper(Protocol):
    """Tells one run to one reader. It sees every event from the first on, in order."""

    def tell(self, event: Event) -> Sequence[bytes]:
        """The frames that tell this event; none for what the wire has no word for."""


class NamedEventEncoder:
    content_type: ClassVar[str] = sse.CONTENT_TYPE
    keepalive: ClassVar[bytes] = sse.KEEPALIVE
    needs_all_events: ClassVar[bool] = True
    shows_metadata: ClassVar[bool] = False

    def __init__(self, run_id: str, mapper: EventMapper) -> None:
        self._id = sse.id_prefix(run_id)
        self._tell = mapper.tell

    def encode(self, event: Event, n: int | None = None) -> bytes:
        return self.encode_many(((n, event),))

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        out: list[bytes] = []
        for n, event in batch:
            frames = self._tell(event)
            if frames:
                out += frames[:-1]
                out.append(frames[-1] if n is None else b"%b%d\n%b" % (self._id, n, frames[-1]))
        return b"".join(out)
