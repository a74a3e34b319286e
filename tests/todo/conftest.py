"""Both databases for the contract of the store, and a toolbox whose clock almost stands still."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import Session

from holodeck.todo.database import engine_url, file_url
from holodeck.todo.store import TodoStore
from holodeck.todo.toolbox import Toolbox
from tests.postgres_server import new_databases, postgres_server

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)  # a Wednesday

Call = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def new_postgres_database(postgres: str) -> Callable[[], str]:
    return new_databases(postgres)


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
    """Call a tool as one user (ann by default) at a fixed time, give or take a microsecond."""
    clock = (NOW + timedelta(microseconds=tick) for tick in itertools.count())
    toolbox = Toolbox(lambda: store, now=lambda: next(clock))

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return toolbox.call(name, {"user_id": "ann", **arguments})

    return call
