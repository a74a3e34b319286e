"""How long one hostile body holds the event loop: the CPU that the loop's thread takes for its longest turn.

The server runs in this process, with sessions in memory and a scripted model, and the client in another thread. CPU time
of one thread does not depend on what else the machine does. A turn of the loop is all that runs before the loop looks for
other connections again.
"""

import asyncio
import gc
import http.client
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.options import Options
from benchmarks.report import CannotMeasureError, Row, Target

MB = 1_000_000
MANY = 9_999  # messages
TARGET = Target(limit=20)


class Body(NamedTuple):
    name: str
    path: str
    content: bytes


class Turns:
    """The CPU of the longest turn of the running loop since `begin`."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = 0.0
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None

    def begin(self) -> None:
        self.longest, self._last = 0.0, time.thread_time()
        self._next = self._loop.call_soon(self._tick)

    def end(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        self._next = self._loop.call_soon(self._tick)


def _agui(content: Any = "hi", **more: Any) -> dict[str, Any]:
    messages = [{"id": "m", "role": "user", "content": content}]
    return {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "messages": messages} | more


def _history(count: int, size: int) -> list[dict[str, str]]:
    """A conversation of two sides; the user has the last word."""
    sides = ("assistant", "user") if count % 2 == 0 else ("user", "assistant")
    return [{"id": f"m{n}", "role": sides[n % 2], "content": "x" * size} for n in range(count)]


def _tool_history(count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for n in range(count):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
        messages.append({"id": f"a{n}", "role": "assistant", "content": "", "toolCalls": [call]})
        messages.append({"id": f"r{n}", "role": "tool", "toolCallId": f"c{n}", "content": "ok"})
    return [*messages, {"id": "last", "role": "user", "content": "hi"}]


def _rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _a2a(parts: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    return _rpc("SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts, **more}})


def _hostile() -> Iterator[tuple[str, str, Any]]:
    for name, text in (
        ("ASCII", "x" * MB),
        ("Latin", "é" * MB),
        ("emoji", "😀" * (MB - 1)),
        ("control characters", "\x01a" * (MB // 2)),
        ("line ends", "\n" * (MB - 1) + "x"),
        ("quotes", '"' * MB),
        ("what looks like keys", "api_key=sk-abcdefghijklmnopqrstuvwxyz " * (MB // 40)),
        ("combining marks", "a" + "\u0301" * (MB - 1)),
    ):
        yield f"AG-UI, 1 MB of {name}", "/awp", _agui(text)
    yield "AG-UI, 9,999 messages", "/awp", _agui(messages=_history(MANY, 300))
    yield "AG-UI, 1,000 messages of 3.8 kB", "/awp", _agui(messages=_history(1_000, 3_800))
    yield "AG-UI, 3,000 tool calls", "/awp", _agui(messages=_tool_history(3_000))
    yield "AG-UI, 9,000 parts", "/awp", _agui([{"type": "text", "text": "x" * 100}] * 9_000)
    yield "AG-UI, state of 90,000 numbers", "/awp", _agui(state={"a": list(range(90_000))})
    yield "AG-UI, state of 90,000 strings", "/awp", _agui(state={"a": ["x" * 30] * 90_000})
    yield "AG-UI, nested 500 deep", "/awp", _agui(forwardedProps=json.loads("[" * 500 + "]" * 500))
    completions = "/v1/chat/completions"
    plain = [{"role": each["role"], "content": each["content"]} for each in _history(MANY, 300)]
    yield "OpenAI, 9,999 messages", completions, {"messages": plain}
    yield "OpenAI, 9,999 messages to keep", completions, {"messages": plain, "store": True}
    yield "OpenAI, 1 MB", completions, {"messages": [{"role": "user", "content": "x" * MB}]}
    unknown = {str(n): "x" * 50 for n in range(40_000)}
    yield "OpenAI, 40,000 members", completions, {"messages": plain[:1], "metadata": unknown}
    yield "Responses, 9,999 items", "/v1/responses", {"input": [{"type": "message", **each} for each in plain]}
    parts = [
        {"id": f"i{n}", "role": each["role"], "parts": [{"type": "text", "text": each["content"]}]}
        for n, each in enumerate(plain)
    ]
    yield "AI SDK, 9,999 messages", "/ai-sdk/chat", {"id": "s", "messages": parts}
    yield "A2A, 9,000 parts", "/a2a", _a2a([{"text": "x" * 90}] * 9_000)
    yield "A2A, 0.9 MB", "/a2a", _a2a([{"text": "x" * 900_000}])
    yield "A2A, 24,000 members", "/a2a", _a2a([{"text": "x"}], metadata={str(n): {"a": n} for n in range(24_000)})
    yield "MCP, 0.9 MB", "/mcp", _rpc("tools/call", {"name": "ask", "arguments": {"message": "x" * 900_000}})
    junk = {"j": ["x" * 60] * 49_000}
    yield "chat-stream, 49,000 strings", "/chat/stream", {"input": "x", **junk}
    yield "REST, 49,000 strings", "/agent/tester/chat", {"message": "x", **junk}
    file = {"content": "QUJD" * 200_000, "mime_type": "text/plain", "filename": "a.txt"}
    yield "REST, ten files of 0.8 MB", "/agent/tester/chat", {"message": "x", "files": [file] * 10}


def bodies() -> list[Body]:
    """Each AG-UI body is a run of its own: a second one under the same id would be refused before it is read."""
    found = []
    for name, path, body in _hostile():
        ids = {"threadId": name, "runId": name} if path == "/awp" else {}
        found.append(Body(name, path, json.dumps({**body, **ids}, ensure_ascii=False).encode()))
    return found


def send(port: int, body: Body) -> None:
    """Sends a body and reads the whole answer. A refusal is an answer too; a failure of the server is not."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {
        "Content-Type": "application/json",
        "A2A-Version": "1.0",
        "Accept": "application/json, text/event-stream",
    }
    try:
        connection.request("POST", body.path, body.content, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status in (404, 405) or answer.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise CannotMeasureError(f"{body.name} was answered {answer.status}")
    finally:
        connection.close()


async def longest_turns(rounds: int) -> dict[str, list[float]]:
    """In milliseconds, of each round."""
    try:
        from holodeck.models.scripted import says  # noqa: PLC0415  other benchmarks need none of these
        from holodeck.server.options import ServerSettings  # noqa: PLC0415
        from holodeck.server.process import GC_THRESHOLDS  # noqa: PLC0415
        from holodeck.server.wires import WIRES  # noqa: PLC0415
        from tests.server.serving import served  # noqa: PLC0415
    except ImportError as error:
        raise CannotMeasureError(f"the server under test comes with the extra `test`: {error}") from error
    found: dict[str, list[float]] = {}
    settings = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
    for _ in range(rounds):
        async with served(says("ok"), settings=settings) as started:
            turns = Turns()
            await asyncio.to_thread(send, started.port, Body("warm-up", "/awp", json.dumps(_agui()).encode()))
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)  # as `holodeck serve` does
            for body in bodies():
                turns.begin()
                await asyncio.to_thread(send, started.port, body)
                turns.end()
                found.setdefault(body.name, []).append(turns.longest * 1e3)
    return found


def run(options: Options) -> list[Row]:
    found = asyncio.run(longest_turns(1 if options.quick else options.rounds))
    return [
        Row(measure="longest turn of the event loop", system=name, unit="ms CPU", samples=samples, target=TARGET)
        for name, samples in found.items()
    ]
