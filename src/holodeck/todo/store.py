"""The todos in a database: SQLite in WAL mode, or PostgreSQL. Every call names the user whose rows it means.

Its calls block on purpose, and are safe from several threads and processes. It knows nothing of MCP, arguments or time
zones. A failing database becomes one `TodoError` without any SQL in it.
"""

import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import Connection, Dialect, Engine, Text, create_engine, event, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import DateTime, TypeDecorator
from sqlmodel import Field, Session, SQLModel, col, func, select

from holodeck.todo.database import BUSY_TIMEOUT_S
from holodeck.todo.todo_values import TodoAttributes, TodoError, TodoFilter

SCHEMA_VERSION = 1

# Omits characters that look or sound alike (0 o 1 i l). The first one is a letter, so that no id looks like a
# number to a model that writes JSON.
_LETTERS = "abcdefghjkmnpqrstuvwxyz"
_ALPHABET = _LETTERS + "23456789"


def new_id() -> str:
    return secrets.choice(_LETTERS) + "".join(secrets.choice(_ALPHABET) for _ in range(7))


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC, even on SQLite, which stores no offset."""

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


logger = logging.getLogger(__name__)

_ID_ATTEMPTS = 5
_SCHEMA_LOCK = 0x70D0  # any number that all processes that create these tables share


class TodoStore:
    def __init__(self, url: str) -> None:
        """Opens the database at an engine URL and creates missing tables."""
        self._reading = _engine(url)
        self._writing = self._reading.execution_options(begin="BEGIN IMMEDIATE")
        try:
            with self._transaction(self._writing) as session:
                _prepare_schema(session)
        except TodoError:
            self.close()
            raise

    def close(self) -> None:
        self._reading.dispose()

    def add(self, user_id: str, attributes: TodoAttributes, now: datetime) -> TodoRow:
        for _ in range(_ID_ATTEMPTS - 1):
            try:
                return self._insert(user_id, attributes, now)
            except IntegrityError:
                logger.debug("the new id was taken; trying another")
        return self._insert(user_id, attributes, now)

    def _insert(self, user_id: str, attributes: TodoAttributes, now: datetime) -> TodoRow:
        row = TodoRow(user_id=user_id, created_at=now, updated_at=now, **attributes)
        row.fold()
        with self._transaction(self._writing) as session:
            session.add(row)
            session.flush()
            return row

    def find(self, user_id: str, wanted: TodoFilter, limit: int) -> tuple[int, list[TodoRow]]:
        """Returns how many todos match, and the first of them: by due date, those without one last, then by age."""
        conditions = list(_conditions(user_id, wanted))
        order = (col(TodoRow.due_date).is_(None), col(TodoRow.due_date), col(TodoRow.created_at), col(TodoRow.id))
        with self._transaction(self._reading) as session:
            count = session.exec(select(func.count()).select_from(TodoRow).where(*conditions)).one()
            rows = session.exec(select(TodoRow).where(*conditions).order_by(*order).limit(limit))
            return count, list(rows)

    def update(self, user_id: str, todo_id: str, attributes: TodoAttributes, now: datetime) -> TodoRow:
        with self._transaction(self._writing) as session:
            row = _own_row(session, user_id, todo_id)
            for name, value in attributes.items():
                setattr(row, name, value)
            row.updated_at = now
            row.fold()
            session.flush()
            return row

    def delete(self, user_id: str, todo_id: str) -> TodoRow:
        with self._transaction(self._writing) as session:
            row = _own_row(session, user_id, todo_id)
            session.delete(row)
            return row

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Session]:
        try:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                yield session
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            logger.error("the todo database failed: %s", type(cause).__name__)  # noqa: TRY400, a traceback would show rows
            raise TodoError(
                "The todo database cannot be used right now and nothing was changed. Try again later."
            ) from error


def _own_row(session: Session, user_id: str, todo_id: str) -> TodoRow:
    # Locked, since `searchable` is built from columns that another process may be changing. SQLite ignores the lock and
    # needs none: the transaction began as the only writer.
    row = session.get(TodoRow, (user_id, todo_id), with_for_update=True)
    if row is None:
        raise TodoError(f"There is no todo with the id {todo_id!r}. List the todos to see their ids.")
    return row


def _conditions(user_id: str, wanted: TodoFilter) -> Iterator[Any]:
    yield col(TodoRow.user_id) == user_id
    if wanted.status:
        yield col(TodoRow.status) == wanted.status
    if wanted.priority:
        yield col(TodoRow.priority) == wanted.priority
    if wanted.due_from:
        yield col(TodoRow.due_date) >= wanted.due_from
    if wanted.due_before:
        yield col(TodoRow.due_date) < wanted.due_before
    for tag in wanted.tags:
        yield col(TodoRow.tags).contains(json.dumps(tag), autoescape=True)
    if wanted.search:
        yield col(TodoRow.searchable).contains(wanted.search.casefold(), autoescape=True)


def _prepare_schema(session: Session) -> None:
    connection = session.connection()
    if connection.dialect.name == "postgresql":  # two servers that start together would both create the tables
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
    SQLModel.metadata.create_all(connection, tables=[SQLModel.metadata.tables[n] for n in ("todo", "todo_schema")])
    schema = session.get(SchemaRow, 1)
    if schema is None:
        session.add(SchemaRow(version=SCHEMA_VERSION))
    elif schema.version > SCHEMA_VERSION:
        raise TodoError("The todo database was written by a newer holodeck-todo. Update this one.")


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite:"):
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _use_wal)
    event.listen(engine, "begin", _begin)
    return engine


def _use_wal(connection: Any, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # sqlite3 would delay BEGIN to the first write; `_begin` sends it
    connection.execute("PRAGMA journal_mode = WAL")


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later fails with SQLITE_BUSY when another process wrote in between, and
    # no timeout helps. Writers therefore queue at the start: https://www.sqlite.org/lang_transaction.html
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
