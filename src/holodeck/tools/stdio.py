"""MCP over a child's standard streams: the process, its output lines, the link that carries messages.

Replaces the SDK's own stdio transport, which hangs on invalid UTF-8, buffers a long line without limit and in quadratic
time, and leaves children behind when HoloDeck is killed. Here an unusable message fails only the call that waits for it,
with an error on behalf of the server.

`LineFramer` cuts bytes at newlines, bounded and linear. `ServerProcess` starts a child without a shell: with an
allow-list of our environment, its own session (so that its whole process group can be ended) and a launcher that makes it
die with HoloDeck, even after SIGKILL. Neither knows MCP.

`holodeck.tools.mcp_server` lists the tools and decides when to restart, not this module.
"""

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import anyio
import msgspec

from holodeck.core.text import one_line
from holodeck.tools import mcp_wire as wire
from holodeck.tools import stdio_launcher
from holodeck.tools.mcp_link import CannotConnect, Link, LinkClosed, McpRefusal
from holodeck.tools.mcp_settings import McpSettings
from holodeck.tools.mcp_wire import McpMessage, RequestId

INHERITED = frozenset({"PATH", "HOME", "LANG", "TZ", "USER", "TMPDIR"})  # and LC_*: nothing that could hold a secret
GRACE = 2.0  # seconds between end of input, SIGTERM and SIGKILL
LAST_WORDS = 0.05  # seconds for output that is still in the pipe when the process has ended
STDERR_LINES = 20
STDERR_RATE = 64_000  # bytes a second; more is discarded
STDERR_LINE = 500

_log = logging.getLogger(__name__)

HEAD = 256
TAIL = 128

MAX_UNREAD = 1_000_000  # bytes that the server has not read; beyond it notifications are dropped
ENDLESS = 1_000_000_000  # bytes of one line after which the server is killed
NOISE_SHOWN = 3

_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*[,}]')  # Python's SDK
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*\}\s*$')  # TypeScript's SDK
_METHOD_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:')


def find_command(command: str, cwd: Path | None, path: str) -> Path:
    """Finds a command: beside our own interpreter first, then on PATH; with a slash, relative to the agent.

    Raises an OSError whose text is a sentence.
    """
    if cwd is not None and not cwd.is_dir():
        raise NotADirectoryError(f"its working folder '{cwd.name}' does not exist")
    if os.sep in command:
        candidate = (cwd or Path.cwd()) / Path(command).expanduser()
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
        if candidate.exists():
            raise PermissionError(f"'{command}' is not executable")
        raise FileNotFoundError(f"there is no '{command}'")
    ours = str(Path(sys.executable).parent)
    if found := shutil.which(command, path=os.pathsep.join([ours, path])):
        return Path(found)
    raise FileNotFoundError(f"the command '{command}' was not found")


