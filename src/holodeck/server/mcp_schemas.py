"""What OpenAPI says about the MCP wire. The methods are the protocol's own; `tools/list` describes the tools."""

from typing import Any

from holodeck.wires.body import MAX_NAME
from holodeck.wires.jsonrpc import MAX_ID

_MESSAGE: dict[str, Any] = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"], "maxLength": MAX_ID, "description": "Absent in notifications"},
        "method": {"type": "string", "minLength": 1, "maxLength": 200},
        "params": {"type": "object"},
    },
}
MCP_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": _MESSAGE,
            "example": {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "ask", "arguments": {"message": "What is due tomorrow?"}},
            },
        }
    },
}
_ERROR = {
    "description": "A JSON-RPC error; `error.data` has the problem",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
MCP_ANSWER: dict[int | str, Any] = {
    200: {
        "description": "The response; to a call that takes a while, a stream of progress that ends with it",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    },
    202: {"description": "A notification was taken"},
    "default": _ERROR,
}
MCP_PARAMETERS = tuple(
    {"name": name, "in": "header", "description": described, "schema": {"type": "string", "maxLength": MAX_NAME}}
    for name, described in (
        ("MCP-Protocol-Version", "The version; since 2026-07-28 the same as in `params._meta`"),
        ("Mcp-Method", "The method again, since 2026-07-28"),
        ("Mcp-Name", "The tool's name or the task's id again, since 2026-07-28"),
    )
)
