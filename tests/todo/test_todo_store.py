"""What only the database can show: many writers, a schema from the future, a database that goes away."""

import re
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

import psycopg
import pytest
from sqlmodel import Session

from holodeck.todo import store as todo_store
from holodeck.todo.database import check_database, engine_url, file_url
from holodeck.todo.store import SchemaRow, TodoStore, new_id
from holodeck.todo.todo_values import TodoError, TodoFilter

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
EVERYTHING = TodoFilter()

WRITER = """
import sys
from datetime import datetime, UTC
from holodeck.todo.store import TodoStore

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.stdin.readline()  # all writers start together
store = TodoStore(url)
for number in range(count):
    todo = store.add("ann", {"title": f"{name} {number}"}, datetime.now(UTC))
    store.update("ann", todo.id, {"tags": [name]}, datetime.now(UTC))
"""


def test_an_id_can_be_spoken_and_is_never_a_number():
    assert all(re.fullmatch("[a-hjkmnp-z][a-hjkmnp-z2-9]{7}", new_id()) for _ in range(200))


@pytest.mark.req("ORC-05")
def test_two_processes_that_write_at_once_lose_nothing(database_url):
    """They also create the database together: both find it empty."""
    count = 40
    command = [sys.executable, "-c", WRITER, engine_url(database_url)]
    writers = [
        subprocess.Popen([*command, name, str(count)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in ("left", "right")
    ]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    complaints = [writer.communicate(timeout=30)[1] for writer in writers]
    assert complaints == ["", ""]
    with closing(TodoStore(engine_url(database_url))) as store:
        total, todos = store.find("ann", EVERYTHING, 1000)
    assert total == 2 * count
    assert Counter(tuple(todo.tags) for todo in todos) == {("left",): count, ("right",): count}
    assert len({todo.title for todo in todos}) == 2 * count


def test_threads_that_write_at_once_lose_nothing(store):
    with ThreadPoolExecutor(8) as threads:
        todos = list(threads.map(lambda n: store.add("ann", {"title": str(n)}, NOW), range(40)))
    assert len({todo.id for todo in todos}) == 40
    assert store.find("ann", EVERYTHING, 5)[0] == 40


def test_two_updates_of_one_todo_are_both_found_by_a_search(store):
    todo = store.add("ann", {"title": "old"}, NOW)
    changes = [{"title": "title"}, {"description": "words"}, {"tags": ["label"]}]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda change: store.update("ann", todo.id, change, NOW), changes))
    for found_by in ("title", "words", "label"):
        assert store.find("ann", TodoFilter(search=found_by), 5)[0] == 1


def test_only_the_owner_can_read_a_new_file(tmp_path):
    file = tmp_path / "todo.sqlite3"
    check_database(file_url(file))
    with closing(TodoStore(file_url(file))) as store:
        store.add("ann", {"title": "private"}, NOW)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {f"todo.sqlite3{end}": 0o600 for end in ("", "-wal", "-shm")}


def test_the_sqlite_file_is_in_wal_mode_and_outlives_the_store(tmp_path):
    file = tmp_path / "todo.sqlite3"
    with closing(TodoStore(file_url(file))) as first:
        kept = first.add("ann", {"title": "kept", "due_date": NOW, "tags": ["a"]}, NOW)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with closing(TodoStore(file_url(file))) as second:
        assert second.find("ann", EVERYTHING, 5) == (1, [kept])


def test_a_taken_id_is_replaced_by_another(store, monkeypatch):
    characters = iter("a" * 8 + "a" * 8 + "b" * 8)
    monkeypatch.setattr(todo_store.secrets, "choice", lambda _: next(characters))
    assert [store.add("ann", {"title": "a"}, NOW).id for _ in range(2)] == ["aaaaaaaa", "bbbbbbbb"]


def test_two_users_may_have_the_same_id(store):
    todo = store.add("ann", {"title": "hers"}, NOW)
    with Session(store._writing) as session, session.begin():
        session.add(todo_store.TodoRow(user_id="bob", id=todo.id, title="his", created_at=NOW, updated_at=NOW))
    assert store.delete("bob", todo.id).title == "his"
    assert store.find("ann", EVERYTHING, 5) == (1, [todo])


def test_a_schema_from_the_future_is_refused(database_url):
    with closing(TodoStore(engine_url(database_url))) as store, Session(store._writing) as session, session.begin():
        session.get(SchemaRow, 1).version = todo_store.SCHEMA_VERSION + 1
    with pytest.raises(TodoError, match="written by a newer holodeck-todo"):
        TodoStore(engine_url(database_url))


def test_the_schema_has_a_version(store):
    with Session(store._reading) as session:
        assert session.get(SchemaRow, 1).version == todo_store.SCHEMA_VERSION


def test_a_broken_database_answers_without_sql(tmp_path, caplog):
    file = tmp_path / "todo.sqlite3"
    with closing(TodoStore(file_url(file))) as store:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("DROP TABLE todo")
        with pytest.raises(TodoError) as caught:
            store.add("ann", {"title": "confidential"}, NOW)
    assert str(caught.value) == "The todo database cannot be used right now and nothing was changed. Try again later."
    assert "confidential" not in caplog.text
    assert "OperationalError" in caplog.text


def test_a_lost_connection_is_replaced(new_postgres_database):
    url = new_postgres_database()
    with closing(TodoStore(engine_url(url))) as store:
        todo = store.add("ann", {"title": "a"}, NOW)
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert store.find("ann", EVERYTHING, 5) == (1, [todo])
