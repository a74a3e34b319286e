"""Streams of named events (an `event:` line and one line of JSON) for the REST and chat-stream wires.

Each wire has a reader that turns an event into frames without an `id` line. The encoder adds it: `<run>:<n>`, where n
is the event's position in the run's log. When one event becomes several frames, only the last has an id, so that a
client which reconnects never misses the rest.
"""

from collections.abc import Iterable

from holodeck.core.events import Event
from holodeck.wires import sse
from holodeck.wires.reply import EventReader


class NamedEventEncoder(sse.FrameEncoder):
    def __init__(self, run_id: str, reader: EventReader[bytes]) -> None:
        self._id = sse.id_prefix(run_id)
        self._read = reader.read

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        out: list[bytes] = []
        for n, event in batch:
            frames = self._read(event)
            if frames:
                out += frames[:-1]
                out.append(frames[-1] if n is None else b"%b%d\n%b" % (self._id, n, frames[-1]))
        return b"".join(out)
