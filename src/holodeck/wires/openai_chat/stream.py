"""The pieces of a completion → `chat.completion.chunk` frames. The last frame is always `data: [DONE]`.

Frames have no `id` line: the protocol has no way to resume a stream, and some clients read `data` lines only.
"""

from collections.abc import Iterable
from typing import Any

from holodeck.core.events import Event
from holodeck.wires import sse
from holodeck.wires.openai_chat.completion_pieces import CompletionReader, Delta, FailedPiece, Finish, Piece
from holodeck.wires.openai_chat.error_form import error_member
from holodeck.wires.openai_chat.response import CompletionHead, token_counts

DONE = b"data: [DONE]\n\n"


class ChunkEncoder(sse.FrameEncoder):
    def __init__(self, head: CompletionHead, reader: CompletionReader, *, include_usage: bool = False) -> None:
        self._head = {"id": head.id, "object": "chat.completion.chunk", "created": head.created, "model": head.model}
        self._read, self._include_usage = reader.read, include_usage
        self._before_delta = b'data: %b,"choices":[{"index":0,"delta":' % sse.json_bytes(self._head)[:-1]

    def encode_many(self, batch: Iterable[tuple[int | None, Event]]) -> bytes:
        return b"".join([self._frame(piece) for _, event in batch for piece in self._read(event)])

    def _frame(self, piece: Piece) -> bytes:
        if isinstance(piece, Delta):
            return b'%b%b,"finish_reason":null}]}\n\n' % (self._before_delta, sse.json_bytes(piece))
        if isinstance(piece, FailedPiece):
            return sse.frame({"error": error_member(piece.error)}) + DONE
        return self._finish(piece)

    def _finish(self, piece: Finish) -> bytes:
        choice = {"index": 0, "delta": {}, "finish_reason": piece.finish_reason}
        last: dict[str, Any] = {**self._head, "choices": [choice]}
        if piece.interrupts:
            last["holodeck"] = {"interrupts": piece.interrupts}
        counts = token_counts(piece.usage) if self._include_usage else None
        usage = b"" if counts is None else sse.frame({**self._head, "choices": [], "usage": counts})
        return sse.frame(last) + usage + DONE
