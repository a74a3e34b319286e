"""Content blocks of a message: how they grow, how they are shown, and what of them is kept for the next turn.

The provider wants its thinking, its signatures and the blocks of its own tools back as they were, in their order. They
travel in the `extra` of the assistant message; text and calls that need no more than themselves do not.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from holodeck.core.json_values import clean_json
from holodeck.core.messages import AssistantMessage
from holodeck.models.anthropic.message_events import InputDelta, TextDelta, ThinkingDelta, Value
from holodeck.models.pieces import TextPieces

KEPT = "anthropic"  # the member of a message's `extra` that holds its content blocks
CALL = "tool_use"  # for us to carry out
THINKING = frozenset({"thinking", "redacted_thinking"})
DELTAS: dict[str, tuple[str, str]] = {  # type of a delta → the type of its block, and the member that it adds to
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": (CALL, "partial_json"),
}

_LONGEST_RESULT = 4000
_OPAQUE = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "type", "page_age", "caller"})
_REPLACED = frozenset({"signature", "content", "encrypted_content"})  # by a delta, as the official SDK does
_OF_A_CALL = frozenset({"type", "id", "name", "input"})
_DIRECT = {"type": "direct"}

GrowsBy: TypeAlias = type[TextDelta] | type[ThinkingDelta] | type[InputDelta]


class ContentBlock:
    """One content block while it streams. `grows_by` is the kind of delta that adds to it."""

    __slots__ = ("call_id", "grows_by", "kind", "pieces", "stopped", "value")

    def __init__(self, value: Value, on_delta: Callable[[str], None], call_id: str = "") -> None:
        self.value = value
        self.kind = kind_of(value)
        self.call_id = call_id  # the listener's id of the call
        self.pieces = TextPieces(on_delta)
        self.stopped = False
        self.grows_by: GrowsBy | None = None
        if self.kind == "text":
            self.grows_by = TextDelta
        elif self.kind == "thinking":
            self.grows_by = ThinkingDelta
        elif self.is_call or self.is_provider_call:
            self.grows_by = InputDelta

    @property
    def is_call(self) -> bool:
        return self.kind == CALL

    @property
    def is_provider_call(self) -> bool:
        return is_provider_call(self.value)

    def takes(self, kind: str) -> bool:
        """Whether a delta for a block of this kind belongs to this block."""
        return self.kind == kind or (kind == CALL and self.is_provider_call)

    def absorb(self, delta: Value) -> None:
        """Takes a rare delta: a signature, a citation, or a kind that we do not know."""
        if delta.get("type") == "citations_delta":
            citations = self.value.get("citations")
            known = citations if isinstance(citations, list) else []
            self.value["citations"] = [*known, delta.get("citation")]
            return
        for name, piece in delta.items():
            if name == "type":
                continue
            begun: Any = self.value.get(name)
            if name not in _REPLACED and type(begun) is type(piece) and type(begun) in (str, list):
                self.value[name] = begun + piece
            elif piece is not None:
                self.value[name] = piece

    @property
    def has_arguments(self) -> bool:
        return bool(str(self.pieces).strip() or self.value.get("input"))

    def arguments(self) -> str:
        """The input of a call as JSON text: what was streamed, or what the block began with."""
        streamed = str(self.pieces)
        if streamed.strip():
            return streamed
        given = self.value.get("input")
        if isinstance(given, str) and given.strip():
            return given
        return json.dumps(clean_json(given), ensure_ascii=False) if given else "{}"

    def kept(self) -> Value:
        """The block as it is sent back. Of a call only the type and extra members: the message has id, name and input."""
        if self.is_call:
            more = {name: item for name, item in self.value.items() if name not in _OF_A_CALL and item is not None}
            if more.get("caller") == _DIRECT:
                del more["caller"]
            return {"type": CALL, **clean_json(more)}
        value: Value = dict(self.value)
        if self.kind in ("text", "thinking"):
            value[self.kind] = str(self.pieces)
        elif self.is_provider_call:
            value["input"] = _object_in(self.arguments())
        return dict(clean_json(value))


def kind_of(value: Value) -> str:
    """The type of a block, empty when it has none."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def is_provider_call(value: Value) -> bool:
    """Whether the provider carries out this call itself: server_tool_use, mcp_tool_use."""
    kind = kind_of(value)
    return kind != CALL and kind.endswith(CALL)


def is_provider_result(value: Value) -> bool:
    return kind_of(value).endswith("tool_result") and isinstance(value.get("tool_use_id"), str)


def worth_keeping(blocks: Sequence[Value]) -> bool:
    """Whether the blocks hold more than a text followed by calls."""
    calls = False
    for block in blocks:
        kind = block["type"]
        plain = (kind == CALL and len(block) == 1) or (kind == "text" and not calls and not block.get("citations"))
        if not plain:
            return True
        calls = kind == CALL
    return False


def open_provider_calls(message: AssistantMessage) -> set[str]:
    """Ids of the provider's own calls whose results the message does not hold: its turn was paused."""
    blocks = kept_blocks(message)
    answered = {block["tool_use_id"] for block in blocks if is_provider_result(block)}
    return {str(block.get("id")) for block in blocks if is_provider_call(block)} - answered


def kept_blocks(message: AssistantMessage) -> list[Value]:
    """The content blocks stored with a message; none for a message of another API.

    Checked again, because stored sessions may have been edited.
    """
    kept = message.extra.get(KEPT)
    content = kept.get("content") if isinstance(kept, dict) else None
    return (
        [block for block in content if isinstance(block, dict) and kind_of(block)] if isinstance(content, list) else []
    )


def shown_result(value: Value) -> tuple[str, bool]:
    """The result of a provider's own tool as text, and whether it failed."""
    content = value.get("content")
    failed = value.get("is_error") is True or (
        isinstance(content, dict)
        and (str(content.get("type")).endswith("error") or content.get("return_code") not in (None, 0))
    )
    text = _shown(content)
    return str(clean_json(text if len(text) <= _LONGEST_RESULT else f"{text[:_LONGEST_RESULT]} […]")), failed


def _shown(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_shown, content)))
    return _shown_object(content) if isinstance(content, dict) else ""


def _shown_object(content: Value) -> str:
    for name in ("text", "error_code", "tool_name", "file_id"):
        if isinstance(content.get(name), str):
            return str(content[name])
    if isinstance(content.get("url"), str):
        return " ".join(str(content[name]) for name in ("title", "url") if content.get(name))
    if "stdout" in content or "stderr" in content:
        parts = [content.get("stdout"), content.get("stderr"), _shown(content.get("content"))]
        return "\n".join(part for part in parts if isinstance(part, str) and part)
    inner = next((content[name] for name in ("content", "tool_references") if content.get(name)), None)
    if inner:
        return _shown(inner)
    rest = {name: value for name, value in content.items() if name not in _OPAQUE}
    return json.dumps(clean_json(rest), ensure_ascii=False) if rest else ""


def _object_in(arguments: str) -> Value:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
