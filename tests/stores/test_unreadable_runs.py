"""Rows of runs that cannot be read, or that a newer version wrote: they keep no process from starting, nor its neighbours."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.errors import SessionBroken, SessionNewer
from holodeck.models.scripted import says
from holodeck.runs.port import RunState
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.server.serving import Gate, ask, read_to, types
from tests.server.test_server_restart import copy_of, started
from tests.stores.processes import on_database, opening
from tests.stores.stored_sessions import begun, on_file, run

# The three times are errors of three types in Python.
BROKEN = [("request", "[{"), ("state", "nonsense"), ("accepted", 1e12), ("accepted", 1e17), ("accepted", 1e20)]


def alone(path, agent):
    file = SqliteFile(path, durable=False)
    return SqliteSessionStore(file, agent, runs=SqliteRunStore(file, agent))


@pytest.fixture(params=[alone, on_file, on_database], ids=["a file", "a file of workers", "a database"])
async def opened(request, tmp_path):
    """Opens stores on one file or database, as processes would."""
    is_database = request.param is on_database
    place = request.getfixturevalue("postgres_database") if is_database else tmp_path / "sessions.db"
    async with opening(request.param, place) as open_store:
        yield open_store


async def change(store, column, value, name, table="runs"):
    given = value.encode() if column == "request" else value
    if hasattr(store, "file"):
        await store.file.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (given, name))
    else:
        statement = f"UPDATE holodeck.{table} SET {column} = %(value)s WHERE id = %(id)s"
        await store.database.rows(statement, {"value": given, "id": name})


async def row(store, name):
    columns = "request, state, ended IS NULL, replica"
    if hasattr(store, "file"):
        statement = f"SELECT {columns} FROM runs WHERE id = ?"
        found = await store.file.read(lambda connection: connection.execute(statement, (name,)).fetchone())
    else:
        found = await store.database.row(f"SELECT {columns} FROM holodeck.runs WHERE id = %(id)s", {"id": name})
    return bytes(found[0]), found[1], bool(found[2]), found[3]


async def left_by_another(opened):
    """Two runs that a process left in the middle, in two sessions."""
    dead = await opened()
    for name in ("bad", "neighbour"):
        conversation = await begun(dead, run(name, name))
        await conversation.commit([UserMessage(content="hi", run_id=name)])
    return dead


async def recovered(dead, store):
    """The runs that a process finds, when it starts or takes over."""
    if not getattr(store.runs, "replica", ""):
        return await store.runs.unfinished()
    await dead.runs.leave()
    return await store.runs.take_over(60)


@pytest.mark.req("D16")
@pytest.mark.parametrize(("column", "value"), BROKEN)
async def test_a_run_that_cannot_be_read_is_set_aside_and_its_neighbours_are_recovered(opened, column, value, caplog):
    dead, store = await left_by_another(opened), await opened()
    await change(dead, column, value, "bad")
    before, *_ = await row(dead, "bad")
    assert [each.run_id for each in await recovered(dead, store)] == ["neighbour"]
    (line,) = [each for each in caplog.messages if "set aside" in each]
    assert line.startswith("run 'bad' of session 'bad' cannot be read")
    request, state, is_open, _ = await row(store, "bad")
    assert (request, state, is_open) == (before, RunState.INTERRUPTED, False)
    if column != "state":
        with pytest.raises(SessionBroken, match="run"):
            await store.runs.find("bad", owner=ME)
        assert [each.run_id for each in await store.runs.runs_of(owner=ME)] == ["neighbour"]
    else:
        ending = (await store.runs.find("bad", owner=ME)).ending
        assert ending.code == "interrupted"
    assert not any(each.run_id == "bad" for each in await recovered(store, await opened()))
    assert len([each for each in caplog.messages if "set aside" in each]) == 1
    new = await begun(store, run("new", "bad"))  # its session is not blocked
    await new.commit([AssistantMessage(content="ho")], ending=RunFinished("new", "bad"))
    assert len((await store.read("bad", owner=ME)).messages) == 2


@pytest.mark.req("D16")
async def test_a_run_of_a_newer_version_waits_for_one(opened):
    dead, store = await left_by_another(opened), await opened()
    await change(dead, "v", 99, "bad")
    before = await row(dead, "bad")
    assert [each.run_id for each in await recovered(dead, store)] == ["neighbour"]
    assert await row(store, "bad") == before
    with pytest.raises(SessionNewer):
        await store.runs.find("bad", owner=ME)
    assert [each.run_id for each in await store.runs.runs_of(owner=ME)] == ["neighbour"]
    await change(store, "v", 1, "bad")  # as the newer version reads it
    assert "bad" in [each.run_id for each in await recovered(store, await opened())]


@pytest.mark.req("D16")
async def test_a_run_that_ended_in_a_state_that_no_version_has_is_a_typed_error(opened):
    store = await opened()
    conversation = await begun(store, run())
    await conversation.commit([UserMessage(content="hi")], ending=RunFinished("r", "s"))
    await change(store, "state", "nonsense", "r")
    with pytest.raises(SessionBroken, match="run"):
        await store.runs.find("r", owner=ME)
    assert await store.runs.runs_of(owner=ME) == []


@pytest.mark.req("D16")
@pytest.mark.parametrize("value", [-1e17, 1e12, 1e17, 1e20, float("inf")])
@pytest.mark.parametrize("column", ["created", "used"])
async def test_a_session_with_a_damaged_time_hides_no_other(opened, column, value):
    store = await opened()
    for name in ("bad", "good"):
        conversation = await begun(store, run(name, name))
        await conversation.commit([UserMessage(content=name)], ending=RunFinished(name, name))
        conversation.close()
    await change(store, column, value, "bad", table="sessions")
    shown = [each.session_id for each in await store.sessions_of(owner=ME)]
    is_expired = column == "used" and value < 0
    assert sorted(shown) == (["good"] if is_expired else ["bad", "good"])
    first, *_ = await store.sessions_of(owner=ME, limit=1)
    assert [each.session_id for each in await store.sessions_of(owner=ME, after=first)] == shown[1:]
    found = await store.read("bad", owner=ME)
    assert is_expired if found is None else [each.content for each in found.messages] == ["bad"]


async def test_a_run_whose_request_was_damaged_meanwhile_can_end(opened):
    store = await opened()
    conversation = await begun(store, run(request=RunRequest(state="x" * 2000)))
    await conversation.commit([UserMessage(content="hi")])
    await change(store, "request", "[{" * 1000, "r")
    await conversation.commit([AssistantMessage(content="ho")], ending=RunFinished("r", "s"))
    assert (await row(store, "r"))[1:3] == (RunState.FINISHED, False)


@pytest.mark.req("D16")
@pytest.mark.parametrize("damage", ["request = x'5b7b'", "v = 99", "state = 'nonsense'", "accepted = 1e17"])
async def test_a_server_starts_with_a_run_that_it_cannot_read(tmp_path: Path, damage: str) -> None:
    file, gate = tmp_path / "sessions.db", Gate()
    async with started(file, says("a b", pause=gate)) as s:
        async with s.post(ask(thread="bad", run="bad")) as one, s.post(ask(thread="good", run="good")) as other:
            for answer in (one, other):
                await read_to(answer, "TEXT_MESSAGE_CONTENT")
            file = copy_of(file)
        gate.open.set()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE runs SET {damage} WHERE id = 'bad'")
    async with started(file, says("after all"), continues=False) as s:
        async with s.get("/runs/good") as shown:
            assert (await shown.json())["state"] == "interrupted"
        async with s.get("/runs/bad") as shown:
            found = await shown.json()
        if "state" in damage:
            assert found["state"] == "interrupted"
        else:
            assert found["type"].rpartition("/")[2] == ("session-newer" if "v" in damage else "session-broken")
        async with s.post(ask(thread="bad", run="next")) as answer:
            assert types(await answer.read())[-1] == "RUN_FINISHED"
