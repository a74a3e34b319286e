"""MCP over a child's standard streams.

Stands in for the SDK's own stdio transport, which hangs on a byte that is no UTF-8, buffers a long line without limit
and in quadratic time, and leaves children behind when we are killed. Here a message that cannot be used fails the call
that waits for it, by answering in the server's name; everything else goes on.

Which tools there are, when to restart: `holodeck.tools.mcp_server` knows, not this module.
"""

import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from holodeck.core.text import one_line
from holodeck.tools import mcp_wire as wire
from holodeck.tools.mcp_link import CannotConnect, Link, LinkClosed, McpRefusal
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_wire import Message, RequestId
from holodeck.tools.stdio_framing import LineFramer, Oversize
from holodeck.tools.stdio_process import ServerProcess, launch

MAX_UNREAD = 1_000_000  # bytes that a server has not read yet, beyond which notices are dropped
ENDLESS = 1_000_000_000  # bytes of one line after which the server is beyond help
NOISE_SHOWN = 3

_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*[,}]')  # Python's SDK
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*\}\s*$')  # TypeScript's SDK
_METHOD_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:')

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_stdio(settings: McpSettings) -> AsyncGenerator[Link]:
    """Raises CannotConnect when there is nothing to run."""
    link = StdioLink(settings)
    link.process = await _launched(settings, link)
    try:
        yield link
    finally:
        with anyio.CancelScope(shield=True):
            await link.process.close()


async def _launched(settings: McpSettings, link: "StdioLink") -> ServerProcess:
    command = settings.command or ""
    process = ServerProcess(settings.name, link.feed, link.end)
    try:
        await launch(process, command, settings.args, env=settings.env, cwd=settings.cwd)
    except OSError as error:
        raise CannotConnect(error.strerror or str(error), "Install it, or give its full path as `command`.") from error
    return process


class StdioLink(Link):
    """Both directions of one child's life, and which requests it has not answered yet."""

    process: ServerProcess

    def __init__(self, settings: McpSettings) -> None:
        super().__init__(settings.name, f"Run `{settings.command}` by hand to see why.")
        self._max_bytes = settings.max_line_bytes
        self._framer = LineFramer(settings.max_line_bytes)
        self._owed: dict[RequestId, None] = {}
        self._noise = 0

    async def send(self, message: Message) -> None:
        data = wire.encode(message) + b"\n"
        try:
            await self.process.writable()
        except BrokenPipeError:
            raise LinkClosed from None
        if message.method is not None and message.id is not None:
            self._owed[message.id] = None
        self.process.write(data)

    def send_now(self, message: Message) -> None:
        if message.method == wire.CANCELLED:
            self._owed.pop((message.params or {}).get("requestId", ""), None)
        if self.process.unread < MAX_UNREAD:
            self.process.write(wire.encode(message) + b"\n")

    def how_it_ended(self) -> str:
        return self._reason or self.process.how_it_ended()

    def feed(self, data: bytes) -> None:
        """What the child wrote."""
        for line in self._framer.feed(data):
            self._take(line)
        if self._framer.discarded > ENDLESS:
            self._warn("mcp_endless_line")
            self.process.kill_now("wrote a line without end")

    def _take(self, line: bytes | Oversize) -> None:
        if isinstance(line, Oversize):
            self._refuse_oversize(line)
            return
        if not line.strip():
            return
        try:
            message = wire.decode(line)
        except ValueError:
            self._refuse(line)
            return
        if message.method is None:
            self._owed.pop(message.answers, None)  # type: ignore[arg-type]  # None is never a key
        self.receive(message)

    def _refuse(self, line: bytes) -> None:
        """A line that is no message: an answer that got damaged, or something that is none of our business."""
        if not line.lstrip().startswith(b"{"):
            self._noise += 1
            if self._noise <= NOISE_SHOWN:
                self._warn("mcp_noise_on_stdout", line=one_line(line[:400].decode("utf-8", "replace"), 200))
            return
        self._warn("mcp_unreadable_message")
        self._answer(_id_in(line, line), line, "it sent an answer that cannot be read (no valid UTF-8 or JSON-RPC)")

    def _refuse_oversize(self, line: Oversize) -> None:
        known = _id_in(line.head, b"")
        if line.ended and known is not None:
            return  # answered when it began
        if line.ended or known is not None:
            self._warn("mcp_message_too_large")
            megabytes = self._max_bytes / 1_000_000
            why = f"it sent an answer over {megabytes:g} MB, which was thrown away (too_large): ask for less"
            self._answer(_id_in(line.head, line.tail), line.head, why)

    def _answer(self, request: RequestId | None, head: bytes, why: str) -> None:
        """Fails the call whose answer it was; all of them when that cannot be known."""
        if request is None and _METHOD_FIRST.match(head):
            return  # a notification, or a request of the server's: no call waits for it
        for waiting in list(self._owed) if request is None else [request]:
            self._owed.pop(waiting, None)
            self.receive(wire.error(waiting, McpRefusal.UNUSABLE, why))

    def _warn(self, event: str, **details: str) -> None:
        _log.warning(event, extra={"details": {"server": self.server, **details}})


def _id_in(head: bytes, tail: bytes) -> RequestId | None:
    """The request that a damaged answer belongs to, as far as its two ends say. Our ids are whole numbers."""
    found = _ID_FIRST.match(head) or (None if _METHOD_FIRST.match(head) else _ID_LAST.search(tail[-128:]))
    return int(found[1]) if found else None
