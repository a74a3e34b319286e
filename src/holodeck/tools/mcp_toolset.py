"""The tools of one MCP server, as a Toolset.

Every fault of the server becomes a ToolResult with a sentence. `holodeck.tools.mcp_server` keeps the server running,
`mcp_wire` parses its answers.
"""

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from msgspec import ValidationError

from holodeck.core.events import ActivityPatched, ActivityShown
from holodeck.core.ids import new_message_id
from holodeck.core.json_values import MAX_DEPTH, depth_exceeds
from holodeck.core.text import clean, one_line, shorten
from holodeck.core.tools import TOOL_NAME, ToolResult, ToolSchema
from holodeck.errors import ToolUnavailable
from holodeck.tools.arguments import problems_of
from holodeck.tools.mcp_library import McpLibrary
from holodeck.tools.mcp_link import Link, McpRefusal
from holodeck.tools.mcp_server import McpServer, McpState, ToolRequest
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_wire import (
    CONNECTION_CLOSED,
    CallResult,
    ListedTool,
    McpError,
    Progress,
    UnsendableMessage,
    tool_result,
)
from holodeck.tools.port import ToolContext, ToolsetHealth
from holodeck.tools.stdio import open_stdio

MAX_DESCRIPTION = 10_000

_log = logging.getLogger(__name__)


class PinnedTools:
    """The tools that may be offered now. `schemas` is the same object until the tools change.

    A server that changes a tool's description or schema after people have come to trust it (a "rug pull") loses that tool
    until HoloDeck is restarted. Pins outlive the server's restarts, not ours. `results` are the schemas of structured
    results, of the tools that declare one.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._pins: dict[str, str] = {}
        self._withdrawn: set[str] = set()
        self.tools: dict[str, ToolSchema] = {}
        self.schemas: Sequence[ToolSchema] = ()
        self.results: dict[str, dict[str, Any]] = {}

    def update(self, listed: Iterable[ListedTool]) -> None:
        """Replaces the previous listing with a complete new one."""
        offered: dict[str, ToolSchema] = {}
        results: dict[str, dict[str, Any]] = {}
        for tool in listed:
            if refusal := self._refusal(tool, offered):
                details = {"server": self._server, "tool": one_line(tool.name), "reason": refusal}
                _log.warning("tool_refused", extra={"details": details})
            elif self._unchanged(tool):
                offered[tool.name] = ToolSchema(
                    name=tool.name,
                    description=shorten(clean(tool.description or ""), MAX_DESCRIPTION),
                    parameters=tool.input_schema,
                    repeatable=tool.repeatable,
                )
                if tool.output_schema is not None and not depth_exceeds(tool.output_schema, MAX_DEPTH):
                    results[tool.name] = tool.output_schema
        self.tools, self.results, self.schemas = offered, results, tuple(offered.values())

    def _refusal(self, tool: ListedTool, offered: dict[str, ToolSchema]) -> str | None:
        if not TOOL_NAME.fullmatch(tool.name):
            return "a tool's name is 1 to 64 of A-Z, a-z, 0-9, _ and -"
        if tool.name in offered:
            return "there are two tools of this name"
        if depth_exceeds(tool.input_schema, MAX_DEPTH):
            return f"its schema is nested deeper than {MAX_DEPTH} levels"
        return None

    def _unchanged(self, tool: ListedTool) -> bool:
        fingerprint = _fingerprint(tool)
        pinned = self._pins.setdefault(tool.name, fingerprint)
        if pinned != fingerprint and tool.name not in self._withdrawn:
            self._withdrawn.add(tool.name)
            _log.warning("tool_changed", extra={"details": {"server": self._server, "tool": tool.name}})
        return tool.name not in self._withdrawn


def _fingerprint(tool: ListedTool) -> str:
    seen_by_model = [tool.name, tool.description, tool.input_schema]
    return hashlib.sha256(msgspec.json.encode(seen_by_model, order="deterministic")).hexdigest()


IN_FLIGHT = 8
MAX_ERROR = 2_000
PROGRESS = "tool_progress"  # the kind of the activity
PROGRESS_PAUSE = 0.25  # seconds between two reports that are shown
FAILURES = (
    TimeoutError,
    ToolUnavailable,
    McpError,
    ValidationError,  # not an MCP result
    UnsendableMessage,
)


class McpToolset:
    """One toolset per server. Start several concurrently; each has its own start timeout."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._pinned = PinnedTools(settings.name)
        self._server = McpServer(settings, _open_link, self._pinned.update)
        self._slots = asyncio.Semaphore(IN_FLIGHT)  # calls get a slot in the order in which they ask
        self.library = McpLibrary(settings, self._server)

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        await self._server.close()

    def schemas(self) -> Sequence[ToolSchema]:
        callable_now = self._server.state in {McpState.READY, McpState.RESTARTING}
        return self._pinned.schemas if callable_now else ()

    def health(self) -> Sequence[ToolsetHealth]:
        ready = self._server.ready
        detail = f"{len(self._pinned.tools)} tools" if ready else self._server.condition
        name, required = self._settings.name, self._settings.required
        return [ToolsetHealth(name=name, ready=ready, required=required, detail=detail)]

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if name not in self._pinned.tools:
            return ToolResult.failure(f"The tool server '{self._settings.name}' no longer offers a tool '{name}'.")
        call = ToolRequest(name, arguments, context.call_id, ProgressActivity(name, context).report)
        try:
            async with asyncio.timeout(self._settings.timeout), self._slots:
                if not self._server.ready:
                    await self._restarted(context)
                answer = await self._server.call(call)
        except FAILURES as error:
            sentence = shorten(clean(self._settings.masked(self._explain(call, error))), MAX_ERROR)
            return ToolResult.failure(sentence, retryable=_is_passing(error), unsent=not call.sent)
        if sentence := self._against_its_schema(name, answer):
            return ToolResult.failure(shorten(sentence, MAX_ERROR))
        return tool_result(answer, self._settings.max_result_chars, context.shorten)

    def _against_its_schema(self, name: str, answer: CallResult) -> str:
        """The reason why a result does not match the tool's own output schema; empty if it does."""
        schema = self._pinned.results.get(name)
        if schema is None or answer.is_error:
            return ""
        if answer.structured_content is None:
            return f"{name} declares structured content but returned none."
        if depth_exceeds(answer.structured_content, MAX_DEPTH):
            return ""  # `tool_result` leaves it out
        problems = problems_of(f"results of {name}", schema, answer.structured_content)
        if not problems:
            return ""
        return f"Invalid structured content returned by {name}: {'; '.join(problem.text for problem in problems)}"

    async def _restarted(self, context: ToolContext) -> None:
        """Waits for a server that is being restarted, and shows that to the user."""
        message_id, kind = new_message_id(), "tool_server"
        content = {"server": self._settings.name, "status": "restarting"}
        context.emit(ActivityShown(message_id=message_id, kind=kind, content=content))
        try:
            await self._server.until_ready()
        finally:
            status = "ready" if self._server.ready else "not available"
            patch = [{"op": "replace", "path": "/status", "value": status}]
            context.emit(ActivityPatched(message_id=message_id, kind=kind, patch=patch))

    def _explain(self, call: ToolRequest, error: Exception) -> str:
        name, seconds = call.name, f"{self._settings.timeout:g} s"
        match error:
            case TimeoutError() if not call.sent:
                return f"The tool server '{self._settings.name}' could not take {name} in {seconds}; it was not sent."
            case TimeoutError():
                return f"{name} did not answer in {seconds}; the call was cancelled."
            case ValidationError():
                return f"{name} sent an answer that breaks the MCP schema."
            case UnsendableMessage():
                return f"The arguments of {name} cannot be sent: {error}."
            case McpError():
                return self._explain_error(call, error)
            case _:
                return str(error)

    def _explain_error(self, call: ToolRequest, error: McpError) -> str:
        server, name = f"tool server '{self._settings.name}'", call.name
        if error.code in list(McpRefusal):
            return f"{name} failed: the {server} {error.message}."
        if error.code != CONNECTION_CLOSED:
            return f"{name} failed: {error.message}"
        if not call.sent:
            return f"The {server} stopped before {name} was sent."
        how = "stopped" if error.message == "Connection closed" else f"broke off ({error.message})"
        return f"The {server} {how} during {name}, which may have taken effect."


