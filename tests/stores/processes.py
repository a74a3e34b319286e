"""Stores on one file or database, opened as processes would."""

import pytest

from holodeck.core.events import RunFinished
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_sessions import PostgresSessionStore
from tests.stores.stored_sessions import on_file

ENDING = RunFinished("r", "s")


def on_database(url, agent):
    database = PostgresDatabase(url)
    return PostgresSessionStore(database, agent, runs=PostgresRunStore(database, agent))


@pytest.fixture(params=["a file", "a database"])
async def opened(request, path):
    """Opens stores on one file or database, as processes would."""
    stores = []
    is_file = request.param == "a file"
    place = path if is_file else request.getfixturevalue("postgres_database")

    async def open_store(agent="tester"):
        store = (on_file if is_file else on_database)(place, agent)
        stores.append(store)
        await store.start()
        return store

    yield open_store
    for store in stores:
        await store.close()
