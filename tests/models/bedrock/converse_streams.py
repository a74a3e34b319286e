"""Converse streams in the shapes that Bedrock and its models send, written by us: one entry a shape.

`events` are (type of the event, its JSON); a bytes entry goes on the wire as it is. Expectations stand beside them.
The frames are encoded here by the specification of AWS event streams, independently of the library that reads them.
"""

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from holodeck.core.messages import MediaPart
from holodeck.core.usage import TokenUsage
from tests.models.expected_reply import ExpectedReply

SIGNATURE = "EqQBCgIYAhIM+signed/thoughts=="
Event = tuple[str, dict[str, Any]]
_STRING = 7  # the type of a header's value


@dataclass
class Shape(ExpectedReply):
    events: list[Event | bytes]
    kept: list[dict[str, Any]] | None = None
    oracle: bool = True  # botocore's own parser reads the stream, too, and has to agree

    @property
    def frames(self) -> list[bytes]:
        return [each if isinstance(each, bytes) else frame(*each) for each in self.events]

    @property
    def body(self) -> bytes:
        return b"".join(self.frames)


def frame(event: str, payload: dict[str, Any], *, kind: str = "event", content_type: str = "application/json") -> bytes:
    names = {"event": ":event-type", "exception": ":exception-type"}
    headers = {names[kind]: event, ":content-type": content_type, ":message-type": kind}
    return raw_frame(headers, json.dumps(payload, ensure_ascii=False).encode())