class StderrTail:
    """The last lines of a server's standard error, however much it writes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._rest = b""
        self._second = 0
        self._taken = 0

    def feed(self, data: bytes) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._taken = second, 0
        data = data[: max(0, STDERR_RATE - self._taken)]
        self._taken += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-STDERR_LINE:]
        for line in lines:
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        if text := one_line(line.decode("utf-8", "replace"), STDERR_LINE):
            self._lines.append(text)
            _log.debug("mcp_stderr", extra={"details": {"server": self._name, "line": text}})

    def lines(self) -> list[str]:
        rest = one_line(self._rest.decode("utf-8", "replace"), STDERR_LINE)
        return [*self._lines, rest] if rest else list(self._lines)


class ServerProcess(asyncio.SubprocessProtocol):
    """A running child. `exited` is about the process itself, not about pipes that its own children may hold.

    `on_output` gets its standard output, `on_end` is called once when that has ended.
    """

    def __init__(self, name: str, on_output: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_output, self._on_end = on_output, on_end
        self.stderr = StderrTail(name)
        self.exited = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._stdout_over = False
        self._verdict = ""  # the reason, if we ended the process
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None

    # asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's class is not a subclass
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != 1:
            self.stderr.feed(data)
        elif not self._stdout_over:
            self._on_output(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        if fd == 1:
            self._end_stdout()
        elif fd == 0:
            self._writable.set()  # wakes a waiting writer, which then raises
            self._end_stdout_soon()  # a server that no longer reads is useless

    def process_exited(self) -> None:
        self.exited.set()
        self._end_stdout_soon()  # a grandchild may hold the pipe open for ever, so we cannot wait for its end

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end_stdout_soon(self) -> None:
        asyncio.get_running_loop().call_later(LAST_WORDS, self._end_stdout)

    def _end_stdout(self) -> None:
        if not self._stdout_over:
            self._stdout_over = True
            self._on_end()

    # for the transport

    async def writable(self) -> None:
        """Waits until the write buffer has room. Raises BrokenPipeError if the child no longer reads."""
        await self._writable.wait()
        if self._stdin is None or self._stdin.is_closing():
            raise BrokenPipeError

    def write(self, data: bytes) -> None:
        """Writes without waiting. After `writable` the buffer has room."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    @property
    def unread(self) -> int:
        return self._stdin.get_write_buffer_size() if self._stdin is not None else 0

    async def close(self) -> None:
        """Ends the whole process group: end of input, then SIGTERM, then SIGKILL, two seconds apart."""
        if self._stdin is not None:
            self._stdin.close()
        if not await self._exits_within(GRACE):
            self._verdict = self._verdict or "stopped talking"
            self._signal_group(signal.SIGTERM)
            if not await self._exits_within(GRACE):
                await self.kill(self._verdict)
        self._signal_group(signal.SIGKILL)  # children that the process left behind
        if self._transport is not None:
            self._transport.close()

    def kill_now(self, verdict: str) -> None:
        self._verdict = self._verdict or verdict
        self._signal_group(signal.SIGKILL)

    async def kill(self, verdict: str) -> None:
        self.kill_now(verdict)
        if not await self._exits_within(GRACE):
            _log.error("mcp_server_cannot_be_killed", extra={"details": {"pid": self._pid}})

    def how_it_ended(self) -> str:
        how = self._verdict or _exit_sentence(self._transport.get_returncode() if self._transport else None)
        return f"{how}: {lines[-1]}" if (lines := self.stderr.lines()) else how

    @property
    def _pid(self) -> int | None:
        return self._transport.get_pid() if self._transport else None

    async def _exits_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        return self.exited.is_set()

    def _signal_group(self, number: signal.Signals) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)  # start_new_session made the child's pid the group's id


def _exit_sentence(code: int | None) -> str:
    if code is None:
        return "stopped talking"
    return f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


async def launch(
    process: ServerProcess, command: str, args: Sequence[str], *, env: Mapping[str, str], cwd: Path | None
) -> None:
    """Starts the child of `process`. Raises OSError with a sentence when it cannot be started."""
    inherited = {key: value for key, value in os.environ.items() if key in INHERITED or key.startswith("LC_")}
    environment = {**inherited, **env}
    found = find_command(command, cwd, environment.get("PATH", os.defpath))
    launcher = [sys.executable, "-I", "-S", stdio_launcher.__file__, str(os.getpid())]
    await asyncio.get_running_loop().subprocess_exec(
        lambda: process,
        *launcher,
        str(found),  # also argv[0]: Python finds its virtual environment by it
        *args,
        env=environment,
        cwd=cwd,
        start_new_session=True,
    )


@dataclass(frozen=True)
class Oversize:
    """The beginning and the end of a line that is too long; `ended` is False while it still continues."""

    head: bytes
    tail: bytes
    ended: bool


class LineFramer:
    """Cuts a stream at newlines. `discarded` counts the bytes of the current line that were dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._head: bytes | None = None  # the beginning of the oversized line that is being discarded
        self._tail = b""
        self.discarded = 0

    def feed(self, data: bytes) -> Sequence[bytes | Oversize]:
        if not self._line and self._head is None and data.find(b"\n") == len(data) - 1 < self._limit:
            return (data[:-1],)  # one whole line, as nearly always
        lines: list[bytes | Oversize] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            lines += self._add(data[start:end])
            lines.append(self._finish())
            start = end + 1
        lines += self._add(data[start:])
        return lines

    def _add(self, piece: bytes) -> Iterator[Oversize]:
        if self._head is not None:
            self._discard(piece)
            return
        self._line += piece
        if len(self._line) > self._limit:
            self._head = bytes(self._line[:HEAD])
            self._discard(bytes(self._line))
            self._line = bytearray()  # a new one: clear() keeps the memory
            yield Oversize(self._head, b"", ended=False)

    def _discard(self, piece: bytes) -> None:
        self.discarded += len(piece)
        self._tail = (self._tail + piece[-TAIL:])[-TAIL:]

    def _finish(self) -> bytes | Oversize:
        if self._head is None:
            line, self._line = bytes(self._line), bytearray()
            return line
        oversize = Oversize(self._head, self._tail, ended=True)
        self._head, self._tail, self.discarded = None, b"", 0
        return oversize


@asynccontextmanager
async def open_stdio(settings: McpSettings) -> AsyncGenerator[Link]:
    """Starts the server and opens a link. Raises CannotConnect if the command cannot be started."""
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
        raise CannotConnect(error.strerror or str(error), _advice(command)) from error
    return process


def _advice(command: str) -> str:
    """Advice for a command that does not exist. Other programs' configurations have command and arguments in one text."""
    program, *arguments = command.split()
    if arguments and os.sep not in program:
        return f"Put the arguments into a list: `command: {program}` and `args: [{', '.join(arguments)}]`."
    return "Install it, or give its full path as `command`."


