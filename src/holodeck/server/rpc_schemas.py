"""OpenAPI schemas of A2A and MCP: the members that are read, and examples. The protocols have the full schemas."""

from typing import Any

from holodeck.core.ids import MAX_ID_LENGTH
from holodeck.core.json_schema import array, object_of, string
from holodeck.server.routing import ResponseSchemas
from holodeck.server.schemas import OBJECT, SSE_STREAM, json_request, json_response, parameter
from holodeck.wires.a2a.request import MAX_PARTS
from holodeck.wires.body import MAX_NAME
from holodeck.wires.jsonrpc import MAX_ID, MAX_METHOD

_MESSAGE = object_of(
    {
        "messageId": string(minLength=1, maxLength=MAX_NAME),
        "role": {"enum": ["ROLE_USER"]},
        "parts": array(OBJECT, minItems=1, maxItems=MAX_PARTS),
        "contextId": string("The session", maxLength=MAX_ID_LENGTH),
        "taskId": string("A task that waits for this message", maxLength=MAX_ID_LENGTH),
    },
    required=["messageId", "role", "parts"],
)
_EXAMPLE = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "What is due tomorrow?"}]}}
_OLD_EXAMPLE = {"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "Hello"}]}}


def _send(message: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    return json_request(object_of({"message": message, "configuration": OBJECT}, required=["message"]), example)


MESSAGE_BODY = _send(_MESSAGE, _EXAMPLE)
OLD_BODY = _send(OBJECT, _OLD_EXAMPLE)
RPC_MESSAGE = object_of(
    {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"], "maxLength": MAX_ID, "description": "Absent in notifications"},
        "method": string(minLength=1, maxLength=MAX_METHOD),
        "params": OBJECT,
    },
    required=["jsonrpc", "method"],
)
RPC_BODY = json_request(RPC_MESSAGE, {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": _EXAMPLE})
PUSH_BODY = json_request(object_of({"id": string(maxLength=MAX_ID_LENGTH)}, required=["url"]))
_OLD_PUSH = {"pushNotificationConfig": {"type": "object", "required": ["url"]}}
OLD_PUSH_BODY = json_request(object_of(_OLD_PUSH, required=["pushNotificationConfig"]))
_FAILED: ResponseSchemas = {"default": json_response("An error in the protocol's form")[200]}
CARD: dict[str, Any] = json_response("The card")[200]
CARD_OR_ERROR = json_response("The card") | _FAILED
TASK = json_response("The task") | _FAILED
LIST = json_response("A page of tasks") | _FAILED
EMPTY = json_response("What is registered") | _FAILED
STREAM: ResponseSchemas = {200: {**SSE_STREAM, "description": "The task, then its updates"}, **_FAILED}
RPC_RESULT = json_response("The response, or a stream of them", streams=True) | _FAILED
VERSION = parameter("A2A-Version", "header", "1.0; without it a request is one of 0.3", maxLength=MAX_NAME)


_CALL = {"name": "ask", "arguments": {"message": "What is due tomorrow?"}}
MCP_BODY = json_request(RPC_MESSAGE, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": _CALL})
MCP_ANSWER: ResponseSchemas = {
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
