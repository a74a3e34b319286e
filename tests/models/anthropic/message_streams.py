"""Messages streams in the shapes that the API and its gateways send, written by us: one entry a shape.

`events` are the data of one SSE event each; a bytes entry goes on the wire as it is. Expectations stand beside them.
`sdk` says that the official SDK reads the stream, too, and has to agree.
"""

import json
from dataclasses import dataclass
from typing import Any

from holodeck.core.usage import TokenUsage
from tests.models.expected_reply import ExpectedReply

SIGNATURE = "EqQBCgIYAhIM+signed/thoughts=="


@dataclass
class Shape(ExpectedReply):
    events: list[dict[str, Any] | bytes]
    kept: list[dict[str, Any]] | None = None  # content blocks that go back
    model: str | None = None  # that answered, where the shape is about it
    named: bool = True  # events have `event:` lines
    end: str = "\n"
    sdk: bool = True

    @property
    def frames(self) -> list[bytes]:
        return [each if isinstance(each, bytes) else self._frame(each) for each in self.events]

    @property
    def body(self) -> bytes:
        return b"".join(self.frames)

    def _frame(self, event: dict[str, Any]) -> bytes:
        name = f"event: {event.get('type', 'message')}{self.end}" if self.named else ""
        return f"{name}data: {json.dumps(event, ensure_ascii=False)}{self.end}{self.end}".encode()


def used(prompt: int, completion: int, **details: int) -> TokenUsage:
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion, **details)


def start(**usage: Any) -> dict[str, Any]:
    counts = {"input_tokens": 12, "output_tokens": 1} | usage
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": counts,
    }  # fmt: skip
    return {"type": "message_start", "message": message}


def block(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **members}}


def delta(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def text_block(index: int, *pieces: str) -> list[dict[str, Any]]:
    """A whole text block."""
    deltas = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [block(index, "text", text=""), *deltas, stop(index)]


def thought(index: int, *pieces: str, signature: str = SIGNATURE) -> list[dict[str, Any]]:
    deltas = [delta(index, "thinking_delta", thinking=piece) for piece in pieces]
    signed = [delta(index, "signature_delta", signature=signature)]
    return [block(index, "thinking", thinking="", signature=""), *deltas, *signed, stop(index)]


def called(
    index: int, call_id: str, name: str, *pieces: str, kind: str = "tool_use", **more: Any
) -> list[dict[str, Any]]:
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in ("", *pieces)]
    return [block(index, kind, id=call_id, name=name, input={}, **more), *deltas, stop(index)]


def end(reason: str = "end_turn", *, details: Any = None, **usage: Any) -> list[dict[str, Any]]:
    ending: dict[str, Any] = {"stop_reason": reason, "stop_sequence": None}
    if details is not None:
        ending["stop_details"] = details
    return [
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 7} | usage},
        {"type": "message_stop"},
    ]


PING = {"type": "ping"}
SIGNED = {"type": "thinking", "thinking": "Hm. Yes.", "signature": SIGNATURE}
SEARCH = {
    "type": "web_search_result",
    "title": "Ducks",
    "url": "https://d.example",
    "encrypted_content": "RW5j",
    "page_age": None,
}
CITED = {
    "type": "web_search_result_location", "url": "https://d.example", "title": "Ducks",
    "encrypted_index": "SWR4", "cited_text": "Ducks swim.",
}  # fmt: skip
SEARCHED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ducks"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [SEARCH]}
RAN = {
    "type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1",
    "content": {"type": "code_execution_result", "stdout": "4\n", "stderr": "", "return_code": 0, "content": []},
}  # fmt: skip

