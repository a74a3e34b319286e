"""A request that another server carries out: it joins that run, also if it was looked up here before that began."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from holodeck.core.ids import new_ulid
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.models.scripted import ScriptedModel, says
from holodeck.server.intake import ATTEMPT_HEADER
from holodeck.server.options import ServerSettings
from holodeck.stores.postgres_database import PostgresDatabase
from holodeck.stores.postgres_runs import PostgresRunStore
from holodeck.stores.postgres_sessions import PostgresSessionStore
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.sqlite_shared_runs import SharedSqliteRunStore
from tests.server.serving import PATIENCE, Gate, Served, ask, served, types, until

pytestmark = pytest.mark.req("C08")


def on_file(folder: Path) -> SqliteSessionStore:
    file = SqliteFile(folder / "sessions.db", durable=False)
    return SqliteSessionStore(file, "tester", runs=SharedSqliteRunStore(file, "tester", new_ulid()))


def on_database(url: str) -> PostgresSessionStore:
    database = PostgresDatabase(url)
    return PostgresSessionStore(database, "tester", runs=PostgresRunStore(database, "tester"))


@dataclass
class Late:
    """The second server: it has looked a request up, and enters its run when the test lets it."""

    looked_up: asyncio.Event
    enter: asyncio.Event


@dataclass
class Pair:
    one: Served
    other: Served
    late: Late
    model: ScriptedModel
    gate: Gate

    async def play(self, post: Callable[[Served], Any], again: Callable[[Served], Any]) -> list[tuple[int, bytes]]:
        """One request at the first server, from its beginning to its end, while the other one holds `again`."""
        waiting = asyncio.create_task(_answer(again(self.other)))
        await asyncio.wait_for(self.late.looked_up.wait(), PATIENCE)
        first = await asyncio.wait_for(_answer(post(self.one)), PATIENCE)
        self.late.enter.set()
        return [first, await asyncio.wait_for(waiting, PATIENCE)]


async def _answer(request: "aiohttp.client._RequestContextManager") -> tuple[int, bytes]:
    async with request as answer:
        return answer.status, await answer.read()


def hold(store: Any, monkeypatch: pytest.MonkeyPatch) -> Late:
    late, begin = Late(asyncio.Event(), asyncio.Event()), store.runs.begin

    async def begin_late(*given: Any, **more: Any) -> Any:
        late.looked_up.set()
        await late.enter.wait()
        return await begin(*given, **more)

    monkeypatch.setattr(store.runs, "begin", begin_late)
    return late


@pytest.fixture(params=["a file", "a database"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """Two servers on one file, as workers have it, or on one database."""
    is_file = request.param == "a file"
    database = "" if is_file else request.getfixturevalue("postgres_database")
    stores = [on_file(tmp_path) if is_file else on_database(database) for _ in range(2)]
    gate = Gate()
    gate.open.set()
    model = ScriptedModel([says("all is well", pause=gate), says("asked again")])
    late, settings = hold(stores[1], monkeypatch), ServerSettings(protocols=("ag-ui", "rest", "responses"))
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(served(model=model, store=store, records=store.runs, settings=settings))
            for store in stores
        ]
        yield Pair(one, other, late, model, gate)


async def test_it_joins_the_run_of_its_id(pair: Pair) -> None:
    body = ask(run="r")
    first, second = await pair.play(lambda s: s.post(body), lambda s: s.post(body))
    assert (first[0], types(first[1])[-1]) == (200, "RUN_FINISHED")
    assert second == first, "the same events"
    assert len(pair.model.prompts) == 1
    async with pair.other.get("/sessions/t1") as answer:
        assert [each["content"] for each in (await answer.json())["messages"]] == ["hi", "all is well"]


async def test_with_another_body_it_is_refused(pair: Pair) -> None:
    _, (status, problem) = await pair.play(
        lambda s: s.post(ask(run="r")), lambda s: s.post(ask("something else", run="r"))
    )
    assert (status, b"was already used for a different request" in problem) == (422, True)
    assert len(pair.model.prompts) == 1


async def test_it_joins_the_run_of_its_idempotency_key(pair: Pair) -> None:
    def chat(s: Served) -> Any:
        return s.post({"message": "hi"}, "/agent/tester/chat", **{"Idempotency-Key": "k"})

    first, second = await pair.play(chat, chat)
    assert (first[0], second[0]) == (200, 200)
    one, other = (msgspec.json.decode(body) for _, body in (first, second))
    for name in ("message_id", "session_id", "content"):
        assert other[name] == one[name], "the same answer, of the same run"
    assert len(pair.model.prompts) == 1


async def test_a_server_that_is_full_shows_the_run_that_another_one_has_and_starts_none(pair: Pair) -> None:
    body = ask(run="r")
    first = await asyncio.wait_for(_answer(pair.one.post(body)), PATIENCE)
    pair.late.enter.set()
    pair.other.server.arriving = pair.other.server.settings.block.runs.max_concurrent
    assert await asyncio.wait_for(_answer(pair.other.post(body)), PATIENCE) == first
    status, _ = await asyncio.wait_for(_answer(pair.other.post(ask(run="new"))), PATIENCE)
    assert status == 503
    assert len(pair.model.prompts) == 1


async def test_a_request_that_an_sdk_repeats_joins_its_run_at_the_other_server(pair: Pair) -> None:
    def create(s: Served, attempt: int) -> Any:
        return s.post({"input": "hi", "model": "tester"}, "/v1/responses", **{ATTEMPT_HEADER: str(attempt)})

    pair.late.enter.set()
    pair.gate.open.clear()
    asking = asyncio.create_task(_answer(create(pair.one, 0)))
    await until(lambda: pair.model.prompts)
    repeated = asyncio.create_task(_answer(create(pair.other, 1)))
    followed = pair.other.server.stored_runs.remote
    assert followed is not None
    await until(lambda: [run.readers for run in followed._followed.values()] == [1])
    pair.gate.open.set()
    answers = await asyncio.wait_for(asyncio.gather(asking, repeated), PATIENCE)
    first, second = (msgspec.json.decode(body) for _, body in answers)
    assert (second["id"], second["output"]) == (first["id"], first["output"])
    assert len(pair.model.prompts) == 1
    _, another = await asyncio.wait_for(_answer(create(pair.other, 0)), PATIENCE)
    assert b"asked again" in another, "a first attempt is a request of its own"


async def test_after_its_session_was_deleted_at_the_other_server_a_request_runs_again(pair: Pair) -> None:
    def chat(s: Served) -> Any:
        return s.post({"message": "hi"}, "/agent/tester/chat", **{"Idempotency-Key": "k"})

    pair.late.enter.set()
    _, first = await asyncio.wait_for(_answer(chat(pair.one)), PATIENCE)
    session = msgspec.json.decode(first)["session_id"]
    async with pair.other.client.delete(f"{pair.other.url}/sessions/{session}") as answer:
        assert answer.status == 204
    answers = await asyncio.wait_for(asyncio.gather(_answer(chat(pair.one)), _answer(chat(pair.one))), PATIENCE)
    assert [b"asked again" in body for _, body in answers] == [True, True], "one run for both"
    assert len(pair.model.prompts) == 2
    assert pair.one.server.runs.of_session(session, owner=ANONYMOUS_OWNER) == []


async def test_a_run_that_was_stopped_at_one_server_is_continued_at_the_other_at_once(pair: Pair) -> None:
    """Before the copy of its log has its ending."""
    pair.late.enter.set()
    pair.gate.open.clear()
    asking = asyncio.create_task(_answer(pair.one.post(ask(run="r"))))
    await until(lambda: pair.model.prompts)
    async with pair.one.post({}, "/runs/r/stop") as answer:
        assert (await answer.json())["stopped"]
    status, body = await asyncio.wait_for(_answer(pair.other.post({}, "/runs/r/continue")), PATIENCE)
    assert (status, types(body)[-1]) == (200, "RUN_FINISHED")
    await asking


async def test_the_other_server_shows_that_a_run_no_longer_waits_for_its_turn(pair: Pair) -> None:
    async def is_shown(state: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                async with pair.other.get("/runs/r2") as answer:
                    if (await answer.json()).get("state") == state:
                        return
                await asyncio.sleep(0.01)

    second = Gate()
    pair.model.turns[1] = says("asked again", pause=second)
    pair.gate.open.clear()
    first = asyncio.create_task(_answer(pair.one.post(ask(run="r1"))))
    await until(lambda: pair.model.prompts)
    later = asyncio.create_task(_answer(pair.one.post(ask(run="r2"))))
    await is_shown("queued")
    pair.gate.open.set()
    await first
    await is_shown("running")
    second.open.set()
    await later
    await is_shown("finished")
