"""What only a store that processes share has to show: claims, turns, keys, take-over, and a database that is not as expected."""

import asyncio
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import pytest

from holodeck.core.events import RunFinished, TextAdded
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.errors import LostClaim, SessionBroken, SessionNewer, StartError, StoreUnavailable
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunExists, RunRecord
from holodeck.runs.recovery import HOLE
from holodeck.stores.log_copier import LogPiece
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_schema import MIGRATIONS
from holodeck.stores.postgres_sessions import PostgresSessionStore
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.ports import free_port

ENDING = RunFinished("r", "s")


@pytest.fixture
async def opened(postgres_database):
    """Opens stores on one database, as processes would."""
    stores = []

    async def open_store(agent="tester", url=postgres_database):
        database = PostgresDatabase(url)
        store = PostgresSessionStore(database, agent, runs=PostgresRunStore(database, agent))
        stores.append(store)
        await store.start()
        return store

    yield open_store
    for store in stores:
        await store.close()


def sql(url, statement, *values):
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def run(name="r", session="s", **more):
    return RunRecord(run_id=name, owner=ME, session_id=session, **more)


async def say(store, text, name="s"):
    conversation = await store.open(name, owner=ME, create=True)
    await conversation.commit([UserMessage(content=text)])
    conversation.close()


async def texts(store, name="s"):
    stored = await store.read(name, owner=ME)
    return None if stored is None else [message.content for message in stored.messages]


async def begun(store, record):
    """A run's conversation, as the process that has the run opens it."""
    await store.runs.begin(record)
    return await store.open(record.session_id, owner=ME, run_id=record.run_id, create=True)


# one database, several processes


@pytest.mark.req("SRV-15")
async def test_what_one_process_stores_every_other_reads(opened):
    one, other = await opened(), await opened()
    await say(one, "hello")
    assert await texts(other) == ["hello"]
    assert await texts(await opened("another agent")) is None


@pytest.mark.req("D08")
async def test_a_run_whose_session_another_process_has_taken_over_stores_nothing_more(opened):
    one, other = await opened(), await opened()
    late = await one.open("s", owner=ME, create=True)
    await late.commit([UserMessage(content="first")])
    taker = await other.open("s", owner=ME)
    await taker.commit([UserMessage(content="second")])
    for write in (lambda: late.commit([AssistantMessage(content="too late")]), lambda: late.commit([])):
        with pytest.raises(LostClaim):
            await write()
    await taker.commit([AssistantMessage(content="third")])
    silent = await one.open("s", owner=ME)
    await silent.commit([], state={"taken": True})
    with pytest.raises(LostClaim):
        await taker.commit([AssistantMessage(content="late")])
    assert await texts(one) == ["first", "second", "third"]


async def test_of_two_that_open_at_the_same_time_the_first_to_write_wins(opened):
    one, other = await opened(), await opened()
    await say(one, "zero")
    first, second = await one.open("s", owner=ME), await other.open("s", owner=ME)
    await second.commit([UserMessage(content="second")])
    with pytest.raises(LostClaim):
        await first.commit([UserMessage(content="first")])
    assert await texts(one) == ["zero", "second"]


@pytest.mark.req("C09b")
async def test_runs_of_one_session_take_turns_over_all_processes(opened):
    stores = [await opened(), await opened(), await opened()]
    active, order, most = set(), [], []

    async def play(number):
        store, record = stores[number % 3], run(f"r{number}")
        begun = await store.runs.begin(record)
        if not begun.is_first:
            await store.runs.turn(record)
        active.add(number)
        order.append(number)
        most.append(len(active))
        conversation = await store.open("s", owner=ME, run_id=record.run_id, create=True)
        await conversation.commit([UserMessage(content=str(number))])
        active.discard(number)
        await conversation.commit([AssistantMessage(content=str(number))], ending=RunFinished(record.run_id, "s"))
        store.runs.release(record)

    await asyncio.wait_for(asyncio.gather(*(play(number) for number in range(12))), 50)
    assert max(most) == 1
    found = await texts(stores[0])
    assert found == [str(number) for number in order for _ in range(2)], "no step of one run among those of another"


