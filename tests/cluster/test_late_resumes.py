"""A resume under a run's own id that comes again, late or at another server: it joins, and the stored ending stays."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.runs.memory_runs import MemoryRunStore
from holodeck.runs.port import RunState
from holodeck.sessions.memory import MemorySessionStore
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from tests.agent.agent_fixture import PlainTools, echo
from tests.cluster.test_late_requests import Late, hold, on_database, on_file
from tests.server.serving import PATIENCE, Gate, Served, ask, frames, read_to, served, until

pytestmark = pytest.mark.req("C08")

Answer = tuple[int, list[dict[str, Any]]]


def decision(asked: list[dict[str, Any]], *, approved: bool = True) -> dict[str, Any]:
    """The answer to a question, under the id of the run that waits, as CopilotKit sends it."""
    interrupts = asked[-1]["outcome"]["interrupts"]
    answers = [{"interruptId": each["id"], "status": "resolved", "payload": approved} for each in interrupts]
    return ask(messages=[], run="r", resume=answers)


async def post(s: Served, body: dict[str, Any]) -> Answer:
    async with asyncio.timeout(PATIENCE), s.post(body) as answer:
        content = await answer.read()
        return answer.status, [data for _, data in frames(content)] if answer.status == 200 else []


async def question(s: Served) -> list[dict[str, Any]]:
    status, asked = await post(s, ask("delete it", run="r", message="u1"))
    assert status == 200
    return asked


async def read(s: Served) -> list[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE), s.get("/runs/r/events") as answer:
        assert answer.status == 200
        return [data for _, data in frames(await answer.read())]


async def is_finished(store: Any) -> None:
    record = await store.runs.find("r", owner=ANONYMOUS_OWNER)
    assert (record.state, record.ending.interrupts) == (RunState.FINISHED, ())


@dataclass
class Pair:
    one: Served
    other: Served
    stores: list[Any]
    tools: PlainTools
    gate: Gate
    late: Late


@pytest.fixture(params=["a file", "a database"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """Two servers on one file, as workers have it, or on one database. The tool needs an approval."""
    is_file = request.param == "a file"
    database = "" if is_file else request.getfixturevalue("postgres_database")
    stores = [on_file(tmp_path) if is_file else on_database(database) for _ in range(2)]
    tools, gate = PlainTools(frozenset({"delete"}), delete=echo), Gate()
    gate.open.set()
    model = ScriptedModel([calls(("delete", "{}")), says("gone", pause=gate), says("asked too often")])
    late = hold(stores[1], monkeypatch)
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(served(model=model, tools=tools, store=store, records=store.runs))
            for store in stores
        ]
        yield Pair(one, other, stores, tools, gate, late)


async def test_looked_up_before_the_first_one_ended_it_joins_the_run_that_ended(pair: Pair) -> None:
    asked = await question(pair.one)
    yes = decision(asked)
    waiting = asyncio.create_task(post(pair.other, yes))
    await asyncio.wait_for(pair.late.looked_up.wait(), PATIENCE)
    first = await post(pair.one, yes)
    pair.late.enter.set()
    assert first[1][-1]["outcome"] == {"type": "success"}
    assert await waiting == first, "the same events"
    assert len(pair.tools.called) == 1
    await is_finished(pair.stores[1])
    assert await read(pair.other) == [*asked, *first[1]]


async def test_known_there_as_a_run_that_waits_it_joins_the_run_that_ended(pair: Pair) -> None:
    pair.late.enter.set()
    asked = await question(pair.one)
    assert await read(pair.other) == asked
    yes = decision(asked)
    first = await post(pair.one, yes)
    assert await read(pair.other) == [*asked, *first[1]], "the other server learns that the run has continued"
    assert await post(pair.other, yes) == first
    assert await post(pair.other, decision(asked, approved=False)) == (422, [])
    assert len(pair.tools.called) == 1
    await is_finished(pair.stores[1])


async def test_while_the_run_continues_at_one_server_it_is_followed_at_the_other(pair: Pair) -> None:
    pair.late.enter.set()
    asked = await question(pair.one)
    assert await read(pair.other) == asked
    pair.gate.open.clear()
    yes = decision(asked)
    going = asyncio.create_task(post(pair.one, yes))
    await until(lambda: len(pair.tools.called) == 1)
    again = asyncio.create_task(post(pair.other, yes))
    followed = pair.other.server.stored_runs.remote
    assert followed is not None
    await until(lambda: [run.readers for run in followed._followed.values()] == [1])
    pair.gate.open.set()
    assert (await going)[0] == 200
    assert await again == await going
    assert len(pair.tools.called) == 1


async def test_the_request_that_began_the_run_joins_it_where_it_continued(pair: Pair) -> None:
    pair.late.enter.set()
    first = ask("delete it", run="r", message="u1")
    _, asked = await post(pair.one, first)
    status, rest = await post(pair.other, decision(asked))  # before the copy of the run's log has its ending
    assert (status, rest[-1]["outcome"]) == (200, {"type": "success"})
    assert await post(pair.other, first) == (200, [*asked, *rest])


async def test_a_resume_under_a_new_id_is_one_run_at_both_servers(pair: Pair) -> None:
    pair.late.enter.set()
    yes = {**decision(await question(pair.one)), "runId": "r2"}
    assert [(await post(server, yes))[0] for server in (pair.one, pair.other, pair.other)] == [200, 200, 200]
    assert len(pair.tools.called) == 1


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_run_that_is_resumed_when_its_copy_is_gone_is_read_at_the_other_server_while_it_runs(
    pair: Pair, *, is_known: bool
) -> None:
    """A person approves after some minutes: the copy of a log is kept for `replay_window`."""
    pair.late.enter.set()
    asked = await question(pair.one)
    run = pair.one.run("r")
    assert run.record is not None
    async with asyncio.timeout(PATIENCE):
        while not await pair.stores[0].runs.events(run.record):
            await asyncio.sleep(0.01)
    later = pair.stores[0].now() + 1000
    for store in pair.stores:
        store.runs.clock = lambda: later
    await pair.stores[0].runs.remove_old()
    assert await pair.stores[0].runs.events(run.record) == []
    assert run.ended is not None
    run.ended -= 1000
    if not is_known:
        pair.one.server.runs.forget(run)
    pair.gate.open.clear()
    going = asyncio.create_task(post(pair.one, decision(asked)))
    await until(lambda: len(pair.tools.called) == 1)
    async with asyncio.timeout(PATIENCE), pair.other.get("/runs/r/events") as answer:
        begun = await read_to(answer, "TOOL_CALL_RESULT")
        pair.gate.open.set()
        shown = [data for _, data in frames(begun + await answer.read())]
    _, rest = await going
    assert shown[-len(rest) :] == rest
    assert [each["type"] for each in shown].count("RUN_FINISHED") == 2, "with the part before"


def on_memory(_folder: Path) -> MemorySessionStore:
    records = MemoryRunStore()
    store = MemorySessionStore(on_drop=records.forget_session)
    store.runs = records  # type: ignore[attr-defined]
    return store


def alone_on_file(folder: Path) -> SqliteSessionStore:
    file = SqliteFile(folder / "alone.db", durable=False)
    return SqliteSessionStore(file, "tester", runs=SqliteRunStore(file, "tester"))


@pytest.mark.parametrize("opened", [on_memory, alone_on_file, on_file])
async def test_after_the_replay_window_it_is_shown_the_run_that_ended(
    opened: Callable[[Path], Any], tmp_path: Path
) -> None:
    store, tools = opened(tmp_path), PlainTools(frozenset({"delete"}), delete=echo)
    turns = calls(("delete", "{}")), says("gone"), says("asked too often")
    async with served(*turns, tools=tools, store=store, records=store.runs, replay_window=0.05) as s:
        yes = decision(await question(s))
        status, first = await post(s, yes)
        assert (status, first[-1]["outcome"]) == (200, {"type": "success"})
        await until(lambda: not s.server.runs.of_session("t1", owner=ANONYMOUS_OWNER))
        status, again = await post(s, yes)
        assert (status, again[-1]["outcome"]) == (200, {"type": "success"})
        no = ask(messages=[], run="r", resume=[{**yes["resume"][0], "payload": False}])
        assert await post(s, no) == (422, [])
        assert len(tools.called) == 1
        await is_finished(store)


@pytest.mark.parametrize("opened", [on_memory, alone_on_file, on_file])
@pytest.mark.parametrize("which", ["resume", "resume under a new id", "first request"])
async def test_after_the_replay_window_every_repetition_joins(
    opened: Callable[[Path], Any], which: str, tmp_path: Path
) -> None:
    store, tools = opened(tmp_path), PlainTools(frozenset({"delete"}), delete=echo)
    turns = calls(("delete", "{}")), says("gone"), says("asked too often")
    async with served(*turns, tools=tools, store=store, records=store.runs, replay_window=0.05) as s:
        first = ask("delete it", run="r", message="u1")
        yes = decision((await post(s, first))[1])
        if which == "resume under a new id":
            yes["runId"] = "r2"
        assert (await post(s, yes))[0] == 200
        await until(lambda: not s.server.runs.of_session("t1", owner=ANONYMOUS_OWNER))
        again = first if which == "first request" else yes
        assert [(await post(s, again))[0] for _ in range(2)] == [200, 200]
        assert len(tools.called) == 1