def raw_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Prelude (length, length of headers, checksum), headers, payload, checksum."""
    encoded = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", _STRING, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(encoded) + len(payload), len(encoded))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + encoded + payload
    return message + struct.pack("!I", zlib.crc32(message))


def failure(name: str, **payload: Any) -> bytes:
    return frame(name, payload, kind="exception")


def used(prompt: int, completion: int, **details: int) -> TokenUsage:
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion, **details)


START: Event = ("messageStart", {"role": "assistant", "p": "abcdefg"})


def delta(index: int, value: dict[str, Any]) -> Event:
    return ("contentBlockDelta", {"contentBlockIndex": index, "delta": value, "p": "abc"})


def stop(index: int) -> Event:
    return ("contentBlockStop", {"contentBlockIndex": index, "p": "ab"})


def text_block(index: int, *pieces: str) -> list[Event]:
    """A whole text block: Converse does not start it."""
    return [*(delta(index, {"text": piece}) for piece in pieces), stop(index)]


def thought(index: int, *pieces: str, signature: str | None = SIGNATURE) -> list[Event]:
    signed = [delta(index, {"reasoningContent": {"signature": signature}})] if signature else []
    return [*(delta(index, {"reasoningContent": {"text": piece}}) for piece in pieces), *signed, stop(index)]


def start(index: int, **block: Any) -> Event:
    return ("contentBlockStart", {"contentBlockIndex": index, "start": block})


def called(index: int, call_id: str, name: str, *pieces: str, **more: Any) -> list[Event]:
    deltas = [delta(index, {"toolUse": {"input": piece}}) for piece in pieces]
    return [start(index, toolUse={"toolUseId": call_id, "name": name, **more}), *deltas, stop(index)]


def end(reason: str = "end_turn", **usage: int) -> list[Event]:
    counts = {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19} | usage
    return [
        ("messageStop", {"stopReason": reason}),
        ("metadata", {"usage": counts, "metrics": {"latencyMs": 420}}),
    ]


FINE = used(12, 7)
SIGNED = {"type": "thinking", "thinking": "Hm. Yes.", "signature": SIGNATURE}
CITATION = {"title": "Ducks", "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}
GROUNDED = {"toolUseId": "tooluse_g", "type": "nova_grounding_result"}

SHAPES = {
    "text": Shape([START, *text_block(0, "Hello", " world"), *end()], text="Hello world", usage=FINE),
    "text in two blocks": Shape([START, *text_block(0, "One. "), *text_block(1, "Two."), *end()], text="One. Two.", usage=FINE),
    "other scripts": Shape([START, *text_block(0, "Grüße, ", "世界 😀"), *end()], text="Grüße, 世界 😀", usage=FINE),
    "an empty first piece": Shape([START, *text_block(0, "", "Hi."), *end()], text="Hi.", usage=FINE),
    "stop sequence": Shape([START, *text_block(0, "Up to "), *end("stop_sequence")], text="Up to ", usage=FINE),
    "thinking": Shape(
        [START, *thought(0, "Hm.", " Yes."), *text_block(1, "Fine."), *end()],
        text="Fine.",
        reasoning="Hm. Yes.",
        usage=FINE,
        kept=[SIGNED, {"type": "text", "text": "Fine."}],
    ),
    "thinking without a signature": Shape(
        [START, *thought(0, "Hm.", signature=None), *text_block(1, "Fine."), *end()],
        text="Fine.",
        reasoning="Hm.",
        usage=FINE,
        kept=[{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Fine."}],
    ),
    "thinking that is not shown": Shape(
        [START, *thought(0), *text_block(1, "Fine."), *end()],
        text="Fine.",
        usage=FINE,
        kept=[{"type": "thinking", "thinking": "", "signature": SIGNATURE}, {"type": "text", "text": "Fine."}],
    ),
    "redacted thinking before a call": Shape(
        [START, *thought(0, "Hm. Yes."), delta(1, {"reasoningContent": {"redactedContent": "T3BhcXVl"}}), stop(1), *called(2, "tooluse_1", "look", '{"a":', "1}"), *end("tool_use")],
        reasoning="Hm. Yes.",
        calls=[("tooluse_1", "look", '{"a":1}')],
        finish="tool_calls",
        usage=FINE,
        kept=[SIGNED, {"type": "redacted_thinking", "data": "T3BhcXVl"}, {"type": "tool_use"}],
    ),
    "redacted thinking in two pieces": Shape(
        [START, delta(0, {"reasoningContent": {"redactedContent": "T3A="}}), delta(0, {"reasoningContent": {"redactedContent": "YXF1ZQ=="}}), stop(0), *text_block(1, "Fine."), *end()],
        text="Fine.",
        usage=FINE,
        kept=[{"type": "redacted_thinking", "data": "T3BhcXVl"}, {"type": "text", "text": "Fine."}],
    ),
    "thinking between calls": Shape(
        [START, *thought(0, "Hm. Yes."), *called(1, "tooluse_1", "look", "{}"), *thought(2, "More."), *called(3, "tooluse_2", "look", "{}"), *end("tool_use")],
        reasoning="Hm. Yes.More.",
        calls=[("tooluse_1", "look", "{}"), ("tooluse_2", "look", "{}")],
        finish="tool_calls",
        usage=FINE,
        kept=[SIGNED, {"type": "tool_use"}, {"type": "thinking", "thinking": "More.", "signature": SIGNATURE}, {"type": "tool_use"}],
    ),
    "one call": Shape(
        [START, *text_block(0, "I look."), *called(1, "tooluse_1", "look", '{"city": "Pa', 'ris"}'), *end("tool_use")],
        text="I look.",
        calls=[("tooluse_1", "look", '{"city": "Paris"}')],
        finish="tool_calls",
        usage=FINE,
    ),
    "parallel calls": Shape(
        [START, *called(0, "tooluse_1", "look", '{"a":1}'), *called(1, "tooluse_2", "look", '{"a":2}'), *called(2, "tooluse_3", "list", ""), *end("tool_use")],
        calls=[("tooluse_1", "look", '{"a":1}'), ("tooluse_2", "look", '{"a":2}'), ("tooluse_3", "list", "{}")],
        finish="tool_calls",
        usage=FINE,
    ),
    "a call without input": Shape(
        [START, *called(0, "tooluse_1", "list"), *end("tool_use")], calls=[("tooluse_1", "list", "{}")], finish="tool_calls", usage=FINE
    ),
    "a call that ends the turn": Shape(  # models of some publishers say end_turn
        [START, *called(0, "tooluse_1", "look", "{}"), *end()], calls=[("tooluse_1", "look", "{}")], finish="tool_calls", usage=FINE
    ),
    "text after a call": Shape(
        [START, *called(0, "tooluse_1", "look", "{}"), *text_block(1, "Soon."), *end("tool_use")],
        text="Soon.",
        calls=[("tooluse_1", "look", "{}")],
        finish="tool_calls",
        usage=FINE,
        kept=[{"type": "tool_use"}, {"type": "text", "text": "Soon."}],
    ),
    "a tool of Bedrock": Shape(
        [START, *called(0, "tooluse_g", "nova_grounding", '{"query": "ducks"}', type="server_tool_use"), start(1, toolResult=GROUNDED), delta(1, {"toolResult": [{"text": "Ducks swim."}]}), stop(1), *text_block(2, "They swim."), *end()],
        text="They swim.",
        shown=[("nova_grounding", '{"query": "ducks"}', "Ducks swim.")],
        usage=FINE,
        kept=[
            {"type": "server_tool_use", "id": "tooluse_g", "name": "nova_grounding", "input": {"query": "ducks"}},
            {"type": "server_tool_result", "tool_use_id": "tooluse_g", "content": [{"text": "Ducks swim."}], "result_type": "nova_grounding_result"},
            {"type": "text", "text": "They swim."},
        ],
    ),
    "a tool of Bedrock that fails": Shape(
        [START, *called(0, "tooluse_g", "nova_grounding", "{}", type="server_tool_use"), start(1, toolResult={**GROUNDED, "status": "error"}), delta(1, {"toolResult": [{"json": {"why": "busy"}}]}), stop(1), *text_block(2, "No luck."), *end()],
        text="No luck.",
        shown=[("nova_grounding", "{}", '{"json": {"why": "busy"}}')],
        usage=FINE,
        kept=[
            {"type": "server_tool_use", "id": "tooluse_g", "name": "nova_grounding", "input": {}},
            {"type": "server_tool_result", "tool_use_id": "tooluse_g", "content": [{"json": {"why": "busy"}}], "is_error": True, "result_type": "nova_grounding_result"},
            {"type": "text", "text": "No luck."},
        ],
    ),
    "a generated image": Shape(
        [START, *text_block(0, "Here."), start(1, image={"format": "png"}), delta(1, {"image": {"source": {"bytes": "iVA="}}}), delta(1, {"image": {"source": {"bytes": "ORw="}}}), stop(1), *end()],
        text="Here.",
        shown=[("image_generation", "{}", (MediaPart(mime_type="image/png", data="iVA5HA=="),))],
        usage=FINE,
        kept=[{"type": "text", "text": "Here."}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVA5HA=="}}],
    ),
    "citations": Shape(
        [START, delta(0, {"text": "Ducks swim."}), delta(0, {"citation": CITATION}), stop(0), *end()],
        text="Ducks swim.",
        usage=FINE,
        kept=[{"type": "text", "citations": [CITATION], "text": "Ducks swim."}],
    ),
    "cached input": Shape(
        [START, *text_block(0, "Hi."), *end(inputTokens=3, cacheReadInputTokens=1000, cacheWriteInputTokens=50)],
        text="Hi.",
        usage=used(1053, 7, cached_tokens=1000, cache_write_tokens=50),
    ),
    "a guardrail that only watched": Shape(
        [START, *text_block(0, "Hi."), ("messageStop", {"stopReason": "end_turn"}), ("metadata", {"usage": {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19}, "metrics": {"latencyMs": 1}, "trace": {"guardrail": {"actionReason": "none"}}, "serviceTier": {"type": "default"}})],
        text="Hi.",
        usage=FINE,
    ),
    "length": Shape([START, *text_block(0, "Cut o"), *end("max_tokens")], text="Cut o", finish="length", usage=FINE),
    "a call that is cut": Shape(
        [START, *text_block(0, "I look."), *called(1, "tooluse_1", "look", '{"city": "Pa'), *end("max_tokens")],
        text="I look.",
        finish="length",
        usage=FINE,
        warnings=["tool-call-cut"],
        oracle=False,  # has no opinion on a call that is cut
    ),
    "nothing but thinking": Shape(
        [START, *thought(0, "Hm. Yes."), *end("max_tokens")], reasoning="Hm. Yes.", finish="length", usage=FINE, kept=[SIGNED]
    ),
    "a full context window": Shape(
        [START, *text_block(0, "Cut o"), *end("model_context_window_exceeded")], text="Cut o", finish="length", usage=FINE, warnings=["context-window"]
    ),
    "nothing": Shape([START, *end()], usage=FINE),
    "an unknown event": Shape(
        [START, ("contentMood", {"mood": "good"}), *text_block(0, "Hi."), *end()], text="Hi.", usage=FINE
    ),
    "no stops of blocks": Shape([START, delta(0, {"text": "Hi"}), delta(1, {"text": "."}), *end()], text="Hi.", usage=FINE),
    "no metadata": Shape([START, *text_block(0, "Hi."), *end()[:1]], text="Hi."),
    "metadata before the stop": Shape([START, *text_block(0, "Hi."), *reversed(end())], text="Hi.", usage=FINE),
    "a whole answer": Shape(
        [json.dumps({"output": {"message": {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "Hm. Yes.", "signature": SIGNATURE}}}, {"text": "Hi."}, {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {"a": 1}}}]}}, "stopReason": "tool_use", "usage": {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19}, "metrics": {"latencyMs": 1}}).encode()],
        text="Hi.",
        reasoning="Hm. Yes.",
        calls=[("tooluse_1", "look", '{"a": 1}')],
        finish="tool_calls",
        usage=FINE,
        kept=[SIGNED, {"type": "text", "text": "Hi."}, {"type": "tool_use"}],
        oracle=False,  # the stream's parser
    ),
}  # fmt: skip
