"""Which ending readers see: the one that is stored, whatever stops the run while the store writes it."""

import asyncio
from typing import Any

import pytest

from holodeck.core import events as e
from holodeck.errors import ModelError, StoreUnavailable
from holodeck.models.scripted import Turn, calls, says
from holodeck.sessions.transcript import Transcript
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo


class SlowEnding(Transcript):
    """The store begins to write an ending at `writing`, and has written it when `stored` is done."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.stored = asyncio.Event(), asyncio.get_running_loop().create_future()
        self.endings: list[e.Ending] = []

    def end(self, messages, pending, *, ending, **more: Any) -> asyncio.Future[None]:
        self.endings.append(ending)
        self.writing.set()
        super().end(messages, pending, ending=ending, **more)
        return self.stored


async def writing_its_ending(turn: Turn, **context: Any) -> tuple[AgentFixture, SlowEnding, asyncio.Task]:
    tools = PlainTools(frozenset({"erase"}), erase=echo, echo=echo)
    fixture = AgentFixture(turn, tools=tools, max_iterations=1, run_timeout=600)
    fixture.conversation = conversation = SlowEnding()
    playing = asyncio.create_task(fixture.play("go", **context))
    await conversation.writing.wait()
    return fixture, conversation, playing


TURNS = {
    "completed": says("hello"),
    "waiting": calls(("erase", "{}")),
    "out of iterations": calls(("echo", "{}")),
    "failed": Turn(error=ModelError("The model is gone.")),
}


@pytest.mark.req("D03")
@pytest.mark.parametrize("how", TURNS)
async def test_stops_that_come_while_the_ending_is_written_come_too_late_however_many_there_are(how):
    fixture, conversation, playing = await writing_its_ending(TURNS[how])
    for _ in range(3):
        playing.cancel()
        await asyncio.sleep(0)
    assert not playing.done()
    assert not [event for event in fixture.events if isinstance(event, e.Ending)]
    conversation.stored.set_result(None)
    response = await playing
    assert [fixture.ending] == conversation.endings
    assert response.status == {"out of iterations": "max_iterations_reached", "failed": "error"}.get(how, "completed")


@pytest.mark.req("D03")
async def test_a_second_stop_does_not_show_the_ending_of_the_first_before_it_is_stored():
    fixture = AgentFixture(Turn(text=["one"], pause=lambda: asyncio.get_running_loop().create_future()))
    fixture.conversation = conversation = SlowEnding()
    playing = asyncio.create_task(fixture.play("go"))
    while not fixture.events or not isinstance(fixture.ending, e.TextAdded):
        await asyncio.sleep(0)
    playing.cancel()
    await conversation.writing.wait()
    playing.cancel()
    await asyncio.sleep(0)
    shown = list(fixture.events)
    conversation.stored.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert not [event for event in shown if isinstance(event, e.Ending)]
    assert [fixture.ending] == conversation.endings
    assert fixture.ending.outcome is e.Outcome.CANCELLED


async def test_an_ending_that_the_store_refuses_is_not_shown_even_if_a_stop_came_meanwhile():
    fixture, conversation, playing = await writing_its_ending(says("hello"))
    playing.cancel()
    await asyncio.sleep(0)
    conversation.stored.set_exception(StoreUnavailable("The disk is full."))
    response = await playing
    assert (response.error_code, fixture.ending.code) == ("store-unavailable", "store-unavailable")
    assert [type(each) for each in conversation.endings] == [e.RunFinished, e.RunFailed]


async def test_a_server_that_has_ended_the_log_need_not_wait_for_the_store():
    over: list[bool] = []
    _, conversation, playing = await writing_its_ending(says("hello"), is_over=lambda: bool(over))
    over.append(True)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert len(conversation.endings) == 1


async def test_a_run_that_runs_out_of_time_while_its_ending_is_written_has_ended_in_time(monkeypatch):
    limits, timeout = [], asyncio.timeout

    def kept(seconds: float) -> asyncio.Timeout:
        limits.append(timeout(seconds))
        return limits[-1]

    monkeypatch.setattr(asyncio, "timeout", kept)
    fixture, conversation, playing = await writing_its_ending(says("hello"))
    of_run = limits[0]
    of_run.reschedule(asyncio.get_running_loop().time())
    while not of_run.expired() and not playing.cancelling():
        await asyncio.sleep(0)
    conversation.stored.set_result(None)
    response = await playing
    assert of_run.expired()
    assert response.status == "completed"
    assert [fixture.ending] == conversation.endings
