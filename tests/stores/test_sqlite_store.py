"""What only a store in a file has to show: the next process, broken rows, sums of bytes, reads beside writes."""

import asyncio
import gc
import json
import sys
import threading

import pytest

from holodeck.core.events import RunFinished, TextAdded
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.errors import LostClaim, RateLimited, SessionBroken, SessionNewer
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord
from holodeck.stores import records
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import LOOKED_AT, SqliteSessionStore
from tests.stores.stored_sessions import begun, run, say, texts


@pytest.mark.req("SRV-15", "DUR-01")
async def test_what_is_stored_is_there_for_the_next_process(opened):
    first = await opened()
    await say(first, "hello")
    await first.close()
    assert await texts(await opened()) == ["hello"]


async def test_two_agents_share_a_file_and_no_session(opened):
    first, second = await opened("first"), await opened("second")
    await say(first, "hello")
    assert await texts(second) is None
    assert await second.count() == 0


async def test_a_run_that_opened_a_session_before_a_chat_added_to_it_may_not_write(opened):
    """The chat had claimed the session before, so only the number of its steps has changed."""
    server, chat = await opened(), await opened()
    typing = await chat.open("s", owner=ME, create=True)
    await typing.commit([UserMessage(content="question")])
    waiting = await server.open("s", owner=ME)
    await typing.commit([AssistantMessage(content="answer")])
    with pytest.raises(LostClaim):
        await waiting.commit([UserMessage(content="late")])
    await typing.commit([UserMessage(content="next")])
    assert await texts(server) == ["question", "answer", "next"]


async def test_a_chat_beside_a_server_makes_no_room_of_a_session_on_which_the_server_has_a_run(opened):
    server, chat = await opened(exclusive=True), await opened(max_per_user=1)
    conversation = await begun(server, run())
    await conversation.commit([UserMessage(content="hi")])
    with pytest.raises(RateLimited):
        await say(chat, "hello", "other")
    assert await texts(server) == ["hi"]
    await conversation.commit([AssistantMessage(content="done")], ending=RunFinished("r", "s"))
    conversation.close()
    await say(chat, "hello", "other")
    assert (await texts(chat), await texts(chat, "other")) == (None, ["hello"])


async def test_of_a_request_only_what_differs_from_the_default_is_stored(opened):
    store = await opened()
    asked = RunRequest(run_id="r", session_id="s", messages=(UserMessage(content="hello"),))
    await store.runs.begin(RunRecord(run_id="r", owner=ME, session_id="s", request=asked))
    body = await store.file.read(lambda connection: connection.execute("SELECT request FROM runs").fetchone())
    assert set(json.loads(body[0])) == {"run_id", "session_id", "messages"}
    assert (await store.runs.find("r", owner=ME)).request == asked
    whole = {name: getattr(asked, name) for name in asked.__struct_fields__}  # as versions before stored it
    assert records.request_of(records.encode(whole), records.VERSION) == asked


async def test_the_sum_of_a_tenant_is_kept_only_where_it_is_read(opened):
    """Servers without a limit for tenants need no sum, and each commit would write one page more."""
    store = await opened()
    await say(store, "hello")
    assert await store.file.read(lambda connection: connection.execute("SELECT * FROM tenant_sizes").fetchall()) == []


async def test_the_sum_of_a_tenant_is_read_without_its_sessions(opened):
    """The thread that stores for all runs must not read a million rows for one figure, but for the first time."""
    store, statements = await opened(), []
    await store.tenant_bytes("default")
    await say(store, "hello")
    await store.file.look(lambda connection: connection.set_trace_callback(statements.append))
    assert await store.tenant_bytes("default") == (await store.get("s", owner=ME)).size > 0
    assert statements
    assert not [each for each in statements if "sessions" in each]


@pytest.mark.req("D16")
@pytest.mark.parametrize(
    "body", [b"[{", b"[]x", b'[{"role":"user"}]', b'{"a":1}', b"\xff\xfe", b"[" * 100_000, b'[{"role":"nobody"}]']
)
async def test_a_session_that_cannot_be_read_is_set_aside_and_the_others_are_served(opened, path, body, caplog):
    store = await opened()
    await say(store, "good", "good")
    await say(store, "bad", "bad")

    def spoil(connection):
        statement = "UPDATE steps SET body = ? WHERE session = (SELECT key FROM sessions WHERE id = 'bad')"
        connection.execute(statement, (body,))

    await store.file.write(spoil)
    for _ in range(2):
        with pytest.raises(SessionBroken):
            await store.read("bad", owner=ME)
        with pytest.raises(SessionBroken):
            await store.open("bad", owner=ME, create=True)
    assert caplog.text.count("is set aside") == 1
    assert await texts(store, "good") == ["good"]
    kept = await store.file.read(lambda connection: connection.execute("SELECT body FROM steps").fetchall())
    assert (body,) in kept
    assert [each.session_id for each in await store.named("bad")] == ["bad"]
    assert await store.delete("bad", owner=ME)
    assert await store.named("bad") == []


@pytest.mark.req("D16")
async def test_a_session_of_a_newer_version_is_left_as_it_is(opened):
    store = await opened()
    await say(store, "hello")
    await store.file.write(lambda connection: connection.execute("UPDATE steps SET v = 99").rowcount)
    with pytest.raises(SessionNewer):
        await store.read("s", owner=ME)
    await store.file.write(lambda connection: connection.execute("UPDATE steps SET v = 1").rowcount)
    assert await texts(store) == ["hello"]


WRITE = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"


@pytest.mark.req("D16")
@pytest.mark.parametrize("damage", ["v = 99", "body = x'5b7b'"])
@pytest.mark.parametrize("size", ["short", "long"])  # read in the loop, or by the thread
async def test_a_session_that_cannot_be_read_leaves_no_snapshot_open(opened, path, damage, size):
    """With one, this process could store nothing more after another has, and would not see what that one has stored."""
    store, errors = await opened(), []
    for name in ("bad", "good"):
        for number in range(3):
            await say(store, f"{number}" if size == "short" else "x" * LOOKED_AT, name)
    bad = "(SELECT key FROM sessions WHERE id = 'bad')"
    await store.file.execute(f"UPDATE steps SET {damage} WHERE session = {bad}", ())
    gc.disable()
    try:
        for read in (store.open, store.read, store.open):
            with pytest.raises((SessionNewer, SessionBroken)) as caught:
                await read("bad", owner=ME)
            errors.append(caught.value)  # its callers may keep it
            await store.file.execute(
                "UPDATE sessions SET broken = NULL", ()
            )  # so that the next one reads its steps, too
        change = "UPDATE sessions SET state = CAST('\"changed\"' AS BLOB) WHERE id = 'good'"
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITE, str(path), change)
        assert await other.wait() == 0
        conversation = await store.open("good", owner=ME)
        assert conversation.state == "changed"
        await conversation.commit([UserMessage(content="stored")])
        assert (await texts(store, "good"))[-1] == "stored"
    finally:
        gc.enable()


async def test_a_session_is_read_behind_a_write_that_its_caller_did_not_wait_for(opened):
    store = await opened()
    await say(store, "one")
    blocked, released = threading.Event(), threading.Event()
    store.file.read(lambda _: (blocked.set(), released.wait(30)))
    await asyncio.to_thread(blocked.wait, 30)
    left = await store.open("s", owner=ME, create=True)
    writing = asyncio.ensure_future(left.commit([UserMessage(content="two")]))
    await asyncio.sleep(0)
    writing.cancel()
    opening = asyncio.ensure_future(store.open("s", owner=ME))
    await asyncio.sleep(0)
    released.set()
    assert [message.content for message in (await opening).messages] == ["one", "two"]


async def test_a_small_session_is_opened_while_the_thread_is_busy_and_a_large_one_waits(opened):
    store = await opened()
    await say(store, "one")
    await say(store, "x" * LOOKED_AT, "large")
    blocked, released = threading.Event(), threading.Event()
    store.file.read(lambda _: (blocked.set(), released.wait(30)))
    await asyncio.to_thread(blocked.wait, 30)
    assert [message.content for message in (await store.open("s", owner=ME)).messages] == ["one"]
    large = asyncio.ensure_future(store.open("large", owner=ME))
    await asyncio.sleep(0)
    assert not large.done()
    released.set()
    assert len((await large).messages) == 1


