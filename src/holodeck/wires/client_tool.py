"""Tools that the client carries out, and calls in its copy of the conversation, as its request describes them."""

import re
from typing import Any

import msgspec

from holodeck.core.messages import ToolCall
from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest
from holodeck.wires.body import name, opaque, table, text

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def client_tool(raw: dict[str, Any], path: str) -> ToolSchema:
    """Reads `name`, `description` and `parameters`, a JSON Schema."""
    called = text(raw.get("name"), f"{path}.name")
    if not _TOOL_NAME.fullmatch(called):
        raise InvalidRequest(f"{path}.name has to be 1 to 64 of A-Z a-z 0-9 _ -", field=f"{path}.name")
    description, parameters = raw.get("description"), raw.get("parameters")
    tool = ToolSchema(
        name=called,
        description="" if description is None else text(description, f"{path}.description"),
        on_client=True,
    )
    if not parameters:
        return tool
    where = f"{path}.parameters"
    return msgspec.structs.replace(tool, parameters=opaque(table(parameters, where), where))


def client_call(raw: dict[str, Any], path: str) -> ToolCall:
    """Reads a call in OpenAI's form, which AG-UI has too: `id` and `function` with `name` and `arguments`."""
    function = table(raw.get("function"), f"{path}.function")
    return ToolCall(
        id=name(raw.get("id"), f"{path}.id"),
        name=name(function.get("name"), f"{path}.function.name"),
        arguments=text(function.get("arguments"), f"{path}.function.arguments"),
    )
