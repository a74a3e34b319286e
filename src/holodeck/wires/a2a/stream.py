"""The updates of a task as server-sent events, in whichever binding the client speaks."""

from collections.abc import Callable, Iterable
from typing import Any

from holodeck.core.events import Event
from holodeck.wires import sse
from holodeck.wires.a2a.task import TaskReader


class TaskEncoder(sse.FrameEncoder):
    """`wrap` turns an update into what the binding sends."""

    def __init__(self, reader: TaskReader, wrap: Callable[[dict[str, Any]], Any]) -> None:
        self._read, self._wrap = reader.read, wrap

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        return b"".join([sse.frame(self._wrap(update)) for _, event in batch for update in self._read(event)])
