"""Converts messages to OpenAI's chat format and back.

Unknown members of a message or a tool call are kept in `extra` and sent back where they were. Ids, timestamps and
`failed` are our own and are not sent.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holodeck.core.json_values import JsonObject, clean_json
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
from holodeck.core.text import clean
from holodeck.core.tools import accepted_name
from holodeck.errors import InvalidRequest
from holodeck.models.assembly import extra_members
from holodeck.models.chunks import present
from holodeck.models.port import Prompt

SIGNED = "extra_content"  # the member in which Gemini signs a message and its calls
_SYSTEM_ROLES = frozenset({"system", "developer"})
_ASSISTANT_MEMBERS = frozenset({"role", "content", "tool_calls", "function_call", "reasoning"})
_OTHER_APIS = frozenset({"openai_responses", "anthropic"})  # what other APIs keep in `extra`; no chat endpoint knows it
AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def to_chat(prompt: Prompt, *, vision: bool = False, without: Collection[str] = ()) -> list[JsonObject]:
    """The `messages` of a request, the system prompt first.

    Results of tools hold only text in this API. With `vision`, their images follow in a message of the user. `without`
    names members of messages and calls that the endpoint refuses.
    """
    left_out = _OTHER_APIS.union(without)
    chats: list[JsonObject] = [{"role": "system", "content": prompt.system}] if prompt.system else []
    images: list[JsonObject] = []
    for message in prompt.messages:
        if images and not isinstance(message, ToolMessage):
            chats.append({"role": "user", "content": images})
            images = []
        if vision and isinstance(message, ToolMessage):
            images += _images_of(message)
        if not _is_empty(message):
            chat = message_to_chat(message)
            chats.append(_without(chat, left_out))
    return [*chats, {"role": "user", "content": images}] if images else chats


def is_signed(message: AssistantMessage) -> bool:
    return SIGNED in message.extra or any(SIGNED in call.extra for call in message.tool_calls)


def unsigned(message: AssistantMessage) -> AssistantMessage:
    """The message without signatures: its own and those of its calls."""
    calls = tuple(replace(call, extra=_unsigned(call.extra)) for call in message.tool_calls)
    return replace(message, tool_calls=calls, extra=_unsigned(message.extra))


def _unsigned(extra: JsonObject) -> JsonObject:
    return {name: value for name, value in extra.items() if name != SIGNED}


def members_beyond_the_usual(messages: Iterable[Message]) -> set[str]:
    """Names of members in messages and calls that not every endpoint accepts."""
    found: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            found.add("name")
        elif isinstance(message, AssistantMessage):
            found.update(message.extra, *(call.extra for call in message.tool_calls))
    return found - _OTHER_APIS


def _without(chat: JsonObject, members: frozenset[str]) -> JsonObject:
    if not members.isdisjoint(chat):
        chat = {name: value for name, value in chat.items() if name not in members}
    if "tool_calls" in chat:
        calls = chat["tool_calls"]
        chat["tool_calls"] = [{name: call[name] for name in call if name not in members} for call in calls]
    return chat


def _images_of(result: ToolMessage) -> list[JsonObject]:
    parts = () if isinstance(result.content, str) else result.content
    images = [part for part in parts if isinstance(part, MediaPart) and part.mime_type.startswith("image/")]
    if not images:
        return []
    return [{"type": "text", "text": f"Images that {result.name} returned:"}, *map(_part_to_chat, images)]


def message_to_chat(message: Message) -> JsonObject:
    if isinstance(message, UserMessage):
        content = message.content
        return {"role": "user", "content": content if isinstance(content, str) else [*map(_part_to_chat, content)]}
    if isinstance(message, ToolMessage):
        # Gemini refuses a result without the tool's name; the other endpoints accept it.
        text = text_of(message.content)
        return {"role": "tool", "tool_call_id": message.call_id, "name": accepted_name(message.name), "content": text}
    chat: JsonObject = {**message.extra, "role": "assistant", "content": message.content or None}
    if message.tool_calls:
        chat["tool_calls"] = [_call_to_chat(call) for call in message.tool_calls]
    elif chat["content"] is None:
        chat["content"] = ""
    return chat


def from_chat(chats: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Converts a conversation from the chat format. System messages are left out (`system_of` reads them)."""
    messages: list[Message] = []
    names: dict[str, str] = {}  # tool names by call id: a tool message may omit its name
    for place, chat in enumerate(chats):
        role = chat.get("role")
        if role in _SYSTEM_ROLES:
            continue
        if role == "user":
            messages.append(UserMessage(content=_content_from_chat(chat.get("content"), place)))
        elif role == "assistant":
            message = _assistant_from_chat(chat, place)
            names |= {call.id: call.name for call in message.tool_calls}
            messages.append(message)
        elif role == "tool":
            messages.append(_tool_from_chat(chat, names, place))
        else:
            raise InvalidRequest(f"messages[{place}] has the role {role!r}", field=f"messages[{place}].role")
    return messages


