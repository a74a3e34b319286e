"""The conversation on one link: which answer belongs to which question, what is cancelled, what the server may ask.

It does not know what a transport is, nor when to give up: whoever waits for an answer brings a timeout, and the server
is told when the wait ends. What a server asks of its client (sampling, elicitation, roots) is declined: we offered none.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio

from holodeck._version import __version__
from holodeck.tools import mcp_wire as wire
from holodeck.tools.mcp_link import Link
from holodeck.tools.mcp_wire import CallResult, ErrorDetail, Hello, ListedTool, McpError, Message, RequestId, ToolsPage

MAX_PAGES = 50
CLOSED = ErrorDetail(wire.CONNECTION_CLOSED, "Connection closed")

_log = logging.getLogger(__name__)


class UnsupportedVersion(Exception):
    """The server insists on a revision of MCP that we do not speak."""


@asynccontextmanager
async def conversation(link: Link, on_tools_changed: Callable[[], None]) -> AsyncGenerator["McpSession"]:
    """A session that listens until the link ends or the block is left."""
    session = McpSession(link, on_tools_changed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.listen)
        yield session
        tasks.cancel_scope.cancel()


class McpSession:
    """Made by `conversation`. Its methods raise McpError, and msgspec.ValidationError for a result that is none."""

    def __init__(self, link: Link, on_tools_changed: Callable[[], None]) -> None:
        self._link = link
        self._on_tools_changed = on_tools_changed
        self._numbers = count(1)
        self._waiting: dict[RequestId, asyncio.Future[dict[str, Any] | ErrorDetail]] = {}
        self._over = False

    async def initialize(self) -> None:
        """The handshake. Raises UnsupportedVersion."""
        about_us = {
            "protocolVersion": wire.OFFERED_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "holodeck", "version": __version__},
        }
        hello = wire.read(await self._ask(wire.INITIALIZE, about_us), Hello)
        if hello.protocol_version not in wire.KNOWN_VERSIONS:
            raise UnsupportedVersion(f"it speaks MCP {hello.protocol_version}")
        self._link.protocol_version = hello.protocol_version
        await self._send(wire.notification(wire.INITIALIZED))

    async def list_tools(self) -> list[ListedTool]:
        tools: list[ListedTool] = []
        where: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            page = wire.read(await self._ask(wire.LIST_TOOLS, where), ToolsPage)
            tools += page.tools
            if not page.next_cursor:
                break
            where = {"cursor": page.next_cursor}
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> CallResult:
        return wire.read(await self._ask(wire.CALL_TOOL, {"name": name, "arguments": arguments}), CallResult)

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any] | ErrorDetail] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._send(wire.request(number, method, params))
            outcome = await answer
        except asyncio.CancelledError:
            if method != wire.INITIALIZE:  # which must not be cancelled
                self._say(wire.notification(wire.CANCELLED, {"requestId": number, "reason": "no longer needed"}))
            raise
        finally:
            del self._waiting[number]
        if isinstance(outcome, ErrorDetail):
            raise McpError(outcome.code, outcome.message)
        return outcome

    async def _send(self, message: Message) -> None:
        if self._over:
            raise McpError(CLOSED.code, CLOSED.message)
        try:
            await self._link.outbox.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise McpError(CLOSED.code, CLOSED.message) from None

    def _say(self, message: Message) -> None:
        """Without waiting: a server that reads nothing any more misses what it would not have read."""
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._link.outbox.send_nowait(message)

    async def listen(self) -> None:
        try:
            async for message in self._link.inbox:
                self._hear(message)
        finally:
            self._over = True
            self._link.end()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_result(CLOSED)

    def _hear(self, message: Message) -> None:
        if message.method is None:
            self._settle(message)
        elif message.id is not None:
            self._respond(message.id, message.method)
        elif message.method == wire.TOOLS_CHANGED:
            self._on_tools_changed()

    def _settle(self, message: Message) -> None:
        answer = self._waiting.get(message.answers) if message.answers is not None else None
        if answer is None or answer.done():
            _log.debug("an answer to nobody, or a second one")
        elif message.error is not None:
            answer.set_result(message.error)
        elif message.result is not None:
            answer.set_result(message.result)

    def _respond(self, number: RequestId, method: str) -> None:
        if method == wire.PING:
            self._say(wire.result(number, {}))
        else:
            self._say(wire.error(number, wire.METHOD_NOT_FOUND, f"{method[:100]} is not supported"))