class ProgressActivity:
    """Shows the progress of one call as an activity, at most four times a second."""

    def __init__(self, tool: str, context: ToolContext) -> None:
        self._tool, self._call_id, self._emit = context.tool or tool, context.call_id, context.emit
        self._message_id = ""
        self._next = 0.0

    def report(self, progress: Progress) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        self._next = now + PROGRESS_PAUSE
        shown = {
            "progress": progress.progress,
            "total": progress.total,
            "message": one_line(progress.message or "", 200),
        }
        if self._message_id:
            patch = [{"op": "replace", "path": f"/{key}", "value": value} for key, value in shown.items()]
            self._emit(ActivityPatched(message_id=self._message_id, kind=PROGRESS, patch=patch))
            return
        self._message_id = new_message_id()
        content, call = {"tool": self._tool, **shown}, (self._call_id, self._tool)
        self._emit(ActivityShown(message_id=self._message_id, kind=PROGRESS, content=content, call=call))


def _is_passing(error: Exception) -> bool:
    """Whether another attempt may help."""
    if isinstance(error, McpError):
        return error.code in {CONNECTION_CLOSED, McpRefusal.UNREACHABLE}
    return isinstance(error, TimeoutError | ToolUnavailable)


def _open_link(settings: McpSettings) -> AbstractAsyncContextManager[Link]:
    if settings.url is None:
        return open_stdio(settings)
    from holodeck.tools.mcp_http import open_http  # noqa: PLC0415  an HTTP library that local tools do not need

    if settings.transport != "sse":
        return open_http(settings)
    from holodeck.tools.mcp_sse import open_sse  # noqa: PLC0415  as above

    return open_sse(settings)
