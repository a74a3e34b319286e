"""The agent as an MCP server: `POST /mcp`, both eras of the protocol. The wire is `holodeck.wires.mcp`.

Every message is a separate request. Between two messages the server keeps only sessions and runs, which all wires
share.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holodeck.access.principal import CHAT
from holodeck.access.route_access import PUBLIC, needs
from holodeck.errors import InvalidRequest
from holodeck.server import mcp_calls as calls
from holodeck.server.intake import json_body, server_of
from holodeck.server.options import RESOURCE_METADATA
from holodeck.server.problems import headers_of, known
from holodeck.server.routes.me import resource_metadata
from holodeck.server.routing import Routes
from holodeck.server.rpc_schemas import MCP_ANSWER, MCP_BODY, MCP_PARAMETERS
from holodeck.server.schemas import ANYTHING, PROBLEMS
from holodeck.server.wire import Wire
from holodeck.telemetry.log_context import current
from holodeck.wires import jsonrpc
from holodeck.wires.jsonrpc import METHOD_NOT_FOUND, JsonRpcId, RpcError
from holodeck.wires.mcp.agent_tools import tool_list
from holodeck.wires.mcp.envelope import (
    LEGACY,
    METHOD_HEADER,
    MODERN,
    NAME_HEADER,
    TASKS,
    VERSION_HEADER,
    McpCall,
    open_envelope,
)

TOOLS_MILLISECONDS = 3_600_000  # how long a client may cache the list of tools
_UNPROCESSABLE, _NOT_FOUND = 422, 404


def answer_error(error: Exception, request_id: JsonRpcId = None, *, is_modern: bool = True) -> Response:
    """Makes a JSON-RPC error. Older clients read the error of a method only if the status is 200."""
    failure = known(error)
    if isinstance(failure, RpcError) and request_id is None:
        request_id = failure.request_id
    body = jsonrpc.error_body(request_id, jsonrpc.error_object(failure, current().request_id))
    status = 400 if failure.status == _UNPROCESSABLE else failure.status
    if not is_modern and isinstance(failure, InvalidRequest):
        status = 200
    return Response(body, status, headers_of(failure), media_type="application/json")


async def initialize(request: Request, call: McpCall) -> Response:
    """Answers the older handshake. It creates no session: every later request stands alone, as in the newer era."""
    wanted, server = call.params.get("protocolVersion"), server_of(request)
    result: dict[str, Any] = {
        "protocolVersion": wanted if wanted in LEGACY else LEGACY[0],
        "capabilities": {"tools": {}},
        "serverInfo": calls.server_info(server),
        "instructions": _instructions(server.agent.name, server.agent.description),
    }
    return calls.result_answer(call, result)


async def discover(request: Request, call: McpCall) -> Response:
    agent = server_of(request).agent
    result: dict[str, Any] = {
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
        "instructions": _instructions(agent.name, agent.description),
        **_CACHED,
    }
    return calls.marked_answer(request, call, result)


async def ping(_request: Request, call: McpCall) -> Response:
    return calls.result_answer(call, {})


async def list_tools(request: Request, call: McpCall) -> Response:
    agent = server_of(request).agent
    offered = {"tools": tool_list(agent.name, agent.description, call.caller)}
    return calls.marked_answer(request, call, {**offered, **_CACHED} if call.caller.is_modern else offered)


Method: TypeAlias = Callable[[Request, McpCall], Awaitable[Response]]
_CACHED = {"ttlMs": TOOLS_MILLISECONDS, "cacheScope": "private"}
MODERN_METHODS: dict[str, Method] = {
    "server/discover": discover,
    "tools/list": list_tools,
    "tools/call": calls.call_tool,
    "tasks/get": calls.get_task,
    "tasks/update": calls.update_task,
    "tasks/cancel": calls.cancel_task,
}
LEGACY_METHODS: dict[str, Method] = {
    "initialize": initialize,
    "ping": ping,
    "tools/list": list_tools,
    "tools/call": calls.call_tool,
}


routes = Routes(tag="MCP", answer_error=answer_error)


@routes.post(
    "/mcp",
    "Call the agent as an MCP server",
    access=needs(CHAT),
    parameters=MCP_PARAMETERS,
    body=MCP_BODY,
    responses=MCP_ANSWER,
)
async def answer(request: Request) -> Response:
    """One JSON-RPC message. Clients of 2026-07-28 repeat version, method and name in headers."""
    message = jsonrpc.decode(await json_body(request))
    is_modern = True
    try:
        call = open_envelope(message, None if calls.WITHOUT_HEADERS in request.scope else request.headers.items())
        is_modern = call.caller.is_modern
        return Response(status_code=202) if message.is_notification else await _method_of(call)(request, call)
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it is answered with the id of its request
        return answer_error(error, message.id, is_modern=is_modern)


def _method_of(call: McpCall) -> Method:
    found = (MODERN_METHODS if call.caller.is_modern else LEGACY_METHODS).get(call.method)
    if found is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method}", status=_NOT_FOUND)
    return found


documents = Routes(tag="MCP", responses=PROBLEMS)


@documents.get(
    f"{RESOURCE_METADATA}/mcp", "Protected resource metadata of /mcp (RFC 9728)", access=PUBLIC, responses=ANYTHING
)
async def protected_resource(request: Request) -> Response:
    """The address where MCP clients look first (RFC 9728, 3.1)."""
    return resource_metadata(request, "/mcp")


def _instructions(agent: str, description: str) -> str:
    about = f" {description.rstrip('. ')}." if description else ""
    return f"The agent {agent}.{about} To continue a conversation, pass the `session` of an answer to the next call of `ask`."


WIRE = Wire(
    name=calls.NAME,
    title="the agent as an MCP server, for Claude, Cursor, VS Code and other agents",
    endpoints=(("MCP", "/mcp"),),
    example='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"message":"Hello"}}}',
    routes=(routes, documents),
    open_encoder=calls.open_encoder,
    request_headers=(VERSION_HEADER, METHOD_HEADER, NAME_HEADER, "Mcp-Session-Id"),  # older clients may send a session
)
