"""The frames of a response, numbered. The last one is always `data: [DONE]`.

Frames have no `id` line: clients resume by `sequence_number`, which counts frames and not events.
"""

from collections.abc import Iterable

from holodeck.core.events import Event
from holodeck.wires import sse
from holodeck.wires.openai_chat.stream import DONE
from holodeck.wires.openai_responses.builder import ResponseBuilder

_GAP = 100_000_000
"""Event numbers that jump by so much come after a crash; clients may have seen frames that were lost with it."""


class ResponseEncoder(sse.FrameEncoder):
    def __init__(self, builder: ResponseBuilder, *, after: int = -1) -> None:
        """Frames up to the number `after` are left out: the client has them."""
        self._builder, self._read, self._after = builder, builder.read, after
        self._number = 0
        self._done = False

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        out: list[bytes] = []
        for n, event in batch:
            if n is not None and n - self._number > _GAP:
                self._number = n
            for frame in self._read(event):
                if self._number > self._after:
                    out.append(b'%b,"sequence_number":%d}\n\n' % (frame, self._number))
                self._number += 1
        if self._builder.ended and not self._done:
            self._done = True
            out.append(DONE)
        return b"".join(out)
