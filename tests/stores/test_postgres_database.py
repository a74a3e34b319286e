"""A PostgreSQL that is not as expected: refused, of another version, of another application, silent, without connections."""

import asyncio
import time
from pathlib import Path

import psycopg
import pytest

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.errors import (
    RunInterrupted,
    StartError,
    StoreRefused,
    StoreUnavailable,
)
from holodeck.runs.replica import Replica
from holodeck.stores import postgres_database as postgres_database_module
from holodeck.stores import postgres_runs as postgres_runs_module
from holodeck.stores import records
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_schema import MIGRATIONS
from holodeck.stores.postgres_sessions import PostgresSessionStore
from tests.ports import free_port
from tests.postgres_server import socket_of
from tests.store_faults.failover_backends import postgres_pair, wait_until
from tests.store_faults.fault_proxy import FaultProxy
from tests.stores.processes import opened_on_postgres, sql
from tests.stores.stored_sessions import begun, run, say, texts

__all__ = ["opened_on_postgres"]


async def test_start_up_failures_are_one_sentence_without_the_password(opened, postgres_database, caplog):
    missing = postgres_database.replace("/postgres?", "/nothing?")
    for url, words in (
        (
            f"postgresql://me:hunter2@127.0.0.1:{free_port()}/db",
            r"127.0.0.1:\d+, .*cannot be reached: Connection refused",
        ),
        (missing, 'database "nothing" does not exist'),
        ("mysql://me:hunter2@127.0.0.1/db", "not the address of a PostgreSQL database"),
    ):
        with pytest.raises(StartError, match=words) as caught:
            await opened(place=url)
        assert "hunter2" not in caught.value.message
        assert "\n" not in caught.value.message
        database = PostgresDatabase(url)
        await PostgresSessionStore(database, "tester", runs=PostgresRunStore(database, "tester")).close()
    assert caplog.records == [], "a store that was not opened has nothing to take back"


async def test_a_wrong_password_is_one_sentence(opened, postgres_database):
    folder = Path(psycopg.conninfo.conninfo_to_dict(postgres_database)["host"])
    rules = folder / "pg_hba.conf"
    before = rules.read_text()
    try:
        rules.write_text("local all locked scram-sha-256\n" + before)
        sql(postgres_database, "CREATE ROLE locked LOGIN PASSWORD 'right'")
        sql(postgres_database, "SELECT pg_reload_conf()")
        url = f"postgresql://locked:hunter2@/postgres?host={folder}"
        with pytest.raises(StartError, match='password authentication failed for user "locked"') as caught:
            await opened(place=url)
        assert "hunter2" not in caught.value.message
    finally:
        rules.write_text(before)
        sql(postgres_database, "DROP ROLE IF EXISTS locked")
        sql(postgres_database, "SELECT pg_reload_conf()")


