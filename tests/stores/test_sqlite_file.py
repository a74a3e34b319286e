"""The file of a store: who may open it, versions, what a write costs, jobs that fail, disks that fill up."""

import asyncio
import os
import shutil
import sqlite3
import threading
from contextlib import closing

import pytest

from benchmarks.stores import FRAME_HEADER, PAGE, PAGES, answered_ms
from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.errors import SessionBroken, StartError, StorageFull, StoreRefused, StoreUnavailable
from holodeck.runs.port import RunRecord
from holodeck.sessions.values import KeptValue
from holodeck.stores import sqlite_file
from holodeck.stores.migrations import APPLICATION_ID, MIGRATIONS
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.stores.stored_sessions import say, texts


async def test_the_file_is_for_its_owner_alone(opened, path):
    await say(await opened(), "a secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_second_server_on_one_file_is_refused_and_a_chat_is_not(opened):
    server = await opened(exclusive=True)
    with pytest.raises(StartError, match="in use by another server"):
        await opened(exclusive=True)
    chat = await opened()
    await say(server, "one")
    await say(chat, "two")
    assert await texts(server) == ["one", "two"]
    await server.close()
    await opened(exclusive=True)


async def test_a_second_server_is_refused_that_names_the_file_by_a_link(opened, path, tmp_path):
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    await opened(exclusive=True)
    with pytest.raises(StartError, match="in use by another server"):
        await SqliteFile(link, exclusive=True).open()


async def test_a_server_whose_lock_was_deleted_stores_nothing_beside_the_next_one(opened, path):
    """An operator takes it for one that was left behind. Two servers would end each other's runs."""
    server = await opened(exclusive=True)
    path.with_name(f"{path.name}.lock").unlink()
    with pytest.raises(StoreUnavailable, match=r"sessions\.db\.lock was deleted or replaced"):
        await say(server, "one")
    await say(await opened(exclusive=True), "two")
    with pytest.raises(StoreUnavailable, match="put it back, or restart"):
        await say(server, "three")


@pytest.mark.req("DUR-02")
async def test_nothing_is_stored_while_the_file_is_deleted_or_replaced(opened, path):
    store, away = await opened(), path.with_name("away.db")
    await say(store, "before")
    path.rename(away)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await say(store, "to a file without a name")
        with pytest.raises(StoreUnavailable, match="put it back, or restart"):
            await store.count()
        path.write_bytes(b"")  # another file
    away.replace(path)
    await say(store, "after")
    assert await texts(store) == ["before", "after"]


def age(folder):
    """As if nothing had changed in it for a while."""
    os.utime(folder, (1e9, 1e9))


@pytest.mark.req("DUR-02")
@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("deleted", [["-wal"], ["-shm"], ["-wal", "-shm"]])
async def test_nothing_is_lost_and_no_more_is_stored_when_the_log_beside_the_file_is_deleted(
    opened, path, tmp_path, deleted, is_old
):
    """After a kill, the next process finds only the files that have a name."""
    store, killed = await opened(), tmp_path / "killed"
    if is_old:
        age(path.parent)
    await say(store, "before")
    for suffix in deleted:
        path.with_name(f"{path.name}{suffix}").unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await say(store, "to a log without a name")
    shutil.copytree(path.parent, killed)
    async with asyncio.timeout(20):
        next_one = SqliteSessionStore(SqliteFile(killed / path.name), "tester")
        await next_one.start()
    assert await texts(next_one) == ["before"]
    await next_one.close()


@pytest.mark.req("DUR-02")
async def test_the_files_are_not_looked_at_while_their_folder_has_not_changed(opened, path, monkeypatch):
    """Since Linux 6.13, looking at the times of the log makes its next flush slower by a quarter."""
    store, looked_at, stat = await opened(), [], os.stat
    monkeypatch.setattr(os, "stat", lambda each, **options: looked_at.append(str(each)) or stat(each, **options))
    age(path.parent)
    for text in ("checked", "not checked again"):
        looked_at.clear()
        await say(store, text)
    assert str(path.parent) in looked_at
    assert not [each for each in looked_at if each.startswith(str(path))]
    (path.parent / "another file").touch()
    await say(store, "checked again")
    assert f"{path}-wal" in looked_at


@pytest.mark.req("DUR-02")
@pytest.mark.parametrize("gone", ["folder", "file"])
async def test_a_folder_that_was_old_is_missed_as_well(opened, path, gone):
    store = await opened()
    age(path.parent)
    await say(store, "before")
    moved = path.parent if gone == "folder" else path
    away = moved.with_name("away")
    moved.rename(away)
    with pytest.raises(StoreUnavailable, match=r"sessions.db was deleted or replaced"):
        await say(store, "to a file without a name")
    away.rename(moved)
    await say(store, "after")
    assert await texts(store) == ["before", "after"]


@pytest.mark.req("DUR-02")
async def test_a_deleted_log_is_not_copied_into_the_file_of_a_process_that_has_begun_another(opened, path):
    store, log = await opened(), path.with_name(f"{path.name}-wal")
    await say(store, "before")
    before = path.read_bytes()
    log.unlink()
    log.write_bytes(b"of another process")
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await say(store, "to a log without a name")
    assert path.read_bytes() == before


@pytest.mark.req("D16")
async def test_a_file_of_a_newer_version_or_of_another_application_is_left_alone(opened, path):
    await say(await opened(), "hello")
    await (await opened()).close()
    for change, words in (
        (f"PRAGMA user_version={len(MIGRATIONS) + 1}", "newer version of HoloDeck"),
        ("PRAGMA application_id=7", "another application"),
    ):
        plain = sqlite3.connect(path)
        plain.execute(change)
        plain.commit()
        plain.close()
        before = path.read_bytes()
        with pytest.raises(StartError, match=words):
            await opened()
        assert path.read_bytes() == before


@pytest.mark.req("D16")
async def test_a_file_of_an_older_version_is_brought_up_to_date_by_one_of_two_that_open_it(opened, path):
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript(MIGRATIONS[0] + "PRAGMA user_version=1; PRAGMA application_id=0x484F4C4F;")
    old.execute(
        "INSERT INTO sessions (agent, tenant, user, id, created, used, size, v)"
        " VALUES ('tester', 'default', 'anonymous', 's', 1, 9e9, 40, 1)"
    )
    old.commit()
    old.close()
    first, second = await asyncio.gather(opened(), opened())
    for store in (first, second):
        assert await store.file.read(lambda connection: connection.execute("PRAGMA user_version").fetchone()) == (
            len(MIGRATIONS),
        )
        assert await texts(store) == []
        assert await store.tenant_bytes("default") == 40


async def test_a_file_of_the_previous_version_keeps_its_sums_of_tenants(opened, path):
    path.parent.mkdir()
    old = sqlite3.connect(path)
    before = [statement for script in MIGRATIONS[:9] for statement in script.split(";\n") if statement.strip()]
    for statement in [*before, "PRAGMA user_version=9", f"PRAGMA application_id={APPLICATION_ID}"]:
        old.execute(statement)
    old.execute(
        "INSERT INTO sessions (agent, tenant, user, id, created, used, size, v)"
        " VALUES ('tester', 'default', 'anonymous', 'older', 1, 9e9, 40, 1)"
    )
    old.commit()
    old.close()
    store = await opened()
    await say(store, "hello")
    added = (await store.get("s", owner=ME)).size
    assert await store.tenant_bytes("default") == 40 + added
    await say(store, "hello again")
    assert await store.tenant_bytes("default") == 40 + (await store.get("s", owner=ME)).size > 40 + added
    await store.delete("older", owner=ME)
    assert await store.tenant_bytes("default") == (await store.get("s", owner=ME)).size


async def test_a_question_and_its_answer_are_six_pages_of_the_log(opened, path):
    """A page is two system calls. `python -m benchmarks stores` measures what the disk takes for as many."""
    store, log = await opened(), path.with_name(f"{path.name}-wal")
    await answered_ms(store, store.runs)
    before = log.stat().st_size
    await answered_ms(store, store.runs)
    assert (log.stat().st_size - before) / (FRAME_HEADER + PAGE) == PAGES == 6


async def test_no_answer_waits_for_the_log_to_be_copied_into_the_file(opened, monkeypatch):
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_COMMITS", 1)
    store, begun, held = await opened(), threading.Event(), threading.Event()

    def hold(statement):
        if "wal_checkpoint" in statement:
            begun.set()
            held.wait(30)

    try:
        await asyncio.wait_for(store.file.write(lambda connection: connection.set_trace_callback(hold)), 20)
        assert await asyncio.to_thread(begun.wait, 20)
    finally:
        held.set()


@pytest.mark.req("D16")
async def test_a_file_that_is_no_database_is_left_alone(opened, path):
    path.parent.mkdir()
    path.write_bytes(b"my thesis" * 1000)
    with pytest.raises(StartError, match="cannot be used"):
        await opened()
    assert path.read_bytes() == b"my thesis" * 1000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_cannot_be_written_is_one_sentence(opened, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StartError, match="Permission denied"):
        await opened()
    tmp_path.chmod(0o700)


@pytest.mark.req("D10")
async def test_a_full_disk_refuses_and_recovers_without_a_restart(opened):
    store = await opened()
    await say(store, "before")
    pages = "PRAGMA page_count", "PRAGMA max_page_count={}"
    (used,) = await store.file.read(lambda connection: connection.execute(pages[0]).fetchone())
    await store.file.write(lambda connection: connection.execute(pages[1].format(used)).fetchone())
    with pytest.raises(StorageFull):
        await say(store, "x" * 100_000)
    assert await texts(store) == ["before"]
    await store.file.write(lambda connection: connection.execute(pages[1].format(1_000_000)).fetchone())
    await say(store, "after")
    assert await texts(store) == ["before", "after"]
    (sound,) = await store.file.read(lambda connection: connection.execute("PRAGMA integrity_check").fetchone())
    assert sound == "ok"


@pytest.mark.req("D10")
async def test_a_file_that_is_up_to_date_is_opened_and_read_without_a_write(opened, path):
    await say(await opened(), "hello")
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA data_version").fetchone()
        reading = await opened()
        assert await texts(reading) == ["hello"]
        await reading.close()
        assert connection.execute("PRAGMA data_version").fetchone() == version


async def test_a_job_that_fails_harms_no_other(opened):
    store, gate = await opened(), threading.Event()
    await say(store, "kept")
    conversation = await store.open("s", owner=ME)

    def breaks(connection):
        connection.execute("DELETE FROM sessions")
        raise ValueError("a defect")

    blocked = store.file.read(lambda connection: gate.wait(30))  # so that the next two share one transaction
    broken = store.file.write(breaks)
    commit = asyncio.create_task(conversation.commit([AssistantMessage(content="also kept")]))
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(ValueError, match="a defect"):
        await broken
    await asyncio.gather(blocked, commit)
    assert await texts(store) == ["kept", "also kept"]


@pytest.mark.req("D03b")
async def test_a_damaged_page_is_named_with_the_remedy(opened, path):
    store = await opened()
    await say(store, "kept")
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'steps'").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xff" * 8)
    with pytest.raises(StoreRefused, match=r"damaged \(database disk image is malformed\); restore a backup"):
        await texts(await opened())


