"""The server loop of the fake model endpoints. A request whose body has `fake-N` gets a reply of N tokens, otherwise of one."""

import asyncio
import re
from collections.abc import Callable

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve_replies(reply: Callable[[bytes, int], bytes]) -> None:
    """Serves `reply(path, tokens)` on a free port, which is printed, until the process is ended."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1]) if length else 0)
                modes = re.findall(rb"fake-(\d+)", body)
                writer.write(reply(head.split(b" ", 2)[1], int(modes[-1]) if modes else 1))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