class StdioLink(Link):
    """The link to one child, and the requests that it has not answered yet."""

    process: ServerProcess

    def __init__(self, settings: McpSettings) -> None:
        arguments = " with its `args`" if settings.args else ""  # not in the text: they may hold secrets
        super().__init__(settings.name, f"Run `{settings.command}`{arguments} in a terminal to see why.")
        self._max_bytes = settings.max_line_bytes
        self._framer = LineFramer(settings.max_line_bytes)
        self._owed: dict[RequestId, None] = {}
        self._noise = 0

    async def send(self, message: McpMessage) -> None:
        data = wire.encode(message) + b"\n"
        try:
            await self.process.writable()
        except BrokenPipeError:
            raise LinkClosed from None
        if message.method is not None and message.id is not None:
            self._owed[message.id] = None
        self.process.write(data)

    def send_now(self, message: McpMessage) -> None:
        if message.method == wire.CANCELLED:
            self._owed.pop((message.params or {}).get("requestId", ""), None)
        if self.process.unread < MAX_UNREAD:
            self.process.write(wire.encode(message) + b"\n")

    def how_it_ended(self) -> str:
        return self._reason or self.process.how_it_ended()

    def feed(self, data: bytes) -> None:
        for line in self._framer.feed(data):
            self._take(line)
        if self._framer.discarded > ENDLESS:
            self._warn("mcp_endless_line")
            self.process.kill_now("wrote an endless line")

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
        """Handles a line that is not a message: a damaged answer, or other output."""
        if not line.lstrip().startswith(b"{") or _is_log_line(line, self._owed):
            self._noise += 1
            if self._noise <= NOISE_SHOWN:
                self._warn("mcp_noise_on_stdout", line=one_line(line[:400].decode("utf-8", "replace"), 200))
            return
        self._warn("mcp_unreadable_message")
        self._answer(_id_in(line, line), line, "sent an answer that cannot be read (no valid UTF-8 or JSON-RPC)")

    def _refuse_oversize(self, line: Oversize) -> None:
        known = _id_in(line.head, b"")
        if line.ended and known is not None:
            return  # the call was failed when the line began
        if line.ended or known is not None:
            self._warn("mcp_message_too_large")
            megabytes = self._max_bytes / 1_000_000
            why = f"sent an answer over {megabytes:g} MB, which was discarded (too_large): ask for less"
            self._answer(_id_in(line.head, line.tail), line.head, why)

    def _answer(self, request: RequestId | None, head: bytes, why: str) -> None:
        """Fails the call that the line answers, or all calls if it is not known which."""
        if request is None and _METHOD_FIRST.match(head):
            return  # a notification or a request of the server: no call waits for it
        for waiting in list(self._owed) if request is None else [request]:
            self._owed.pop(waiting, None)
            self.receive(wire.error(waiting, McpRefusal.UNUSABLE, why))

    def _warn(self, event: str, **details: str) -> None:
        _log.warning(event, extra={"details": {"server": self.server, **details}})


def _is_log_line(line: bytes, owed: Iterable[RequestId]) -> bool:
    """Whether a line is whole JSON, and neither a message nor an answer that is owed. Many programs write such logs."""
    try:
        members = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    is_owed = bytes(members.get("id", b"")).strip(b'"') in {str(number).encode() for number in owed}
    answers = is_owed and ("result" in members or "error" in members)
    return not answers and "jsonrpc" not in members


def _id_in(head: bytes, tail: bytes) -> RequestId | None:
    """The id of the request that a damaged answer belongs to, if either end of it shows it. Our ids are integers."""
    found = _ID_FIRST.match(head) or (None if _METHOD_FIRST.match(head) else _ID_LAST.search(tail[-128:]))
    return int(found[1]) if found else None