async def test_the_database_of_another_application_is_named_and_left_alone(opened, postgres_database):
    """The error was that of the statement: relation "sessions" already exists."""
    url = postgres_database.replace("/postgres?", "/elsewhere?")
    sql(postgres_database, "CREATE DATABASE elsewhere")
    sql(url, "CREATE SCHEMA holodeck")
    sql(url, "CREATE TABLE holodeck.sessions (id int)")
    with pytest.raises(
        StartError, match=r"its schema holodeck has tables of another program; set another sessions\.url"
    ):
        await opened(place=url)
    assert sql(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'holodeck'") == [("sessions",)]


async def test_a_database_with_another_encoding_is_refused(opened, postgres_database):
    """The error called it b'SQL_ASCII'."""
    sql(postgres_database, "CREATE DATABASE unencoded ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StartError, match="encoding is SQL_ASCII; sessions need one with the encoding UTF8"):
        await opened(place=postgres_database.replace("/postgres?", "/unencoded?"))


@pytest.mark.req("D16")
async def test_a_database_of_a_newer_version_is_left_alone(opened, postgres_database):
    await say(await opened(), "hello")
    sql(postgres_database, "UPDATE holodeck.version SET migrations = %s", len(MIGRATIONS) + 1)
    try:
        with pytest.raises(StartError, match="newer version of HoloDeck"):
            await opened()
    finally:
        sql(postgres_database, "UPDATE holodeck.version SET migrations = %s", len(MIGRATIONS))
    assert await texts(await opened()) == ["hello"]


@pytest.mark.req("D16")
async def test_of_processes_that_start_together_one_makes_the_tables(opened, postgres_database):
    sql(postgres_database, "DROP SCHEMA IF EXISTS holodeck CASCADE")
    stores = await asyncio.gather(*(opened() for _ in range(4)))
    await say(stores[0], "hello")
    assert await texts(stores[3]) == ["hello"]


@pytest.mark.req("D16")
@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
async def test_a_database_of_an_older_version_keeps_its_sessions(opened, postgres_database, version):
    sql(postgres_database, "DROP SCHEMA IF EXISTS holodeck CASCADE")
    sql(postgres_database, "CREATE SCHEMA holodeck")
    for script in MIGRATIONS[:version]:
        sql(postgres_database, script)
    sql(postgres_database, "CREATE TABLE holodeck.version (migrations integer NOT NULL)")
    sql(postgres_database, "INSERT INTO holodeck.version VALUES (%s)", version)
    sql(
        postgres_database,
        "WITH one AS (INSERT INTO holodeck.sessions (agent, tenant, user_name, id, created, used, messages, steps, size, v)"
        " SELECT 'tester', %s, %s, 's', now, now, 1, 1, 30, 1 FROM extract(epoch FROM now()) AS now RETURNING key)"
        " INSERT INTO holodeck.steps SELECT key, 0, 1, true, 1, %s FROM one",
        *(ME.tenant, ME.user, records.encode([UserMessage(content="old")])),
    )
    one, other = await asyncio.gather(opened(), opened())
    conversation = await begun(one, run())
    await conversation.commit([AssistantMessage(content="new")])
    assert await texts(other) == ["old", "new"]
    assert sql(postgres_database, "SELECT migrations FROM holodeck.version") == [(len(MIGRATIONS),)]


async def test_a_role_that_may_only_create_a_schema_serves_with_any_search_path(opened, postgres_database):
    sql(postgres_database, "DROP SCHEMA IF EXISTS holodeck CASCADE")
    sql(postgres_database, "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app")
    sql(postgres_database, "ALTER ROLE app SET search_path = ''")
    try:
        store = await opened(place=postgres_database.replace("postgres@", "app@"))
        await say(store, "hello")
        conversation = await begun(store, run())
        await conversation.commit([AssistantMessage(content="hi")])
        assert await texts(store) == ["hello", "hi"]
        await store.close()
    finally:
        sql(postgres_database, "DROP OWNED BY app CASCADE; DROP ROLE app")


async def test_another_application_s_tables_are_not_touched(opened, postgres_database):
    sql(postgres_database, "CREATE TABLE public.sessions (mine text)")
    try:
        await say(await opened(), "hello")
        assert sql(postgres_database, "SELECT * FROM public.sessions") == []
    finally:
        sql(postgres_database, "DROP TABLE public.sessions")


@pytest.mark.req("D07")
async def test_the_state_of_standbys_is_reported_as_unknown_to_a_role_that_may_not_see_it(tmp_path, monkeypatch):
    """Only a superuser and `pg_read_all_stats` see the state of a standby; applications rarely have either."""
    monkeypatch.setenv(
        "XDG_RUNTIME_DIR", str(tmp_path)
    )  # without it the package of the server warns when it is imported
    with postgres_pair() as pair:
        grants = "CREATE ROLE app LOGIN; GRANT ALL ON DATABASE postgres TO app"
        sql(pair.url("one"), grants)
        database = PostgresDatabase(pair.url("one").replace("postgres@", "app@"))
        await database.open()
        try:
            unknown, is_doubtful = await database.durability()
            assert "is not known" in unknown
            assert is_doubtful
            sql(pair.url("one"), unknown[unknown.index("GRANT") : unknown.index(" (")])
            known = await database.durability()
            assert "a failover loses nothing" in known.sentence
            assert not known.is_doubtful
        finally:
            await database.close()


@pytest.mark.req("D07")
async def test_a_server_warns_at_its_start_if_no_standby_is_synchronous(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with postgres_pair() as pair:
        for expected in ([], ["a failover may lose the last messages: no standby is synchronous"]):
            database = PostgresDatabase(pair.url("one"))
            store = PostgresSessionStore(database, "tester", runs=PostgresRunStore(database, "tester"))
            await store.start()
            await asyncio.wait({store._warning})
            await store.close()
            assert [text for text in expected if text not in caplog.text] == []
            assert len(caplog.records) == len(expected)
            sql(pair.url("one"), "ALTER SYSTEM RESET synchronous_standby_names")
            sql(pair.url("one"), "SELECT pg_reload_conf()")
            wait_until(lambda: sql(pair.url("one"), "SHOW synchronous_standby_names") == [("",)], "the new setting")


async def test_a_start_does_not_wait_for_the_state_of_the_standbys(opened, monkeypatch):
    monkeypatch.setattr(PostgresDatabase, "durability", lambda _self: asyncio.Event().wait())
    store = await asyncio.wait_for(opened(), 30)
    await asyncio.wait_for(store.close(), 30)


@pytest.mark.req("D07")
async def test_a_database_that_drops_every_connection_is_used_again(opened, postgres_database):
    store = await opened()
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="before")])
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holodeck'"
    sql(postgres_database, cut)
    await conversation.commit([AssistantMessage(content="after")])
    assert await texts(store) == ["before", "after"]
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.read("s", owner=ME)


