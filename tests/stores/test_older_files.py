"""A process of an older version that serves a file while a newer one brings it up to date: a chat, or a server that is being replaced.

The older process is its SQL on a connection of its own, which keeps its prepared statements.
"""

import contextlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.runs.port import RunRecord, RunState
from holodeck.stores import records
from holodeck.stores.migrations import APPLICATION_ID, MIGRATIONS
from holodeck.stores.sqlite_file import SqliteFile, connect, migrate
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.stored_conversation import steps_of
from tests.stores.stored_sessions import say, texts

FIRST = 9  # the oldest version whose statements are below
OWNER = "'tester', 'default', 'anonymous'"
OF_OWNER = "agent = 'tester' AND tenant = 'default' AND user = 'anonymous'"
BEGIN_RUN = (
    "INSERT INTO runs (agent, tenant, user, id, session, wire, repeat_key, fingerprint, state, accepted, ended, ending, v,"
    f" request, root) VALUES ({OWNER}, ?1, 'older', 'w', ?1, NULL, 'running', ?2, NULL, NULL, 1, x'7b7d', NULL)"
    " ON CONFLICT (agent, tenant, user, id) DO UPDATE SET state = excluded.state, request = excluded.request,"
    " root = excluded.root, v = excluded.v, replica = NULL, ended = excluded.ended, ending = excluded.ending"
)
END_RUN = (
    "UPDATE runs SET state = 'finished', ending = ?2, ended = ?3, v = 1"
    f" WHERE {OF_OWNER} AND id = ?1 AND ended IS NULL RETURNING key"
)
ADD_SESSION = (
    "INSERT INTO sessions (agent, tenant, user, id, created, used, messages, steps, size, v, pending)"
    f" VALUES ({OWNER}, 'older', ?1, ?1, 0, 0, 0, 1, NULL) ON CONFLICT DO NOTHING"
)
ADD_STEP = "INSERT INTO steps (session, seq, messages, by_user, v, body) SELECT key, steps, ?1, ?2, 1, ?3 FROM sessions"
GROW = (
    "UPDATE sessions SET epoch = epoch, used = ?1, messages = messages + ?2, steps = steps + 1, size = size + ?3, v = 1,"
    " pending = NULL"
)
OLDER = f" WHERE {OF_OWNER} AND id = 'older'"
COPY = "INSERT INTO pieces SELECT key, 0, x'5b5d' FROM runs WHERE id = ?"
CLEAN = (
    "SELECT key, tenant, user, id, size FROM sessions WHERE used <= 1 AND +agent = 'tester' ORDER BY used LIMIT 500",
    "DELETE FROM kept_values WHERE key IN (SELECT key FROM kept_values WHERE expires <= 1 AND agent = 'tester' LIMIT 500)",
    "UPDATE runs SET repeat_key = NULL WHERE ended > 0.0 AND ended <= 1 AND +agent = 'tester' AND repeat_key IS NOT NULL",
)


class OlderProcess:
    def __init__(self, path, version: int) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        for script in MIGRATIONS[:version]:
            for statement in filter(str.strip, script.split(";\n")):
                self.connection.execute(statement)
        self.connection.execute(f"PRAGMA user_version={version}")
        self.connection.execute(f"PRAGMA application_id={APPLICATION_ID}")

    def turn(self, number: int, now: float) -> None:
        """A question and its answer, stored as this version stores them: two transactions, and the copy of the log."""
        run, ending = f"r{number}", records.encode(RunFinished(f"r{number}", "older"))
        question, answer = [UserMessage(content=f"q{number}")], [AssistantMessage(content=f"a{number}")]
        with self.transaction() as execute:
            execute(BEGIN_RUN, (run, now))
            execute(ADD_SESSION, (now,))
            self.add(question, now)
        with self.transaction() as execute:
            assert len(execute(END_RUN, (run, ending, now)).fetchall()) == 1
            self.add(answer, now)
            execute(COPY, (run,))
        for statement in CLEAN:
            self.connection.execute(statement).fetchall()

    def add(self, messages, now: float) -> None:
        ((count, by_user, body),) = steps_of(messages)
        self.connection.execute(ADD_STEP + OLDER, (count, by_user, body))
        self.connection.execute(GROW + OLDER, (now, count, len(body) - count - 1))

    def transaction(self):
        return _Transaction(self.connection)

    def texts(self, session: str) -> list[str]:
        rows = self.connection.execute(
            f"SELECT f.v, f.body FROM steps f JOIN sessions s ON s.key = f.session WHERE {OF_OWNER} AND s.id = ?"
            " ORDER BY f.seq",
            (session,),
        )
        return [message.content for version, body in rows for message in records.messages_of(body, version)]


