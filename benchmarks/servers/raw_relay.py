"""The floor: two asyncio protocols that pass a model's bytes on as they are. python raw_relay.py PORT

No HTTP library reads the answer, no framework is between the sockets: less than this a Python server cannot do. It knows the
load client and the fake model only: one request at a time on a connection, answers in chunks.
"""

import asyncio
import os
import sys
from typing import cast
from urllib.parse import urlsplit

import msgspec
import uvloop

MODEL = urlsplit(os.environ["BENCH_MODEL_URL"])
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)

idle: list["Upstream"] = []


class Upstream(asyncio.Protocol):
    """A connection to the model, used by one client at a time."""

    transport: asyncio.Transport
    client: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.client is not None:
            self.client.write(data)
        if data.endswith(LAST_CHUNK):
            self.client = None
            idle.append(self)

    def connection_lost(self, _error: Exception | None) -> None:
        if self in idle:
            idle.remove(self)
        elif self.client is not None:
            self.client.close()


class Downstream(asyncio.Protocol):
    """A connection of the load client."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._received = b""
        self._asking: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET"):  # is it ready?
            self._received = body
            self.transport.write(EMPTY)
            return
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) >= size:
            self._received = body[size:]
            task = asyncio.get_running_loop().create_task(self._ask(body[:size]))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, body: bytes) -> None:
        given = msgspec.json.decode(body)["messages"]
        messages = [{"role": each["role"], "content": each["content"]} for each in given]
        question = msgspec.json.encode({"model": "fake", "stream": True, "messages": messages})
        if idle:
            upstream = idle.pop()
        else:
            _, upstream = await asyncio.get_running_loop().create_connection(Upstream, MODEL.hostname, MODEL.port)
        upstream.client = self.transport
        upstream.transport.write(HEAD % len(question) + question)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Downstream, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
