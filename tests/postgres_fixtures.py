"""Fixtures: an empty PostgreSQL database for each test that wants one."""

from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest

from tests.postgres_server import postgres_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_url: str) -> str:
    """One database for all tests, emptied for each: to create one takes longer than a test."""
    with (
        closing(psycopg.connect(postgres_url, autocommit=True)) as connection,
        suppress(psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName),
    ):
        connection.execute("TRUNCATE holodeck.sessions, holodeck.runs, holodeck.replicas, holodeck.kept_values CASCADE")
    return postgres_url