class _Transaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __enter__(self):
        self.connection.execute("BEGIN IMMEDIATE")
        return self.connection.execute

    def __exit__(self, kind, *_: object) -> None:
        self.connection.execute("COMMIT" if kind is None else "ROLLBACK")


@pytest.mark.req("D16")
@pytest.mark.parametrize("version", range(FIRST, len(MIGRATIONS)))
async def test_an_older_process_continues_to_store_while_a_newer_one_brings_the_file_up_to_date(tmp_path, version):
    path = tmp_path / "sessions.db"
    older = OlderProcess(path, version)
    file = SqliteFile(path)
    store = SqliteSessionStore(file, "tester", runs=SqliteRunStore(file, "tester"))
    now = store.now()
    older.turn(0, now)
    await store.start()
    try:
        for number in (1, 2):
            older.turn(number, now)
            await say(store, f"new {number}", "newer")
        expected = [f"{who}{number}" for number in range(3) for who in "qa"]
        assert (older.texts("older"), await texts(store, "older")) == (expected, expected)
        assert older.texts("newer") == await texts(store, "newer") == ["new 1", "new 2"]
        sizes = [each.size for each in await store.sessions_of(owner=ME)]
        assert await store.tenant_bytes("default") == sum(sizes)
        older.turn(3, now)
        assert await store.tenant_bytes("default") > sum(sizes), "triggers count what the older process stores"
        for number in range(4):
            found = await store.runs.find(f"r{number}", owner=ME)
            assert (found.state, found.ending) == (RunState.FINISHED, RunFinished(f"r{number}", "older"))
        assert await store.runs.unfinished() == []
        assert len(await store.runs.runs_of(owner=ME, session_id="older")) == 4
        await store.clean()
        assert await texts(store, "older") == [*expected, "q3", "a3"]
        await store.delete("older", owner=ME)
        assert older.texts("older") == []
    finally:
        await store.close()
        older.connection.close()


MANY = 3000
LATER = 9e9


def with_many_rows(path):
    """A file of version 10 in which every third session has expired; each session has one run that ended."""
    numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
    with contextlib.closing(OlderProcess(path, 10).connection) as old:
        old.execute(
            f"INSERT INTO sessions (agent, tenant, user, id, created, used, v) {numbers}"
            f" SELECT {OWNER}, 's' || i, 1, iif(i % 3, {LATER}, 1), 1 FROM n"
        )
        old.execute(
            f"INSERT INTO runs (agent, tenant, user, id, session, wire, state, accepted, ended, v, request) {numbers}"
            f" SELECT {OWNER}, 'r' || i, 's' || i, 'w', 'finished', 1, {LATER}, 1, x'7b7d' FROM n"
        )


def test_a_migration_changes_no_row(tmp_path):
    """Otherwise it would lock a file with a million rows for half a minute, and need as much space again on the disk."""
    with_many_rows(tmp_path / "sessions.db")
    with contextlib.closing(connect(tmp_path / "sessions.db")) as connection:
        before = connection.total_changes
        migrate(connection)
        assert connection.total_changes - before < 10


