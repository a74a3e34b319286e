"""A PostgreSQL database, and stores on one SQLite file."""

import pytest

from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.postgres_fixtures import postgres_database, postgres_url

__all__ = ["postgres_database", "postgres_url"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".holodeck" / "sessions.db"


@pytest.fixture
async def opened(path):
    """Opens stores on one file, as processes would."""
    stores = []

    async def open_store(agent="tester", *, exclusive=False, **settings):
        file = SqliteFile(path, exclusive=exclusive)
        store = SqliteSessionStore(file, agent, runs=SqliteRunStore(file, agent), **settings)
        await store.start()
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        await store.close()
