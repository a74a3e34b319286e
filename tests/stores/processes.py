"""Stores on one file or database, opened as processes would."""

from contextlib import asynccontextmanager, closing

import psycopg
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


@asynccontextmanager
async def opening(make, place):
    """A function that opens stores as processes would: at this place, for an agent. Closes them at the end."""
    stores = []

    async def open_store(agent="tester", place=place):
        store = make(place, agent)
        stores.append(store)
        await store.start()
        return store

    yield open_store
    for store in stores:
        await store.close()


@pytest.fixture(params=[on_file, on_database], ids=["a file", "a database"])
async def opened(request, path):
    """Opens stores that processes share, on one file or database."""
    place = path if request.param is on_file else request.getfixturevalue("postgres_database")
    async with opening(request.param, place) as open_store:
        yield open_store


@pytest.fixture(name="opened")
async def opened_on_postgres(postgres_database):
    """Opens stores on one database."""
    async with opening(on_database, postgres_database) as open_store:
        yield open_store


def sql(url, statement, *values):
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []
