"""A PostgreSQL database and a Valkey that the servers of these tests share."""

import tempfile
from pathlib import Path

import pytest

from tests.limits.valkey_server import valkey
from tests.postgres_fixtures import postgres_database, postgres_url

__all__ = ["postgres_database", "postgres_url"]


@pytest.fixture(scope="session")
def valkey_url():
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as address:
        yield address
