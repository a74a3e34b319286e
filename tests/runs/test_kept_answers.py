"""Answers that come one by one are kept in the step that waits, and only there."""

import asyncio
from typing import Any

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import Resume, RunRequest
from holodeck.errors import LostClaim
from holodeck.models.scripted import ScriptedModel
from holodeck.runs.kept_answers import ATTEMPTS, keep_answers, kept_answers
from holodeck.runs.log import RunLog
from holodeck.runs.run import Run
from holodeck.runs.runs import Runs
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools

STEP = PendingStep(
    assistant=AssistantMessage(
        tool_calls=(ToolCall(id="c1", name="t", arguments="{}"), ToolCall(id="c2", name="t", arguments="{}"))
    ),
    approvals={"i1": "c1", "i2": "c2"},
    run_id="r",
)
YES, NO = (
    Resume(interrupt_id="i1", approved=True, payload={"arguments": {}}),
    Resume(interrupt_id="i2", approved=False, reason="too soon"),
)


def run_named(run_id: str) -> Run:
    return Run(request=RunRequest(), run_id=run_id, session_id="s", owner=ME, log=RunLog())


async def waiting_session() -> Runs:
    store = MemorySessionStore()
    conversation = await store.open("s", owner=ME, create=True)
    await conversation.commit([], STEP)
    conversation.close()
    return Runs(AgentDefinition(name="tester", model=ScriptedModel([]), tools=Catalogue.of(PlainTools())), store)


async def test_answers_are_kept_replaced_and_withdrawn() -> None:
    runs, run = await waiting_session(), run_named("r")
    assert await keep_answers(runs, run, [YES]) == await kept_answers(runs, run) == (YES,)
    other = Resume(interrupt_id="i1", approved=False)
    assert await keep_answers(runs, run, [other, NO]) == (other, NO)
    assert await keep_answers(runs, run, [], {"i1"}) == await kept_answers(runs, run) == (NO,)
    both = await asyncio.gather(keep_answers(runs, run, [YES]), keep_answers(runs, run, [NO]))
    assert {each.interrupt_id for each in both[1]} == {"i1", "i2"}, "none is lost"


async def test_nothing_is_kept_for_a_run_that_waits_no_longer() -> None:
    runs = await waiting_session()
    assert await keep_answers(runs, run_named("another"), [YES]) == ()
    stored = await runs.store.read("s", owner=ME)
    assert stored is not None
    assert stored.pending == STEP
    assert await kept_answers(runs, run_named("another")) == ()


@pytest.mark.parametrize(("failures", "is_kept"), [(ATTEMPTS - 1, True), (ATTEMPTS, False)])
async def test_a_replica_that_was_quicker_is_no_error(
    monkeypatch: pytest.MonkeyPatch, failures: int, *, is_kept: bool
) -> None:
    runs, run, opened = await waiting_session(), run_named("r"), 0
    right = runs.store.open

    async def contended(*given: Any, **options: Any) -> Any:
        nonlocal opened
        opened += 1
        if opened <= failures:
            raise LostClaim("another process was quicker")
        return await right(*given, **options)

    monkeypatch.setattr(runs.store, "open", contended)
    if is_kept:
        assert await keep_answers(runs, run, [YES]) == (YES,)
    else:
        with pytest.raises(LostClaim):
            await keep_answers(runs, run, [YES])
