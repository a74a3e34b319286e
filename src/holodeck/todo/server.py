"""The tools as an MCP server, over stdio and over streamable HTTP.

It uses the official SDK's low-level server only: the standalone `fastmcp` would bring many more packages and a slower
start for what is one table here. It knows neither databases nor the meaning of any tool.
"""

import json
import logging
import signal
import socket
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from holodeck.todo.todo_values import TodoError
from holodeck.todo.toolbox import TOOLS, Tool, Toolbox, UnknownToolError

logger = logging.getLogger(__name__)

_INSTRUCTIONS = (
    "A todo list. create_todo, list_todos, update_todo, delete_todo and add_task, list_tasks, complete_task, "
    "update_task, delete_task are two vocabularies for the same list; use either."
)
_STORE_THREADS = 8  # fewer than the pool has connections (15), so that no call waits for one and times out


def build_server(toolbox: Toolbox) -> Server[Any]:
    # Separate threads: the transport reads stdin in the default pool, and slow calls must not exhaust it.
    threads = CapacityLimiter(_STORE_THREADS)
    offered = types.ListToolsResult(tools=[_describe(tool, toolbox) for tool in TOOLS])

    async def list_tools(_context: ServerRequestContext[Any], _params: object) -> types.ListToolsResult:
        return offered

    async def call_tool(
        _context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            answer = await to_thread.run_sync(toolbox.call, params.name, params.arguments or {}, limiter=threads)
        except UnknownToolError:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name!r}") from None
        except TodoError as error:
            return _failure(str(error))
        except Exception:  # the SDK would send the text of any exception to the client
            logger.exception("%s failed", params.name)
            return _failure(f"{params.name} failed inside the todo server. Try again later.")
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=answer)

    return Server(
        "holodeck-todo",
        version=version("holodeck-agents"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _describe(tool: Tool[Any], toolbox: Toolbox) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads,
        destructive_hint=tool.destroys,
        idempotent_hint=tool.reads or tool.idempotent,
        open_world_hint=False,
    )
    schema = toolbox.schema_of(tool)
    return types.Tool(name=tool.name, description=tool.description, input_schema=schema, annotations=hints)


def _failure(sentence: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=sentence)], is_error=True)


def serve_stdio(server: Server[Any]) -> None:
    async def serve() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    # The SDK reads stdin in a thread, which Ctrl-C cannot wake. Ending immediately loses nothing: every answer
    # that was sent is about a transaction that was committed.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(serve)
    except* BrokenPipeError:
        logger.info("the client left before its answer")


def serve_http(server: Server[Any], listener: socket.socket, host: str) -> None:
    """Serves at /mcp on a socket that is already listening. Stateless: any replica can answer any request."""
    import uvicorn  # noqa: PLC0415  for this transport only

    app = server.streamable_http_app(stateless_http=True, json_response=True, host=host)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
