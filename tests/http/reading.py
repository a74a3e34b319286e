"""Asking and reading to the end, as a test does it most of the time."""

import socket

from holodeck.http.client import Client
from holodeck.http.client_connection import Response
from holodeck.http.dial import Found
from tests.http.peers import Peers


async def read(client: Client, peers: Peers | str, body: bytes = b"{}") -> tuple[int, bytes]:
    """Status and body of an answer that was read to its end."""
    url = peers if isinstance(peers, str) else peers.url
    came = bytearray()
    async with client.post(url, body) as response:
        await response.read_into(lambda data: came.extend(data) is not None)  # never enough
        assert response.over
    return response.status, bytes(came)


async def ask(client: Client, peers: Peers | str) -> Response:
    """The head only; the connection is ended."""
    async with client.post(peers if isinstance(peers, str) else peers.url, b"{}") as response:
        return response


async def to_loopback(host: str, port: int) -> Found:
    """Every name is here."""
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]
