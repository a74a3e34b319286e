"""A PostgreSQL database for the tests of the PostgreSQL store."""

from tests.postgres_fixtures import postgres_database, postgres_url

__all__ = ["postgres_database", "postgres_url"]
