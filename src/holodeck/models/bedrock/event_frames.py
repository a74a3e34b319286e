"""The binary frames of an AWS event stream, turned into the events of an answer. botocore checks lengths and checksums."""

from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError

from holodeck.errors import ModelProtocolError
from holodeck.models.chunks import InBandError
from holodeck.models.port import ModelReply
from holodeck.models.response_body import AnswerStream, GrowingAnswer

MAX_FRAME = 8_000_000  # bytes
_FRAME_BEGINS = b"\x00"  # the length of a frame, four bytes; a JSON body or a web page begins otherwise


class FramedStream(AnswerStream):
    """Passes the frames of a response body to an answer. A body without frames is read as the other APIs do."""

    def __init__(self, answer: GrowingAnswer, *, hint: str) -> None:
        super().__init__(answer, content_type="application/vnd.amazon.eventstream", limit=MAX_FRAME, hint=hint)
        self._frames: EventStreamBuffer | None = None
        self._begun = False
        self._waiting = 0  # bytes of a frame whose end is not here yet, and of those that came with it

    def feed(self, data: bytes) -> None:
        if not self._begun and data:
            self._begun = True
            self._frames = EventStreamBuffer() if data.startswith(_FRAME_BEGINS) else None
        if self._frames is None:
            super().feed(data)
        else:
            self._feed_frames(self._frames, data)

    def end(self) -> ModelReply:
        is_framed = self._frames is not None or not self._begun  # a stream that ends before its first frame is one, too
        return self.answer.reply() if is_framed else super().end()

    def _feed_frames(self, frames: EventStreamBuffer, data: bytes) -> None:
        frames.add_data(data)
        self._waiting += len(data)
        if self._waiting > MAX_FRAME:
            raise ModelProtocolError(
                f"The model endpoint sent a frame of more than {MAX_FRAME:,} bytes, which no model does."
            )
        try:
            for frame in frames:
                self._waiting = 0
                if self.answer.done:
                    break  # what follows is no part of the answer
                self._take(frame)
        except (ParserError, UnicodeDecodeError, KeyError) as error:  # KeyError: a header of an unknown type
            raise ModelProtocolError(f"The model endpoint sent a frame that is damaged: {error}.") from error

    def _take(self, frame: EventStreamMessage) -> None:
        kind = frame.headers.get(":message-type")
        if kind == "error":
            code, message = (frame.headers.get(name) for name in (":error-code", ":error-message"))
            raise InBandError({"type": code, "message": message})
        name = frame.headers.get(":exception-type" if kind == "exception" else ":event-type")
        self.answer.take(str(name).encode(), frame.payload)
