"""The Python twin of native/fake_llm.c, for machines without a C compiler: bursts only, `fake-N` is N tokens.

Prints the port it listens on.
"""

import asyncio
import re
import time

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
)
EVENT = (
    'data: {"id":"chatcmpl-fake00000000000000000000000000","object":"chat.completion.chunk","created":1760000000,'
    '"model":"fake","service_tier":"default","system_fingerprint":"fp_fake000000",'
    '"choices":[{"index":0,"delta":{%s},"logprobs":null,"finish_reason":%s}]}\n\n'
)
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reply(tokens: int) -> bytes:
    start = time.monotonic_ns() // 1000
    deltas = [(f'"content":" @{(start + i) % 10**10:010d}"', "null") for i in range(tokens)]
    events = [('"role":"assistant","content":""', "null"), *deltas, ("", '"stop"')]
    return HEAD + b"".join(chunk((EVENT % event).encode()) for event in events) + chunk(DONE) + b"0\r\n\r\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1]) if length else 0)
            modes = re.findall(rb"fake-(\d+)", body)
            writer.write(reply(int(modes[-1]) if modes else 1))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
