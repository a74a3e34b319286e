"""A PostgreSQL database that the servers of these tests share."""

from tests.postgres_fixtures import postgres_database, postgres_url

__all__ = ["postgres_database", "postgres_url"]