SHAPES = {
    "text": Shape(
        [start(), block(0, "text", text=""), PING, delta(0, "text_delta", text="Hello"), delta(0, "text_delta", text=" world"), stop(0), *end()],
        text="Hello world",
        usage=used(12, 7),
    ),
    "text in two blocks": Shape([start(), *text_block(0, "One. "), *text_block(1, "Two."), *end()], text="One. Two.", usage=used(12, 7)),
    "stop sequence": Shape(
        [start(), *text_block(0, "Up to "), {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}, "usage": {"output_tokens": 3}}, {"type": "message_stop"}],
        text="Up to ",
        usage=used(12, 3),
    ),
    "thinking": Shape(
        [start(), *thought(0, "Hm.", " Yes."), *text_block(1, "Fine."), *end(output_tokens_details={"thinking_tokens": 4})],
        text="Fine.",
        reasoning="Hm. Yes.",
        usage=used(12, 7, reasoning_tokens=4),
        kept=[SIGNED, {"type": "text", "text": "Fine."}],
    ),
    "thinking that is not shown": Shape(
        [start(), *thought(0), *text_block(1, "Fine."), *end()],
        text="Fine.",
        usage=used(12, 7),
        kept=[{"type": "thinking", "thinking": "", "signature": SIGNATURE}, {"type": "text", "text": "Fine."}],
    ),
    "thinking without a signature": Shape(
        [start(), block(0, "thinking", thinking="", signature=""), delta(0, "thinking_delta", thinking="Hm."), stop(0), *text_block(1, "Fine."), *end()],
        text="Fine.",
        reasoning="Hm.",
        usage=used(12, 7),
        kept=[{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Fine."}],
    ),
    "redacted thinking before a call": Shape(
        [start(), *thought(0, "Hm. Yes."), block(1, "redacted_thinking", data="T3BhcXVl"), stop(1), *called(2, "toolu_1", "look", '{"a":', "1}"), *end("tool_use")],
        reasoning="Hm. Yes.",
        calls=[("toolu_1", "look", '{"a":1}')],
        finish="tool_calls",
        usage=used(12, 7),
        kept=[SIGNED, {"type": "redacted_thinking", "data": "T3BhcXVl"}, {"type": "tool_use"}],
    ),
    "thinking between calls": Shape(
        [start(), *thought(0, "Hm. Yes."), *called(1, "toolu_1", "look", "{}"), *thought(2, "More."), *called(3, "toolu_2", "look", "{}"), *end("tool_use")],
        reasoning="Hm. Yes.More.",
        calls=[("toolu_1", "look", "{}"), ("toolu_2", "look", "{}")],
        finish="tool_calls",
        usage=used(12, 7),
        kept=[SIGNED, {"type": "tool_use"}, {"type": "thinking", "thinking": "More.", "signature": SIGNATURE}, {"type": "tool_use"}],
    ),
    "one call": Shape(
        [start(), *text_block(0, "I look."), *called(1, "toolu_1", "look", '{"city": "Pa', 'ris"}'), *end("tool_use")],
        text="I look.",
        calls=[("toolu_1", "look", '{"city": "Paris"}')],
        finish="tool_calls",
        usage=used(12, 7),
    ),
    "parallel calls": Shape(
        [start(), *called(0, "toolu_1", "look", '{"a":1}'), *called(1, "toolu_2", "look", '{"a":2}'), *called(2, "toolu_3", "list"), *end("tool_use")],
        calls=[("toolu_1", "look", '{"a":1}'), ("toolu_2", "look", '{"a":2}'), ("toolu_3", "list", "{}")],
        finish="tool_calls",
        usage=used(12, 7),
    ),
    "a call without input": Shape(
        [start(), block(0, "tool_use", id="toolu_1", name="list", input={}), stop(0), *end("tool_use")],
        calls=[("toolu_1", "list", "{}")],
        finish="tool_calls",
        usage=used(12, 7),
    ),
    "a call whose input is in its start": Shape(
        [start(), block(0, "tool_use", id="toolu_1", name="look", input={"a": "é"}), stop(0), *end("tool_use")],
        calls=[("toolu_1", "look", '{"a": "é"}')],
        finish="tool_calls",
        usage=used(12, 7),
    ),
    "text after a call": Shape(
        [start(), *called(0, "toolu_1", "look", "{}"), *text_block(1, "Soon."), *end("tool_use")],
        text="Soon.",
        calls=[("toolu_1", "look", "{}")],
        finish="tool_calls",
        usage=used(12, 7),
        kept=[{"type": "tool_use"}, {"type": "text", "text": "Soon."}],
    ),
    "a call that code made": Shape(
        [start(), *called(0, "srvtoolu_1", "code_execution", '{"code":"look()"}', kind="server_tool_use"), *called(1, "toolu_1", "look", "{}", caller={"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}), *end("tool_use")],
        calls=[("toolu_1", "look", "{}")],
        shown=[("code_execution", '{"code":"look()"}', "The provider has not reported a result.")],
        finish="tool_calls",
        usage=used(12, 7),
        kept=[{"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "look()"}}, {"type": "tool_use", "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}],
    ),
    "web search with citations": Shape(
        [start(), *called(0, "srvtoolu_1", "web_search", '{"query": ', '"ducks"}', kind="server_tool_use"), PING, {"type": "content_block_start", "index": 1, "content_block": FOUND}, stop(1), *text_block(2, "They say: "), block(3, "text", text="", citations=[]), delta(3, "citations_delta", citation=CITED), delta(3, "text_delta", text="ducks swim."), stop(3), *end(input_tokens=900, server_tool_use={"web_search_requests": 1})],
        text="They say: ducks swim.",
        shown=[("web_search", '{"query": "ducks"}', "Ducks https://d.example")],
        usage=used(900, 7),
        kept=[SEARCHED, FOUND, {"type": "text", "text": "They say: "}, {"type": "text", "text": "ducks swim.", "citations": [CITED]}],
    ),
    "web search that fails": Shape(
        [start(), *called(0, "srvtoolu_1", "web_search", '{"query": "ducks"}', kind="server_tool_use"), block(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content={"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}), stop(1), *text_block(2, "No luck."), *end()],
        text="No luck.",
        shown=[("web_search", '{"query": "ducks"}', "max_uses_exceeded")],
        usage=used(12, 7),
        kept=[SEARCHED, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}, {"type": "text", "text": "No luck."}],
    ),
    "code execution": Shape(
        [start(), *called(0, "srvtoolu_1", "code_execution", '{"code": "2+2"}', kind="server_tool_use"), {"type": "content_block_start", "index": 1, "content_block": RAN}, stop(1), *text_block(2, "4."), {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None, "container": {"id": "container_1", "expires_at": "2199-01-01T00:00:00Z"}}, "usage": {"output_tokens": 7}}, {"type": "message_stop"}],
        text="4.",
        shown=[("code_execution", '{"code": "2+2"}', "4\n")],
        usage=used(12, 7),
        kept=[{"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "2+2"}}, RAN, {"type": "text", "text": "4."}],
    ),
    "an MCP server's tool": Shape(
        [start(), *called(0, "mcptoolu_1", "echo", '{"x": 1}', kind="mcp_tool_use", server_name="s"), block(1, "mcp_tool_result", tool_use_id="mcptoolu_1", is_error=False, content=[{"type": "text", "text": "1"}]), stop(1), *text_block(2, "It is 1."), *end()],
        text="It is 1.",
        shown=[("echo", '{"x": 1}', "1")],
        usage=used(12, 7),
        kept=[{"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "input": {"x": 1}, "server_name": "s"}, {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [{"type": "text", "text": "1"}]}, {"type": "text", "text": "It is 1."}],
    ),
    "cached input": Shape(
        [start(input_tokens=3, cache_creation_input_tokens=50, cache_read_input_tokens=1000, cache_creation={"ephemeral_5m_input_tokens": 50}, service_tier="standard"), *text_block(0, "Hi."), *end()],
        text="Hi.",
        usage=used(1053, 7, cached_tokens=1000, cache_write_tokens=50),
    ),
    "length": Shape([start(), *text_block(0, "Cut o"), *end("max_tokens")], text="Cut o", finish="length", usage=used(12, 7)),
    "a call that is cut": Shape(
        [start(), *text_block(0, "I look."), *called(1, "toolu_1", "look", '{"city": "Pa'), *end("max_tokens")],
        text="I look.",
        finish="length",
        usage=used(12, 7),
        kept=None,
        warnings=["tool-call-cut"],
        sdk=False,  # shows the half
    ),
    "a call that is cut before its arguments": Shape(
        [start(), *text_block(0, "I look."), *called(1, "toolu_1", "look", ""), *end("max_tokens")],
        text="I look.",
        finish="length",
        usage=used(12, 7),
        kept=None,
        warnings=["tool-call-cut"],
        sdk=False,  # shows a whole call
    ),
    "a whole call without arguments before a text that is cut": Shape(
        [start(), *called(0, "toolu_1", "look", ""), *text_block(1, "And th"), *end("max_tokens")],
        text="And th",
        calls=[("toolu_1", "look", "{}")],
        finish="length",
        usage=used(12, 7),
        kept=[{"type": "tool_use"}, {"type": "text", "text": "And th"}],
    ),
    "nothing but thinking": Shape(
        [start(), *thought(0, "Hm. Yes."), *end("max_tokens")],
        reasoning="Hm. Yes.",
        finish="length",
        usage=used(12, 7),
        kept=[SIGNED],
    ),
    "a full context window": Shape(
        [start(), *text_block(0, "Cut o"), *end("model_context_window_exceeded")],
        text="Cut o",
        finish="length",
        usage=used(12, 7),
        warnings=["context-window"],
    ),
    "nothing": Shape([start(), *end()], usage=used(12, 7)),
    "an unknown event and an unknown block": Shape(
        [start(), {"type": "message_mood", "mood": "good"}, block(0, "hologram", data="AA"), delta(0, "hologram_delta", data="BB"), stop(0), *text_block(1, "Hi."), *end()],
        text="Hi.",
        usage=used(12, 7),
        kept=[{"type": "hologram", "data": "AABB"}, {"type": "text", "text": "Hi."}],
        sdk=False,
    ),
    "text in the start of its block": Shape([start(), block(0, "text", text="Hel"), delta(0, "text_delta", text="lo"), stop(0), *end()], text="Hello", usage=used(12, 7)),
    "content in the start of the message": Shape(
        [{"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hel"}], "usage": {"input_tokens": 12, "output_tokens": 1}}}, delta(0, "text_delta", text="lo"), *end()],
        text="Hello",
        usage=used(12, 7),
    ),
    "CRLF and comments": Shape(
        [b": connected\r\n\r\n", start(), *text_block(0, "Hi", "."), b": still here\r\n\r\n", *end()], text="Hi.", usage=used(12, 7), end="\r\n"
    ),
    "no names of events": Shape([start(), *text_block(0, "Hi."), *end()], text="Hi.", usage=used(12, 7), named=False, sdk=False),
    "types in the names of events only": Shape(
        [b'event: message_start\ndata: {"message": {"usage": {"input_tokens": 12, "output_tokens": 1}}}\n\n', b'event: content_block_start\ndata: {"index": 0, "content_block": {"type": "text", "text": ""}}\n\n', b'event: content_block_delta\ndata: {"index": 0, "delta": {"type": "text_delta", "text": "Hi."}}\n\n', b'event: message_delta\ndata: {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}\n\n'],
        text="Hi.",
        usage=used(12, 7),
        sdk=False,
    ),
    "no message_stop": Shape([start(), *text_block(0, "Hi."), *end()[:1]], text="Hi.", usage=used(12, 7)),
    "no stop reason": Shape([start(), *text_block(0, "Hi."), {"type": "message_stop"}], text="Hi.", usage=used(12, 1), sdk=False),
    "[DONE] at the end": Shape([start(), *text_block(0, "Hi."), *end(), b"data: [DONE]\n\n"], text="Hi.", usage=used(12, 7)),
    "no starts of blocks": Shape(
        [start(), delta(0, "thinking_delta", thinking="Hm."), delta(1, "text_delta", text="Hi."), *end()],
        text="Hi.",
        reasoning="Hm.",
        usage=used(12, 7),
        kept=[{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi."}],
        sdk=False,
    ),
    "every block has the same index": Shape(
        [start(), *text_block(0, "I look."), *called(0, "toolu_1", "look", '{"a":1}'), *called(0, "toolu_2", "look", '{"a":2}'), *end("tool_use")],
        text="I look.",
        calls=[("toolu_1", "look", '{"a":1}'), ("toolu_2", "look", '{"a":2}')],
        finish="tool_calls",
        usage=used(12, 7),
        sdk=False,
    ),
    "calls without ids": Shape(
        [start(), block(0, "tool_use", name="look", input={}), stop(0), block(1, "tool_use", name="look", input={}), stop(1), *end()],
        calls=[(None, "look", "{}"), (None, "look", "{}")],
        finish="tool_calls",
        usage=used(12, 7),
        sdk=False,
    ),
    "usage only at the end, zeros before": Shape(
        [start(input_tokens=0, output_tokens=0), *text_block(0, "Hi."), *end(input_tokens=12, cache_read_input_tokens=0)],
        text="Hi.",
        usage=used(12, 7, cached_tokens=0),
    ),
    "usage at the start, zeros after": Shape([start(), *text_block(0, "Hi."), *end(input_tokens=0)], text="Hi.", usage=used(12, 7), sdk=False),
    "no usage": Shape(
        [{"type": "message_start", "message": {"content": []}}, *text_block(0, "Hi."), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}],
        text="Hi.",
        sdk=False,
    ),
    "Bedrock's figures": Shape(
        [start(), *text_block(0, "Hi."), *end()[:1], {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 12, "outputTokenCount": 7}}],
        text="Hi.",
        usage=used(12, 7),
    ),
    "halves of a character": Shape(
        [start(), block(0, "text", text=""), b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}\n\n', b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ude00!"}}\n\n', stop(0), *end()],
        text="😀!",
        usage=used(12, 7),
        sdk=False,
    ),
    "a compaction": Shape(
        [start(), block(0, "compaction", content=None), delta(0, "compaction_delta", content="Summary.", encrypted_content="RW5j"), stop(0), *text_block(1, "Hi."), *end()],
        text="Hi.",
        usage=used(12, 7),
        kept=[{"type": "compaction", "content": "Summary.", "encrypted_content": "RW5j"}, {"type": "text", "text": "Hi."}],
    ),
    "a compaction, after which the input is small": Shape(
        [
            start(input_tokens=60_000, cache_read_input_tokens=50_000, cache_creation_input_tokens=0),
            block(0, "compaction", content=None), PING, delta(0, "compaction_delta", content="So far: ducks."), stop(0), *text_block(1, "Hi."),
            *end(input_tokens=600, cache_read_input_tokens=0, cache_creation_input_tokens=0),
        ],
        text="Hi.", usage=used(600, 7, cached_tokens=0, cache_write_tokens=0), sdk=False,
        kept=[{"type": "compaction", "content": "So far: ducks."}, {"type": "text", "text": "Hi."}],
    ),
    "another model goes on": Shape(
        [
            start(), *thought(0, "Hm."), block(1, "fallback", **{"from": {"model": "claude-test"}, "to": {"model": "claude-other"}}), stop(1), *text_block(2, "Hi."),
            *end(input_tokens=14),
        ],
        text="Hi.", reasoning="Hm.", usage=used(14, 7), model="claude-other",
        kept=[
            {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
            {"type": "fallback", "from": {"model": "claude-test"}, "to": {"model": "claude-other"}}, {"type": "text", "text": "Hi."},
        ],
    ),
    "usage inside the delta": Shape(
        [start(), *text_block(0, "Hi."), {"type": "message_delta", "delta": {"stop_reason": "end_turn", "usage": {"output_tokens": 7}}}, {"type": "message_stop"}],
        text="Hi.", usage=used(12, 7), sdk=False,
    ),
    "blocks that begin with nothing": Shape(
        [
            {"type": "message_start", "message": {"usage": {"input_tokens": 12}}}, block(0, "thinking"), delta(0, "thinking_delta", thinking="Hm."), stop(0),
            block(1, "text"), delta(1, "text_delta", text="Hi."), stop(1), *end(),
        ],
        text="Hi.", reasoning="Hm.", usage=used(12, 7), sdk=False, model="",
        kept=[{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi."}],
    ),
    "an advisor whose advice is hidden": Shape(
        [
            start(), block(0, "server_tool_use", id="srvtoolu_1", name="advisor", input={}), stop(0),
            block(1, "advisor_tool_result", tool_use_id="srvtoolu_1", content={"type": "advisor_redacted_result", "encrypted_content": "RW5j", "stop_reason": "end_turn"}), stop(1),
            *text_block(2, "Hi."), *end(),
        ],
        text="Hi.", usage=used(12, 7), shown=[("advisor", "{}", '{"stop_reason": "end_turn"}')],
        kept=[
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "advisor", "input": {}},
            {"type": "advisor_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "advisor_redacted_result", "encrypted_content": "RW5j", "stop_reason": "end_turn"}},
            {"type": "text", "text": "Hi."},
        ],
    ),
    "one JSON body": Shape(
        [json.dumps({"id": "m", "type": "message", "role": "assistant", "content": [SIGNED, {"type": "text", "text": "Hi."}, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}}], "stop_reason": "tool_use", "usage": {"input_tokens": 12, "output_tokens": 7}}).encode()],
        text="Hi.",
        reasoning="Hm. Yes.",
        calls=[("toolu_1", "look", '{"a": 1}')],
        finish="tool_calls",
        usage=used(12, 7),
        kept=[SIGNED, {"type": "text", "text": "Hi."}, {"type": "tool_use"}],
        sdk=False,
    ),
}  # fmt: skip
