"""What OpenAPI says about the MCP wire. The methods are the protocol's own; `tools/list` describes the tools."""

from holodeck.server.a2a_schemas import RPC_MESSAGE
from holodeck.server.schemas import Described, json_request, json_response, parameter
from holodeck.wires.body import MAX_NAME

_CALL = {"name": "ask", "arguments": {"message": "What is due tomorrow?"}}
MCP_BODY = json_request(RPC_MESSAGE, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": _CALL})
MCP_ANSWER: Described = {
    **json_response("The response; to a call that takes a while, a stream of progress that ends with it", streams=True),
    202: {"description": "A notification was taken"},
    "default": json_response("A JSON-RPC error; `error.data` has the problem")[200],
}
MCP_PARAMETERS = tuple(
    parameter(name, "header", described, maxLength=MAX_NAME)
    for name, described in (
        ("MCP-Protocol-Version", "The version; since 2026-07-28 the same as in `params._meta`"),
        ("Mcp-Method", "The method again, since 2026-07-28"),
        ("Mcp-Name", "The tool's name or the task's id again, since 2026-07-28"),
    )
)
