"""Plain requests to the server, for what no client asks."""

import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

SECONDS = 20.0


def request(address: str, *, body: Any = None, headers: Mapping[str, str] | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address, data, {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(asked, timeout=SECONDS) as response:
        return bytes(response.read())


def get(address: str) -> dict[str, Any]:
    return dict(json.loads(request(address)))


def until(ask: Callable[[], dict[str, Any]], is_enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Asks until the answer is enough: the server does not announce that a client has left."""
    deadline = time.monotonic() + SECONDS
    while not is_enough(received := ask()):
        assert time.monotonic() < deadline, received
        time.sleep(0.02)
    return received
