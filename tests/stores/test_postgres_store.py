"""What only a store in a database has to show: commits that are repeated, what a run costs, changes during a read."""

import asyncio
import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from urllib.parse import quote

import psycopg
import pytest

from holodeck.core.events import RunFinished
from holodeck.core.messages import (
    AssistantMessage,
    KeptAnswer,
    MediaPart,
    PendingStep,
    Summary,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.owner import Owner
from holodeck.core.usage import TokenUsage
from holodeck.errors import (
    InvalidRequest,
    LostClaim,
    SessionBroken,
    SessionDeleted,
    SessionNewer,
)
from holodeck.sessions.values import KeptValue
from holodeck.stores import postgres_database as postgres_database_module
from holodeck.stores import postgres_sessions as postgres_sessions_module
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_run_statements import SMALL_SESSION
from holodeck.stores.postgres_sessions import PostgresSessionStore
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.stores.processes import ENDING, opened_on_postgres, sql
from tests.stores.stored_sessions import begun, run, say, texts

__all__ = ["opened_on_postgres"]


@contextmanager
def connection_lost_once(between=None, *, at=1, is_done=True):
    """The connection breaks after the database has carried a statement out, the first one or that number, or before."""
    real, sent = PostgresDatabase._once, []

    async def breaks(self, job, lane):
        sent.append(job)
        is_lost = len(sent) == at
        done = await real(self, job, lane) if is_done or not is_lost else None
        if is_lost:
            if between is not None:
                await between()
            raise psycopg.OperationalError("the connection is lost")
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresDatabase, "_once", breaks)
        yield


@pytest.mark.req("D07")
async def test_a_commit_that_is_repeated_after_a_lost_connection_counts_once(opened):
    store = await opened()
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="first")])
    for ending in (None, ENDING):
        with connection_lost_once():
            await conversation.commit([AssistantMessage(content="once")], ending=ending)
    assert await texts(store) == ["first", "once", "once"]
    assert (await store.runs.find("r", owner=ME)).ending == ENDING


@pytest.mark.req("D07")
async def test_a_run_knows_that_its_ending_is_stored_although_another_writer_came_before_it_looked(opened):
    """The next run of the session, or a terminal, writes before the run repeats the commit whose connection was lost."""
    store, other = await opened(), await opened()
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="first")])
    with connection_lost_once(lambda: say(other, "later")):
        await conversation.commit([AssistantMessage(content="once")], ending=ENDING)
    assert await texts(store) == ["first", "once", "later"]
    assert (await other.runs.find("r", owner=ME)).ending == ENDING


@pytest.mark.req("D07")
@pytest.mark.parametrize("ending", [None, ENDING])
@pytest.mark.parametrize("fate", ["done", "not done", "another has written"])
async def test_a_commit_that_first_cuts_the_history_counts_once_as_well(opened, fate, ending):
    """The user edits a message while the database fails over."""
    store, other = await opened(), await opened()
    for text in ("kept", "to be edited"):
        await say(store, text)
    before = (await store.read("s", owner=ME)).messages[1].id
    conversation = await begun(store, run())
    await conversation.rewind(before)
    if fate == "another has written":
        await say(other, "by another")
        with pytest.raises(LostClaim):
            await conversation.commit([UserMessage(content="edited")], ending=ending)
    else:
        with connection_lost_once(at=2, is_done=fate == "done"):  # the first one reads the whole history
            await conversation.commit([UserMessage(content="edited")], ending=ending)
    written = ["to be edited", "by another"] if fate == "another has written" else ["edited"]
    if ending is None and fate != "another has written":
        await conversation.commit([AssistantMessage(content="once")])
        written.append("once")
    assert await texts(store) == ["kept", *written]


@pytest.mark.req("D07")
async def test_a_run_that_was_ended_otherwise_does_not_take_its_own_ending_for_stored(opened, postgres_database):
    store = await opened()
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="first")])
    sql(postgres_database, "UPDATE holodeck.runs SET state = 'interrupted', ended = 1, ending = '{}'::bytea")
    with pytest.raises(LostClaim):
        await conversation.commit([AssistantMessage(content="late")], ending=ENDING)
    assert await texts(store) == ["first"]


