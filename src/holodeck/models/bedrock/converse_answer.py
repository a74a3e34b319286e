"""A reply assembled from the events of a Converse stream.

Converse has the content blocks of Anthropic's Messages under other names, whichever model answers. Its events are renamed
here and read by `MessageAnswer`. So the stored parts of a reply (thinking, signatures) can be sent to Anthropic as well.
"""

from base64 import b64decode, b64encode
from typing import Any

import msgspec

from holodeck.core.json_values import clean_json
from holodeck.core.messages import MediaPart
from holodeck.errors import ModelProtocolError
from holodeck.models.anthropic.content_blocks import CALL
from holodeck.models.anthropic.message_answer import MessageAnswer, as_object
from holodeck.models.anthropic.message_events import Value
from holodeck.models.chunks import DECODE_ERRORS, InBandError, error_in, values_in
from holodeck.models.port import Listener, ModelReply

SERVER_CALL, SERVER_RESULT = "server_tool_use", "server_tool_result"
_STOPS = {  # stop reasons: Converse → Messages; the others have the same names
    "guardrail_intervened": ("refusal", {"category": "a guardrail of Bedrock"}),
    "content_filtered": ("refusal", {}),
}
_MALFORMED = {
    "malformed_model_output": "The model wrote an answer that Bedrock cannot read. Try again.",
    "malformed_tool_use": "The model wrote a tool call that Bedrock cannot read. Try again.",
}
_STATUSES = {  # HTTP status by exception in the stream, as the API documents them
    "throttlingexception": 429,
    "modelnotreadyexception": 429,
    "serviceunavailableexception": 503,
    "internalserverexception": 500,
    "modelstreamerrorexception": 500,
    "modelerrorexception": 500,
    "modeltimeoutexception": 408,
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
}
_COUNTS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}