async def test_the_run_that_came_first_is_the_first_to_go(opened):
    one, other = await opened(), await opened()
    first, second, third = run("r1"), run("r2"), run("r3")
    assert (await one.runs.begin(first)).is_first
    assert not (await one.runs.begin(second)).is_first
    assert (await other.runs.begin(third)).ahead == {"r1", "r2"}
    await one.runs.end(first, RunFinished("r1", "s"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(other.runs.turn(third), 0.3)
    await asyncio.wait_for(one.runs.turn(second), 50)
    await one.runs.end(second, RunFinished("r2", "s"))
    await asyncio.wait_for(other.runs.turn(third), 50)


@pytest.mark.req("C08")
async def test_one_idempotency_key_is_one_run_over_all_processes(opened):
    stores = [await opened() for _ in range(4)]
    records = [run(f"r{n}", f"s{n}", wire="rest", key="k", fingerprint=b"f") for n in range(4)]
    begins = (store.runs.begin(each) for store, each in zip(stores, records, strict=True))
    results = await asyncio.gather(*begins, return_exceptions=True)
    assert sorted(isinstance(each, RunExists) for each in results) == [False, True, True, True]
    found = {(await store.runs.by_key("rest", "k", owner=ME)).run_id for store in stores}
    assert found == {records[[isinstance(each, RunExists) for each in results].index(False)].run_id}
    with pytest.raises(RunExists):
        await stores[3].runs.begin(run(next(iter(found)), "elsewhere"))


async def test_a_run_that_is_refused_leaves_its_key_free(opened):
    store = await opened()
    await store.runs.begin(run(wire="rest", key="k"))
    await store.runs.withdraw(run(wire="rest", key="k"))
    await store.runs.begin(run("again", wire="rest", key="k"))


async def test_a_commit_that_is_repeated_after_a_lost_connection_counts_once(opened, monkeypatch):
    """The connection breaks after the database has carried the statement out."""
    store = await opened()
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="first")])
    real, broken = PostgresDatabase._connection, []

    @asynccontextmanager
    async def breaks(self):
        async with real(self) as connection:
            yield connection
            if not broken:
                broken.append(True)
                raise psycopg.OperationalError("the connection is lost")

    for ending in (None, ENDING):
        broken.clear()
        with monkeypatch.context() as patch:
            patch.setattr(PostgresDatabase, "_connection", breaks)
            await conversation.commit([AssistantMessage(content="once")], ending=ending)
    assert await texts(store) == ["first", "once", "once"]
    assert (await store.runs.find("r", owner=ME)).ending == ENDING


# processes that end


@pytest.mark.req("D03b", "D08")
async def test_a_dead_process_is_taken_over_once_and_may_write_nothing_more(opened):
    dead, one, other = [await opened() for _ in range(3)]
    conversation = await begun(dead, run())
    await conversation.commit([UserMessage(content="hi")])
    waiting = run("never opened", "new")
    await dead.runs.begin(waiting)
    for store in (one, other) * 2:
        await store.runs.beat()
        assert await store.runs.take_over(0) == [], "it may be alive"
    await asyncio.gather(one.runs.beat(), other.runs.beat())
    found = await asyncio.gather(one.runs.take_over(0), other.runs.take_over(0))
    assert sorted(each.run_id for taken in found for each in taken) == ["never opened", "r"], "by one of them"
    assert not (await dead.runs.beat()).is_alive
    for late in (conversation, await dead.open("new", owner=ME, run_id="never opened", create=True)):
        with pytest.raises(LostClaim):
            await late.commit([UserMessage(content="late")], ending=ENDING)
    await dead.runs.end(run(), ENDING)
    with pytest.raises(LostClaim):
        await dead.runs.turn(waiting)
    assert (await one.runs.find("r", owner=ME)).ending is None
    assert await texts(one) == ["hi"]
    assert await texts(one, "new") is None


