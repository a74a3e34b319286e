"""One MCP server: the session on its link, and the task that keeps the link.

`McpSession` matches answers with requests, sends cancellations, and declines requests of the server (sampling,
elicitation, roots), which we do not offer. The caller sets a timeout; when it expires, the server gets a cancellation.

`McpServer` reconnects when the link breaks, and reports its health. A task group must be entered and left in the same
task, so only the owner task touches it. Calls run in their callers' tasks, on the current session. A call is never
repeated here, except when the server rejected the request because it had lost the session.

Neither interprets tools: every listing goes to the `on_listing` callback. Neither knows the transports.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, TypeVar

import anyio
from msgspec import ValidationError

from holodeck.core.text import one_line
from holodeck.errors import StartError, ToolUnavailable
from holodeck.tools import mcp_wire as wire
from holodeck.tools.mcp_link import NOT_SENT, CannotConnect, Link, LinkClosed, McpRefusal
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_wire import (
    CallResult,
    ErrorDetail,
    FilledPrompt,
    Hello,
    ListedPrompt,
    ListedResource,
    ListedTool,
    McpError,
    McpMessage,
    Progress,
    PromptsPage,
    ReadResource,
    RequestId,
    Resource,
    ResourcesPage,
    ToolsPage,
)

MAX_PAGES = 50
MAX_DECLINED = 10  # methods that are logged
_DECLINED = "this client offers no sampling, elicitation or roots"
CLOSED = ErrorDetail(wire.CONNECTION_CLOSED, "Connection closed")
CALL_ID = "dev.holodeck/call-id"  # in `_meta`: the same for every attempt at one call, so that a server can deduplicate

_log = logging.getLogger(__name__)

MAX_PAUSE = 30.0
OPTIONAL_WAIT = 10.0  # seconds that a start waits for a server that is not required
RELIST_PAUSE = 1.0  # debounces list_changed to one listing a second
_INSTALL = "pip install"  # error output that already contains advice
MAX_SETBACKS = 3  # failures in a row after which calls no longer wait for the next attempt

P = TypeVar("P", ToolsPage, PromptsPage, ResourcesPage)
OpenLink = Callable[[McpSettings], AbstractAsyncContextManager[Link]]
Listing = Callable[[list[ListedTool]], None]


class UnsupportedVersion(Exception):
    """The server supports no revision of MCP that we speak."""


@dataclass
class ToolRequest:
    """One `tools/call`. `sent` is true once a transport has taken it: from then on it may take effect."""

    name: str
    arguments: dict[str, Any]
    call_id: str = ""
    on_progress: Callable[[Progress], None] | None = None
    sent: bool = False


class McpSession:
    """A session. Its methods raise McpError, and msgspec.ValidationError for a result that breaks the schema."""

    def __init__(self, link: Link, on_tools_changed: Callable[[], None]) -> None:
        self._link = link
        self._on_tools_changed = on_tools_changed
        self._numbers = count(1)
        self._waiting: dict[RequestId, asyncio.Future[dict[str, Any] | ErrorDetail]] = {}
        self._progress: dict[RequestId, Callable[[Progress], None]] = {}
        self._declined: set[str] = set()  # methods that were logged already
        self.capabilities: frozenset[str] = frozenset()  # what the server declares: "tools", "prompts", …
        link.receive, link.on_end = self._receive, self._fail_all

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    async def initialize(self) -> None:
        hello = wire.read(await self._ask(wire.INITIALIZE, wire.hello()), Hello)
        if hello.protocol_version not in wire.KNOWN_VERSIONS:
            raise UnsupportedVersion(f"it speaks MCP {hello.protocol_version}")
        self._link.protocol_version = hello.protocol_version
        self.capabilities = frozenset(hello.capabilities)
        try:
            await self._link.send(wire.notification(wire.INITIALIZED))
        except LinkClosed:
            raise McpError(CLOSED.code, CLOSED.message) from None

    async def _pages(self, method: str, kind: type[P]) -> AsyncIterator[P]:
        where: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            page = wire.read(await self._ask(method, where), kind)
            yield page
            if not page.next_cursor:
                return
            where = {"cursor": page.next_cursor}

    async def list_tools(self) -> list[ListedTool]:
        return [each async for page in self._pages(wire.LIST_TOOLS, ToolsPage) for each in page.tools]

    async def list_prompts(self) -> list[ListedPrompt]:
        return [each async for page in self._pages(wire.LIST_PROMPTS, PromptsPage) for each in page.prompts]

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> FilledPrompt:
        return wire.read(await self._ask(wire.GET_PROMPT, {"name": name, "arguments": arguments}), FilledPrompt)

    async def list_resources(self) -> list[ListedResource]:
        return [each async for page in self._pages(wire.LIST_RESOURCES, ResourcesPage) for each in page.resources]

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
            if sent and method != wire.INITIALIZE:  # `initialize` must not be cancelled
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

    def _receive(self, message: McpMessage) -> None:
        method = message.method
        if method is None:
            self._settle(message)
        elif message.id is not None:
            self._respond(message.id, method)
        elif method == wire.TOOLS_CHANGED:
            self._on_tools_changed()
        elif method == wire.PROGRESS:
            self._report(message.params or {})

    def _settle(self, message: McpMessage) -> None:
        number = message.answers
        answer = self._waiting.get(number) if number is not None else None
        if answer is None or answer.done():
            _log.debug("a response to an unknown request, or a second response")
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


class McpState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"  # was ready, and is starting again: calls wait
    FAILED = "failed"  # attempts continue, but calls do not wait for them
    CLOSED = "closed"


def pause_before_attempt(setbacks: int, *, was_ready: bool) -> float:
    """Seconds before an attempt: none after the first crash, then 1, 2, 4 … 30. A failed start begins with 1."""
    step = setbacks - was_ready
    return 0.0 if step <= 0 else min(MAX_PAUSE, 2.0 ** min(step - 1, 10))


@dataclass(frozen=True)
class _End:
    """The reason why a connection ended, and advice for the user."""

    reason: str
    advice: str = ""
    was_ready: bool = False


class McpServer:
    """One server and the task that keeps it connected. Public methods may be called from any task of its event loop."""

    def __init__(self, settings: McpSettings, open_link: OpenLink, on_listing: Listing) -> None:
        self._settings = settings
        self._open_link = open_link
        self._on_listing = on_listing
        self._owner: asyncio.Task[None] | None = None
        self._attempt: anyio.CancelScope | None = None
        self._session: McpSession | None = None
        self._link: Link | None = None
        self._setbacks = 0
        self._closing = asyncio.Event()
        self._changed = asyncio.Event()
        self._relist = asyncio.Event()
        self.state = McpState.STARTING
        self.detail = ""
        self._advice = ""

    # called from other tasks

    async def start(self) -> None:
        """Returns when the first attempt is over. Raises StartError if it failed and the server is required.

        The start of an agent waits only briefly for a server that is not required; its tools come later.
        """
        self._owner = asyncio.create_task(self._own(), name=f"mcp server {self._settings.name}")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._settings.required else OPTIONAL_WAIT):
                    while self.state is McpState.STARTING:
                        await self._changed.wait()
        except asyncio.CancelledError:
            await self.close()
            raise
        if self.state is McpState.FAILED and self._settings.required:
            sentence = f"The tool server '{self._settings.name}' cannot be started: {self.detail}. {self._advice}"
            await self.close()
            raise StartError(sentence.strip())

    async def close(self) -> None:
        self._closing.set()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._link is not None:
            self._link.end("is being closed")
        if self._owner is not None:
            await asyncio.wait([self._owner])
        self._change(McpState.CLOSED)

    @property
    def ready(self) -> bool:
        return self.state is McpState.READY and self._link is not None and not self._link.ended.is_set()

    @property
    def condition(self) -> str:
        return f"{self.state}: {self.detail}" if self.detail else str(self.state)

    async def call(self, call: ToolRequest) -> CallResult:
        """Makes one call as soon as there is a session.

        Raises ToolUnavailable, McpError, or ValidationError for an answer that is not a result.
        """
        for is_last in (False, True):
            session, link = await self.until_ready()
            try:
                answer = await session.call_tool(call)
            except McpError as error:
                if error.code not in NOT_SENT:
                    raise
                if error.code == McpRefusal.UNREACHABLE and session.waits:
                    raise  # a server that is about to restart takes no connection, but answers the calls that it has
                link.end(error.message)
                if is_last or error.code != McpRefusal.UNKNOWN_SESSION:
                    raise
            else:
                self._setbacks = 0  # the server works again: the next crash counts as the first one
                return answer
        raise AssertionError("unreachable")

    async def until_ready(self) -> tuple[McpSession, Link]:
        """Waits for a usable connection. Raises ToolUnavailable if there will be none soon."""
        while True:
            if self.ready and self._session and self._link:
                return self._session, self._link
            if self.state in {McpState.FAILED, McpState.CLOSED}:
                raise ToolUnavailable(f"The tool server '{self._settings.name}' is not available ({self.condition}).")
            await self._changed.wait()

    # the owner task

    async def _own(self) -> None:
        try:
            while not self._closing.is_set():
                end = await self._supervised()
                self._session, self._link = None, None
                if not self._closing.is_set():
                    await self._recover(end)
        finally:
            self._change(McpState.CLOSED)

    async def _supervised(self) -> "_End":
        try:
            return await self._one_connection()
        except Exception as error:  # noqa: BLE001  a supervisor: whatever broke, the next attempt is the answer
            _log.exception("mcp_connection_broke", extra={"details": {"server": self._settings.name}})
            return _End(f"broke: {_innermost(error)}", was_ready=self.state is McpState.READY)

    async def _recover(self, end: "_End") -> None:
        self._setbacks += 1
        hopeful = (end.was_ready or self.state is McpState.RESTARTING) and self._setbacks <= MAX_SETBACKS
        pause = pause_before_attempt(self._setbacks, was_ready=end.was_ready)
        self._advice = end.advice
        self._change(
            McpState.RESTARTING if hopeful else McpState.FAILED, one_line(self._settings.masked(end.reason), 300)
        )
        details = {"server": self._settings.name, "reason": self.detail, "next_attempt_in": pause}
        _log.warning("mcp_server_lost" if end.was_ready else "mcp_server_not_started", extra={"details": details})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._closing.wait()

    async def _one_connection(self) -> "_End":
        """Connects and stays connected.

        Returns the reason instead of raising it: task groups would wrap the exception.
        """
        try:
            async with self._open_link(self._settings) as link:
                session = McpSession(link, self._relist.set)
                problem = await self._introduce(session, link)
                if problem is None:
                    await self._serve(session, link)
        except CannotConnect as error:
            problem = error
        if problem is None:
            return _End(link.how_it_ended(), was_ready=True)
        reason = problem.reason or link.how_it_ended()
        return _End(reason, "" if _INSTALL in reason else problem.advice)

    async def _introduce(self, session: McpSession, link: Link) -> CannotConnect | None:
        """Makes the handshake and the first listing. An empty reason means that the link has the reason."""
        if self._closing.is_set():
            return CannotConnect("is being closed")
        limit = self._settings.start_timeout
        with anyio.move_on_after(limit) as self._attempt:
            try:
                await session.initialize()
                self._on_listing(await session.list_tools())
            except McpError as error:
                return _refused(error, link)
            except ValidationError:
                return CannotConnect("does not follow the MCP specification")
            except UnsupportedVersion as error:
                return CannotConnect(f"cannot be used: {error}")
        if self._attempt.cancelled_caught:
            return CannotConnect(f"did not answer in {limit:g} s", "If it needs longer, raise its `start_timeout`.")
        return None

    async def _serve(self, session: McpSession, link: Link) -> None:
        self._session, self._link, self._attempt = session, link, None
        if self._closing.is_set():
            link.end("is being closed")
        self._change(McpState.READY)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_listed, session)
            await link.ended.wait()
            tasks.cancel_scope.cancel()

    async def _keep_listed(self, session: McpSession) -> None:
        while True:
            await self._relist.wait()
            self._relist.clear()
            try:
                with anyio.fail_after(self._settings.start_timeout):
                    self._on_listing(await session.list_tools())
            except (McpError, ValidationError, TimeoutError) as error:
                details = {"server": self._settings.name, "reason": one_line(str(error), 200)}
                _log.warning("mcp_listing_failed", extra={"details": details})
            await anyio.sleep(RELIST_PAUSE)

    def _change(self, state: McpState, detail: str = "") -> None:
        self.state, self.detail = state, detail
        self._changed.set()
        self._changed = asyncio.Event()


def _refused(error: McpError, link: Link) -> CannotConnect:
    if link.ended.is_set():
        return CannotConnect("", link.advice)
    if error.code == McpRefusal.UNREACHABLE:
        return CannotConnect(error.message, "Is it running? Check its `url`.")
    if error.code == McpRefusal.UNAUTHORIZED:
        return CannotConnect(error.message, link.credentials_advice)
    return CannotConnect(f"refused to start: {error.message}", link.advice)


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