class _Text(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    text: str


class _TextDelta(msgspec.Struct, gc=False):
    """A piece of text, which nearly every event is. An event of any other kind cannot be decoded into this."""

    delta: _Text
    contentBlockIndex: int  # noqa: N815  the API's name


_decode_text = msgspec.json.Decoder(_TextDelta).decode


class ConverseAnswer(MessageAnswer):
    """One reply while it streams. Converse announces only tool blocks; the others begin with their first delta."""

    def __init__(self, listener: Listener, **options: Any) -> None:
        """The options are those of MessageAnswer."""
        super().__init__(listener, **options)
        self._results: dict[Any, Value] = {}  # results of the provider's own tools, shown when complete
        self._images: dict[Any, tuple[str, list[str]]] = {}  # generated images: type and pieces, by block
        self._redacted: dict[int, list[str]] = {}  # pieces of hidden thoughts, by the identity of their block

    def take(self, name: bytes, data: bytes) -> None:
        """Takes one event. Without a name it is a whole answer as one JSON body."""
        if name == b"contentBlockDelta" and not self._debug:
            try:
                event = _decode_text(data)
            except DECODE_ERRORS:
                pass  # not one of the frequent events
            else:
                return self._take_delta_of(event.contentBlockIndex, {"text": event.delta.text})
        if not data.strip():
            return None
        values, _ = values_in(data)
        for value in values:
            if self._debug:
                self._listener.raw({"type": name.decode(errors="replace"), **clean_json(value)})
            self._take_value(name.decode(errors="replace"), value)
        return None

    def reply(self) -> ModelReply:
        if self.finish_reason in _MALFORMED:
            raise ModelProtocolError(_MALFORMED[self.finish_reason])
        for block in self._blocks:
            if pieces := self._redacted.get(id(block)):
                block.value["data"] = _joined(pieces)
        return super().reply()

    def _take_value(self, kind: str, value: Value) -> None:
        index = value.get("contentBlockIndex")
        match kind:
            case "contentBlockStart":
                self._start_block(index, as_object(value.get("start")))
            case "contentBlockDelta":
                self._take_delta_of(index, as_object(value.get("delta")))
            case "contentBlockStop":
                self._end_block(index)
            case "messageStop":
                self._take_stop_reason(value)
            case "metadata":
                self._count_usage(value)
                self.done = self.done or self.finish_reason is not None
            case "" if "output" in value:
                self._take_whole(value)
            case _ if kind.lower().endswith("exception"):
                raise InBandError(_exception(kind, value))
            case "" if error := error_in(value):
                raise InBandError(error)

    # blocks

    def _start_block(self, index: Any, start: Value) -> None:
        if isinstance(use := start.get("toolUse"), dict):
            self._open(index, _call_block(use))
        elif isinstance(result := start.get("toolResult"), dict):
            self._results[index] = _result_block(result)
        elif isinstance(image := start.get("image"), dict):
            self._images[index] = f"image/{image.get('format')}", []

    def _take_delta_of(self, index: Any, delta: Value) -> None:
        """Takes a delta. Its block may have no start event: `MessageAnswer` starts text and thinking with the first piece."""
        if isinstance(text := delta.get("text"), str):
            self._add(index, {"type": "text_delta", "text": text})
        elif isinstance(use := delta.get("toolUse"), dict):
            self._add(index, {"type": "input_json_delta", "partial_json": use.get("input")})
        elif isinstance(reasoning := delta.get("reasoningContent"), dict):
            self._take_reasoning(index, reasoning)
        elif isinstance(citation := delta.get("citation"), dict):
            self._ensure(index, "text")
            self._add(index, {"type": "citations_delta", "citation": citation})
        elif isinstance(items := delta.get("toolResult"), list) and index in self._results:
            self._results[index]["content"] += items
        elif isinstance(image := delta.get("image"), dict) and index in self._images:
            piece = as_object(image.get("source")).get("bytes")
            self._images[index][1].extend([piece] if isinstance(piece, str) else ())

    def _take_reasoning(self, index: Any, reasoning: Value) -> None:
        if isinstance(text := reasoning.get("text"), str) and text:
            self._add(index, {"type": "thinking_delta", "thinking": text})
        if isinstance(signature := reasoning.get("signature"), str) and signature:
            self._ensure(index, "thinking")
            self._add(index, {"type": "signature_delta", "signature": signature})
        if isinstance(redacted := reasoning.get("redactedContent"), str) and redacted:
            block = self._at(index)
            if block is None or id(block) not in self._redacted:
                self._open(index, {"type": "redacted_thinking"})
                block = self._blocks[-1]
            self._redacted.setdefault(id(block), []).append(redacted)

    def _ensure(self, index: Any, kind: str) -> None:
        block = self._at(index)
        if block is None or block.kind != kind:
            self._open(index, {"type": kind})

    def _end_block(self, index: Any) -> None:
        if (result := self._results.pop(index, None)) is not None:
            self._open(index, result)
        kind, pieces = self._images.pop(index, ("", []))
        if data := _joined(pieces):
            self._show_image(self._ids.settled(None), MediaPart(mime_type=kind, data=data))
            self._open(index, {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
        self.take_event({"type": "content_block_stop", "index": index})

    def _open(self, index: Any, block: Value) -> None:
        self.take_event({"type": "content_block_start", "index": index, "content_block": block})

    def _add(self, index: Any, delta: Value) -> None:
        self.take_event({"type": "content_block_delta", "index": index, "delta": delta})

    # the end

    def _take_stop_reason(self, value: Value) -> None:
        given = value.get("stopReason")
        reason, details = _STOPS.get(str(given), (given, {}))
        self.take_event({"type": "message_delta", "delta": {"stop_reason": reason, "stop_details": details}})

    def _count_usage(self, value: Value) -> None:
        usage = as_object(value.get("usage"))
        counts = {ours: usage[theirs] for theirs, ours in _COUNTS.items() if theirs in usage}
        self.take_event({"type": "message_delta", "usage": counts})

    def _take_whole(self, value: Value) -> None:
        """Takes the whole answer of a model that does not stream."""
        content = as_object(as_object(value.get("output")).get("message")).get("content")
        blocks = [_whole_block(each) for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        self.take_event({"type": "message_start", "message": {"content": blocks}})
        self._take_stop_reason(value)
        self._count_usage(value)
        self.done = True


def _call_block(use: Value) -> Value:
    kind = SERVER_CALL if use.get("type") == SERVER_CALL else CALL
    return {"type": kind, "id": use.get("toolUseId"), "name": use.get("name"), "input": use.get("input") or {}}


def _result_block(result: Value) -> Value:
    content = result.get("content")
    more = {"result_type": result["type"]} if isinstance(result.get("type"), str) else {}
    return {
        "type": SERVER_RESULT,
        "tool_use_id": result.get("toolUseId"),
        "content": content if isinstance(content, list) else [],
        **({"is_error": True} if result.get("status") == "error" else {}),
        **more,
    }


def _whole_block(block: Value) -> Value:
    """A content block of Converse as one of Messages."""
    if isinstance(use := block.get("toolUse"), dict):
        return _call_block(use)
    if isinstance(result := block.get("toolResult"), dict):
        return _result_block(result)
    if isinstance(cited := block.get("citationsContent"), dict):
        texts = [as_object(each).get("text") for each in cited.get("content") or ()]
        return {"type": "text", "text": "".join(filter(None, texts)), "citations": cited.get("citations") or []}
    reasoning = block.get("reasoningContent")
    if not isinstance(reasoning, dict):
        return {"type": "text", "text": block.get("text")}
    if "redactedContent" in reasoning:
        return {"type": "redacted_thinking", "data": reasoning["redactedContent"]}
    thought = as_object(reasoning.get("reasoningText"))
    signature = {"signature": thought["signature"]} if thought.get("signature") else {}
    return {"type": "thinking", "thinking": thought.get("text"), **signature}


def _exception(kind: str, value: Value) -> Value:
    """The error with the HTTP status that it stands for, so that it is diagnosed like a refusal."""
    words = (value.get(name) for name in ("message", "Message", "originalMessage"))
    original = value.get("originalStatusCode")
    status = _STATUSES.get(kind.lower(), 500)
    is_limit = original in (429, 503, 529)  # the model's own, behind Bedrock
    return {"type": kind, "message": next(filter(None, words), kind), "status": original if is_limit else status}


def _joined(pieces: list[str]) -> str:
    """Joins the pieces of a blob. Each piece is base64 by itself."""
    if len(pieces) <= 1:
        return "".join(pieces)
    try:
        return b64encode(b"".join(map(b64decode, pieces))).decode()
    except ValueError:
        return "".join(pieces)
