"""What a stream of a provider has to come to, and how a test reads it, whole or cut anywhere."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from holodeck.core.usage import TokenUsage
from holodeck.models.port import ModelReply
from tests.models.recording_listener import RecordingListener


@dataclass(kw_only=True)
class ExpectedReply:
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str | None, str, str]] = field(default_factory=list)  # id (None: made by us), name, arguments
    shown: list[tuple[str, str, Any]] = field(default_factory=list)  # the provider's calls: name, arguments, result
    finish: str = "stop"
    usage: TokenUsage | None = None
    warnings: list[str] = field(default_factory=list)

    def check(self, reply: ModelReply, listener: RecordingListener) -> None:
        assert reply.text == listener.words == self.text
        assert reply.reasoning == listener.thoughts == self.reasoning
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [call[1:] for call in self.calls]
        for call, (given_id, *_) in zip(reply.tool_calls, self.calls, strict=True):
            assert given_id in (None, call.id)
            assert listener.arguments_of(call.id) == call.arguments
        assert len({call.id for call in reply.tool_calls}) == len(self.calls)
        assert reply.finish_reason == self.finish
        assert reply.usage == self.usage
        assert listener.answered == self.shown
        assert listener.warnings == self.warnings


def read_cut(stream: Any, body: bytes, *cuts: int) -> ModelReply:
    """The reply that a stream makes of a body which comes in pieces."""
    for first, last in pairwise(sorted({0, len(body), *cuts})):
        stream.feed(body[first:last])
    reply: ModelReply = stream.end()
    return reply
