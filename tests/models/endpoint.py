"""A model endpoint on loopback that says exactly what a test wrote down, and can misbehave on the wire.

It speaks raw HTTP/1.1, because a web framework would not let it cut, reset, drip or lie. Each request is answered by
the next of its responses; the last one repeats. Everything it received stays in `requests`.

    async with ModelEndpoint(status(429, b"", Retry_After="1"), text_stream("Hello", " world")) as endpoint:
        model = OpenAIChatModel(EndpointSettings(name="m", endpoint=endpoint.url))
"""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

DONE = b"data: [DONE]\n\n"


@dataclass
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Wire:
    """One answer being sent. `reset` and `close` end the connection at once, in the middle of whatever is being sent."""

    request: Received
    writer: asyncio.StreamWriter
    gone: asyncio.Event
    keep_alive: bool = True
    _chunked: bool = field(default=False, init=False)

    async def head(self, status: int = 200, *, chunked: bool = True, **headers: str) -> None:
        """The status line and headers; `Content_Type="…"` is written Content-Type."""
        headers.setdefault("Content_Type", "text/event-stream")
        if chunked:
            headers["Transfer_Encoding"] = "chunked"
        self._chunked = chunked
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
        await self.raw("\r\n".join([f"HTTP/1.1 {status} Status", *lines, "", ""]).encode())

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, *pieces: bytes) -> None:
        """Each piece as one HTTP chunk of its own."""
        for piece in pieces:
            await self.raw(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    async def end(self) -> None:
        if self._chunked:
            await self.raw(b"0\r\n\r\n")
        else:
            self.close()

    async def hang(self) -> None:
        """Says nothing until the client leaves."""
        await self.gone.wait()

    def close(self) -> None:
        self.keep_alive = False
        self.writer.close()

    def reset(self) -> None:
        """RST instead of FIN."""
        self.keep_alive = False
        linger_zero = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
        self.writer.transport.abort()


Respond = Callable[[Wire], Awaitable[None]]


class ModelEndpoint:
    """`async with ModelEndpoint(first, second) as endpoint:`; `endpoint.url` is what a user would configure."""

    def __init__(self, *responses: Respond) -> None:
        self.responses = list(responses)
        self.requests: list[Received] = []
        self.connections = 0
        self.open_connections = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._serve), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self.all_gone()
        await self._server.wait_closed()

    async def all_gone(self) -> None:
        """Waits until every client has closed its connection."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.open_connections == 0)

    async def asked(self, times: int = 1) -> None:
        """Waits until so many requests have come."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= times)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        self._open.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, which is its right
        finally:
            self._open.discard(writer)
            writer.close()
            self.open_connections -= 1
            async with self._changed:
                self._changed.notify_all()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _receive(reader)
        respond = self.responses[min(len(self.requests), len(self.responses) - 1)]
        self.requests.append(request)
        async with self._changed:
            self._changed.notify_all()
        connection = writer.transport.get_protocol()
        assert isinstance(connection, _Connection)
        wire = Wire(request, writer, connection.gone)
        await respond(wire)
        return wire.keep_alive and not wire.gone.is_set()


class _Connection(asyncio.StreamReaderProtocol):
    """Notices at once when the client leaves, also while nothing is being read."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        super().__init__(asyncio.StreamReader(limit=2**20), serve)
        self.gone = asyncio.Event()

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


async def _receive(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body)


# What an ordinary endpoint says.


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Any = None, *, finish: Any = None, **members: Any) -> dict[str, Any]:
    """One chat.completion.chunk with one choice. Without a model's name: a test that asks for any model gets no other one."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **members}


def text_frames(*pieces: str, finish: str = "stop", usage: dict[str, int] | None = None) -> list[bytes]:
    """A whole answer as OpenAI sends it: role, pieces, finish reason, usage if given, [DONE]."""
    frames = [frame(chunk({"role": "assistant", "content": ""}))]
    frames += [frame(chunk({"content": piece})) for piece in pieces]
    frames.append(frame(chunk(finish=finish)))
    if usage is not None:
        frames.append(frame({"choices": [], "usage": usage}))
    return [*frames, DONE]


def tool_call_frames(*calls: tuple[str, str, str], usage: dict[str, int] | None = None) -> list[bytes]:
    """(id, name, arguments) each, as OpenAI sends them: the name first, then the arguments in two pieces."""
    frames = []
    for index, (call_id, name, arguments) in enumerate(calls):
        opening = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        frames.append(frame(chunk({"tool_calls": [opening]})))
        half = len(arguments) // 2
        pieces = filter(None, (arguments[:half], arguments[half:]))
        frames += [
            frame(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})) for piece in pieces
        ]
    frames.append(frame(chunk(finish="tool_calls")))
    if usage is not None:
        frames.append(frame({"choices": [], "usage": usage}))
    return [*frames, DONE]


# Ready-made responses.


def stream(*frames: bytes, content_type: str = "text/event-stream") -> Respond:
    """The frames as they are, then a proper end of the body."""

    async def respond(wire: Wire) -> None:
        await wire.head(Content_Type=content_type)
        await wire.send(*(piece for piece in frames if piece))
        await wire.end()

    return respond


def text_stream(*pieces: str, finish: str = "stop", usage: dict[str, int] | None = None) -> Respond:
    return stream(*text_frames(*pieces, finish=finish, usage=usage))


def tool_call_stream(*calls: tuple[str, str, str], usage: dict[str, int] | None = None) -> Respond:
    return stream(*tool_call_frames(*calls, usage=usage))


def status(code: int, body: bytes | dict[str, Any] = b"", **headers: str) -> Respond:
    """A plain response with a length."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def respond(wire: Wire) -> None:
        all_headers = {"Content_Type": "application/json", **headers, "Content_Length": str(len(content))}
        await wire.head(code, chunked=False, **all_headers)
        await wire.raw(content)

    return respond


async def hang(wire: Wire) -> None:
    await wire.hang()


async def close_at_once(wire: Wire) -> None:
    wire.close()


async def reset_at_once(wire: Wire) -> None:
    wire.reset()
