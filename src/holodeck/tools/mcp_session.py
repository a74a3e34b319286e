"""The messages on one link: which answer belongs to which request, what is cancelled, what the server may ask.

It does not know what a transport is, nor when to give up: the caller brings a timeout, and the server gets a
cancellation when the wait ends. What a server asks of its client (sampling, elicitation, roots) is declined: we offered
none of it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from holodeck._version import __version__
from holodeck.tools import mcp_wire as wire
from holodeck.tools.mcp_link import NOT_SENT, Link, LinkClosed
from holodeck.tools.mcp_wire import (
    CallResult,
    ErrorDetail,
    FilledPrompt,
    Hello,
    ListedPrompt,
    ListedResource,
    ListedTool,
    McpError,
    Message,
    Progress,
    PromptsPage,
    ReadResource,
    RequestId,
    Resource,
    ResourcesPage,
    ToolsPage,
)

MAX_PAGES = 50
CLOSED = ErrorDetail(wire.CONNECTION_CLOSED, "Connection closed")
CALL_ID = "dev.holodeck/call-id"  # in `_meta`: the same for every attempt at one call, so that a server can deduplicate

_log = logging.getLogger(__name__)


class UnsupportedVersion(Exception):
    """The server insists on a revision of MCP that we do not speak."""


@dataclass
class ToolRequest:
    """One `tools/call`. `sent` is true from the moment a transport has taken it: the call may take effect from then on."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""
    on_progress: Callable[[Progress], None] | None = None
    sent: bool = False


class McpSession:
    """Its methods raise McpError, and msgspec.ValidationError for a result that breaks the schema."""

    def __init__(self, link: Link, on_tools_changed: Callable[[], None]) -> None:
        self._link = link
        self._on_tools_changed = on_tools_changed
        self._numbers = count(1)
        self._waiting: dict[RequestId, asyncio.Future[dict[str, Any] | ErrorDetail]] = {}
        self._progress: dict[RequestId, Callable[[Progress], None]] = {}
        self._declined: set[str] = set()  # already logged
        self.capabilities: frozenset[str] = frozenset()  # what the server says it has: "tools", "prompts", …
        link.receive, link.on_end = self._receive, self._fail_all

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
        self.capabilities = frozenset(hello.capabilities)
        try:
            await self._link.send(wire.notification(wire.INITIALIZED))
        except LinkClosed:
            raise McpError(CLOSED.code, CLOSED.message) from None

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

    async def list_prompts(self) -> list[ListedPrompt]:
        prompts: list[ListedPrompt] = []
        where: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            page = wire.read(await self._ask(wire.LIST_PROMPTS, where), PromptsPage)
            prompts += page.prompts
            if not page.next_cursor:
                break
            where = {"cursor": page.next_cursor}
        return prompts

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> FilledPrompt:
        return wire.read(await self._ask(wire.GET_PROMPT, {"name": name, "arguments": arguments}), FilledPrompt)

    async def list_resources(self) -> list[ListedResource]:
        resources: list[ListedResource] = []
        where: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            page = wire.read(await self._ask(wire.LIST_RESOURCES, where), ResourcesPage)
            resources += page.resources
            if not page.next_cursor:
                break
            where = {"cursor": page.next_cursor}
        return resources

    async def read_resource(self, uri: str) -> list[Resource]:
        return wire.read(await self._ask(wire.READ_RESOURCE, {"uri": uri}), ReadResource).contents

    async def call_tool(self, call: ToolRequest) -> CallResult:
        params: dict[str, Any] = {"name": call.name, "arguments": call.arguments}
        if call.call_id:
            params["_meta"] = {CALL_ID: call.call_id}
        return wire.read(await self._ask(wire.CALL_TOOL, params, call), CallResult)

    async def _ask(self, method: str, params: dict[str, Any], call: ToolRequest | None = None) -> dict[str, Any]:
        if self._link.ended.is_set():
            raise McpError(CLOSED.code, CLOSED.message)
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any] | ErrorDetail] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        if call is not None and call.on_progress is not None:
            self._progress[number] = call.on_progress
            params.setdefault("_meta", {})["progressToken"] = number
        sent = False
        try:
            await self._link.send(wire.request(number, method, params))
            sent = True
            if call is not None:
                call.sent = True
            outcome = await answer
        except LinkClosed:
            raise McpError(CLOSED.code, CLOSED.message) from None
        except asyncio.CancelledError:
            if sent and method != wire.INITIALIZE:  # which must not be cancelled
                reason = {"requestId": number, "reason": "no longer needed"}
                self._link.send_now(wire.notification(wire.CANCELLED, reason))
            raise
        finally:
            del self._waiting[number]
            self._progress.pop(number, None)
        if isinstance(outcome, ErrorDetail):
            if call is not None and outcome.code in NOT_SENT:
                call.sent = False
            raise McpError(outcome.code, outcome.message)
        return outcome

    def _fail_all(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(CLOSED)

    def _receive(self, message: Message) -> None:
        method = message.method
        if method is None:
            self._settle(message)
        elif message.id is not None:
            self._respond(message.id, method)
        elif method == wire.TOOLS_CHANGED:
            self._on_tools_changed()
        elif method == wire.PROGRESS:
            self._report(message.params or {})

    def _settle(self, message: Message) -> None:
        number = message.answers
        answer = self._waiting.get(number) if number is not None else None
        if answer is None or answer.done():
            _log.debug("an answer to no request, or a second one")
        elif message.error is not None:
            answer.set_result(message.error)
        elif message.result is not None:
            answer.set_result(message.result)

    def _report(self, params: dict[str, Any]) -> None:
        token = params.get("progressToken")
        listener = self._progress.get(token) if isinstance(token, int | str) else None
        progress = wire.progress_of(params)
        if listener is not None and progress is not None:
            listener(progress)

    def _respond(self, number: RequestId, method: str) -> None:
        if method == wire.PING:
            self._link.send_now(wire.result(number, {}))
            return
        name = method[:100]
        self._link.send_now(wire.error(number, wire.METHOD_NOT_FOUND, f"{name} is not supported: {_DECLINED}"))
        if name not in self._declined and len(self._declined) < MAX_DECLINED:
            self._declined.add(name)
            _log.warning("mcp_request_declined", extra={"details": {"server": self._link.server, "method": name}})


MAX_DECLINED = 10
_DECLINED = "this client offers no sampling, elicitation or roots"
