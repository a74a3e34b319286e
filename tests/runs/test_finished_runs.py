"""What finished runs take: neither the history nor what the client sent, and only so many of them."""

import asyncio
import gc
import tracemalloc

import msgspec
import pytest
import uvloop

from holodeck.agent.definition import AgentDefinition
from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.request import RunRequest
from holodeck.core.tools import ToolSchema
from holodeck.errors import RunNotFound
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs.log import RunLog
from holodeck.runs.remote_runs import run_of
from holodeck.runs.runs import Runs
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.runs.test_runs import ask, make_runs
from tests.stores.stored_sessions import run as run_record

MB = 1024 * 1024


async def turns(runs, number, *, session="s", keeps_history=False, size=200):
    for _ in range(number):
        run = await runs.start(ask("x" * size, session_id=session, keeps_history=keeps_history))
        await run.done()
    return run


class Forgetful(ScriptedModel):
    """Does not keep the prompts that it was shown: they hold the history."""

    async def reply(self, prompt, listener):
        try:
            return await super().reply(prompt, listener)
        finally:
            self.prompts.clear()


@pytest.mark.req("D11")
@pytest.mark.parametrize("keeps_history", [False, True], ids=["rest", "ag-ui"])
async def test_memory_does_not_grow_with_the_turns_of_a_conversation(keeps_history):
    agent = AgentDefinition(name="a", model=Forgetful([says("y" * 200)]), tools=Catalogue.of(PlainTools()))
    runs = Runs(agent, MemorySessionStore())
    await turns(runs, 100, keeps_history=keeps_history)
    gc.collect()
    tracemalloc.start()
    try:
        await turns(runs, 200, keeps_history=keeps_history)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 4 * MB, f"{grown / MB:.1f} MiB after 200 more turns"


@pytest.mark.req("D11")
async def test_a_finished_run_keeps_neither_history_nor_what_the_client_sent():
    runs = make_runs()
    await turns(runs, 2)
    sent = (AssistantMessage(content="forged"), UserMessage(content="new"))
    request = RunRequest(session_id="s", messages=sent, client_tools=(ToolSchema(name="paint"),))
    run = await runs.start(request)
    await run.done()

    assert run.conversation is None
    assert [message.content for message in run.request.messages] == ["new"]
    assert run.request.client_tools == ()


@pytest.mark.req("D11")
async def test_the_prompt_of_a_long_conversation_is_read_from_its_end_only():
    runs = make_runs(says("y"))
    opened, store = [], runs.store
    plain_open = store.open

    async def noticed(*args, **options):
        opened.append(await plain_open(*args, **options))
        return opened[-1]

    store.open = noticed
    runs.use(type(runs.agent)(**{**vars(runs.agent), "max_messages": 10}))
    await turns(runs, 30)
    assert [len(each.messages) - 2 for each in opened[10:]] == [10] * 20
    assert opened[-1].earlier == 48
    assert [len(prompt.messages) for prompt in runs.model.prompts[10:]] == [9] * 20


async def test_a_run_that_can_be_read_for_longer_does_not_keep_the_others():
    runs = make_runs(replay_window=0)
    detached = await runs.start(msgspec.structs.replace(ask(session_id="d"), detached=True))
    await detached.done()
    for number in range(2):  # the timer is set again after the first
        other = await turns(runs, 1, session=f"s{number}")
        async with asyncio.timeout(10):
            while runs.knows(other):
                await asyncio.sleep(0)
        assert list(runs.finished.until) == [detached]


async def test_only_so_many_finished_runs_are_kept():
    runs = make_runs(max_finished=3)
    kept = [await turns(runs, 1, session=f"s{number}") for number in range(5)]
    assert [runs.knows(run) for run in kept] == [False, False, True, True, True]
    with pytest.raises(RunNotFound):
        runs.get(kept[0].run_id, owner=kept[0].owner)


async def test_only_so_many_finished_runs_of_one_session_are_kept():
    runs = make_runs(max_finished_of_session=2)
    other = await turns(runs, 1, session="other")
    kept = [await turns(runs, 1) for _ in range(4)]
    assert [runs.knows(run) for run in (other, *kept)] == [True, False, False, True, True]


@pytest.mark.req("DUR-06")
async def test_finished_runs_are_bounded_by_what_they_hold():
    runs = make_runs(says("word " * 100), max_finished_bytes=200_000)
    kept = [await turns(runs, 1, session=f"s{number}") for number in range(20)]
    known = [runs.knows(run) for run in kept]
    assert known[-1]
    assert not known[0]
    assert 100_000 < runs.finished.size <= 200_000
    for run in kept:
        runs.forget(run)
    assert (runs.finished.until, runs.finished.size) == ({}, 0)


@pytest.mark.req("D11")
@pytest.mark.parametrize("what", ["messages", "state", "properties"])
async def test_what_finished_runs_keep_of_their_requests_is_counted(what):
    runs = make_runs(max_finished_bytes=200_000)
    large = "x" * 50_000
    for number in range(10):
        request = ask(large if what == "messages" else "hi", session_id=f"s{number}")
        more = {} if what == "messages" else {what: {"large": large}}
        await (await runs.start(msgspec.structs.replace(request, **more))).done()
    assert 100_000 < runs.finished.size <= 200_000
    assert len(runs.finished.until) == 3


async def test_a_run_that_was_replaced_before_it_had_ended_leaves_nothing_behind():
    """Another process has ended it, and a reader was shown that while its task still waited for the store."""
    runs = make_runs(replay_window=0.01)
    run = await runs.start(ask("x", session_id="s", run_id="r"))
    ended = run_of(run_record("r"), RunLog())
    ended.emit(RunFinished("r", "s"))
    runs.adopt(ended)
    await run.done()
    async with asyncio.timeout(50):
        while runs.of_session("s", owner=ended.owner):
            await asyncio.sleep(0.01)
    assert runs.find("r", owner=ended.owner) is None


def test_runs_that_end_together_and_cannot_be_read_again_are_forgotten():
    """On the server's event loop, whose handle of a timer that is due at once does not know when that is."""

    async def play():
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
        runs = make_runs(replay_window=0)
        for run in [await runs.start(ask("x")) for _ in range(5)]:
            await run.done()
        async with asyncio.timeout(50):
            while runs._runs:
                await asyncio.sleep(0.001)
        assert (failures, runs.finished.until, runs.finished.size) == ([], {}, 0)

    uvloop.run(play())
