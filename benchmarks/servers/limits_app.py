"""The limits: the least that a Python server can do between a model's stream and a client. uvicorn limits_app:copy | decode

`copy` passes the bytes on; `decode` parses each event with msgspec and writes AG-UI from a byte template, one write per
read. Neither has routing, validation, sessions, tools, errors or a life beyond the connection.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import msgspec

URL = os.environ["BENCH_MODEL_URL"] + "/chat/completions"
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")],
}
CONTENT = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":'


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


decode_chunk = msgspec.json.Decoder(Chunk).decode
encode = msgspec.json.Encoder().encode


class Upstream:
    """One session for the life of the server, made within its event loop."""

    def __init__(self) -> None:
        self.session: aiohttp.ClientSession | None = None

    async def reads(self, request: dict[str, Any]) -> AsyncIterator[bytes]:
        if self.session is None:
            connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
            self.session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        messages = [{"role": each["role"], "content": each["content"]} for each in request["messages"]]
        body = encode({"model": "fake", "stream": True, "messages": messages})
        async with self.session.post(URL, data=body, headers={"content-type": "application/json"}) as answer:
            async for data in answer.content.iter_any():
                yield data

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()


async def read_request(receive: Receive) -> dict[str, Any]:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            request: dict[str, Any] = msgspec.json.decode(body)
            return request


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def copy_answer(upstream: Upstream, request: dict[str, Any], send: Send) -> None:
    async for data in upstream.reads(request):
        await send(part(data))
    await send(part(b"", more=False))


async def decode_answer(upstream: Upstream, request: dict[str, Any], send: Send) -> None:
    ids = {"threadId": request["threadId"], "runId": request["runId"]}
    started = b"data: " + encode({"type": "RUN_STARTED", **ids})
    await send(part(started + b'\n\ndata: {"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}\n\n'))
    rest = b""
    async for data in upstream.reads(request):
        *events, rest = (rest + data).split(b"\n\n")
        chunks = [decode_chunk(event[6:]) for event in events if event.startswith(b"data: {")]
        texts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
        if texts:
            await send(part(b"".join([CONTENT + encode(text) + b"}\n\n" for text in texts])))
    finished = encode({"type": "RUN_FINISHED", **ids}) + b"\n\n"
    await send(part(b'data: {"type":"TEXT_MESSAGE_END","messageId":"m1"}\n\ndata: ' + finished, more=False))


def app(answer: Callable[[Upstream, dict[str, Any], Send], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    upstream = Upstream()

    async def lifespan(receive: Receive, send: Send) -> None:
        while True:
            event = (await receive())["type"]
            if event == "lifespan.shutdown":
                await upstream.close()
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        elif scope["method"] == "GET":  # is it ready?
            await send(START)
            await send(part(b"", more=False))
        else:
            request = await read_request(receive)
            await send(START)
            await answer(upstream, request, send)

    return serve


copy = app(copy_answer)
decode = app(decode_answer)