@pytest.mark.req("D07")
async def test_a_run_that_continues_under_its_own_id_begins_once_although_the_statement_is_repeated(
    opened, monkeypatch
):
    store = await opened()
    await begun(store, run())
    await store.runs.end(run(), ENDING)
    store.runs.release(run())
    real, sent = PostgresDatabase._once, []

    async def breaks(self, job, lane):
        done = await real(self, job, lane)
        sent.append(done)
        if len(sent) == 2:  # it has read the ending, and begun
            raise psycopg.OperationalError("the connection is lost")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(PostgresDatabase, "_once", breaks)
        assert (await store.runs.begin(run(), continues=ENDING)).is_first
    assert len(sent) == 3
    assert (await store.runs.find("r", owner=ME)).ending is None


# what a run costs


@pytest.fixture
def statements(monkeypatch):
    """One entry for each that is sent."""
    sent, real = [], PostgresDatabase._once

    async def counted(self, job, lane):
        sent.append(lane)
        return await real(self, job, lane)

    monkeypatch.setattr(PostgresDatabase, "_once", counted)
    return sent


async def test_a_run_is_three_statements_on_a_new_session_and_on_one_that_is_there(opened, statements):
    store = await opened()
    await asyncio.wait({store._warning})  # beside the start
    for number in range(3):
        statements.clear()
        conversation = await begun(store, run(f"r{number}"), last=2)
        await conversation.commit([UserMessage(content=f"q{number}", run_id=f"r{number}")])
        await conversation.commit(
            [AssistantMessage(content=f"a{number}", run_id=f"r{number}")], ending=RunFinished(f"r{number}", "s")
        )
        conversation.close()
        store.runs.release(run(f"r{number}"))
        assert len(statements) == 3, "begin, the question, the answer with the ending"
    assert [each.content for each in conversation.messages] == ["q1", "a1", "q2", "a2"]
    assert conversation.earlier == 2
    assert await texts(store) == ["q0", "a0", "q1", "a1", "q2", "a2"]


async def test_a_run_reads_a_session_that_was_changed_after_it_began(opened):
    store = await opened()
    await say(store, "first")
    second = UserMessage(content="second", id="second")
    conversation = await store.open("s", owner=ME)
    await conversation.commit([second])
    conversation.close()
    store.runs.register(run())
    assert (await store.runs.begin(run())).is_first
    await store.rewind("s", "second", owner=ME)
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    assert [each.content for each in conversation.messages] == ["first"]
    await conversation.commit([UserMessage(content="third", run_id="r")])
    assert await texts(store) == ["first", "third"]


