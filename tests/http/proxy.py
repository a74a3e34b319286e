"""A proxy as companies have them: it passes requests on, or bytes after CONNECT. Every name is on this machine."""

import asyncio
import contextlib
from base64 import b64encode

from tests.http.peers import Peer

REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nno"


class Passing:
    """`heads` is all that it received, `inside` all that it passed on to the other side."""

    def __init__(self, user: str | None = None, established: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"):
        self._wanted = None if user is None else b"Basic " + b64encode(user.encode())
        self._established = established
        self.heads: list[bytes] = []
        self.inside = bytearray()

    async def __call__(self, peer: Peer) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        line, *lines = head.split(b"\r\n")
        if self._wanted is not None and b"Proxy-Authorization: " + self._wanted not in lines:
            await peer.say(REFUSED)
            return
        method, target, version = line.split(b" ")
        place, slash, path = target.removeprefix(b"http://").partition(b"/")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(place.rpartition(b":")[2]))
        if method == b"CONNECT":
            await peer.say(self._established)
        else:
            kept = [line for line in lines if not line.startswith(b"Proxy-")]
            writer.write(b"\r\n".join([b" ".join((method, slash + path, version)), *kept]))
        up = asyncio.create_task(self._relay(peer.reader, writer, note=True))
        try:
            await self._relay(reader, peer.writer)
        finally:
            up.cancel()
            await asyncio.wait([up])
            writer.close()
            peer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, note: bool = False) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if note:
                    self.inside += data
                writer.write(data)
                await writer.drain()
        writer.close()
