"""`holodeck mcp`: the agent as an MCP server on standard input and output, for desktop clients that start it themselves.

Each line is handed to the same application that serves `POST /mcp`, as a request without a network, so checks, limits and
answers are the same. Standard output carries messages only: whatever else the process prints goes to standard error.
"""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial

import msgspec
from starlette.types import Message, Scope

from holodeck.config.build_stores import Stores, build_sqlite, build_stores
from holodeck.config.load import LoadedConfig, secrets_of
from holodeck.config.serving import ServeOptions
from holodeck.core.events import Observer
from holodeck.errors import StartError
from holodeck.runs.memory_runs import MemoryRunStore
from holodeck.runs.run import Run
from holodeck.server.app import Application
from holodeck.server.mcp_calls import NAME, WITHOUT_HEADERS
from holodeck.server.process import build_server, run_to_end, settings_of, tracing
from holodeck.telemetry import logs
from holodeck.tools.stdio import LineFramer, Oversize
from holodeck.wires.jsonrpc import INVALID_REQUEST, ErrorObject, JsonRpcId, error_body

CANCELLED = "notifications/cancelled"
FLUSH_SECONDS = 5.0  # for answers in progress after the client has closed its end, besides the time of one answer
PIECE = 64 * 1024
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_HEADERS = [
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
]


class _Head(msgspec.Struct):
    """The members of a message that are needed before the application reads it."""

    id: JsonRpcId = None
    method: str = ""
    params: dict[str, object] = {}


_head_of = msgspec.json.Decoder(_Head).decode


class StdioExchange:
    """One message as an ASGI request: its answer's messages become lines."""

    def __init__(self, body: bytes, write: Callable[[bytes], None]) -> None:
        self._body, self._write = body, write
        self._sent_body = False
        self._left = asyncio.Event()
        self._is_stream = False
        self._received = bytearray()

    @property
    def scope(self) -> Scope:
        length = (b"content-length", str(len(self._body)).encode())
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [*_HEADERS, length],
            "client": None,
            "server": None,
            WITHOUT_HEADERS: True,
        }

    def leave(self) -> None:
        """Behaves as if the client had closed the connection."""
        self._left.set()

    async def receive(self) -> Message:
        if not self._sent_body:
            self._sent_body = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message["headers"]}
            self._is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            return
        self._received += message.get("body", b"")
        if self._is_stream:
            self._write_frames()
        elif not message.get("more_body", False) and self._received:
            self._write(bytes(self._received))

    def _write_frames(self) -> None:
        """Takes whole frames only. Each has one line of data; comments have none."""
        *frames, rest = bytes(self._received).split(b"\n\n")
        self._received = bytearray(rest)
        for frame in frames:
            if frame.startswith(b"data: "):
                self._write(frame.removeprefix(b"data: "))


class StdioServer:
    """Reads lines until the other end closes, and answers each as it is ready."""

    def __init__(self, app: Application, write: Callable[[bytes], None], *, max_line: int) -> None:
        self._app, self._write = app, write
        self._framer = LineFramer(max_line)
        self._open: dict[JsonRpcId, StdioExchange] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def feed(self, data: bytes) -> None:
        for line in self._framer.feed(data):
            if isinstance(line, Oversize):
                if line.ended:
                    self._refuse("The message is longer than this server accepts.")
            elif line.strip():
                self._take(line)

    async def finish(self, seconds: float) -> None:
        """Lets answers in progress end within the time limit. Then their clients count as disconnected."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for exchange in self._open.values():
            exchange.leave()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FLUSH_SECONDS)

    def _take(self, line: bytes) -> None:
        try:
            head = _head_of(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            head = _Head()  # the application answers with the error
        if head.method == CANCELLED:
            wanted = head.params.get("requestId")
            cancelled = self._open.get(wanted) if isinstance(wanted, str | int) else None
            if cancelled is not None:
                cancelled.leave()
            return
        exchange = StdioExchange(line, self._write)
        if head.id is not None:
            self._open[head.id] = exchange
        task = asyncio.create_task(self._app(exchange.scope, exchange.receive, exchange.send))
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._done(task, head.id, exchange))

    def _done(self, task: "asyncio.Task[None]", request_id: JsonRpcId, exchange: StdioExchange) -> None:
        self._tasks.discard(task)
        if self._open.get(request_id) is exchange:
            del self._open[request_id]

    def _refuse(self, why: str) -> None:
        self._write(error_body(None, ErrorObject(code=INVALID_REQUEST, message=why)))


def serve(config: LoadedConfig, *, debug: bool = False) -> None:
    """Serves until standard input ends or a signal arrives. Raises StartError if it cannot."""
    out = _private_stdout()
    output = logs.configure(fd=_STDERR, debug=debug, secrets=secrets_of(config), level="warning", style="text")
    try:
        with closing(output), tracing(config) as trace:
            run_to_end(_run(config, out, debug=debug, trace=trace))
    finally:
        os.close(out)


def _private_stdout() -> int:
    """Duplicates standard output, then redirects it to standard error, for tools that print."""
    sys.stdout.flush()
    private = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    return private


async def _run(config: LoadedConfig, out: int, *, debug: bool, trace: Callable[[Run], Observer] | None) -> None:
    settings = settings_of(ServeOptions(config=config, protocols=(NAME,), debug=debug))
    server = build_server(config, settings, trace=trace, stores=_stores(config))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with server.running():
        channel = StdioServer(
            Application(server), partial(_write, out), max_line=settings.block.limits.request.max_body
        )
        reading = asyncio.create_task(_read(channel, stop))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await channel.finish(0 if stop.is_set() else settings.mcp_wait + FLUSH_SECONDS)
        reading.cancel()
        stopping.cancel()


def _stores(config: LoadedConfig) -> Stores:
    """The agent's sessions, which a server may use at the same time. Only this process knows its own runs."""
    if config.agent.sessions.store == "memory":
        return build_stores(config)
    return Stores(build_sqlite(config).sessions, MemoryRunStore())


def _write(fd: int, line: bytes) -> None:
    """Writes a whole line. It may block: a desktop client that reads nothing has no other request to wait for."""
    data = memoryview(line + b"\n")
    while data:
        data = data[os.write(fd, data) :]


async def _read(channel: StdioServer, stop: asyncio.Event) -> None:
    kind = os.fstat(_STDIN).st_mode
    if stat.S_ISREG(kind) or (stat.S_ISCHR(kind) and not os.isatty(_STDIN)):  # event loops cannot watch these
        while not stop.is_set() and (data := await asyncio.to_thread(os.read, _STDIN, PIECE)):
            channel.feed(data)
        return
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except (ValueError, OSError) as error:
        raise StartError("Standard input must be a pipe: an MCP client starts this command.") from error
    while (data := await reader.read(PIECE)) and not stop.is_set():
        channel.feed(data)
