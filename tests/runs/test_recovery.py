"""What becomes of runs that a crash cut: the history is whole, nothing is called again, readers get an ending."""

import asyncio

import pytest

from holodeck.agent.pending import NOT_MADE, OUTCOME_UNKNOWN
from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.messages import AssistantMessage, PendingStep, ToolMessage, UserMessage, unanswered
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.models.scripted import says
from holodeck.runs.port import RunRecord, RunState
from holodeck.runs.recovery import remains_of
from tests.runs.restarted import BEGINNING, CALLING, QUESTION, RECORD, REPLY, events_of, follow, restarted

__all__ = ["restarted"]


def log_after(events, remains, *endings):
    """The log as a reader gets it, checked against the grammar."""
    whole = [*events, *remains.closings, *(endings or (e.RunFailed("r", "s", "interrupted", "cut"),))]
    grammar.check(whole)
    return whole


def test_nothing_is_left_of_a_run_that_had_produced_nothing():
    remains = remains_of(RECORD, [e.RunStarted("r", "s")], None)
    assert remains.messages == [QUESTION]
    assert remains.is_certain
    log_after([e.RunStarted("r", "s")], remains)


@pytest.mark.req("DUR-05")
@pytest.mark.parametrize("length", range(1, len(CALLING) + 1))
def test_wherever_it_is_cut_the_log_gets_whole(length):
    remains = remains_of(RECORD, CALLING[:length], None)
    log_after(CALLING[:length], remains)
    assert unanswered(remains.messages) == []


def test_the_models_text_is_kept_and_marked():
    remains = remains_of(RECORD, BEGINNING, None)
    question, text = remains.messages
    assert (question, text.content, text.cut, text.id, text.run_id) == (QUESTION, "let me", "interrupted", "a", "r")


@pytest.mark.req("D03")
async def test_results_that_are_stored_are_kept_and_only_the_others_are_unknown(restarted):
    done = ToolMessage(call_id="c1", name="echo", content="done")  # stored while another call still ran
    step = PendingStep(assistant=REPLY, results=(done,), begun=("c1", "c2"), run_id="r")
    async with restarted() as server:
        await server.left(QUESTION, pending=step, events=CALLING)
        assert await server.interrupted.recover() == 1
        history = await server.history()
        assert {message.run_id for message in history[2:]} == {"r"}
        assert history[:2] == (QUESTION, REPLY)
        assert [message.content for message in history[2:]] == ["done", OUTCOME_UNKNOWN, NOT_MADE]
        assert (await server.store.read("s", owner=ME)).pending is None
        run = server.runs.get("r", owner=ME)
        events = events_of(run)
        grammar.check(events)
        assert [each.content for each in events if isinstance(each, e.ToolFinished)] == [
            "done",
            OUTCOME_UNKNOWN,
            NOT_MADE,
        ]
        assert (events[-1].code, events[-1].retryable) == ("interrupted", True)
        assert isinstance(events[-2], e.MessagesReplaced)
        assert run.state is RunState.INTERRUPTED
        assert server.tools.called == []
        assert (await server.records.find("r", owner=ME)).state is RunState.INTERRUPTED
        assert await server.records.unfinished() == []


@pytest.mark.req("D03")
async def test_the_text_of_a_run_is_not_stored_behind_a_turn_that_a_terminal_has_added(restarted):
    async with restarted(says("more")) as server:
        await server.left(QUESTION, events=BEGINNING)
        terminal = await server.store.open("s", owner=ME)
        turn = UserMessage(content="and now?", run_id="of the terminal"), AssistantMessage(content="Fine.")
        await terminal.commit(turn)
        terminal.close()
        assert await server.interrupted.recover() == 1
        assert [message.content for message in await server.history()] == ["go", "and now?", "Fine."]
        run = server.runs.get("r", owner=ME)
        grammar.check(events_of(run))
        assert (run.state, run.log.ending.code) == (RunState.INTERRUPTED, "interrupted")
        assert (await server.records.find("r", owner=ME)).state is RunState.INTERRUPTED


@pytest.mark.req("D03")
async def test_a_step_that_waits_for_a_person_still_waits(restarted):
    waiting = PendingStep(assistant=REPLY, approvals={"i": "c1"}, run_id="before")
    async with restarted() as server:
        await server.left(UserMessage(content="earlier"))
        await (await server.store.open("s", owner=ME)).commit([], waiting)
        await server.interrupted.recover()
        assert (await server.store.read("s", owner=ME)).pending == waiting


async def test_a_run_that_waited_for_its_turn_is_not_lost(restarted):
    second = RunRecord(
        run_id="r2", owner=ME, session_id="s", request=RunRequest(messages=(UserMessage(content="me too", id="q2"),))
    )
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.records.begin(second)
        await server.interrupted.recover()
        assert [each.content for each in await server.history()] == ["go", "let me", "me too"]
        first, run = server.runs.get("r", owner=ME), server.runs.get("r2", owner=ME)
        assert first.state is RunState.INTERRUPTED
        events = await asyncio.wait_for(follow(server, run), 30)
        grammar.check(events)
        assert isinstance(events[-1], e.RunFinished)


async def test_one_run_that_cannot_be_read_keeps_no_other(restarted, caplog):
    async with restarted(continues=False) as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.store.file.write(lambda c: c.execute("UPDATE steps SET body = x'00'").rowcount)
        other = RunRecord(run_id="r2", owner=ME, session_id="t", request=RunRequest(messages=(QUESTION,)))
        await server.records.begin(other)
        assert await server.interrupted.recover() == 2
        assert (await server.store.read("t", owner=ME)).messages == (QUESTION,)
        assert "run r cannot be recovered" in caplog.text
        assert await server.records.unfinished() == []
