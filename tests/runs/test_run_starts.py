"""The first moments of a run: cancelled before its first step, duplicates, and two requests in the same instant."""

import asyncio
from typing import get_args

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.messages import UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.core.request import RunRequest
from holodeck.errors import InvalidRequest, RunNotFound, SessionBusy
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs.port import RunState
from holodeck.runs.run_settings import RunSettings, WhenBusy
from holodeck.runs.runs import Runs
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools


def make_runs(observe=None, **settings):
    agent = AgentDefinition(name="a", model=ScriptedModel([says("one two three")]), tools=Catalogue.of(PlainTools()))
    return Runs(agent, MemorySessionStore(), RunSettings(**settings), observe=observe)


def ask(**fields):
    return RunRequest(messages=(UserMessage(content="hi"),), **fields)


async def test_a_run_that_is_stopped_before_its_first_step_still_has_an_ending():
    runs = make_runs()
    run = await runs.start(ask(session_id="s"))
    assert runs.stop(run)
    await run.done()
    await asyncio.sleep(0)
    assert run.state is RunState.CANCELLED
    grammar.check(run.log.since(0))
    assert runs.busy == 0
    after = await runs.start(ask(session_id="s"))  # the session is not blocked by the one that never began
    await after.done()
    assert after.state is RunState.FINISHED


async def test_of_two_requests_in_one_instant_the_second_is_refused():
    runs = make_runs(when_busy=WhenBusy.REJECT)
    answers = await asyncio.gather(
        runs.start(ask(session_id="s")), runs.start(ask(session_id="s")), return_exceptions=True
    )
    assert [isinstance(answer, SessionBusy) for answer in answers] == [False, True]


async def test_of_two_with_one_id_in_one_instant_the_second_is_refused():
    runs = make_runs()
    request = ask(session_id="s", run_id="r")
    answers = await asyncio.gather(runs.start(request), runs.start(request), return_exceptions=True)
    assert [isinstance(answer, InvalidRequest) for answer in answers] == [False, True]


async def test_a_watcher_gets_everything_but_deltas():
    seen = []

    class Watcher(e.Observer):
        handlers = dict.fromkeys(get_args(e.AnyEvent), lambda _self, event: seen.append(event))

    runs = make_runs(observe=lambda _run: [Watcher()])
    run = await runs.start(ask())
    await run.done()
    assert [type(event) for event in seen] == [
        type(event) for event in run.log.since(0) if not isinstance(event, e.TextAdded)
    ]
    assert isinstance(seen[-1], e.RunFinished)


async def test_a_session_that_is_forgotten_takes_its_runs_with_it():
    runs = make_runs()
    run = await runs.start(ask(session_id="s"))
    runs.forget_session("s", owner=ANONYMOUS_OWNER)
    await run.done()
    assert runs.of_session("s", owner=ANONYMOUS_OWNER) == []
    with pytest.raises(RunNotFound):
        runs.get(run.run_id, owner=ANONYMOUS_OWNER)
