"""A client that asks and does not listen."""

import asyncio
import json
import socket

from tests.server.serving import ask

MB = 1024 * 1024


async def stalled_client(s, body: bytes, buffer=4096, connection="keep-alive") -> socket.socket:
    """A connection that asks and does not read."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", s.port))
    head = b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    await loop.sock_sendall(raw, head % len(body) + f"Connection: {connection}\r\n\r\n".encode() + body)
    return raw


def encoded(**fields) -> bytes:
    return json.dumps(ask(**fields)).encode()
