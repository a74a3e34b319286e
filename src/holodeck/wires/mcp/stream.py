"""The answer to a call as a stream: progress while the run goes on, then the response, which is the last frame.

Frames have no `id` line: the protocol has no way to resume a stream.
"""

from collections.abc import Iterable

from holodeck.core.events import Event
from holodeck.wires import sse
from holodeck.wires.jsonrpc import RequestId, notification, result_message
from holodeck.wires.mcp.answer import AnswerReader

WORKING = "working"


class ProgressEncoder(sse.FrameEncoder):
    """Progress is sent only under the token that the client gave, and always rises."""

    def __init__(self, request_id: RequestId, reader: AnswerReader, progress_token: str | int | None = None) -> None:
        self._id, self._reader, self._token = request_id, reader, progress_token
        self._sent = 0

    @property
    def keepalive(self) -> bytes:
        """Progress without an event: some clients give up a minute after the last progress."""
        return self._progress(WORKING) or sse.KEEPALIVE

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        return b"".join([self._frames(event) for _, event in batch])

    def _frames(self, event: Event) -> bytes:
        line = self._reader.read(event)
        if line is not None:
            return self._progress(line)
        result = self._reader.result
        return b"" if result is None else sse.frame(result_message(self._id, result))

    def _progress(self, line: str) -> bytes:
        if self._token is None:
            return b""
        self._sent += 1
        params = {"progressToken": self._token, "progress": self._sent, "message": line}
        return sse.frame(notification("notifications/progress", params))
