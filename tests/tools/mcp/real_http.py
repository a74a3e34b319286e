"""A server of the official SDK on a loopback port, in the test's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from mcp.server.mcpserver import MCPServer


@asynccontextmanager
async def serving(server: MCPServer, *, json_response: bool = False) -> AsyncIterator[str]:
    """Gives the URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = server.streamable_http_app(json_response=json_response)
    # Its own set-up of logging would outlast it: the log lines of other tests' servers would be lost.
    web = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1))
    task = asyncio.create_task(web.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        web.should_exit = True
        await task


@asynccontextmanager
async def serving_sse(server: MCPServer) -> AsyncIterator[str]:
    """The same over the older transport."""
    listener = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(
        uvicorn.Config(server.sse_app(), log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(web.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/sse"
    finally:
        web.should_exit = True
        await task
