"""What `holodeck-todo` says when it cannot start: one line, exit code 2, and never a secret."""

import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holodeck.todo.__main__ import main
from holodeck.todo.database import DatabaseError, check_database, engine_url
from tests.ports import free_port

PASSWORD = "hunter2"


def refused(capsys, *options: str) -> str:
    assert main(options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("holodeck-todo: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.fixture
def closed_port() -> int:
    return free_port()


@pytest.mark.req("ORC-05")
@pytest.mark.parametrize(
    "url",
    [
        f"mysql://ann:{PASSWORD}@127.0.0.1/todo",
        f"ann:{PASSWORD}@127.0.0.1/todo",
        "sqlite://",
        "sqlite:///",
        "sqlite:///file?mode=ro",
        f"postgresql://ann:{PASSWORD}/x@127.0.0.1/todo",  # a password that is not percent-encoded
        f"postgresql://ann:x@{PASSWORD}@127.0.0.1:1/todo",
        f"postgresql://ann:x@127.0.0.1:{PASSWORD}/todo",
        f"postgresql://ann@127.0.0.1/todo?{PASSWORD}=1",
        "not a url",
        "",
    ],
)
def test_a_bad_url_is_refused_without_showing_it(capsys, monkeypatch, tmp_path, url):
    monkeypatch.setenv("HOLODECK_TODO_DB", str(tmp_path / "t.sqlite3"))  # an empty URL must not mean the default file
    assert PASSWORD not in refused(capsys, "--database-url", url)


def test_a_database_that_no_one_serves(capsys, closed_port):
    message = refused(capsys, "--database-url", f"postgresql://ann:{PASSWORD}@127.0.0.1:{closed_port}/todo")
    assert message == "holodeck-todo: cannot use the PostgreSQL database of the URL: nothing listens there\n"


def test_a_database_that_does_not_exist(capsys, postgres):
    message = refused(capsys, "--database-url", postgres.replace("/postgres?", "/nowhere?"))
    assert "the user, database or socket it names does not exist" in message


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseError, match=r"pip install 'holodeck-agents\[postgres\]'"):
        check_database("postgresql+psycopg://127.0.0.1/todo")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_means_psycopg_3(scheme):
    assert (
        engine_url(f"{scheme}://ann@host/todo?sslmode=require") == "postgresql+psycopg://ann@host/todo?sslmode=require"
    )


def test_a_file_that_is_no_database(capsys, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("These are notes, a good deal longer than the header of a database file.\n" * 20)
    assert refused(capsys, "--db", str(file)) == f"holodeck-todo: cannot write to {file}: file is not a database\n"


def test_a_folder_is_not_a_file(capsys, tmp_path):
    assert f"cannot open {tmp_path}: unable to open database file" in refused(capsys, "--db", str(tmp_path))


def test_a_folder_that_cannot_be_made(capsys, tmp_path):
    (tmp_path / "file").touch()
    file = tmp_path / "file" / "t.sqlite3"
    assert f"cannot open {file}: " in refused(capsys, "--db", str(file))


def test_a_file_that_cannot_be_written(tmp_path, capsys):
    # By SQLite's own switch, since a test may run as root, whom no file mode stops.
    file = tmp_path / "t.sqlite3"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (x)")
    header = bytearray(file.read_bytes())
    header[18] = 3  # "file format write version": above 2 means read-only, https://www.sqlite.org/fileformat.html
    file.write_bytes(header)
    assert f"cannot write to {file}: attempt to write a readonly database" in refused(capsys, "--db", str(file))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--timezone", "Berlin"], "timezone 'Berlin' is not an IANA name"),
        (["--http", "--host", "nowhere.invalid"], "cannot listen on nowhere.invalid port 8765"),
        (["--user", "  "], "user_id must be printable text"),
    ],
)
def test_an_option_that_cannot_be_met(capsys, tmp_path, options, text):
    assert text in refused(capsys, "--db", str(tmp_path / "t.sqlite3"), *options)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_port_that_is_none(capsys, port):
    with pytest.raises(SystemExit, match="2"):
        main(["--http", "--port", port])
    assert "argument --port: " in capsys.readouterr().err


def test_a_port_that_is_taken(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "in use" in refused(capsys, "--db", str(tmp_path / "t.sqlite3"), "--http", "--port", str(port))


def test_a_folder_for_the_file_is_made(tmp_path):
    file: Path = tmp_path / "a" / "b" / "t.sqlite3"
    check_database(engine_url(f"sqlite:///{file}"))
    assert file.parent.is_dir()