async def test_rows_of_an_older_file_are_found_while_the_clean_up_adds_them_to_the_indexes(tmp_path):
    with_many_rows(tmp_path / "sessions.db")
    file = SqliteFile(tmp_path / "sessions.db", durable=False)
    store = SqliteSessionStore(file, "tester", runs=SqliteRunStore(file, "tester"), clock=lambda: LATER)
    await store.start()
    left = "SELECT (SELECT count(*) FROM sessions WHERE noted IS NULL), (SELECT count(*) FROM runs WHERE noted IS NULL)"
    batches, is_more, kept, counts = 0, True, MANY * 2 // 3, []
    try:
        while is_more and batches < 20:
            counts.append(await file.read(lambda connection: connection.execute(left).fetchone()))
            assert await store.count() == kept + batches
            for name in ("1", "1501", "3000"):
                found = await store.runs.runs_of(owner=ME, session_id=f"s{name}")
                assert [each.run_id for each in found] == [f"r{name}"]
            _, is_more = await store._remove_batch()
            await say(store, "hi", f"new {batches}")  # while old rows are left
            await store.runs.begin(RunRecord(run_id=f"new {batches}", owner=ME, session_id=f"new {batches}"))
            found = await store.runs.runs_of(owner=ME, session_id=f"new {batches}")
            assert [each.run_id for each in found] == [f"new {batches}"]
            batches += 1
        assert counts[:4] == [(MANY, MANY), (2501, 2501), (2001, 2001), (1501, 1501)], "bounded batches"
        assert not is_more
        await store.clean()
        assert await file.read(lambda connection: connection.execute(left).fetchone()) == (0, 0)
        total = "SELECT count(*) FROM sessions"
        assert await file.read(lambda connection: connection.execute(total).fetchone()) == (kept + batches,)
        await store.delete("s1", owner=ME)
        assert await store.runs.find("r1", owner=ME) is None
    finally:
        await store.close()


KEYS = "SELECT (SELECT max(key) FROM sessions), (SELECT max(key) FROM runs)"


def of_version(path, version):
    """A file as an older version has left it, with one session and one run in progress."""
    with contextlib.closing(OlderProcess(path, version).connection) as old:
        old.execute(
            "INSERT INTO sessions (key, agent, tenant, user, id, created, used, v)"
            " VALUES (7, 'tester', 'default', 'anonymous', 'older', 1, 9e9, 1)"
        )
        old.execute(
            "INSERT INTO runs (key, agent, tenant, user, id, session, wire, state, accepted, v, request)"
            " VALUES (9, 'tester', 'default', 'anonymous', 'older', 'older', '', 'running', 1, 1, x'7b7d')"
        )


@pytest.mark.parametrize("version", [0, 1, len(MIGRATIONS) - 1])
async def test_a_key_is_never_given_out_twice(tmp_path, version):
    """A run that was not stopped yet names its session by key: it may not reach the session that comes next."""
    path, given = tmp_path / "sessions.db", []
    if version:
        of_version(path, version)
    for number in range(3):  # processes, one after the other
        file = SqliteFile(path, durable=False)
        store = SqliteSessionStore(file, "tester", runs=SqliteRunStore(file, "tester"))
        await store.start()
        for name in ("a", "b"):
            await store.runs.begin(RunRecord(run_id=name, owner=ME, session_id=name))
            await say(store, "hello", name)
            given.append(await store.file.read(lambda connection: connection.execute(KEYS).fetchone()))
        for name in ("older", "a", "b") if number % 2 else ("older", "b", "a"):
            await store.delete(name, owner=ME)
        await store.close()
    sessions, runs = zip(*given, strict=True)
    assert len({*sessions}) == len({*runs}) == 6
    assert (list(sessions), list(runs)) == (sorted(sessions), sorted(runs)), "in the order in which they begin"
    assert sessions[0] > 7 * (version > 0)
    assert runs[0] > 9 * (version > 0)


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from holodeck.stores.sqlite_file import connect, migrate

def child(path, left):
    def traced(statement):
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    connection = connect(path)
    connection.set_trace_callback(traced)
    migrate(connection)
    os._exit(0)

for number in range(100):
    path = Path(f"{sys.argv[1]}.{number}")
    shutil.copy(sys.argv[1], path)
    pid = os.fork()
    if not pid:
        child(path, number)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_migration_that_is_killed_leaves_the_file_as_it_was(tmp_path):
    """SIGKILL before each statement of the last migrations, and before their COMMIT."""
    path = tmp_path / "sessions.db"
    of_version(path, 10)
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=DELETE")  # all of it is in the one file that is copied
    made = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True, check=True)
    codes = [int(line) for line in made.stdout.split()]
    killed = codes.index(0)
    assert codes == [-signal.SIGKILL] * killed + [0] * (100 - killed)
    assert killed > 20, "so many statements"
    for number in range(killed + 1):
        with contextlib.closing(sqlite3.connect(f"{path}.{number}")) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert file.execute(KEYS).fetchone() == (7, 9)
            expected = len(MIGRATIONS) if number == killed else 10
            assert file.execute("PRAGMA user_version").fetchone() == (expected,)