async def test_a_statement_that_sqlite_refuses_harms_no_other_job(opened):
    store, gate = await opened(), threading.Event()
    await say(store, "kept")
    conversation = await store.open("s", owner=ME)
    blocked = store.file.read(lambda connection: gate.wait(30))
    twice = "INSERT INTO sessions (agent, tenant, user, id, created, used, v) SELECT agent, tenant, user, id, 1, 1, 1 FROM sessions"
    before = asyncio.create_task(conversation.commit([AssistantMessage(content="before")]))
    await asyncio.sleep(0)
    refused = store.file.write(lambda connection: connection.execute(twice).rowcount)
    after = store.file.write(lambda connection: connection.execute("SELECT 1").fetchone())
    gate.set()
    with pytest.raises(StoreRefused, match="UNIQUE"):
        await refused
    await asyncio.gather(blocked, before)
    assert await after == (1,)
    assert await texts(store) == ["kept", "before"]


@pytest.mark.req("D10")
async def test_a_full_disk_is_logged_once_and_again_when_it_has_room(opened, caplog):
    """Health checks and runs try again all the time."""
    store = await opened()
    await say(store, "kept")
    large = KeptValue(kind="k", name="n", body=bytes(100_000))
    (used,) = await store.file.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
    await store.file.read(lambda connection: connection.execute(f"PRAGMA max_page_count={used}").fetchone())
    for _ in range(3):
        with pytest.raises(StorageFull):
            await store.values.put(large, owner=ME)
    assert caplog.messages == ["The disk that holds the sessions is full."]
    await store.file.read(lambda connection: connection.execute(f"PRAGMA max_page_count={used + 100}").fetchone())
    for _ in range(2):
        await store.values.put(large, owner=ME)
    assert caplog.messages[1:] == ["sessions can be stored again"]


