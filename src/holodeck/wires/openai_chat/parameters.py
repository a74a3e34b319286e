"""What requests of both OpenAI wires share: parameters, content parts and tools."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holodeck.core.messages import Content, MediaPart, Part
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest
from holodeck.wires.body import name, optional, short_text, table, tables
from holodeck.wires.client_values import UNKNOWN_TYPE, base64_text, client_tool, media
from holodeck.wires.openai_chat.error_form import unsupported
from holodeck.wires.sse import json_bytes

INSTRUCTIONS = "Instructions of the application"
"""Heading above system and developer messages. They never replace the agent's own instructions."""
MAX_PARTS = 256  # parts per message
MAX_TOOLS = 128
CHOICES = ("auto", "none", "required")


def as_context(instructions: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The client's instructions as `RunRequest.context`."""
    return tuple((INSTRUCTIONS, each) for each in instructions if each.strip())


def check_supported(value: Any, parameter: str, harmless: Sequence[Any]) -> None:
    """Refuses a parameter unless it has one of these values. `null` is always harmless."""
    if value is None or value in harmless:
        return
    allowed = "".join(f" or send {json_bytes(each).decode()}" for each in harmless)
    raise unsupported(parameter, f"{parameter} is not supported with this value: leave it out{allowed}.")


def flag(value: Any, path: str) -> bool:
    """Reads a boolean. Null and absent count as false."""
    if not isinstance(value, bool | None):
        raise InvalidRequest(f"{path} must be true or false", field=path)
    return bool(value)


def one_call_at_a_time(raw: dict[str, Any]) -> bool:
    """Returns whether the client wants no parallel tool calls."""
    return raw.get("parallel_tool_calls") is not None and not flag(raw["parallel_tool_calls"], "parallel_tool_calls")


def token_limit(value: Any, path: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidRequest(f"{path} must be a whole number, 1 or more", field=path)
    return value


def tool_choice(value: Any, function: Any) -> str | None:
    """Reads `auto`, `none`, `required`, or the name of a tool. `function` is the member that holds the name."""
    if value is None or (isinstance(value, str) and value in CHOICES):
        return value
    if isinstance(value, dict) and value.get("type") == "function" and isinstance(function, dict):
        return name(function.get("name"), "tool_choice")
    raise unsupported("tool_choice", "tool_choice must be auto, none, required or a function.")


def content_of(value: Any, path: str, max_text: int, part: Callable[[dict[str, Any], str, int], Part]) -> Content:
    """Reads a text, or the parts of a list with `part`."""
    if not isinstance(value, list):
        return short_text(value, path, max_text)
    return tuple(part(raw, place, max_text) for place, raw in tables(value, path, MAX_PARTS))


def file_data(data: Any, path: str, filename: Any) -> MediaPart:
    """Reads a file from `file_data` of the object at `path`: a `data:` URL or plain base64."""
    shown, where = optional(name, filename, f"{path}.filename"), f"{path}.file_data"
    if isinstance(data, str) and not data.startswith("data:"):
        return MediaPart(mime_type=UNKNOWN_TYPE, data=base64_text(data, where), filename=shown)
    return media(data, where, UNKNOWN_TYPE, shown)


def function_tools(value: Any, member: str | None = None) -> tuple[ToolSchema, ...]:
    """Reads the client's functions. `member` of a tool describes the function; without it, the tool itself does."""
    read: dict[str, ToolSchema] = {}
    for path, raw in tables(value, "tools", MAX_TOOLS):
        if raw.get("type") != "function":
            raise unsupported(f"{path}.type", f"{path}.type must be function: the agent file defines all other tools.")
        where = f"{path}.{member}" if member else path
        tool = client_tool(table(raw.get(member), where) if member else raw, where)
        if tool.name in read:
            raise InvalidRequest(f"{path} has the same name as another tool", field=f"{where}.name")
        read[tool.name] = tool
    return tuple(read.values())
