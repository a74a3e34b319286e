"""Values that clients of several wires send in the same form: files, client tools, calls, context and state.

This module does not look at the bytes of files: `holodeck.files` decodes them and checks their types.
"""

from typing import Any

import msgspec

from holodeck.core.messages import MediaPart, ToolCall
from holodeck.core.tools import TOOL_NAME, ToolSchema
from holodeck.errors import InvalidRequest, PayloadTooLarge
from holodeck.wires.body import name, opaque, optional, table, text
from holodeck.wires.sse import json_bytes

UNKNOWN_TYPE = "application/octet-stream"
MAX_STATE_BYTES = 256_000


def media(url: Any, path: str, mime_type: str, filename: str | None = None) -> MediaPart:
    """Reads a file by its address, or from a `data:` URL in base64, which has its own type."""
    if not isinstance(url, str) or not url.startswith(("data:", "http://", "https://")):
        raise InvalidRequest(f"{path} must be an address or a data: URL", field=path)
    if not url.startswith("data:"):
        return MediaPart(mime_type=mime_type, url=url, filename=filename)
    head, comma, data = url.partition(",")
    kind, *parameters = head.removeprefix("data:").split(";")
    if not comma or "base64" not in parameters:
        raise InvalidRequest(f"{path} must be a data: URL in base64", field=path)
    return MediaPart(mime_type=text(kind, path) or UNKNOWN_TYPE, data=base64_text(data, path), filename=filename)


def base64_text(data: Any, path: str) -> str:
    """Checks that base64 is ASCII. It is not cleaned, because it may be megabytes."""
    if not isinstance(data, str) or not data.isascii():
        raise InvalidRequest(f"{path} must be base64", field=path)
    return data


def client_tool(raw: dict[str, Any], path: str) -> ToolSchema:
    """Reads a client's tool: `name`, `description` and `parameters`, a JSON Schema."""
    called, where = text(raw.get("name"), f"{path}.name"), f"{path}.parameters"
    if not TOOL_NAME.fullmatch(called):
        raise InvalidRequest(f"{path}.name must be 1 to 64 of A-Z a-z 0-9 _ -", field=f"{path}.name")
    description = optional(text, raw.get("description"), f"{path}.description") or ""
    tool = ToolSchema(name=called, description=description, on_client=True)
    if not raw.get("parameters"):
        return tool
    return msgspec.structs.replace(tool, parameters=opaque(table(raw["parameters"], where), where))


def client_call(raw: dict[str, Any], path: str) -> ToolCall:
    """Reads a call in OpenAI's form, which AG-UI shares: `id` and `function` with `name` and `arguments`."""
    function = table(raw.get("function"), f"{path}.function")
    return ToolCall(
        id=name(raw.get("id"), f"{path}.id"),
        name=name(function.get("name"), f"{path}.function.name"),
        arguments=text(function.get("arguments"), f"{path}.function.arguments"),
    )


def context_text(value: Any, path: str) -> str:
    """Reads context as text. Other JSON is converted to its text."""
    value = opaque(value, path)
    if isinstance(value, str):
        return value
    return "" if value is None else json_bytes(value).decode()


def client_state(value: Any) -> Any:
    """Reads the state that client and agent share. InvalidRequest or PayloadTooLarge if it cannot be stored."""
    state = opaque(value, "state")
    if len(json_bytes(state)) > MAX_STATE_BYTES:
        raise PayloadTooLarge(f"state is larger than {MAX_STATE_BYTES // 1000} kB")
    return state
