"""A message put together from the events of a Messages stream, passed to the listener while it grows.

Pure and synchronous. Tolerates what real gateways do: blocks that never start, never stop or share an index, unknown
events, blocks and deltas, a whole message as one JSON body, usage in any event.
"""

import json
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from holodeck.core.json_values import clean_json
from holodeck.core.messages import ToolCall
from holodeck.core.text import clean, one_line
from holodeck.core.usage import TokenUsage
from holodeck.errors import ContentFiltered, ContextOverflow, ModelProtocolError
from holodeck.models.anthropic.content_blocks import (
    CALL,
    DELTAS,
    KEPT,
    ContentBlock,
    is_provider_call,
    is_provider_result,
    kind_of,
    shown_result,
    worth_keeping,
)
from holodeck.models.anthropic.message_events import ThinkingDelta, Value, decode_delta, decode_events
from holodeck.models.assembly import CallIds, is_object
from holodeck.models.chunks import DECODE_ERRORS, model_named
from holodeck.models.port import Listener, ModelReply
from holodeck.models.response_body import GrowingAnswer

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
PAUSES = frozenset({"pause_turn", "compaction"})  # the provider continues when it gets its own message back
NO_RESULT = "The provider has not reported a result."

_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_OUTPUT = ("output_tokens",)


