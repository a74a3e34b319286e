"""The updates of a task as server-sent events, in whichever binding the client speaks."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from holodeck.core.events import Event
from holodeck.wires import sse
from holodeck.wires.a2a.task import TaskReader


class TaskEncoder:
    """`wrap` turns an update into what the binding sends."""

    content_type: ClassVar[str] = sse.CONTENT_TYPE
    keepalive: ClassVar[bytes] = sse.KEEPALIVE
    needs_all_events: ClassVar[bool] = True
    shows_metadata: ClassVar[bool] = False

    def __init__(self, reader: TaskReader, wrap: Callable[[dict[str, Any]], Any]) -> None:
        self._read, self._wrap = reader.read, wrap

    def encode(self, event: Event, n: int | None = None) -> bytes:
        return self.encode_many(((n, event),))

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        return b"".join([sse.frame(self._wrap(update)) for _, event in batch for update in self._read(event)])
