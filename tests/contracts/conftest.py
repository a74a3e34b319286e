"""A PostgreSQL database for the contract of session stores."""

from tests.postgres_fixtures import postgres_database, postgres_url

__all__ = ["postgres_database", "postgres_url"]