async def test_nothing_is_left_in_a_connection_s_session(opened, postgres_database):
    """What pgbouncer in transaction mode needs: a statement may use another connection than the one before.

    Statements are prepared without a pooler only, as tests/stores/test_behind_a_pooler.py shows.
    """
    store = await opened()
    for number in range(10):
        await say(store, str(number))
    left = await store.database.rows(
        "SELECT (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_cursors WHERE name <> ''),"
        " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
    )
    assert left == [(0, 0, 0)]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT 'x'::integer", StoreRefused),  # its data
        ("UPDATE holodeck.sessions SET agent = NULL", StoreRefused),
        ("SELECT * FROM holodeck.missing", StoreUnavailable),  # an operator can repair it
    ],
)
async def test_a_statement_is_refused_for_good_only_because_of_its_data(opened, statement, error):
    store = await opened()
    await say(store, "kept")
    with pytest.raises(error):
        await store.database.rows(statement)
    assert await texts(store) == ["kept"]


@pytest.mark.req("D05")
async def test_a_database_that_does_not_answer_fails_a_statement_and_serves_again_when_it_does(
    opened, postgres_database, monkeypatch
):
    async with FaultProxy(socket_of(postgres_database)) as link:
        store = await opened(place=f"postgresql://postgres@127.0.0.1:{link.port}/postgres")
        await say(store, "before")
        for name in ("SILENT_SECONDS", "OUTAGE_SECONDS"):
            monkeypatch.setattr(postgres_database_module, name, 0.2)
        link.black_hole()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.read("s", owner=ME), 50)
        monkeypatch.undo()
        link.heal()
        await say(store, "after")
        assert [message.content for message in (await store.read("s", owner=ME)).messages] == ["before", "after"]
        await store.close()


@pytest.mark.req("D15")
async def test_a_new_run_waits_once_for_a_free_connection_and_is_refused_a_commit_waits_on(postgres_database):
    database = PostgresDatabase(postgres_database, connections=1)
    store = PostgresSessionStore(database, "tester", runs=PostgresRunStore(database, "tester"))
    await store.start()
    try:
        conversation = await begun(store, run())
        holds, ends = asyncio.Event(), asyncio.Event()

        async def hold(connection):
            await connection.execute("SELECT 1")
            holds.set()
            await ends.wait()

        holding = asyncio.create_task(database.transaction(hold))
        await asyncio.wait_for(holds.wait(), 30)
        storing = asyncio.create_task(conversation.commit([UserMessage(content="hi", run_id="r")]))
        with pytest.raises(StoreUnavailable) as refused:
            await asyncio.wait_for(store.runs.begin(run("other", "elsewhere")), 30)
        assert refused.value.status == 503
        assert not storing.done(), "what was accepted waits on"
        ends.set()
        await asyncio.wait_for(asyncio.gather(holding, storing), 30)
        await store.runs.begin(run("other", "elsewhere"))
        assert await texts(store) == ["hi"]
    finally:
        await store.close()


@pytest.mark.req("D08")
async def test_a_process_whose_database_does_not_answer_ends_its_runs_before_others_take_them_over():
    stopped = asyncio.Event()

    class Silent:
        async def beat(self):
            await asyncio.Event().wait()

    class Stopping:
        def stop_all(self, why, *, also_queued):
            assert isinstance(why, RunInterrupted)
            assert not also_queued, "a run that waits can wait on"
            stopped.set()

    replica = Replica(Stopping(), None, Silent(), take_over_seconds=0.04)
    replica.start()
    try:
        await asyncio.wait_for(stopped.wait(), 30)
        assert not replica.is_connected
    finally:
        await replica.close()


@pytest.mark.req("D08")
async def test_a_process_that_was_taken_for_dead_registers_again_before_it_begins_a_run(
    opened, postgres_database, monkeypatch
):
    one, other = await opened(), await opened()
    await one.runs.beat()
    sql(postgres_database, "DELETE FROM holodeck.replicas WHERE id = %s", one.runs.replica)
    real = time.monotonic
    monkeypatch.setattr(postgres_runs_module.time, "monotonic", lambda: real() + 1000)  # its link was cut for so long
    await one.runs.begin(run())
    assert await other.runs.take_over(60) == []
    assert (await one.runs.beat()).is_alive