async def test_a_new_session_takes_nothing_from_an_expired_one_of_its_name(opened, path):
    now = [1000.0]
    store = SqliteSessionStore(SqliteFile(path), "tester", 10, clock=lambda: now[0])
    await store.start()
    await say(store, "old")
    now[0] += 11
    await say(store, "new")
    assert await texts(store) == ["new"]
    (steps,) = await store.file.read(lambda connection: connection.execute("SELECT count(*) FROM steps").fetchone())
    assert steps == 1
    await store.close()


async def test_the_bytes_of_an_owner_are_those_in_the_file_again_after_room_was_made(path):
    file = SqliteFile(path)
    store = SqliteSessionStore(file, "tester", max_per_user=3, max_owner_bytes=6_000)
    await store.start()
    try:
        for number in range(40):  # each drops the oldest session to make room for one more
            await say(store, "x" * 1_000, name=f"s{number}")
        await say(store, "x" * 5_000, name="large")
        await store.file.read(lambda connection: None)  # what makes space has been carried out
        await asyncio.sleep(0)
        kept = sum(session.size for session in await store.sessions_of(owner=ME))
        assert kept <= 6_000
        assert store.stored_bytes(ME) == kept
    finally:
        await store.close()


async def test_nothing_is_counted_of_an_owner_whose_sessions_are_gone(opened):
    store = await opened()
    await say(store, "hello")
    await say(store, "hello", name="other")
    await store.delete("s", owner=ME)
    assert list(store._stored) == [ME]
    await store.delete_all(owner=ME)
    assert store._stored == {}


async def test_bytes_that_are_stored_while_a_session_is_copied_count_too(opened):
    store = await opened()
    await say(store, "hello")
    one = store.stored_bytes(ME)
    forking = asyncio.create_task(store.fork("s", owner=ME))
    await asyncio.sleep(0)  # it waits for the file
    store.grew(ME, 1000)
    await forking
    assert store.stored_bytes(ME) == 2 * one + 1000


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_run_that_has_ended_keeps_its_messages_in_its_session_alone(opened, at_once):
    store = await opened()
    asked = UserMessage(content="x" * 50_000, id="u")
    record = RunRecord(run_id="r", owner=ME, session_id="s", request=RunRequest(messages=(asked,), state=["y" * 9_000]))
    store.runs.register(record)
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    accepted = conversation.accept([asked])
    if not at_once:
        await accepted
        (live,) = await store.runs.unfinished()
        assert live.request.messages == (asked,), "a run that goes on after a crash needs them"
    await conversation.commit([AssistantMessage(content="hello")], ending=RunFinished("r", "s"))
    ended = await store.runs.find("r", owner=ME)
    assert (ended.request.messages, ended.request.state, ended.state) == ((), None, "finished")
    assert await store.runs.unfinished() == []


@pytest.mark.req("C08")
async def test_idempotency_keys_and_endings_survive(opened):
    store = await opened()
    request = RunRecord(run_id="r", owner=ME, session_id="s", wire="rest", key="k", fingerprint=b"f")
    store.runs.register(request)
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    await conversation.commit([UserMessage(content="hi")])
    assert [each.run_id for each in await store.runs.unfinished()] == ["r"]
    ending = RunFinished("r", "s")
    await conversation.commit([AssistantMessage(content="hello")], ending=ending)
    await store.close()
    again = await opened()
    found = await again.runs.by_key("rest", "k", owner=ME)
    assert (found.run_id, found.fingerprint, found.ending, found.state) == ("r", b"f", ending, "finished")
    assert await again.runs.by_key("ag-ui", "k", owner=ME) is None
    assert await again.runs.unfinished() == []


async def test_a_server_that_stops_copies_the_last_events_of_its_runs(opened):
    """A reader that comes back after the restart reads on where it was. A crash may lose a quarter of a second."""
    store, log = await opened(), RunLog()
    record = RunRecord(run_id="r", owner=ME, session_id="s")
    await store.runs.begin(record)
    store.runs.follow(record, log)
    log.append(TextAdded("m", "the last word"))
    await store.close()
    assert await (await opened()).runs.events(record) == [(0, [TextAdded("m", "the last word")])]
