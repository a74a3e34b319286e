"""Every session store, and a PostgreSQL database for those that need one."""

import pytest

from tests.contracts.session_stores import STORES, Clock
from tests.postgres_fixtures import postgres_database, postgres_url

__all__ = ["postgres_database", "postgres_url"]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=STORES)
def opened(request, clock, tmp_path):
    """Opens the store with settings of its own."""
    place = request.getfixturevalue("postgres_database") if request.param.startswith("postgres") else tmp_path
    return lambda **settings: STORES[request.param](place, clock, **settings)


@pytest.fixture
async def store(opened):
    async with opened() as made:
        yield made
