"""What `holodeck check` says about the file of a server, and what a server says that cannot open it."""

import os
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest

from holodeck.errors import StartError
from holodeck.stores.sqlite_file import check_usable, connect, migrate, unusable
from tests.stores.stored_sessions import say, texts


def another_database(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theses (title)")


def newer_file(path):
    with closing(connect(path)) as connection:
        migrate(connection)
        connection.execute("PRAGMA user_version=9999")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.write_bytes(b"my thesis" * 1000), "file is not a database; set another sessions.path"),
        (another_database, "is a database of another application; set another sessions.path"),
        (newer_file, "was written by a newer version of HoloDeck"),
        (lambda path: path.mkdir(), "it is a folder; remove it, or set another sessions.path"),  # Docker makes one
    ],
)
async def test_a_file_that_no_server_could_open_is_reported_as_the_server_does(opened, path, make, text):
    path.parent.mkdir()
    make(path)
    with pytest.raises(StartError, match=text) as checked:
        check_usable(path)
    with pytest.raises(StartError) as refused:
        await opened()
    assert checked.value.message == refused.value.message


async def test_a_file_in_place_of_the_folder_is_named(opened, path):
    path.parent.touch()
    with pytest.raises(StartError, match=r"\.holodeck is not a folder in which this process can write"):
        check_usable(path)
    with pytest.raises(StartError, match=r"cannot be used: .*\.holodeck is not a folder; let this process write"):
        await opened()


def test_a_new_file_is_not_created(path):
    check_usable(path)
    assert not path.parent.exists()


async def test_a_file_that_a_server_uses_is_usable(opened, path):
    store = await opened(exclusive=True)
    await say(store, "hello")
    check_usable(path)
    await say(store, "again")
    assert await texts(store) == ["hello", "again"]


def test_a_folder_that_cannot_be_written_is_named(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_arguments: False)
    with pytest.raises(StartError, match="is not a folder in which this process can write; let this process write"):
        check_usable(path)


def test_a_full_disk_is_named_before_the_first_start(path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=4096))
    with pytest.raises(StartError, match="cannot be used: the disk is full; free some of it"):
        check_usable(path)


def test_a_disk_that_fills_up_while_the_tables_are_created_is_named(path):
    """SQLite ends the transaction itself; a second ROLLBACK would hide the reason."""
    path.parent.mkdir()
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA max_page_count=3")
        with pytest.raises(sqlite3.OperationalError) as full:
            migrate(connection)
    assert unusable(path, full.value).message.endswith(
        "the disk is full; free some of it, or set another sessions.path"
    )