@pytest.mark.req("SRV-16")
@pytest.mark.parametrize("first", [["first"], []], ids=["a stored session", "a new session"])
@pytest.mark.parametrize(
    "setting",
    [
        "plan_cache_mode=auto",
        "plan_cache_mode=force_generic_plan",
        "default_transaction_isolation=repeatable\\ read",
        "default_transaction_isolation=serializable",
    ],
)
async def test_a_run_whose_begin_waited_during_a_whole_run_reads_the_session_again(
    opened, postgres_database, setting, first, monkeypatch
):
    monkeypatch.setattr(postgres_database_module, "PREPARE_AFTER", 0)
    one, other = await opened(), await opened(place=f"{postgres_database}&options={quote(f'-c {setting}')}")
    for text in first:
        await say(one, text)
    with closing(psycopg.connect(postgres_database)) as blocking:  # a row of the same name: the insert waits for it
        blocking.execute(
            "INSERT INTO holodeck.runs (agent, tenant, user_name, id, session, wire, replica, state, accepted, v, request)"
            " VALUES ('tester', %s, %s, 'late', 's', '', '', 'queued', 0, 1, '')",
            (ME.tenant, ME.user),
        )
        late = asyncio.create_task(begun(other, run("late")))
        while not sql(postgres_database, "SELECT 1 FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.01)
        conversation = await begun(one, run("early"))
        await conversation.commit([UserMessage(content="second")], ending=RunFinished("early", "s"))
        blocking.rollback()
    conversation = await late
    assert [each.content for each in conversation.messages] == [*first, "second"]
    await conversation.commit([UserMessage(content="third")])
    assert await texts(one) == [*first, "second", "third"]


async def test_a_long_session_is_read_by_the_run_itself_and_a_broken_one_not_at_all(opened, postgres_database):
    store = await opened()
    await say(store, "x" * SMALL_SESSION)
    conversation = await begun(store, run())
    assert [len(each.content) for each in conversation.messages] == [SMALL_SESSION]
    conversation.close()
    await store.runs.end(run(), ENDING)
    sql(postgres_database, "UPDATE holodeck.sessions SET broken = 'why'")
    with pytest.raises(SessionBroken):
        await begun(store, run("r2"))
    assert not store._in_use


async def test_the_sum_of_a_tenant_is_read_from_an_index_alone(opened, postgres_database):
    await say(await opened(), "hello")
    with psycopg.connect(postgres_database) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_bitmapscan = off")
        plan = connection.execute(
            "EXPLAIN SELECT sum(size) FROM holodeck.sessions WHERE agent = 'tester' AND tenant = 'default'"
        ).fetchall()
    assert "Index Only Scan using sessions_of_tenant" in str(plan)


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
    assert [each.session_id for each in await store.named("bad")] == ["bad"]
    assert await store.delete("bad", owner=ME)
    assert await store.named("bad") == []


@pytest.mark.req("D16")
async def test_a_session_of_a_newer_version_is_left_as_it_is(opened, postgres_database):
    store = await opened()
    await say(store, "hello")
    sql(postgres_database, "UPDATE holodeck.steps SET v = 99")
    with pytest.raises(SessionNewer):
        await store.read("s", owner=ME)
    sql(postgres_database, "UPDATE holodeck.steps SET v = 1")
    assert await texts(store) == ["hello"]


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


async def test_all_of_a_user_is_deleted_whatever_state_it_is_in(opened, postgres_database):
    store = await opened()
    other = Owner("default", "other")
    for owner, name in ((ME, "alive"), (ME, "broken"), (ME, "expired"), (other, "alive")):
        await (await store.open(name, owner=owner, create=True)).commit([UserMessage(content="hi")])
        await store.values.put(KeptValue(kind="push", name=name), owner=owner)
    change = "UPDATE holodeck.sessions SET broken = CASE id WHEN 'broken' THEN 'why' END,"
    sql(postgres_database, f"{change} used = CASE id WHEN 'expired' THEN 0 ELSE used END")
    await store.runs.begin(run())
    assert await store.delete_all(owner=ME) == 3
    left = "SELECT (SELECT count(*) FROM holodeck.sessions), (SELECT count(*) FROM holodeck.kept_values)"
    assert sql(postgres_database, f"{left}, (SELECT count(*) FROM holodeck.runs)") == [(1, 1, 0)]


async def test_a_session_that_is_deleted_during_its_first_commit_is_gone(opened, postgres_database, monkeypatch):
    one, other = await opened(), await opened()
    conversation = await begun(one, run())
    row, is_written, may_end = one.database.row, asyncio.Event(), asyncio.Event()

    async def in_progress(statement, values, **_options):
        """Executes the commit and leaves its transaction open."""
        monkeypatch.setattr(one.database, "row", row)
        async with await psycopg.AsyncConnection.connect(postgres_database) as connection:
            found = await (await connection.execute(statement, values)).fetchone()
            is_written.set()
            await may_end.wait()
        return found

    monkeypatch.setattr(one.database, "row", in_progress)
    committing = asyncio.create_task(conversation.commit([UserMessage(content="hi")]))
    await asyncio.wait_for(is_written.wait(), 50)
    deleting = asyncio.create_task(other.delete("s", owner=ME))
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(50):
        while sql(postgres_database, waits) == [(0,)]:
            await asyncio.sleep(0.01)
    may_end.set()
    await asyncio.wait_for(asyncio.gather(committing, deleting), 50)
    assert await texts(other) is None
    with pytest.raises(SessionDeleted):
        await conversation.commit([AssistantMessage(content="late")])


async def test_a_session_on_which_a_run_begins_does_not_make_room_for_another(opened, monkeypatch):
    one, other = await opened(), await opened()
    await say(one, "hi")
    by_last_use = one._by_last_use

    async def begun_meanwhile(owner):
        found = await by_last_use(owner)
        await other.runs.begin(run())
        return found

    monkeypatch.setattr(one, "_by_last_use", begun_meanwhile)
    await one._evict_by_size(ME, 0)
    assert await texts(other) == ["hi"]


async def test_a_session_that_begins_during_its_import_is_left_as_it_is(opened, monkeypatch):
    one, other = await opened(), await opened()
    await say(other, "mine")
    stored = await other.read("s", owner=ME)

    async def finds_nothing(*_args, **_options):
        return None

    monkeypatch.setattr(one, "_find", finds_nothing)
    with pytest.raises(InvalidRequest, match="already"):
        await one.restore(stored)
    assert await texts(other) == ["mine"]


@pytest.mark.parametrize("how", ["read", "fork"])
async def test_a_session_that_is_rewound_while_it_is_read_is_read_again(opened, monkeypatch, how):
    one, other = await opened(), await opened()
    conversation = await one.open("s", owner=ME, create=True)
    await conversation.commit([UserMessage(content="first"), UserMessage(content="second", id="u2")], state={"seen": 2})
    conversation.close()
    messages_of = one.messages_of

    async def rewound_first(row):
        monkeypatch.setattr(one, "messages_of", messages_of)
        await other.rewind("s", "u2", owner=ME)
        conversation = await other.open("s", owner=ME)
        await conversation.commit([UserMessage(content="third")], state={"seen": 3})
        conversation.close()
        return await messages_of(row)

    monkeypatch.setattr(one, "messages_of", rewound_first)
    found = await one.read(await one.fork("s", owner=ME) if how == "fork" else "s", owner=ME)
    assert ([each.content for each in found.messages], found.state) == (["first", "third"], {"seen": 3})


async def test_a_run_that_was_deleted_before_its_first_commit_stores_nothing(opened):
    store = await opened()
    for name, ending in (("r", None), ("r2", ENDING)):
        conversation = await begun(store, run(name))
        store.runs.release(run(name))  # as `Runs.forget_session` does
        await store.delete("s", owner=ME)
        with pytest.raises(SessionDeleted):
            await conversation.commit([UserMessage(content="hi")], ending=ending)
        conversation.close()
    assert await texts(store) is None


ODD_TEXT = "NUL \x00, CR LF \r\n, \u2028, U+FFFE \ufffe, U+FFFF \uffff, emoji \U0001f469\u200d\U0001f680, e\u0301, \u202eright to left"
"""Messages are UTF-8: half a surrogate pair is U+FFFD before it gets here (tests/wires/agui/test_agui_hostile.py)."""


async def test_a_session_moved_from_a_file_to_the_database_and_back_is_the_same(opened, tmp_path):
    earlier = time.time() - 60  # a session is never younger than its store's clock, and two clocks differ by a little
    database = await opened()
    file = SqliteSessionStore(SqliteFile(tmp_path / "sessions.db"), "tester", clock=lambda: earlier)
    await file.start()
    try:
        extra = {"extra_content": {"google": {"thought_signature": ODD_TEXT}}}
        made, waiting = (
            ToolCall(id=name, name="act", arguments='{"a": "\\u0000"}', extra=extra) for name in ("c1", "c2")
        )
        document = MediaPart(mime_type="application/pdf", data="JVBERi0=", filename="a \u202e\x00.pdf")
        usage = TokenUsage(prompt_tokens=3, completion_tokens=5)
        question = UserMessage(content=(TextPart(ODD_TEXT), document), id="u1", run_id="r1")
        step = AssistantMessage(
            content=ODD_TEXT, reasoning=ODD_TEXT, tool_calls=(made,), tokens_used=usage, extra=extra, run_id="r1"
        )
        result = ToolMessage(call_id="c1", name="act", content=(TextPart(ODD_TEXT), document), failed=True, run_id="r1")
        cut = AssistantMessage(content="half an", cut="interrupted", id="a2", run_id="r1")
        adopted = AssistantMessage(content="by a client", from_client=True)
        pending = PendingStep(
            assistant=AssistantMessage(tool_calls=(made, waiting), run_id="r2"),
            results=(ToolMessage(call_id="c1", name="act", content="42", run_id="r2"),),
            approvals={"i1": "c2"},
            expires_at=datetime(2030, 1, 2, 3, 4, 5, 6, UTC),
            answers={"i0": KeptAnswer(approved=True, payload={"n": ODD_TEXT}, reason=ODD_TEXT)},
            run_id="r2",
        )
        conversation = await file.open("s", owner=ME, create=True)
        await conversation.commit([question, step, result, cut])
        await conversation.commit(
            [adopted, UserMessage(content="go on", run_id="r2")],
            pending,
            state={"text": ODD_TEXT, "numbers": [1, -1.5, 2**63, None, True], "deep": {"a": [{}]}},
            summary=Summary(content=ODD_TEXT, until="u1", messages=1, tokens_used=usage),
        )
        conversation.close()
        before = await file.read("s", owner=ME)
        assert (len(before.messages), before.pending, before.messages[2]) == (6, pending, result)
        assert (before.summary.content, before.state["text"]) == (ODD_TEXT, ODD_TEXT)

        await database.restore(before)
        moved = await database.read("s", owner=ME)
        assert moved == before
        await file.delete("s", owner=ME)
        await file.restore(moved)
        assert await file.read("s", owner=ME) == before
    finally:
        await file.close()


async def test_a_batch_is_bounded_by_the_bytes_of_its_sessions_and_the_pieces_of_its_runs(
    opened, postgres_database, monkeypatch
):
    """A statement that takes longer than its time limit would be repeated every minute, and remove nothing."""
    monkeypatch.setattr("holodeck.stores.postgres_sessions.BATCH_BYTES", 1000)
    monkeypatch.setattr("holodeck.stores.postgres_runs.BATCH", 5)
    store = await opened()
    sql(
        postgres_database,
        "INSERT INTO holodeck.sessions (agent, tenant, user_name, id, created, used, v, size)"
        " SELECT 'tester', 'default', 'anonymous', 's' || n, 0, 0, 1, 400 FROM generate_series(1, 10) AS n",
    )
    await store.runs.begin(run())
    await store.runs.end(run(), ENDING)
    sql(
        postgres_database,
        "INSERT INTO holodeck.pieces SELECT key, n, '[]' FROM holodeck.runs, generate_series(0, 11) n",
    )
    assert await store._remove_batch() == (3, True)
    assert await store.cleanup_expired() == 7
    clock, left = store.runs.clock, []
    store.runs.clock = lambda: clock() + 1000
    for _ in range(3):
        await store.runs._remove_batch()
        left += sql(postgres_database, "SELECT count(*) FROM holodeck.pieces")
    assert left == [(7,), (2,), (0,)]


async def test_the_owners_whose_bytes_are_counted_are_bounded(postgres_database, monkeypatch):
    """A server sees any number of users. The total of one that it has forgotten is read again."""
    monkeypatch.setattr(postgres_sessions_module, "MAX_UNCHECKED", 3)
    store = PostgresSessionStore(PostgresDatabase(postgres_database), "tester", max_owner_bytes=1_000_000)
    await store.start()
    try:
        owners = [Owner("t", f"u{number}") for number in range(10)]
        for owner in (*owners, owners[9]):
            store.grew(owner, 5)
        assert store._unchecked == {owners[7]: 0, owners[8]: 0, owners[9]: 5}
        store.grew(owners[0], 5)
        assert owners[0] in store._evicting
    finally:
        await store.close()
