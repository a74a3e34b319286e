"""Finds the database that the options mean, and checks whether it can be used.

This module knows URLs and drivers, but neither rows nor SQLModel: the check at start must not import a database
toolkit. A database URL may contain a password, so no message here repeats any part of one.
"""

import importlib
import importlib.util
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

BUSY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5

# libpq's messages, and what they mean. Its own sentence is never shown: for a malformed URL it may quote a
# piece of the password as the name of a host.
_REASONS = {
    "password authentication failed": "user name or password is wrong",
    "no password supplied": "the URL has no password",
    "does not exist": "the user, database or socket it names does not exist",
    "No such file": "the user, database or socket it names does not exist",
    "Connection refused": "nothing listens there",
    "timeout": "it did not answer in time",
    "translate host name": "its host is unknown",
    "resolve host": "its host is unknown",
    "Name or service not known": "its host is unknown",
}


class DatabaseError(Exception):
    """The database cannot be used. The text is for the person who started the server."""


def default_file(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("HOLODECK_TODO_DB"):
        return Path(chosen)
    data_home = environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "holodeck" / "todo.sqlite3"


def file_url(file: Path) -> str:
    """Returns the URL of an SQLite file. It is absolute, so that it means the same file wherever it is opened."""
    return f"sqlite:///{file.expanduser().absolute()}"


def engine_url(url: str) -> str:
    """Returns the URL with the driver we use: `postgresql://` alone would mean psycopg 2."""
    scheme, colon, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        if "?" in rest:
            raise DatabaseError("an SQLite file is named without options: no '?' in its name or URL")
        return url
    if scheme in {"postgres", "postgresql", "postgresql+psycopg"} and colon:
        return f"postgresql+psycopg://{rest}"
    raise DatabaseError("the database URL must look like sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME")


def check_database(url: str) -> None:
    """Raises DatabaseError unless the database at this engine URL can be opened and written to."""
    if importlib.util.find_spec("sqlmodel") is None:
        raise DatabaseError("the todo server needs the extra demo: pip install 'holodeck-agents[demo]'")
    if url.startswith("sqlite:"):
        _check_sqlite(Path(url.removeprefix("sqlite:///")))
    else:
        _check_postgres(url.replace("postgresql+psycopg://", "postgresql://", 1))


def _check_sqlite(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():  # SQLite would let everyone read it; its other files get the same mode
            file.touch(mode=0o600)
        connection = sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise DatabaseError(f"cannot open {file}: {_short(error)}") from error
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise DatabaseError(f"cannot write to {file}: {_short(error)}") from error
    finally:
        connection.close()


def _short(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _check_postgres(url: str) -> None:
    psycopg = _psycopg()
    try:
        _ = urlsplit(url).port  # raises for an invalid port: libpq would quote it, and it may be a password
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S).close()
    except ValueError:
        raise DatabaseError("the database URL is not well-formed; percent-encode the password in it") from None
    except psycopg.Error as error:
        message = str(error)
        reason = next((reason for phrase, reason in _REASONS.items() if phrase in message), "the connection failed")
        raise DatabaseError(f"cannot use the PostgreSQL database of the URL: {reason}") from None


def _psycopg() -> Any:
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise DatabaseError("PostgreSQL needs its driver: pip install 'holodeck-agents[postgres]'") from None
