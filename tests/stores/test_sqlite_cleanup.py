"""What a store in a file deletes, and when: records, copies and keys of old runs, expired sessions, all of a user."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from benchmarks.stores import answered_ms
from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.owner import Owner
from holodeck.core.request import RunRequest
from holodeck.errors import SessionDeleted, StoreRefused, StoreUnavailable
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord
from holodeck.sessions.values import KeptValue
from holodeck.stores import stored_conversation
from holodeck.stores.migrations import APPLICATION_ID, MIGRATIONS
from tests.stores.stored_sessions import say


async def test_records_of_runs_are_removed_after_a_day_and_copies_of_logs_before(opened):
    store = await opened()
    now = [1_000_000.0]
    store.runs.clock = lambda: now[0]
    record = RunRecord(run_id="r", owner=ME, session_id="s")
    await store.runs.begin(record)
    await store.runs.end(record, RunFinished("r", "s"))
    insert = "INSERT INTO pieces SELECT key, 0, x'5b5d' FROM runs"
    await store.file.write(lambda connection: connection.execute(insert).rowcount)
    left = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM pieces)"
    for seconds, expected in ((60, (1, 1)), (100, (1, 0)), (80_000, (1, 0)), (10_000, (0, 0))):
        now[0] += seconds
        await store.runs.remove_old()
        assert await store.file.read(lambda connection: connection.execute(left).fetchone()) == expected


async def test_an_outage_that_prevents_the_clean_up_is_a_line_without_a_traceback(opened, monkeypatch, caplog):
    failed = asyncio.Event()

    async def unavailable():
        failed.set()
        raise StoreUnavailable("The disk does not answer.")

    monkeypatch.setattr(stored_conversation, "CLEAN_SECONDS", 0.001)
    monkeypatch.setattr(await opened(), "clean", unavailable)
    await failed.wait()
    record = next(each for each in caplog.records if "could not be removed" in each.message)
    assert record.message == "old sessions could not be removed: The disk does not answer."
    assert record.exc_info is None


async def test_all_of_a_user_is_deleted_whatever_state_it_is_in(opened):
    """Also a session that cannot be read, one that has expired, runs without a session, and addresses to call."""
    store = await opened()
    other = Owner("default", "other")
    for owner, name in ((ME, "alive"), (ME, "broken"), (ME, "expired"), (other, "alive")):
        await (await store.open(name, owner=owner, create=True)).commit([UserMessage(content="hi")])
        record = RunRecord(run_id=name, owner=owner, session_id=name)
        await store.runs.begin(record)
        await store.runs.end(record, RunFinished(name, name))
        await store.values.put(KeptValue(kind="push", name=name), owner=owner)
    change = "UPDATE sessions SET broken = iif(id = 'broken', 'why', NULL), used = iif(id = 'expired', 0, used)"
    await store.file.write(lambda connection: connection.execute(change).rowcount)
    await store.runs.begin(RunRecord(run_id="alone", owner=ME, session_id="none"))
    assert await store.delete_all(owner=ME) == 3
    for table in ("sessions", "runs", "kept_values"):
        count = f"SELECT count(*), max(user) FROM {table}"
        assert await store.file.read(lambda connection, sql=count: connection.execute(sql).fetchone()) == (1, "other")
    assert await store.delete_all(owner=ME) == 0


async def test_all_old_runs_and_copies_are_removed_at_once(opened, monkeypatch):
    """A busy server ends more runs between two clean-ups than one batch has."""
    monkeypatch.setattr("holodeck.stores.sqlite_runs.BATCH", 2)
    store, now = await opened(), [1_000_000.0]
    store.runs.clock = lambda: now[0]
    for number in range(5):
        record = RunRecord(run_id=str(number), owner=ME, session_id="s", wire="w", key=str(number))
        await store.runs.begin(record)
        await store.runs.end(record, RunFinished(record.run_id, "s"))
    insert = "INSERT INTO pieces SELECT key, 0, x'5b5d' FROM runs"
    await store.file.write(lambda connection: connection.execute(insert).rowcount)
    left = "SELECT (SELECT count(*) FROM pieces), (SELECT count(*) FROM runs)"
    store.runs._kept_seconds = 200_000
    for seconds, expected in ((1_000, (0, 5)), (90_000, (0, 5)), (200_000, (0, 0))):
        now[0] += seconds
        await store.runs.remove_old()
        assert await store.file.read(lambda connection: connection.execute(left).fetchone()) == expected


@pytest.mark.req("C08")
async def test_a_key_is_free_a_day_after_its_run(opened):
    """The record of the run is kept longer."""
    key = "k"
    store, now = await opened(), [1_000_000.0]
    store.runs.clock, store.runs._kept_seconds = lambda: now[0], 1e9
    first = RunRecord(run_id="r", owner=ME, session_id="s", wire="w", key=key)
    await store.runs.begin(first)
    now[0] += 100_000
    assert (await store.runs.by_key("w", key, owner=ME)).run_id == "r", "it has not ended"
    await store.runs.end(first, RunFinished("r", "s"))
    store.runs.release(first)
    second = RunRecord(run_id="r2", owner=ME, session_id="s", wire="w", key=key)
    now[0] += 86_000
    assert (await store.runs.by_key("w", key, owner=ME)).run_id == "r"
    with pytest.raises(StoreRefused):
        await store.runs.begin(second)
    now[0] += 1_000
    assert await store.runs.by_key("w", key, owner=ME) is None
    await store.runs.begin(second)
    assert (await store.runs.by_key("w", key, owner=ME)).run_id == "r2"
    assert {each.run_id for each in await store.runs.runs_of(owner=ME)} == {"r", "r2"}


@pytest.mark.req("C08")
async def test_the_id_of_a_run_is_taken_as_long_as_its_record_is_kept(opened):
    """AG-UI clients choose the ids. A later run with the same id would get the row of the first, and so its session."""
    store, now = await opened(), [1_000_000.0]
    store.runs.clock, store.runs._kept_seconds = lambda: now[0], 1e9
    first = RunRecord(run_id="r", owner=ME, session_id="s", wire="w", key="r", fingerprint=b"f")
    await store.runs.begin(first)
    await store.runs.end(first, RunFinished("r", "s"))
    store.runs.release(first)
    now[0] += 100_000
    found = await store.runs.by_key("w", "r", owner=ME)
    assert (found.session_id, found.fingerprint) == ("s", b"f")


async def in_indexes(store):
    """How many sessions and runs the indexes have that are filled later."""
    both = "SELECT (SELECT count(noted) FROM sessions), (SELECT count(noted) FROM runs)"
    return await store.file.read(lambda connection: connection.execute(both).fetchone())


async def test_rows_that_no_index_has_yet_are_counted_listed_and_deleted(opened):
    store, log = await opened(), RunLog()
    await answered_ms(store, store.runs)
    assert await in_indexes(store) == (0, 0)
    await store.clean()
    assert await in_indexes(store) == (1, 1)
    record = RunRecord(run_id="r", owner=ME, session_id="s")
    await store.runs.begin(record)
    await say(store, "hello")
    for expected in ((1, 1), (2, 2)):
        assert await in_indexes(store) == expected
        assert [each.run_id for each in await store.runs.runs_of(owner=ME, session_id="s")] == ["r"]
        assert await store.count() == 2
        if expected == (1, 1):
            store.runs.follow(record, log)
            log.append(RunFinished("r", "s"))
            await store.runs._copier.close()  # which writes the copy of the log, and the indexes with it
    await store.runs.begin(RunRecord(run_id="r2", owner=ME, session_id="s"))
    await store.delete("s", owner=ME)
    assert await store.runs.runs_of(owner=ME, session_id="s") == []
    assert [await store.runs.find(name, owner=ME) for name in ("r", "r2")] == [None, None]


async def test_a_session_that_was_used_after_it_was_noted_is_kept(opened):
    store = await opened()
    for name in ("old", "used"):
        await say(store, "hello", name)
    await store.clean()
    before = store.now() - store._ttl - 1
    await store.file.execute("UPDATE sessions SET noted = ?1, used = iif(id = 'old', ?1, used)", (before,))
    assert (await store.cleanup_expired(), await store.count()) == (1, 1)
    (noted, used) = await store.file.read(
        lambda connection: connection.execute("SELECT noted, used FROM sessions").fetchone()
    )
    assert noted == used > before


async def test_the_clean_up_adds_the_rows_of_an_older_file_to_the_indexes(opened, path):
    path.parent.mkdir()
    old = sqlite3.connect(path)
    before = [statement for script in MIGRATIONS[:10] for statement in script.split(";\n") if statement.strip()]
    for statement in [*before, "PRAGMA user_version=10", f"PRAGMA application_id={APPLICATION_ID}"]:
        old.execute(statement)
    run = "INSERT INTO runs (agent, tenant, user, id, session, wire, repeat_key, state, accepted, ended, v, request)"
    names = "'tester', 'default', 'anonymous'"
    old.execute(f"{run} VALUES ({names}, 'r1', 's', 'w', 'r1', 'finished', 9e9, 9e9, 1, x'7b7d')")
    old.execute(f"{run} VALUES ({names}, 'r2', 's', 'w', 'k2', 'finished', 9e9, 9e9, 1, x'7b7d')")
    old.execute(f"{run} VALUES ({names}, 'r3', 's', 'w', 'k3', 'finished', 1, 1, 1, x'7b7d')")
    session = "INSERT INTO sessions (agent, tenant, user, id, created, used, v)"
    old.execute(f"{session} VALUES ({names}, 's', 1, 9e9, 1), ({names}, 'expired', 1, 1, 1)")
    old.commit()
    old.close()
    store = await opened()
    assert await in_indexes(store) == (0, 0)
    assert [(await store.runs.by_key("w", key, owner=ME)).run_id for key in ("r1", "k2")] == ["r1", "r2"]
    await store.clean()
    assert await in_indexes(store) == (1, 2)
    assert [each.run_id for each in await store.runs.runs_of(owner=ME, session_id="s")] == ["r2", "r1"]


async def test_the_clean_up_reads_no_rows_that_it_keeps(opened):
    """The thread that stores for all runs must not read a million rows each minute."""
    store, steps = await opened(), []
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
    name, now = "'tester', 'default', 'anonymous', 's' || i", store.now()
    runs = f"INSERT INTO runs (agent, tenant, user, id, session, wire, repeat_key, state, accepted, ended, v, request) {numbers}"
    sessions = f"INSERT INTO sessions (agent, tenant, user, id, created, used, v) {numbers}"
    add = f"{runs} SELECT {name}, 's', 'w', 'k' || i, 'finished', ?1, ?1, 1, x'7b7d' FROM n"
    await store.file.execute(add, (now,))
    await store.file.execute(f"{sessions} SELECT {name}, ?1, ?1, 1 FROM n", (now,))
    await store.clean()  # it reads new rows once
    await store.file.read(lambda connection: connection.set_progress_handler(lambda: steps.append(1), 100))
    await store.clean()
    await store.file.read(lambda connection: connection.set_progress_handler(None, 0))
    assert len(steps) < 30, "100 instructions of SQLite each: less than one for each row"
    assert await store.count() == 3000


async def test_expired_sessions_are_removed_in_batches(opened):
    store = await opened()
    rows = [("tester", "default", "anonymous", f"s{n}") for n in range(1_200)]
    insert = "INSERT INTO sessions (agent, tenant, user, id, created, used, v) VALUES (?, ?, ?, ?, 0, 0, 1)"
    await store.file.write(lambda connection: connection.executemany(insert, rows).rowcount)
    await say(store, "alive")
    assert await store.cleanup_expired() == 1_200
    assert await store.count() == 1


async def test_a_batch_is_bounded_by_the_bytes_of_its_sessions_and_the_pieces_of_its_runs(opened, monkeypatch):
    """A run that commits waits for one batch."""
    monkeypatch.setattr("holodeck.stores.sqlite_sessions.BATCH_BYTES", 1000)
    monkeypatch.setattr("holodeck.stores.sqlite_runs.BATCH", 5)
    store = await opened()
    rows = [("tester", "default", "anonymous", f"s{n}") for n in range(10)]
    insert = "INSERT INTO sessions (agent, tenant, user, id, created, used, v, size) VALUES (?, ?, ?, ?, 0, 0, 1, 400)"
    await store.file.write(lambda connection: connection.executemany(insert, rows).rowcount)
    await store.runs.begin(RunRecord(run_id="r", owner=ME, session_id="s"))
    await store.runs.end(RunRecord(run_id="r", owner=ME, session_id="s"), RunFinished("r", "s"))
    pieces = "INSERT INTO pieces SELECT key, ?, x'5b5d' FROM runs"
    await store.file.write(lambda connection: connection.executemany(pieces, [(n,) for n in range(12)]).rowcount)
    assert await store._remove_batch() == (3, True)
    assert await store.cleanup_expired() == 7
    clock, left = store.runs.clock, []
    store.runs.clock = lambda: clock() + 1000
    count = "SELECT count(*) FROM pieces"
    for _ in range(3):
        await store.runs._remove_batch()
        left += await store.file.read(lambda connection: connection.execute(count).fetchone())
    assert left == [7, 2, 0]


@pytest.mark.req("SRV-11")
async def test_deleting_a_session_deletes_what_its_runs_were_asked_and_answered(opened):
    store, log = await opened(), RunLog()
    for name in ("kept", "gone"):
        record = RunRecord(run_id=name, owner=ME, session_id=name, request=RunRequest(state="a secret"))
        store.runs.register(record)
        store.runs.follow(record, log)
        conversation = await store.open(name, owner=ME, run_id=name, create=True)
        await conversation.commit([UserMessage(content="hi")])
        await store.file.write(lambda connection, run=name: connection.execute(PIECE, (run,)).rowcount)
    await store.delete("gone", owner=ME)
    left = "SELECT (SELECT group_concat(id) FROM runs), (SELECT count(*) FROM pieces), (SELECT count(*) FROM steps)"
    assert await store.file.read(lambda connection: connection.execute(left).fetchone()) == ("kept", 1, 1)
    assert await store.runs.find("gone", owner=ME) is None
    with pytest.raises(SessionDeleted):
        await conversation.commit([AssistantMessage(content="late")], ending=RunFinished("gone", "gone"))
    assert await store.runs.find("gone", owner=ME) is None, "a run that goes on does not bring it back"


PIECE = "INSERT INTO pieces SELECT key, 0, x'5b5d' FROM runs WHERE id = ?"


async def test_what_was_deleted_gives_its_space_back_to_the_disk(opened, path):
    """sqlite3 steps a pragma without columns once, and this one frees a page with each step."""
    store = await opened()
    for number in range(4):
        await say(store, "x" * 1_000_000, f"s{number}")
    await store.delete_all(owner=ME)
    assert await free_pages(store) > 900
    await store.file.vacuum()
    assert await free_pages(store) == 0
    assert path.stat().st_size < 1_000_000


async def test_a_file_that_another_program_has_rewritten_keeps_its_free_pages(opened, path):
    """Without `auto_vacuum` the pragma does nothing: the loop ends all the same."""
    store = await opened()
    await say(store, "x" * 100_000)
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA auto_vacuum=NONE")
        connection.execute("VACUUM")
    store = await opened()
    await store.delete_all(owner=ME)
    await asyncio.wait_for(store.file.vacuum(), 50)
    assert await free_pages(store) > 0


async def test_the_clean_up_gives_the_space_of_what_it_removes_back(opened):
    store = await opened()
    for number in range(4):
        await say(store, "x" * 100_000, f"s{number}")
    await store.file.write(lambda connection: connection.execute("UPDATE sessions SET used = 0").rowcount)
    assert await store.cleanup_expired() == 4
    assert await free_pages(store) == 0


async def free_pages(store):
    return (await store.file.read(lambda connection: connection.execute("PRAGMA freelist_count").fetchone()))[0]
