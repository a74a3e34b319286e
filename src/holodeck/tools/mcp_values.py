"""Translation of values between the model's side and MCP's: arguments going out, results coming in.

Pure. A result is hostile data: it is cleaned, capped, and what the model cannot read is named instead.
"""

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

import msgspec

from holodeck.core.json_values import MAX_DEPTH, clean_json, depth_exceeds
from holodeck.core.messages import MediaPart, Part, TextPart
from holodeck.core.text import clean, one_line, shorten
from holodeck.core.tools import ToolResult
from holodeck.tools.mcp_wire import (
    AudioBlock,
    Block,
    CallResult,
    ImageBlock,
    LinkBlock,
    Resource,
    ResourceBlock,
    TextBlock,
)

NOTHING = "(the tool returned nothing)"

_MIME = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)


def tool_result(answer: CallResult, limit: int, shortened: Callable[[str, int], str] = shorten) -> ToolResult:
    """The result for the model: texts joined, media named (and kept when small), about `limit` characters in all."""
    lines: list[str] = []
    media: list[Part] = []
    room = limit
    for block in answer.content:
        line, part = _read(block)
        lines.append(line)
        if part is not None and part.data is not None and len(part.data) < room:
            room -= len(part.data)
            media.append(part)
    text = "\n".join(line for line in lines if line) or _structured(answer.structured_content) or NOTHING
    text = shortened(text, limit)
    return ToolResult(content=(TextPart(text), *media) if media else text, failed=answer.is_error)


def _structured(value: Any) -> str:
    if value is None:
        return ""
    if depth_exceeds(value, MAX_DEPTH):
        return f"(the tool's answer is nested deeper than {MAX_DEPTH} levels and was left out)"
    return msgspec.json.encode(clean_json(value)).decode()


def _read(block: Block) -> tuple[str, MediaPart | None]:
    match block:
        case TextBlock():
            return clean(block.text), None
        case ImageBlock() | AudioBlock():
            return _media(block.mime_type, block.data)
        case LinkBlock():
            return f"[resource {one_line(block.name)}: {one_line(block.uri, 200)}]", None
        case ResourceBlock():
            return _resource(block.resource)


def text_of_block(block: Block) -> str:
    """What of a block is text; the rest is named."""
    return _read(block)[0]


def _resource(resource: Resource) -> tuple[str, MediaPart | None]:
    if resource.text is not None:
        return clean(resource.text), None
    return _media(resource.mime_type or "", resource.blob or "", one_line(resource.uri, 200))


def _media(declared: str, data: str, name: str = "") -> tuple[str, MediaPart | None]:
    mime = declared if _MIME.fullmatch(declared) else "application/octet-stream"
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return f"[{mime}, damaged]", None
    label = f"{name}: {mime}" if name else mime
    return f"[{label}, {_readable(size)}]", MediaPart(mime_type=mime, data=data)


def _readable(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size / 1_000:.0f} kB"  # noqa: PLR2004  a kilobyte
