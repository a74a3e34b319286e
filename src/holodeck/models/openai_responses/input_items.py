"""A conversation as the `input` of a Responses request.

A message's `extra` holds the other items of an earlier response (encrypted reasoning, tools that the provider ran,
citations); they go back in their order, unchanged. For the `plain` messages, whose extra items the provider rejected, only
text and calls are sent.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from holodeck.core.messages import (
    AssistantMessage,
    Content,
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    text_of,
)
from holodeck.core.tools import accepted_name
from holodeck.models.chat_format import AUDIO_FORMATS
from holodeck.models.chunks import present
from holodeck.models.openai_responses.output_items import CALLS, KEPT, Item

_CUSTOM = "custom_tool_call"


def to_input(messages: Iterable[Message], plain: Collection[str] = ()) -> list[Item]:
    items: list[Item] = []
    custom: set[str] = set()  # ids of custom tool calls, whose results have another type
    for message in messages:
        if isinstance(message, UserMessage):
            items.append({"role": "user", "content": _content(message.content)})
        elif isinstance(message, AssistantMessage):
            custom |= {call.id for call in message.tool_calls if call.extra.get("type") == _CUSTOM}
            items += _assistant(message, plain=message.id in plain)
        else:
            kind = "custom_tool_call_output" if message.call_id in custom else "function_call_output"
            items.append({"type": kind, "call_id": message.call_id, "output": _output(message)})
    return items


def messages_with_items(messages: Iterable[Message]) -> list[str]:
    """Ids of the messages that carry a provider's own items."""
    return [message.id for message in messages if isinstance(message, AssistantMessage) and _kept_items(message)]


def _assistant(message: AssistantMessage, *, plain: bool) -> list[Item]:
    kept = [] if plain else _kept_items(message)
    if not kept:
        text = [{"role": "assistant", "content": message.content}] if message.content else []
        return [*text, *map(_call, message.tool_calls)]
    items = _without_lone_reasoning(_restored(kept, message.tool_calls))
    written = "".join(_text(item) for item in kept if item.get("type") == "message")
    if message.content.startswith(written) and (answer := message.content[len(written) :]):
        items.append({"role": "assistant", "content": answer})  # a structured answer that came as a call
    return items


def _kept_items(message: AssistantMessage) -> list[Item]:
    kept = message.extra.get(KEPT)
    items = kept.get("items") if isinstance(kept, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _restored(kept: Sequence[Item], calls: Sequence[ToolCall]) -> Iterator[Item | None]:
    """The stored items with their calls. None stands for a call that was cut, and is not in the history."""
    following = iter(calls)
    for item in kept:
        kind = item.get("type")
        if kind in CALLS:
            call = next(following, None)
            yield {**item, **_call(call)} if call is not None else None
        elif kind == "message":
            yield _message(item)
        elif kind == "reasoning":
            if (reasoning := _reasoning(item)) is not None:
                yield reasoning
        elif isinstance(kind, str) and kind and "role" not in item:
            yield item
    yield from map(_call, following)


def _without_lone_reasoning(items: Iterable[Item | None]) -> list[Item]:
    """Drops reasoning items without a following item, which the provider refuses."""
    result: list[Item] = []
    thoughts: list[Item] = []
    for item in items:
        if item is None:
            thoughts.clear()
        elif item.get("type") == "reasoning":
            thoughts.append(item)
        else:
            result += [*thoughts, item]
            thoughts.clear()
    return result


def _reasoning(item: Item) -> Item | None:
    """The reasoning item to send back, or None.

    With `store: false` the provider knows an item only by its encrypted content.
    """
    result = {"type": "reasoning", "summary": item.get("summary") or []}
    if present(item.get("encrypted_content")):
        return {**result, "id": item.get("id"), "encrypted_content": item["encrypted_content"]}
    if present(item.get("content")):  # models that send their thoughts unencrypted
        return {**result, "content": item["content"]}
    return None


def _message(item: Item) -> Item:
    """An assistant text: with citations in the provider's format, otherwise in the one that every gateway accepts."""
    parts = _parts(item)
    phase = {"phase": item["phase"]} if present(item.get("phase")) else {}
    if any(present(part.get("annotations")) for part in parts) and present(item.get("id")):
        status = item.get("status") or "completed"
        return {"type": "message", "role": "assistant", "id": item["id"], "status": status, "content": parts, **phase}
    return {"role": "assistant", "content": _text(item), **phase}


def _parts(item: Item) -> list[Item]:
    return [part for part in item.get("content") or () if isinstance(part, dict)]


def _text(item: Item) -> str:
    return "".join(part["text"] for part in _parts(item) if isinstance(part.get("text"), str))


def _call(call: ToolCall) -> Item:
    name = accepted_name(call.name)
    if call.extra.get("type") == _CUSTOM:
        return {"type": _CUSTOM, "call_id": call.id, "name": name, "input": call.arguments}
    return {"type": "function_call", "call_id": call.id, "name": name, "arguments": call.arguments or "{}"}


def _output(message: ToolMessage) -> str | list[Item]:
    has_image = not isinstance(message.content, str) and any(_is_image(part) for part in message.content)
    return _content(message.content) if has_image else text_of(message.content)


def _is_image(part: Part) -> bool:
    return isinstance(part, MediaPart) and part.mime_type.startswith("image/")


def _content(content: Content) -> str | list[Item]:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> Item:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if _is_image(part):
        return {"type": "input_image", "image_url": part.url or part.data_url, "detail": "auto"}
    if part.data and part.mime_type in AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": AUDIO_FORMATS[part.mime_type]}}
    if part.data:
        return {"type": "input_file", "filename": part.filename or "file", "file_data": part.data_url}
    return {"type": "input_text", "text": " ".join(filter(None, [text_of((part,)), part.url]))}
