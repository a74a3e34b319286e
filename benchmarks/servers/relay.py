"""A relay in front of the fake model, with or without TLS. python relay.py MODEL_PORT [CERTIFICATE]; prints its port."""

import asyncio
import ssl
import sys
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """One connection; what arrives on it goes to `other`."""

    transport: asyncio.Transport
    other: "Side | None" = None

    def __init__(self) -> None:
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def join(self, other: "Side") -> None:
        self.other = other
        for data in self._early:
            other.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class Client(Side):
    """A connection of the server under test."""

    def __init__(self, model_port: int) -> None:
        super().__init__()
        self._model_port = model_port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        _, model = await asyncio.get_running_loop().create_connection(Side, "127.0.0.1", self._model_port)
        self.join(model)
        model.join(self)


async def main(model_port: int, certificate: str | None) -> None:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(model_port), "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
