"""What a run was asked, as input items."""

from collections.abc import Iterable
from typing import Any

from holodeck.core.messages import Content, MediaPart, Message, Part, TextPart, ToolMessage, UserMessage, text_of


def input_items(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The user's messages and the results of the client's tools, oldest first."""
    return [item for message in messages if (item := _item(message)) is not None]


def _item(message: Message) -> dict[str, Any] | None:
    if isinstance(message, UserMessage):
        return {
            "id": f"msg_{message.id}",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": _parts(message.content),
        }
    if isinstance(message, ToolMessage):
        return {
            "id": f"fco_{message.id}",
            "type": "function_call_output",
            "call_id": message.call_id,
            "output": text_of(message.content),
            "status": "completed",
        }
    return None


def _parts(content: Content) -> list[dict[str, Any]]:
    return [_part(part) for part in ([TextPart(content)] if isinstance(content, str) else content)]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "image_url": _url(part), "detail": "auto"} if _is_image(part) else _file(part)


def _is_image(part: MediaPart) -> bool:
    return part.mime_type.startswith("image/")


def _file(part: MediaPart) -> dict[str, Any]:
    member = "file_url" if part.data is None else "file_data"
    return {"type": "input_file", "filename": part.filename, member: _url(part)}


def _url(part: MediaPart) -> str | None:
    return part.url if part.data is None else f"data:{part.mime_type};base64,{part.data}"