async def test_a_small_write_on_a_full_disk_is_no_sign_that_it_has_room(opened, caplog, monkeypatch):
    store, disk = await opened(), shutil.disk_usage("/")
    (used,) = await store.file.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
    await store.file.read(lambda connection: connection.execute(f"PRAGMA max_page_count={used}").fetchone())
    with pytest.raises(StorageFull):
        await say(store, "x" * 100_000)
    await store.file.read(lambda connection: connection.execute("PRAGMA max_page_count=1000000").fetchone())
    for free, messages in ((100_000, 1), (10_000_000, 2)):
        monkeypatch.setattr(sqlite_file.shutil, "disk_usage", lambda _, free=free: disk._replace(free=free))
        await say(store, "short")
        assert len(caplog.messages) == messages


async def test_a_job_that_fails_alone_leaves_nothing(opened):
    store = await opened()

    def fail(connection):
        store.insert(connection, ME, "half", store.now())
        raise SessionBroken("planted")

    with pytest.raises(SessionBroken):
        await store.file.write(fail)
    assert await texts(store, "half") is None
    await say(store, "works again")
    assert await texts(store) == ["works again"]


async def test_what_waits_together_is_one_transaction(opened):
    store, gate, statements = await opened(), threading.Event(), []
    await store.file.read(lambda connection: connection.set_trace_callback(statements.append))
    conversations = [await store.open(str(number), owner=ME, create=True) for number in range(40)]
    statements.clear()
    blocked = store.file.read(lambda connection: gate.wait(30))
    commits = [asyncio.create_task(each.commit([UserMessage(content="hi")])) for each in conversations]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(blocked, *commits)
    assert statements.count("COMMIT") <= 3, "one for the job that held it up, one for the rest"
    assert await store.count() == 40


