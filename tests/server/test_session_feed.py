"""`GET /sessions` and `GET /sessions/{id}/events`: one's own conversations, and every run of one as it starts."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holodeck.access.failure import Failure
from holodeck.access.key_file import change_key_file
from holodeck.core.events import RunFinished, RunStarted
from holodeck.core.ids import new_ulid
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.models.scripted import says
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunRecord
from holodeck.server.options import ServerSettings
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.sqlite_shared_runs import SharedSqliteRunStore
from tests.runs.test_runs import Gate
from tests.server.keyed import KeyHolders, keyed, settings
from tests.server.serving import ask, served, types, until

SESSION, OTHER = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G", "01K9ZQ4W3V8N2R5T7Y9A1C3E5H"
ALL = ServerSettings(protocols=("ag-ui", "rest", "openai"))


async def sessions(s, query=""):
    async with s.get(f"/sessions{query}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def frames(stream, endings):
    """Reads the feed until so many runs have ended."""
    body = b""
    while body.count(b"RUN_FINISHED") < endings or not body.endswith(b"\n\n"):
        body += await asyncio.wait_for(stream.content.readany(), 30)
    return body


@pytest.mark.req("SRV-11")
async def test_the_list_has_one_s_own_sessions_in_pages():
    async with served(says("hello"), settings=ALL) as s:
        for name in "abcde":
            async with s.post(ask(thread=name, run=name)) as answer:
                await answer.read()
        first = await sessions(s, "?limit=2")
        assert [each["session_id"] for each in first["sessions"]] == ["e", "d"]
        assert first["sessions"][0]["message_count"] == 2
        second = await sessions(s, f"?limit=2&after={first['next']}")
        assert [each["session_id"] for each in second["sessions"]] == ["c", "b"]
        last = await sessions(s, f"?limit=2&after={second['next']}")
        assert ([each["session_id"] for each in last["sessions"]], last["next"]) == (["a"], None)


@pytest.mark.parametrize("query", ["?limit=0", "?limit=201", "?limit=x", "?after=%C3%A9", "?after=AAAA", "?after="])
async def test_a_page_that_cannot_be_is_refused(query):
    async with served(settings=ALL) as s, s.get(f"/sessions{query}") as answer:
        assert answer.status == 422, await answer.text()


async def test_the_feed_shows_runs_of_every_wire_as_they_start():
    async with served(says("one"), says("two"), settings=ALL) as s:
        await s.server.store.create(SESSION, owner=ANONYMOUS_OWNER)
        feed = await s.get(f"/sessions/{SESSION}/events")
        assert feed.status == 200, "before anything is said"
        async with s.post({"message": "hi", "session_id": SESSION}, "/agent/tester/chat") as answer:
            await answer.read()
        question = {"messages": [{"role": "user", "content": "and now?"}]}
        async with s.post(question, "/v1/chat/completions", **{"X-Session-Id": SESSION}) as answer:
            await answer.read()
        async with s.post({"message": "hi", "session_id": OTHER}, "/agent/tester/chat") as answer:
            await answer.read()
        body = await frames(feed, 2)
        assert types(body).count("RUN_STARTED") == 2
        assert b'"delta":"one"' in body
        assert b'"delta":"two"' in body
        feed.close()


async def test_a_reader_that_comes_late_gets_the_run_in_progress_from_its_beginning():
    gate = Gate()
    async with served(says("one two", pause=gate), settings=ALL) as s:
        run = await s.post(ask(thread="s", run="r"))
        await until(lambda: len(s.run("r").log) > 3)
        feed = await s.get("/sessions/s/events")
        gate.open.set()
        body = await frames(feed, 1)
        assert types(body)[0] == "RUN_STARTED"
        await run.read()
        feed.close()


async def test_a_reader_that_comes_back_misses_nothing():
    async with served(says("one"), says("two"), settings=ALL) as s:
        for run in ("r1", "r2"):
            async with s.post(ask(thread="s", run=run)) as answer:
                await answer.read()
        feed = await s.get("/sessions/s/events", **{"Last-Event-ID": "r1:2"})
        body = await frames(feed, 2)
        assert types(body).count("RUN_STARTED") == 1, "the second one's"
        assert b"id: r1:3" in body
        assert b"id: r1:2\n" not in body
        feed.close()


async def test_there_is_no_feed_of_a_session_that_is_not_there():
    async with served(settings=ALL) as s, s.get("/sessions/nothing/events") as answer:
        assert answer.status == 404


async def test_the_feed_ends_with_its_session_and_with_the_server():
    async with served(settings=ALL) as s:
        for name in ("gone", "other"):
            await s.server.store.create(name, owner=ANONYMOUS_OWNER)
        gone, other = await s.get("/sessions/gone/events"), await s.get("/sessions/other/events")
        async with s.client.delete(f"{s.url}/sessions/gone") as answer:
            assert answer.status == 204
        await asyncio.wait_for(gone.read(), 30)
        await s.server.drain(0)
        await asyncio.wait_for(other.read(), 30)


# runs of other processes


def on_file(path):
    """What a worker of several has: the file that they share."""
    file = SqliteFile(path, durable=False)
    records = SharedSqliteRunStore(file, "tester", new_ulid())
    return {"store": SqliteSessionStore(file, "tester", runs=records), "records": records}


@pytest.mark.req("SRV-11")
async def test_one_query_finds_the_runs_of_another_process_for_all_readers_and_a_defect_ends_them(
    tmp_path, monkeypatch
):
    here, there = (on_file(tmp_path / "sessions.db") for _ in range(2))
    asked, runs_of, broken = [], here["records"].runs_of, []

    async def counted(**wanted):
        asked.append(wanted)
        return await runs_of(**wanted) if not broken else 1 / 0

    monkeypatch.setattr(here["records"], "runs_of", counted)
    monkeypatch.setattr("holodeck.runs.session_news.FEED_SECONDS", 200)
    record, log = RunRecord(run_id="r", owner=ANONYMOUS_OWNER, session_id=SESSION), RunLog()
    path, ending = f"/sessions/{SESSION}/events", RunFinished("r", SESSION)
    await there["store"].start()
    await there["store"].create(SESSION, owner=ANONYMOUS_OWNER)
    async with served(settings=ALL, **here) as s, s.get(path) as one, s.get(path) as other, asyncio.timeout(50):
        for stream in (one, other):
            assert stream.status == 200
            await stream.content.readuntil(b"\n\n")
        await there["records"].begin(record)
        there["records"].follow(record, log)
        log.append(RunStarted("r", SESSION))
        for stream in (one, other):
            await stream.content.readuntil(b"RUN_STARTED")
        assert len(asked) == 2, "one as the first reader came, one as the run began"
        broken.append(True)
        log.append(ending)
        await there["records"].end(record, ending)
        bodies = [await stream.read() for stream in (one, other)]
    await there["store"].close()
    for body in bodies:
        assert types(body.partition(b"\n\n")[2])[-2:] == ["RUN_FINISHED", "RUN_ERROR"]
        assert b"connect again" in body


async def test_the_feed_ends_when_its_credential_expires(tmp_path):
    """A run in progress is shown to its end. Runs that start later need a new credential."""
    gate = Gate()
    async with keyed(tmp_path, says("a b", pause=gate), says("secret")) as (s, holders):
        short = holders.headers(user="ann", expires=datetime.now(UTC) + timedelta(seconds=2))
        ann = holders.headers(user="ann")
        await s.server.access.refresh()
        first = await s.post(ask(thread="t", run="first"), **ann)
        feed = await s.get("/sessions/t/events", **short)
        assert feed.status == 200
        key = short["Authorization"].removeprefix("Bearer ")
        await until(lambda: isinstance(s.server.access.keys.check(key), Failure), what="the key's end")
        gate.open.set()
        await first.read()
        body = await asyncio.wait_for(feed.read(), 30)
        async with s.post(ask(thread="t", run="second"), **ann) as answer:
            await answer.read()
    assert types(body)[-2:] == ["RUN_FINISHED", "RUN_ERROR"]
    assert (b"expired" in body, b"secret" in body) == (True, False)


async def test_the_feed_ends_when_its_key_is_rotated_and_the_grace_is_over(tmp_path):
    """`holodeck keys rotate` gives the key an end that it did not have when the feed was opened."""
    async with keyed(tmp_path, says("first"), says("secret")) as (s, holders):
        key_id, old = holders.create(user="ann")
        ann = holders.headers(user="ann")
        await s.server.access.refresh()
        async with s.post(ask(thread="t", run="first"), **ann) as answer:
            await answer.read()
        feed = await s.get("/sessions/t/events", **old)
        assert feed.status == 200
        change_key_file(holders.file, lambda keys: keys.rotate(key_id, timedelta(0)))
        await s.server.access.refresh()
        async with s.post(ask(thread="t", run="second"), **ann) as answer:
            await answer.read()
        body = await asyncio.wait_for(feed.read(), 30)
    assert types(body)[-1] == "RUN_ERROR"
    assert (b"expired" in body, b"secret" in body) == (True, False)


async def test_a_feed_without_runs_ends_when_the_grace_of_its_key_is_over(tmp_path):
    holders = KeyHolders(tmp_path / "keys.json")
    key_id, old = holders.create(user="ann")
    async with served(says("hi"), settings=settings(keepalive=0.02), access=holders.authenticator()) as s:
        async with s.post(ask(thread="t"), **old) as answer:
            await answer.read()
        feed = await s.get("/sessions/t/events", **old)
        await feed.content.readuntil(b": keepalive\n\n")
        change_key_file(holders.file, lambda keys: keys.rotate(key_id, timedelta(0)))
        await s.server.access.refresh()
        body = await asyncio.wait_for(feed.read(), 30)
    assert b'"RUN_ERROR"' in body
    assert b"expired" in body


async def test_a_task_that_ends_after_the_credential_expired_ends_without_an_error(tmp_path):
    gate = Gate()
    async with keyed(tmp_path, says("a b", pause=gate)) as (s, holders):
        short = holders.headers(user="ann", expires=datetime.now(UTC) + timedelta(seconds=2))
        await s.server.access.refresh()
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        async with s.post(body, "/a2a/message:send", **short, **{"A2A-Version": "1.0"}) as answer:
            task_id = (await answer.json())["task"]["id"]
        feed = await s.get(f"/a2a/tasks/{task_id}:subscribe", **short, **{"A2A-Version": "1.0"})
        assert feed.status == 200
        key = short["Authorization"].removeprefix("Bearer ")
        await until(lambda: isinstance(s.server.access.keys.check(key), Failure), what="the key's end")
        gate.open.set()
        shown = await asyncio.wait_for(feed.read(), 30)
    assert (b"TASK_STATE_COMPLETED" in shown, b"expired" in shown) == (True, False)
