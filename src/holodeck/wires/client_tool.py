"""A tool that the client carries out, as its request describes it."""

import re
from typing import Any

import msgspec

from holodeck.core.tools import ToolSchema
from holodeck.errors import InvalidRequest
from holodeck.wires.body import opaque, table, text

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
