"""The tables: rows of todos, and the version of their schema.

Callers validate values before they get here.
"""

import json
import secrets
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import Dialect, Text
from sqlalchemy.types import DateTime, TypeDecorator
from sqlmodel import Field, SQLModel

SCHEMA_VERSION = 1

# Omits characters that look or sound alike (0 o 1 i l). The first one is a letter, so that no id looks like a
# number to a model that writes JSON.
_LETTERS = "abcdefghjkmnpqrstuvwxyz"
_ALPHABET = _LETTERS + "23456789"


def new_id() -> str:
    return secrets.choice(_LETTERS) + "".join(secrets.choice(_ALPHABET) for _ in range(7))


class UtcDateTime(TypeDecorator[datetime]):
    """An aware instant in UTC, also on SQLite, which stores no offset."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002, fixed by SQLAlchemy
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class TagList(TypeDecorator[list[str]]):
    """Tags as a JSON list in a text column: `LIKE '%"tag"%'` finds one in every database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:  # noqa: ARG002, fixed by SQLAlchemy
        return value if isinstance(value, str) else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> list[str]:  # noqa: ARG002, fixed by SQLAlchemy
        return cast("list[str]", json.loads(value or "[]"))


class TodoRow(SQLModel, table=True):
    """One todo of one user. The user is part of the key: an id means nothing without its owner. Instants are in UTC."""

    __tablename__ = "todo"

    user_id: str = Field(primary_key=True)
    id: str = Field(primary_key=True, default_factory=new_id)
    title: str
    description: str = ""
    due_date: datetime | None = Field(default=None, sa_type=UtcDateTime)
    priority: str = "medium"
    status: str = "pending"
    tags: list[str] = Field(default_factory=list, sa_type=TagList)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
    # Title, description and tags, case-folded: SQLite and PostgreSQL disagree about the case of letters beyond ASCII.
    searchable: str = ""

    def fold(self) -> None:
        self.searchable = "\n".join([self.title, self.description, *self.tags]).casefold()


class SchemaRow(SQLModel, table=True):
    """The row with the version of the schema, so that a later program can migrate the tables."""

    __tablename__ = "todo_schema"

    id: int = Field(default=1, primary_key=True)
    version: int
