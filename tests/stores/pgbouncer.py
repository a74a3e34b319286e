"""A real pgbouncer in transaction mode, where the machine has one: `PGBOUNCER` names the program."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.ports import free_port

SETTINGS = """\
[databases]
* = host={host} port=5432 user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
server_round_robin = 1
"""
PATIENCE = 30.0


def program() -> str:
    """Empty if none is named."""
    return os.environ.get("PGBOUNCER", "")


@asynccontextmanager
async def pgbouncer(socket: Path, database: str = "postgres") -> AsyncIterator[str]:
    """Yields the address of a pgbouncer with two server connections, which are taken in turns."""
    port = free_port()
    with _running(socket, port):
        url = f"postgresql://postgres@127.0.0.1:{port}/{database}"
        async with asyncio.timeout(PATIENCE):
            await _answers(url)
        yield url


@contextmanager
def _running(socket: Path, port: int) -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="bouncer"))
    file = folder / "pgbouncer.ini"
    file.write_text(SETTINGS.format(host=socket.parent, port=port))
    folder.chmod(0o755)
    owner = socket.parent.stat().st_uid  # pgbouncer refuses to run as root, and only the owner may use the socket
    as_user: dict[str, Any] = {"user": owner, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [program(), "--quiet", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


async def _answers(url: str) -> None:
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(url)
        except psycopg.OperationalError:
            await asyncio.sleep(0.05)
        else:
            await connection.close()
            return