class MessageAnswer(GrowingAnswer):
    """One reply while it streams. `paused_calls` are the provider's calls that were open when it paused the turn."""

    def __init__(
        self,
        listener: Listener,
        *,
        taken_ids: Callable[[], set[str]] = set,
        paused_calls: Collection[str] = (),
        debug: bool = False,
    ) -> None:
        super().__init__(listener, debug=debug)
        self._ids = CallIds(taken_ids)
        self._blocks: list[ContentBlock] = []  # in the order in which they began
        self._by_index: dict[int, ContentBlock] = {}
        self._open_calls = {call_id: call_id for call_id in paused_calls}  # the provider's: its id → the listener's
        self._stop_details: Value = {}
        self._usage: dict[str, int] = {}
        self._container: Value | None = None

    @property
    def started(self) -> bool:
        return any(block.pieces or block.call_id for block in self._blocks)

    def take(self, name: bytes, data: bytes) -> None:
        if not self._debug:
            try:
                event = decode_delta(data)
            except DECODE_ERRORS:
                pass  # not one of the frequent events
            else:
                block, delta = self._by_index.get(event.index), event.delta
                if block is not None and type(delta) is block.grows_by:
                    if delta.piece:
                        self._progress += 1
                        block.pieces.add(delta.piece)
                    elif type(delta) is ThinkingDelta and delta.estimated_tokens:
                        self._progress += 1
                    return
        self._take_any(name, data)

    def reply(self) -> ModelReply:
        self._check_end()
        stop_reason = self.finish_reason or "end_turn"
        for block in self._blocks:
            block.pieces.end()
        if stop_reason == "refusal":
            raise ContentFiltered(self._refusal())
        reason = FINISH_REASONS.get(stop_reason, stop_reason)
        calls = self._finish_calls(cut=reason == "length")
        if calls and reason == "stop":
            reason = "tool_calls"
        kept = [block.kept() for block in self._blocks if self._goes_back(block, reason)]
        if reason not in PAUSES:
            for call_id in self._open_calls.values():
                self._listener.call_answered(call_id, NO_RESULT)
            self._open_calls.clear()
            self._warn_of_end(stop_reason, has_calls=bool(calls))
        extra: dict[str, Any] = {"content": kept} if reason in PAUSES or worth_keeping(kept) else {}
        if self._container is not None:
            extra["container"] = clean_json(self._container)
        return ModelReply(
            text=self._joined("text"),
            reasoning=self._joined("thinking"),
            tool_calls=calls,
            finish_reason=reason,
            usage=self._token_usage(),
            model=self._model,
            extra={KEPT: extra} if extra else {},
        )

    def _goes_back(self, block: ContentBlock, reason: str) -> bool:
        """Whether a block is sent back: the API refuses empty texts, and provider calls that never get a result."""
        if block.kind in ("text", ""):
            return bool(block.pieces)
        gets_result = reason in PAUSES or reason == "tool_calls"
        return gets_result or not (block.is_provider_call and str(block.value.get("id")) in self._open_calls)

    # events

    def _take_any(self, name: bytes, data: bytes) -> None:
        if self._is_marker(data):
            return
        events, replaced = decode_events(name, data)
        if replaced:
            self._warn_of_bytes()
        for event in events:
            if self._debug:
                self._listener.raw(clean_json(event))
            self.take_event(event)

    def take_event(self, event: Value) -> None:
        """Takes one decoded event, whose `type` is a string."""
        match event["type"]:
            case "message_start":
                self._take_message(as_object(event.get("message")))
            case "message":  # an endpoint that does not stream
                self._take_message(event)
                self._take_stop(event)
                self.done = True
            case "content_block_start":
                self._progress += 1
                self._start(event.get("index"), as_object(event.get("content_block")))
            case "content_block_delta":
                self._progress += 1
                self._take_delta(event.get("index"), as_object(event.get("delta")))
            case "content_block_stop":
                self._stop_block(self._at(event.get("index")))
            case "message_delta":
                delta = as_object(event.get("delta"))
                self._take_stop(delta)
                self._count(event.get("usage") or delta.get("usage"))
            case "message_stop":
                self.done = True
            case "ping" if self._is_working():
                self._progress += 1

    def _take_message(self, message: Value) -> None:
        self._count(message.get("usage"))
        self._model = model_named(message.get("model")) or self._model
        content = message.get("content")
        if isinstance(content, str) and content:
            content = [{"type": "text", "text": content}]
        for index, value in enumerate(content if isinstance(content, list) else ()):
            if isinstance(value, dict):
                self._progress += 1
                self._stop_block(self._start(index, value))
        self._take_container(message)

    def _take_stop(self, delta: Value) -> None:
        self._take_container(delta)
        reason = delta.get("stop_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = clean(reason).lower()
            self._stop_details = as_object(delta.get("stop_details"))

    def _take_container(self, value: Value) -> None:
        if isinstance(value.get("container"), dict):
            self._container = value["container"]

    def _start(self, index: Any, value: Value) -> ContentBlock:
        block = self._new_block(value)
        self._blocks.append(block)
        self._by_index[index if type(index) is int else len(self._blocks) - 1] = block
        if block.call_id:
            self._listener.call_started(block.call_id, str(clean_json(value.get("name"))))
            if block.is_provider_call:
                self._open_calls[str(value.get("id"))] = block.call_id
        elif isinstance(initial := value.get(block.kind), str):
            block.pieces.add(initial)
        if is_provider_result(value):
            self._answer_call(value)
        if block.kind == "fallback":  # the provider continues with another model
            self._model = model_named(as_object(value.get("to")).get("model")) or self._model
        return block

    def _new_block(self, value: Value) -> ContentBlock:
        is_call = kind_of(value) == CALL or is_provider_call(value)
        if is_call and isinstance(value.get("name"), str) and value["name"]:
            given = value.get("id")
            call_id = self._ids.settled(given if isinstance(given, str) else None)
            return ContentBlock(value, partial(self._listener.call_arguments, call_id), call_id)
        listeners = {"text": self._listener.text, "thinking": self._listener.reasoning}
        return ContentBlock(value, listeners.get(kind_of(value), lambda _: None))

    def _take_delta(self, index: Any, delta: Value) -> None:
        kind, member = DELTAS.get(str(delta.get("type")), ("", ""))
        block = self._at(index)
        if not kind:
            if block is not None:
                block.absorb(delta)
            return
        if block is None or not block.takes(kind):  # a gateway that sends no start, or starts the wrong block
            block = self._start(index, {"type": kind})
        piece = delta.get(member)
        if isinstance(piece, str):
            block.pieces.add(piece)
        elif isinstance(piece, dict | list):
            block.pieces.add(json.dumps(piece, ensure_ascii=False))

    def _at(self, index: Any) -> ContentBlock | None:
        if type(index) is int:
            return self._by_index.get(index)
        return self._blocks[-1] if self._blocks else None

    # calls

    def _stop_block(self, block: ContentBlock | None) -> None:
        if block is not None and not block.stopped and block.is_provider_call and block.call_id:
            self._end_call(block)
        if block is not None:
            block.stopped = True

    def _end_call(self, block: ContentBlock) -> ToolCall:
        block.pieces.end()
        arguments = block.arguments()
        if not block.pieces:
            self._listener.call_arguments(block.call_id, arguments)
        call = ToolCall(id=block.call_id, name=str(clean_json(block.value["name"])), arguments=arguments)
        self._listener.call_ended(call)
        return call

    def _finish_calls(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """Ends every complete call that we have to run. With `cut`, drops the others with a warning."""
        calls = []
        for block in self._blocks:
            self._stop_block(block)
            if not block.is_call:
                continue
            if not block.call_id:
                raise ModelProtocolError("The model endpoint sent a tool call without the tool's name.")
            is_bare = block is self._blocks[-1] and not block.has_arguments  # the limit may be right behind the name
            if cut and (is_bare or not is_object(block.arguments())):
                name = clean_json(block.value["name"])
                self._listener.warning(
                    "tool-call-cut", f"The model's answer reached its length limit inside a call of {name}."
                )
            else:
                calls.append(self._end_call(block))
        return tuple(calls)

    def _answer_call(self, value: Value) -> None:
        call_id = self._open_calls.pop(value["tool_use_id"], None)
        if call_id is None:
            return  # a result of an earlier step; the message keeps its block anyway
        for block in self._blocks:
            if block.call_id == call_id:
                self._stop_block(block)
        text, failed = shown_result(value)
        self._listener.call_answered(call_id, text, failed=failed)

    def _is_working(self) -> bool:
        """Whether a ping means progress: the provider runs one of its tools, or thinks without showing its thoughts."""
        thinks = bool(self._blocks) and self._blocks[-1].kind == "thinking" and not self._blocks[-1].stopped
        return bool(self._open_calls) or thinks

    # the end

    def _refusal(self) -> str:
        category, explanation = self._stop_details.get("category"), self._stop_details.get("explanation")
        what = f"content filter: {one_line(category, 40)}" if isinstance(category, str) else "content filter"
        why = f" {one_line(explanation, 200)}" if isinstance(explanation, str) else ""
        return f"The model's provider refused to answer this ({what}).{why}"

    def _warn_of_end(self, stop_reason: str, *, has_calls: bool) -> None:
        silent = not has_calls and not self._joined("text")
        if stop_reason == "model_context_window_exceeded":
            if silent:
                raise ContextOverflow(
                    "The conversation fills the model's context window. Start a new one or shorten it."
                )
            self._warn("context-window", "The answer ends where the model's context window was full.")

    def _joined(self, kind: str) -> str:
        return "".join(str(block.pieces) for block in self._blocks if block.kind == kind)

    # counting

    def _count(self, usage: Any) -> None:
        """Counts are totals so far: later ones replace earlier ones, unless a gateway leaves all of a side at zero.

        They may shrink: after a compaction, the input is the summary.
        """
        usage = as_object(usage)
        details = as_object(usage.get("output_tokens_details"))
        for names in (_INPUT, _OUTPUT):
            counts = {name: count for name in names if type(count := usage.get(name)) is int and count >= 0}
            if any(counts.values()) or not any(name in self._usage for name in names):
                self._usage |= counts
        thought = details.get("thinking_tokens")
        if type(thought) is int and thought >= 0:
            self._usage["thinking_tokens"] = thought

    def _token_usage(self) -> TokenUsage | None:
        counts = self._usage
        if "input_tokens" not in counts or "output_tokens" not in counts:
            return None
        cached, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
        return TokenUsage(
            prompt_tokens=counts["input_tokens"] + (cached or 0) + (written or 0),
            completion_tokens=counts["output_tokens"],
            reasoning_tokens=counts.get("thinking_tokens"),
            cached_tokens=cached,
            cache_write_tokens=written,
        )


def as_object(value: Any) -> Value:
    return value if isinstance(value, dict) else {}
