"""The clock of a store: it is never behind what is stored, unless that was stored under a wrong clock."""

import sqlite3
import time
from contextlib import closing

import pytest

from holodeck.core.events import RunFinished
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.sessions.values import KeptValue
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.stored_conversation import DAY_SECONDS, StoreClock
from tests.stores.stored_sessions import run, say

NOW = 1_800_000_000.0


@pytest.mark.req("D09")
@pytest.mark.parametrize(
    ("latest", "wall", "shown"),
    [
        (NOW - 3600, NOW, NOW),
        (NOW + DAY_SECONDS, NOW, NOW + DAY_SECONDS),  # the clock was set back
        (NOW + 365 * DAY_SECONDS, NOW, NOW),  # it was wrong when the session was stored
        (NOW, 0.0, NOW),  # it is not set yet
    ],
)
def test_it_begins_at_the_time_that_ends_no_session_early(latest, wall, shown):
    clock = StoreClock()
    clock.begin(latest, wall)
    assert clock() == pytest.approx(shown, abs=50)


@pytest.mark.req("D09")
async def test_a_start_with_a_clock_that_is_weeks_ahead_deletes_nothing(tmp_path, monkeypatch):
    path, wall = tmp_path / "sessions.db", time.time
    for ahead in (0, 40 * DAY_SECONDS, 0):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: wall() + ahead)
        file = SqliteFile(path, durable=False)
        store = SqliteSessionStore(file, "tester", runs=SqliteRunStore(file, "tester"))
        await store.start()
        if await store.get("a", owner=ME) is None and not ahead:
            await say(store, "hi", "a")
            await store.runs.end(run(session="a"), RunFinished("r", "a"))
            await store.values.put(KeptValue(kind="push", name="n", session_id="a"), owner=ME, seconds=DAY_SECONDS)
        await store.clean()
        await store.close()
    with closing(sqlite3.connect(path)) as connection:
        for table in ("steps", "runs", "kept_values"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(1,)], table


@pytest.mark.req("D09")
def test_expired_sessions_of_an_unused_store_are_deleted_after_an_hour(monkeypatch):
    """A quiet server that is restarted every day deletes them too."""
    clock, monotonic = StoreClock(), time.monotonic
    clock.begin(NOW - 40 * DAY_SECONDS, NOW)
    assert clock.is_doubted
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 3600)
    assert not clock.is_doubted


@pytest.mark.req("D09", "D05")
async def test_a_session_that_was_stored_under_a_wrong_clock_ends_no_other(tmp_path):
    path = tmp_path / "sessions.db"
    for _ in range(2):
        store = SqliteSessionStore(SqliteFile(path, durable=False), "tester")
        await store.start()
        await say(store, "hi", "a")
        await say(store, "hi", "b")
        await store.clean()
        assert [await store.get(each, owner=ME) is not None for each in "ab"] == [True, True]
        await store.close()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE sessions SET used = used + 3e9 WHERE id = 'b'")
    store = SqliteSessionStore(SqliteFile(path, durable=False), "tester")
    await store.start()
    await store.clean()
    assert await store.get("a", owner=ME) is not None
    await store.close()