def system_of(chats: Iterable[Mapping[str, Any]]) -> str:
    """The system prompt of a conversation, empty when it has none."""
    texts = (
        text_of(_content_from_chat(chat.get("content"), place))
        for place, chat in enumerate(chats)
        if chat.get("role") in _SYSTEM_ROLES
    )
    return "\n\n".join(text for text in texts if text)


def _is_empty(message: Message) -> bool:
    """Whether an assistant message is empty; several providers reject a history that contains one."""
    if not isinstance(message, AssistantMessage) or message.content or message.tool_calls:
        return False
    return not present(message.extra.get("images"))


def _part_to_chat(part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.mime_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url or part.data_url}}
    if part.data and part.mime_type in AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": AUDIO_FORMATS[part.mime_type]}}
    if part.data:
        return {"type": "file", "file": {"filename": part.filename or "file", "file_data": part.data_url}}
    return {"type": "text", "text": " ".join(filter(None, [text_of((part,)), part.url]))}


def _call_to_chat(call: ToolCall) -> JsonObject:
    inside = call.extra.get("function", {})
    function = {**inside, "name": accepted_name(call.name), "arguments": call.arguments or "{}"}
    return {"type": "function", **call.extra, "id": call.id, "function": function}


def _assistant_from_chat(chat: Mapping[str, Any], place: int) -> AssistantMessage:
    calls = chat.get("tool_calls") or ()
    if not isinstance(calls, Sequence) or not all(isinstance(call, Mapping) for call in calls):
        raise InvalidRequest(f"messages[{place}].tool_calls must be a list of objects", field="tool_calls")
    reasoning = chat.get("reasoning_content") or chat.get("reasoning")
    return AssistantMessage(
        content=text_of(_content_from_chat(chat.get("content"), place)),
        tool_calls=tuple(_call_from_chat(dict(call), place) for call in calls),
        reasoning=clean(reasoning) if isinstance(reasoning, str) else "",
        extra={
            name: clean_json(value) for name, value in chat.items() if name not in _ASSISTANT_MEMBERS and present(value)
        },
    )


def _call_from_chat(call: JsonObject, place: int) -> ToolCall:
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not (isinstance(name, str) and isinstance(call.get("id"), str)):
        raise InvalidRequest(f"messages[{place}] has a tool call without id or function name", field="tool_calls")
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=call["id"], name=name, arguments=clean(arguments), extra=extra_members(call))


def _tool_from_chat(chat: Mapping[str, Any], names: Mapping[str, str], place: int) -> ToolMessage:
    call_id = chat.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidRequest(f"messages[{place}] is a tool message without tool_call_id", field="tool_call_id")
    name = chat.get("name") or names.get(call_id, "")
    return ToolMessage(call_id=call_id, name=str(name), content=_content_from_chat(chat.get("content"), place))


def _content_from_chat(content: Any, place: int) -> Content:
    if content is None:
        return ""
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content):
        return tuple(_part_from_chat(part, place) for part in content)
    raise InvalidRequest(f"messages[{place}].content must be text or a list of parts", field="content")


def _part_from_chat(part: Mapping[str, Any], place: int) -> Part:
    kind = part.get("type")
    value = part.get(str(kind))
    if kind == "text" and isinstance(value, str):
        return TextPart(clean(value))
    if kind == "image_url":
        url = value.get("url") if isinstance(value, Mapping) else value
        if isinstance(url, str):
            return media_at(url, "image/*")
    if kind == "input_audio" and isinstance(value, Mapping):
        mime_type = "audio/mpeg" if value.get("format") == "mp3" else "audio/wav"
        return MediaPart(mime_type=mime_type, data=str(value.get("data", "")))
    if kind == "file" and isinstance(value, Mapping) and isinstance(value.get("file_data"), str):
        return media_at(value["file_data"], "application/octet-stream", value.get("filename"))
    raise InvalidRequest(f"messages[{place}].content has a part of type {kind!r} that is not known", field="content")


def media_at(url: str, mime_type: str, filename: Any = None) -> MediaPart:
    """The file in a `data:` URL, or a reference to one; `mime_type` where the URL does not give it."""
    name = filename if isinstance(filename, str) else None
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        found = head.removeprefix("data:").removesuffix(";base64")
        return MediaPart(mime_type=found or mime_type, data=data, filename=name)
    return MediaPart(mime_type=mime_type, url=url, filename=name)
