"""An MCP server over HTTP that misbehaves by the name of the tool that is called. Raw sockets: HTTP too can be wrong."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

JSON, SSE = "application/json", "text/event-stream"
TOOLS = [
    "echo",
    "sse",
    "cut",
    "retry",
    "html",
    "accepted",
    "status",
    "elsewhere",
    "sign_in",
    "short",
    "reset",
    "big_json",
    "big_event",
    "zipped",
    "hang",
    "pings",
    "asks",
    "slow",
    "garbage",
    "noisy",
    "half_json",
    "half_sse",
]


@dataclass
class RogueHttp:
    port: int = 0
    session: int = 0
    token: str | None = None
    journal: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    answering: int = 0  # calls whose answer is in progress
    drained: asyncio.Event = field(default_factory=asyncio.Event)  # when it is set, `slow` answers
    server: asyncio.Server | None = None  # if closed, it takes no new connection

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await _head(reader):
                method, headers = head
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.headers.append(headers)
                self.bodies.append(body)
                if not await self._answer(writer, method, headers, json.loads(body or b"{}")):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, method: str, headers: dict[str, str], message: Any) -> bool:
        """Returns whether the connection may be used again."""
        name = message.get("params", {}).get("name", "")
        self.journal.append(f"{method} {message.get('method', '')} {name}".rstrip())
        if method != "POST":
            return await _plain(writer, 405 if method == "GET" else 200)
        if "method" not in message:  # an answer to a request of ours
            return await _plain(writer, 202)
        if status := self._status(headers, message):
            return await _plain(writer, status)
        if message["method"] == "initialize":
            return await self._initialize(writer, message)
        if message["method"] == "tools/list":
            schema = {"type": "object"}
            return await _result(writer, message, {"tools": [{"name": n, "inputSchema": schema} for n in TOOLS]})
        self.answering += 1
        try:
            if name == "slow":
                await self.drained.wait()
            return await TRICKS[name](writer, message)
        finally:
            self.answering -= 1

    def _status(self, headers: dict[str, str], message: Any) -> int | None:
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return 401
        if message["method"] != "initialize" and headers.get("mcp-session-id") != str(self.session):
            return 404
        return None if "id" in message else 202

    async def _initialize(self, writer: asyncio.StreamWriter, message: Any) -> bool:
        self.session += 1
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "rogue", "version": "1"},
        }
        return await _result(writer, message, result, f"mcp-session-id: {self.session}")


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in lines[1:] if line)
    return lines[0].split(" ")[0], {key.strip().lower(): value.strip() for key, value in pairs}


async def _send(writer: asyncio.StreamWriter, status: int, kind: str, body: bytes, *more: str, size: int = -1) -> bool:
    length = [] if size == 0 else [f"content-length: {len(body) if size < 0 else size}"]
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", *length, *more, "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    await writer.drain()
    return size < 0


async def _plain(writer: asyncio.StreamWriter, status: int) -> bool:
    return await _send(writer, status, "text/html", b"<h1>no</h1>" if status != 202 else b"")


def _reply(message: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


def _text(message: Any, text: str) -> bytes:
    return _reply(message, {"content": [{"type": "text", "text": text}]})


async def _result(writer: asyncio.StreamWriter, message: Any, result: Any, *more: str) -> bool:
    return await _send(writer, 200, JSON, _reply(message, result), *more)


def _event(data: bytes, event_id: str = "") -> bytes:
    return (f"id: {event_id}\n".encode() if event_id else b"") + b"event: message\ndata: " + data + b"\n\n"


async def _echo(writer: asyncio.StreamWriter, message: Any) -> bool:
    return await _send(writer, 200, JSON, _text(message, json.dumps(message["params"].get("arguments", {}))))


async def _sse(writer: asyncio.StreamWriter, message: Any) -> bool:
    return await _send(writer, 200, SSE, _event(_text(message, "streamed")), size=0)


async def _retry(writer: asyncio.StreamWriter, _message: Any) -> bool:
    return await _send(writer, 200, SSE, b"retry: 600000\n" + _event(b"", "1"), size=0)


async def _status(writer: asyncio.StreamWriter, message: Any) -> bool:
    return await _plain(writer, message["params"]["arguments"]["status"])


async def _elsewhere(writer: asyncio.StreamWriter, message: Any) -> bool:
    return await _send(writer, 307, JSON, b"", f"location: {message['params']['arguments']['to']}")


async def _sign_in(writer: asyncio.StreamWriter, message: Any) -> bool:
    """What the specification has a client ask for: where tokens are to be had."""
    where = message["params"]["arguments"]["at"]
    return await _send(writer, 401, JSON, b"", f'www-authenticate: Bearer resource_metadata="{where}"')


async def _reset(writer: asyncio.StreamWriter, _message: Any) -> bool:
    writer.transport.abort()
    return False


async def _hang(_writer: asyncio.StreamWriter, _message: Any) -> bool:
    await asyncio.Event().wait()
    return False


async def _pings(writer: asyncio.StreamWriter, _message: Any) -> bool:
    """A stream that could be resumed, and comments instead of the result, as long as the client listens."""
    await _send(writer, 200, SSE, b"id: 1\ndata: \n\n", size=0)
    return await _comments(writer)


async def _comments(writer: asyncio.StreamWriter) -> bool:
    while True:
        writer.write(b": ping\n\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _asks(writer: asyncio.StreamWriter, message: Any) -> bool:
    """A request of the server with the number that the call has, then comments."""
    question = json.dumps({"jsonrpc": "2.0", "id": message["id"], "method": "ping"}).encode()
    await _send(writer, 200, SSE, _event(question), size=0)
    return await _comments(writer)


async def _noisy(writer: asyncio.StreamWriter, message: Any) -> bool:
    changed = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}).encode()
    return await _send(writer, 200, SSE, b": hello\n\n" + _event(changed) + _event(_text(message, "after")), size=0)


def _half(message: Any) -> bytes:
    """What JavaScript writes of a text that was cut inside a character."""
    return _text(message, "cut HERE and whole \U0001f98a").replace(b"HERE", rb"\ud83d")


Trick = Callable[[asyncio.StreamWriter, Any], Awaitable[bool]]
TRICKS: dict[str, Trick] = {
    "echo": _echo,
    "sse": _sse,
    "cut": lambda writer, message: _send(writer, 200, SSE, b"event: message\ndata: {", size=0),
    "retry": _retry,
    "html": lambda writer, message: _plain(writer, 200),
    "accepted": lambda writer, message: _plain(writer, 202),
    "status": _status,
    "elsewhere": _elsewhere,
    "sign_in": _sign_in,
    "short": lambda writer, message: _send(writer, 200, JSON, b'{"jsonrpc":', size=1_000),
    "reset": _reset,
    "big_json": lambda writer, message: _send(writer, 200, JSON, _text(message, "x" * 5_000_000)),
    "big_event": lambda writer, message: _send(writer, 200, SSE, _event(_text(message, "x" * 5_000_000)), size=0),
    "zipped": lambda writer, message: _send(
        writer, 200, JSON, gzip.compress(_text(message, "x" * 5_000_000), 1), "content-encoding: gzip"
    ),
    "hang": _hang,
    "pings": _pings,
    "asks": _asks,
    "slow": _echo,
    "garbage": lambda writer, message: _send(writer, 200, JSON, b'{"jsonrpc": \xff'),
    "noisy": _noisy,
    "half_json": lambda writer, message: _send(writer, 200, JSON, _half(message)),
    "half_sse": lambda writer, message: _send(writer, 200, SSE, _event(_half(message)), size=0),
}


@asynccontextmanager
async def rogue_http(**options: Any) -> AsyncIterator[RogueHttp]:
    rogue = RogueHttp(**options)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(rogue.connection(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    rogue.server = server = await asyncio.start_server(accept, "127.0.0.1", rogue.port)
    rogue.port = server.sockets[0].getsockname()[1]
    try:
        yield rogue
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