class _Failing(sqlite3.Connection):
    """A connection whose disk fails once, at a statement."""

    fails = ""

    def execute(self, statement, *values):
        if self.fails and statement.startswith(self.fails):
            _Failing.fails = ""
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, *values)


async def test_an_error_before_a_transaction_fails_its_jobs_and_no_other(path, monkeypatch):
    """The thread of the file must not end with jobs in its hands: their callers would wait for ever."""

    def connect(path):
        return sqlite3.connect(path, isolation_level=None, factory=_Failing)

    monkeypatch.setattr("holodeck.stores.sqlite_file.connect", connect)
    file = SqliteFile(path)
    await file.open()
    monkeypatch.setattr(_Failing, "fails", "PRAGMA synchronous")
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        await asyncio.wait_for(file.write(lambda _: None, synced=False), 50)
    levels = [
        await asyncio.wait_for(file.write(lambda c: c.execute("PRAGMA synchronous").fetchone(), synced=synced), 50)
        for synced in (False, False, True, False, True)
    ]
    assert levels == [(1,), (1,), (2,), (1,), (2,)]
    await file.close()


@pytest.mark.parametrize("stored", [True, False])
async def test_a_run_whose_last_transaction_fails_is_ended_with_the_next(path, monkeypatch, stored):
    """The COMMIT fails, after the job has done its part."""
    monkeypatch.setattr(
        "holodeck.stores.sqlite_file.connect",
        lambda path: sqlite3.connect(path, isolation_level=None, factory=_Failing),
    )
    path.parent.mkdir()
    file, record = SqliteFile(path), RunRecord(run_id="r", owner=ME, session_id="s")
    store = SqliteSessionStore(file, "tester", runs=SqliteRunStore(file, "tester"))
    await store.start()
    store.runs.register(record)
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    if stored:
        await conversation.commit([UserMessage(content="hi")])
    monkeypatch.setattr(_Failing, "fails", "COMMIT")
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        await conversation.commit([UserMessage(content="hi")], ending=RunFinished("r", "s"))
    await conversation.commit([], ending=RunFinished("r", "s"))
    assert (await store.runs.find("r", owner=ME)).ending == RunFinished("r", "s")
    assert not store.runs._registered
    await store.close()
