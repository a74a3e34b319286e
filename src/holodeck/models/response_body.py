"""The bytes of a response body, turned into the events of an answer.

Decides what a body is (a stream of events, or one JSON value) by its first character. Pure and synchronous; what the
events mean is decided by the answer of each API.
"""

from abc import ABC, abstractmethod

from holodeck.core.messages import MediaPart, ToolCall
from holodeck.errors import ModelProtocolError, ModelTruncated
from holodeck.models.chunks import Malformed
from holodeck.models.port import Listener, ModelReply
from holodeck.models.sse_reader import MAX_EVENT, SseReader

DONE = b"[DONE]"  # the last event of a stream


class GrowingAnswer(ABC):
    """One reply while it arrives: what the answers of all APIs share."""

    def __init__(self, listener: Listener, *, debug: bool = False) -> None:
        self.done = False  # the answer is over
        self.finish_reason: str | None = None
        self._listener, self._debug = listener, debug
        self._progress = 0
        self._model = ""  # as the endpoint names the model that answers
        self._warned: set[str] = set()

    @property
    @abstractmethod
    def started(self) -> bool:
        """Whether the listener has received a piece of the answer."""

    @property
    def progress(self) -> int:
        """Grows with every event that carries content; comments and pings carry none."""
        return self._progress

    @abstractmethod
    def take(self, name: bytes, data: bytes) -> None:
        """Takes one event of the stream. Raises Malformed or InBandError."""

    @abstractmethod
    def reply(self) -> ModelReply:
        """Returns the complete reply. Raises if the stream is incomplete, or if the provider refused to answer."""

    def _is_marker(self, data: bytes) -> bool:
        """Whether the event holds no JSON. `[DONE]` ends the answer."""
        stripped = data.strip()
        self.done = self.done or stripped == DONE
        return stripped in (b"", DONE)

    def _check_end(self) -> None:
        if self.finish_reason is None and not self.done:
            raise ModelTruncated("The model's answer ended in the middle: the endpoint closed the stream early.")

    def _show_image(self, call_id: str, image: MediaPart) -> None:
        """Shows an image that the model generated like the result of a tool."""
        call = ToolCall(id=call_id, name="image_generation", arguments="{}")
        self._listener.call_started(call.id, call.name)
        self._listener.call_arguments(call.id, call.arguments)
        self._listener.call_ended(call)
        self._listener.call_answered(call.id, (image,))

    def _warn(self, code: str, message: str) -> None:
        if code not in self._warned:
            self._warned.add(code)
            self._listener.warning(code, message)

    def _warn_of_bytes(self) -> None:
        self._warn("invalid-utf8", "The model endpoint sent bytes that are not valid UTF-8; they are shown as \ufffd.")


class AnswerStream:
    """Passes the bytes of a response body to an answer. `content_type` is a hint only: endpoints get it wrong."""

    def __init__(
        self,
        answer: GrowingAnswer,
        *,
        content_type: str = "text/event-stream",
        limit: int = MAX_EVENT,
        hint: str = "it usually ends in /v1",
    ) -> None:
        """`limit` is in bytes, for one event; `hint` says what the URL of an endpoint usually looks like."""
        self.answer = answer
        self.content_type = content_type
        self.request_id = ""  # the provider's id of the request
        self.endpoint_option = "model.endpoint"
        self._limit = limit
        self._hint = hint
        self._reader: SseReader | None = None
        self._body = bytearray()  # the bytes so far, until the kind of body is known, or of one JSON body
        self._saw_event = False

    def feed(self, data: bytes) -> None:
        if self._reader is None:
            data = self._sniff(data)
        if self._reader is not None:
            take = self.answer.take
            for name, event in self._reader.feed(data):
                if self.answer.done:
                    break  # the rest is not part of the answer
                self._saw_event = True
                take(name, event)

    def end(self) -> ModelReply:
        """Ends the stream and returns the reply. Raises if the answer is incomplete."""
        if self._reader is None:
            self._end_body()
        else:
            for name, event in self._reader.end():
                try:
                    self.answer.take(name, event)
                except Malformed:
                    break  # the event was cut, like the stream
                self._saw_event = True
            if not self._saw_event and self.content_type != "text/event-stream":
                raise self._no_stream()
        return self.answer.reply()

    def _sniff(self, data: bytes) -> bytes:
        """Detects the kind of body by its first character; returns the bytes for the SSE reader."""
        if not self._body and data.startswith(b"data: "):  # as nearly all streams begin
            self._reader = SseReader(self._limit)
            return data
        self._body += data
        if len(self._body) > self._limit:
            raise ModelProtocolError("The model endpoint sent one huge body instead of a stream.")
        first = bytes(self._body[:64]).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if first == b"<":
            raise self._no_stream()
        if not first or first in b"{[":
            return b""
        self._reader = SseReader(self._limit)
        data = bytes(self._body)
        self._body.clear()
        return data

    def _end_body(self) -> None:
        body = bytes(self._body).removeprefix(b"\xef\xbb\xbf").strip()
        if not body and self.content_type == "text/event-stream":
            return
        if not body:
            raise self._no_stream()
        self.answer.take(b"", body)
        if not (self.answer.progress or self.answer.finish_reason):
            raise self._no_stream()
        self.answer.done = True  # a body that parses is whole

    def _no_stream(self) -> ModelProtocolError:
        return ModelProtocolError(
            f"The model endpoint answered with {self.content_type or 'something'} that is not the answer of a model. "
            f"Probably {self.endpoint_option} is not the URL of a model API ({self._hint})."
        )