async def test_a_process_whose_counter_moves_is_alive(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    for _ in range(5):
        await one.runs.beat()
        await other.runs.beat()
        assert await other.runs.take_over(0) == [], "its counter has changed since the last look"
    for _ in range(3):
        await other.runs.beat()
    await one.runs.beat()
    assert await other.runs.take_over(0) == [], "it has shown that it is alive after the last look"


async def test_the_runs_of_a_process_that_left_are_taken_at_once(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    await one.close()
    assert [each.run_id for each in await other.runs.take_over(60)] == ["r"]


async def test_wishes_reach_the_process_that_has_the_run(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    await one.runs.begin(run("second"))
    assert await other.runs.want_stop(run())
    await other.runs.note_followed([(ME, "second")])
    pulse = await one.runs.beat()
    assert (pulse.stops, pulse.followed, pulse.awaited) == ([(ME, "r")], [(ME, "second")], [(ME, "r")])
    assert (await one.runs.beat()).followed == []
    await one.runs.end(run(), ENDING)
    assert not await other.runs.want_stop(run())


@pytest.mark.req("SRV-11")
async def test_deleting_a_session_elsewhere_ends_its_run(opened):
    one, other = await opened(), await opened()
    conversation = await begun(one, run(request=RunRequest(state="a secret")))
    await conversation.commit([UserMessage(content="hi")])
    await other.delete("s", owner=ME)
    assert [(await one.runs.beat()).gone for _ in range(2)] == [[], [(ME, "r")]]
    await conversation.commit([AssistantMessage(content="late")])
    await one.runs.end(run(), ENDING)
    assert await other.runs.find("r", owner=ME) is None
    assert await texts(other) is None, "a run that goes on does not bring it back"


async def test_the_copy_of_a_log_is_read_by_others_and_ends_with_the_claim(opened):
    one, other = await opened(), await opened()
    await one.runs.begin(run())
    log, late = RunLog(), RunLog()
    one.runs.follow(run(), log)
    for text in ("a", "b"):
        log.append(TextAdded("m", text))
    async with asyncio.timeout(50):
        while not (pieces := await other.runs.events(run())):
            await asyncio.sleep(0.02)
    assert pieces == [(0, [TextAdded("m", "a"), TextAdded("m", "b")])]
    assert await other.runs.events(run(), 2) == []
    for _ in range(3):
        await other.runs.beat()
    assert len(await other.runs.take_over(0)) == 1
    other.runs.follow(run(), late, HOLE)
    for each in (log, late):
        each.append(TextAdded("m", "c"))
        each.append(ENDING)
    await asyncio.gather(one.close(), other.close())
    assert [first for first, _ in await (await opened()).runs.events(run())] == [0, HOLE], "a late piece is refused"


async def test_a_piece_that_was_written_again_and_is_longer_now_is_read_on(opened):
    store = await opened()
    await store.runs.begin(run())
    events = [TextAdded("m", str(number)) for number in range(6)]
    await store.runs._store_pieces([LogPiece((ME, "r"), 0, events[:2])])
    assert await store.runs.events(run()) == [(0, events[:2])]
    await store.runs._store_pieces([LogPiece((ME, "r"), 0, events[:5])])
    await store.runs._store_pieces([LogPiece((ME, "r"), 2, events[2:])])
    assert await store.runs.events(run(), 2) == [(2, events[2:])]
    assert await store.runs.events(run(), 1) == [(1, events[1:5]), (5, events[5:])]
    assert await store.runs.events(run(), 6) == []
    await store.runs._store_pieces([LogPiece((ME, "r"), 9, events[:1]), LogPiece((ME, "r"), HOLE, events[:1])])
    assert await store.runs.events(run(), 6) == [(HOLE, events[:1])], "nothing behind a gap, but the next part"


# a database that is not as expected


async def test_start_up_failures_are_one_sentence_without_the_password(opened, postgres_database):
    missing = postgres_database.replace("/postgres?", "/nothing?")
    for url, words in (
        (f"postgresql://me:hunter2@127.0.0.1:{free_port()}/db", "cannot be reached: Connection refused"),
        (missing, 'database "nothing" does not exist'),
        ("mysql://me:hunter2@127.0.0.1/db", "no address of a PostgreSQL database"),
    ):
        with pytest.raises(StartError, match=words) as caught:
            await opened(url=url)
        assert "hunter2" not in caught.value.message
        assert "\n" not in caught.value.message


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
            await opened(url=url)
        assert "hunter2" not in caught.value.message
    finally:
        rules.write_text(before)
        sql(postgres_database, "DROP ROLE IF EXISTS locked")
        sql(postgres_database, "SELECT pg_reload_conf()")


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


async def test_another_application_s_tables_are_not_touched(opened, postgres_database):
    sql(postgres_database, "CREATE TABLE public.sessions (mine text)")
    try:
        await say(await opened(), "hello")
        assert sql(postgres_database, "SELECT * FROM public.sessions") == []
    finally:
        sql(postgres_database, "DROP TABLE public.sessions")


@pytest.mark.req("D16")
@pytest.mark.parametrize("body", [b"[{", b'[{"role":"user"}]', b"\xff\xfe", b"[" * 100_000])
async def test_a_session_that_cannot_be_read_is_set_aside_and_the_others_are_served(
    opened, postgres_database, body, caplog
):
    store = await opened()
    await say(store, "good", "good")
    await say(store, "bad", "bad")
    spoil = "UPDATE holodeck.steps SET body = %s WHERE session = (SELECT key FROM holodeck.sessions WHERE id = 'bad')"
    sql(postgres_database, spoil, body)
    for _ in range(2):
        with pytest.raises(SessionBroken):
            await store.read("bad", owner=ME)
        with pytest.raises(SessionBroken):
            await store.open("bad", owner=ME, create=True)
    assert caplog.text.count("is set aside") == 1
    assert await texts(store, "good") == ["good"]
    assert (body,) in sql(postgres_database, "SELECT body FROM holodeck.steps")


@pytest.mark.req("D16")
async def test_a_session_of_a_newer_version_is_left_as_it_is(opened, postgres_database):
    store = await opened()
    await say(store, "hello")
    sql(postgres_database, "UPDATE holodeck.steps SET v = 99")
    with pytest.raises(SessionNewer):
        await store.read("s", owner=ME)
    sql(postgres_database, "UPDATE holodeck.steps SET v = 1")
    assert await texts(store) == ["hello"]


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
    """What pgbouncer in transaction mode needs: a statement may use another connection than the one before."""
    store = await opened()
    for number in range(10):
        await say(store, str(number))
    left = await store.database.rows(
        "SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),"
        " (SELECT count(*) FROM pg_cursors), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
    )
    assert left == [(0, 0, 0, 0)]


async def test_records_of_runs_are_removed_after_a_day_and_copies_of_logs_before(opened, postgres_database):
    store = await opened()
    now = [1_000_000.0]
    store.runs.clock = lambda: now[0]
    await store.runs.begin(run())
    await store.runs.end(run(), ENDING)
    sql(postgres_database, "INSERT INTO holodeck.pieces SELECT key, 0, '[]' FROM holodeck.runs")
    left = "SELECT (SELECT count(*) FROM holodeck.runs), (SELECT count(*) FROM holodeck.pieces)"
    for seconds, expected in ((60, (1, 1)), (100, (1, 0)), (80_000, (1, 0)), (10_000, (0, 0))):
        now[0] += seconds
        await store.runs.remove_old()
        assert sql(postgres_database, left) == [expected]


async def test_a_session_moved_from_one_store_to_the_other_and_back_is_the_same(opened, tmp_path):
    store, file = await opened(), SqliteSessionStore(SqliteFile(tmp_path / "sessions.db"), "tester")
    await file.start()
    try:
        conversation = await store.open("s", owner=ME, create=True)
        await conversation.commit([UserMessage(content="hi \x00 😀")], state={"a": 1})
        before = await store.read("s", owner=ME)
        await file.restore(before)
        await store.delete("s", owner=ME)
        await store.restore(await file.read("s", owner=ME))
        assert await store.read("s", owner=ME) == before
    finally:
        await file.close()
