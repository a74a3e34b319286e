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
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from holodeck.core.text import one_line
from holodeck.tools import mcp_wire as wire
from holodeck.tools.mcp_link import OUTBOX, CannotConnect, Link, McpRefusal
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_wire import Message, RequestId
from holodeck.tools.stdio_framing import LineFramer, Oversize
from holodeck.tools.stdio_process import ServerProcess, launch

READ_SIZE = 262_144
ENDLESS = 1_000_000_000  # bytes of one line after which the server is beyond help
NOISE_SHOWN = 3

_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*[,}]')  # Python's SDK
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*\}\s*$')  # TypeScript's SDK
_METHOD_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:')

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_stdio(settings: McpSettings) -> AsyncGenerator[Link]:
    """Raises CannotConnect when there is nothing to run."""
    process = await _launched(settings)
    inbox, read = anyio.create_memory_object_stream[Message](0)
    write, outbox = anyio.create_memory_object_stream[Message](OUTBOX)
    conversation = _Conversation(settings, process, inbox, outbox)
    try:
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(conversation.listen)
            pumps.start_soon(conversation.speak)
            try:
                yield Link(read, write, process.how_it_ended, f"Run `{settings.command}` by hand to see why.")
            finally:
                with anyio.CancelScope(shield=True):
                    await process.close()
                pumps.cancel_scope.cancel()
    finally:
        for stream in (inbox, read, write, outbox):
            stream.close()


async def _launched(settings: McpSettings) -> ServerProcess:
    command = settings.command or ""
    try:
        return await launch(settings.name, command, settings.args, env=settings.env, cwd=settings.cwd)
    except OSError as error:
        raise CannotConnect(error.strerror or str(error), "Install it, or give its full path as `command`.") from error


@dataclass
class _Conversation:
    """Both directions of one child's life, and which requests it still owes an answer."""

    settings: McpSettings
    process: ServerProcess
    inbox: MemoryObjectSendStream[Message]
    outbox: MemoryObjectReceiveStream[Message]
    owed: dict[RequestId, None] = field(default_factory=dict)
    noise: int = 0

    async def speak(self) -> None:
        async for message in self.outbox:
            if message.method == wire.CANCELLED:
                self.owed.pop((message.params or {}).get("requestId", ""), None)
            elif message.method is not None and message.id is not None:
                self.owed[message.id] = None
            try:
                await self.process.write(wire.encode(message) + b"\n")
            except BrokenPipeError:
                return  # listen() sees the end too, and says so

    async def listen(self) -> None:
        framer = LineFramer(self.settings.max_line_bytes)
        try:
            while data := await self.process.stdout.read(READ_SIZE):
                for line in framer.feed(data):
                    await self._take(line)
                if framer.discarded > ENDLESS:
                    self._warn("mcp_endless_line")
                    await self.process.kill("wrote a line without end")
                    return
        except anyio.BrokenResourceError:
            return  # the session is gone; the process is about to be
        finally:
            self.inbox.close()

    async def _take(self, line: bytes | Oversize) -> None:
        if isinstance(line, Oversize):
            await self._refuse_oversize(line)
            return
        if not line.strip():
            return
        try:
            message = wire.decode(line)
        except ValueError:
            await self._refuse(line)
            return
        if message.answers is not None:
            self.owed.pop(message.answers, None)
        await self.inbox.send(message)

    async def _refuse(self, line: bytes) -> None:
        """A line that is no message: an answer that got damaged, or something that is none of our business."""
        if not line.lstrip().startswith(b"{"):
            self.noise += 1
            if self.noise <= NOISE_SHOWN:
                self._warn("mcp_noise_on_stdout", line=one_line(line[:400].decode("utf-8", "replace"), 200))
            return
        self._warn("mcp_unreadable_message")
        await self._answer(
            _id_in(line, line), line, "it sent an answer that cannot be read (no valid UTF-8 or JSON-RPC)"
        )

    async def _refuse_oversize(self, line: Oversize) -> None:
        known = _id_in(line.head, b"")
        if line.ended and known is not None:
            return  # answered when it began
        if line.ended or known is not None:
            self._warn("mcp_message_too_large")
            megabytes = self.settings.max_line_bytes / 1_000_000
            why = f"it sent an answer over {megabytes:g} MB, which was thrown away (too_large): ask for less"
            await self._answer(_id_in(line.head, line.tail), line.head, why)

    async def _answer(self, request: RequestId | None, head: bytes, why: str) -> None:
        """Fails the call whose answer it was; all of them when that cannot be known."""
        if request is None and _METHOD_FIRST.match(head):
            return  # a notification, or a request of the server's: no call waits for it
        for waiting in list(self.owed) if request is None else [request]:
            self.owed.pop(waiting, None)
            await self.inbox.send(wire.error(waiting, McpRefusal.UNUSABLE, why))

    def _warn(self, event: str, **details: str) -> None:
        _log.warning(event, extra={"details": {"server": self.settings.name, **details}})


def _id_in(head: bytes, tail: bytes) -> RequestId | None:
    """The request that a damaged answer belongs to, as far as its two ends say. Our ids are whole numbers."""
    found = _ID_FIRST.match(head) or (None if _METHOD_FIRST.match(head) else _ID_LAST.search(tail[-128:]))
    return int(found[1]) if found else None
