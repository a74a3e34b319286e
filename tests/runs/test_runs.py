"""Runs: they outlive their readers, take turns on a session, and always end."""

import asyncio
import sys
from dataclasses import replace

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.core.request import Resume, RunRequest
from holodeck.errors import InvalidRequest, RunNotFound, SessionBusy, ShuttingDown
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.runs.log import RunLog
from holodeck.runs.port import RunState
from holodeck.runs.resumed_parts import MAX_PARTS
from holodeck.runs.run import Run
from holodeck.runs.run_settings import RunSettings, WhenBusy
from holodeck.runs.runs import Runs
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from holodeck.wires.agui.encode import ProtoEncoder, SseEncoder
from tests.agent.agent_fixture import PlainTools, echo
from tests.runs.following import more


class Gate:
    """A model's pause that the test opens."""

    def __init__(self):
        self.open = asyncio.Event()

    def __call__(self):
        return self.open.wait()


def make_runs(*turns, **settings):
    model = ScriptedModel(turns or [says("hello")])
    runs = Runs(
        AgentDefinition(name="a", model=model, tools=Catalogue.of(PlainTools())),
        MemorySessionStore(),
        RunSettings(**settings),
    )
    runs.model = model
    return runs


def ask(text="hi", **fields):
    return RunRequest(messages=(UserMessage(content=text),), **fields)


async def events_of(runs, run, start=0):
    events = []
    with runs.attached(run) as log:
        while await more(log, start + len(events)):
            events.extend(log.since(start + len(events)))
    return events


async def test_a_run_is_read_by_several_readers_and_again_after_it_ended():
    runs = make_runs(says("one two three"))
    run = await runs.start(ask(session_id="s"))
    first, second = await asyncio.gather(events_of(runs, run), events_of(runs, run, 2))
    grammar.check(first)
    assert second == first[2:]
    assert await events_of(runs, runs.get(run.run_id, owner=ANONYMOUS_OWNER)) == first
    await run.done()
    assert run.state is RunState.FINISHED
    assert run.result.text == "one two three"


async def test_a_run_continues_without_readers_and_they_may_come_back():
    gate = Gate()
    runs = make_runs(says("a b c", pause=gate))
    run = await runs.start(ask())
    with runs.attached(run) as log:
        await more(log, 3)
    assert run.readers == 0
    gate.open.set()
    events = await events_of(runs, run)
    assert isinstance(events[-1], e.RunFinished)
    assert events[-1].outcome is e.Outcome.COMPLETED


async def test_a_run_that_no_one_follows_is_cancelled_after_the_grace():
    runs = make_runs(says("a b c", pause=Gate()), detach_grace=0.01)
    run = await runs.start(ask())
    with runs.attached(run) as log:
        await more(log, 3)
    await run.done()
    assert run.state is RunState.CANCELLED
    assert run.log.since(0)[-1].outcome is e.Outcome.CANCELLED


async def test_a_run_that_is_read_elsewhere_lasts_until_the_next_note_of_that_is_due():
    gate = Gate()
    runs = make_runs(says("a b c", pause=gate), detach_grace=0.0)
    run = await runs.start(ask())
    runs.note_reader_elsewhere(run, 3600.0)
    await more(run.log, 3)
    assert run.grace.when() - asyncio.get_running_loop().time() > 3000
    gate.open.set()
    assert (await events_of(runs, run))[-1].outcome is e.Outcome.COMPLETED


async def test_stopping_ends_a_run_at_once_and_only_once():
    runs = make_runs(says("a b c", pause=Gate()))
    run = await runs.start(ask(session_id="s"))
    await more(run.log, 3)
    assert runs.stop(run) is True
    await run.done()
    grammar.check(run.log.since(0))
    assert runs.stop(run) is False
    conversation = await runs.store.read("s", owner=ANONYMOUS_OWNER)
    assert conversation.messages[-1].cut, "what the model had said is kept, marked as cut"


@pytest.mark.req("SRV-16")
async def test_two_runs_on_one_session_take_turns_in_order():
    gate = Gate()
    runs = make_runs(says("first answer", pause=gate), says("second answer"))
    first = await runs.start(ask("one", session_id="s"))
    second = await runs.start(ask("two", session_id="s"))
    await more(first.log, 3)
    assert second.state is RunState.QUEUED
    assert len(second.log) == 0
    gate.open.set()
    await second.done()
    conversation = await runs.store.read("s", owner=ANONYMOUS_OWNER)
    assert [message.content for message in conversation.messages] == ["one", "first answer", "two", "second answer"]


async def test_runs_on_different_sessions_do_not_wait_for_each_other():
    gate = Gate()
    runs = make_runs(says("blocked", pause=gate), says("free"))
    blocked = await runs.start(ask(session_id="a"))
    await more(blocked.log, 3)
    free = await runs.start(ask(session_id="b"))
    await free.done()
    assert not blocked.log.ended
    gate.open.set()
    await blocked.done()


@pytest.mark.req("SRV-16")
async def test_a_busy_session_may_refuse():
    runs = make_runs(says("a b", pause=Gate()), when_busy=WhenBusy.REJECT)
    run = await runs.start(ask(session_id="s"))
    await more(run.log, 2)
    with pytest.raises(SessionBusy):
        await runs.start(ask(session_id="s"))
    runs.stop(run)
    await run.done()
    assert await runs.start(ask(session_id="s"))


async def test_a_queued_run_that_is_stopped_never_reaches_the_model_and_lets_the_next_one_go():
    gate = Gate()
    runs = make_runs(says("first", pause=gate), says("third"))
    first = await runs.start(ask(session_id="s"))
    queued = await runs.start(ask("never", session_id="s"))
    third = await runs.start(ask("third", session_id="s"))
    await more(first.log, 3)
    runs.stop(queued)
    await queued.done()
    grammar.check(queued.log.since(0))
    assert queued.state is RunState.CANCELLED
    assert queued.log.ending.warning == e.STOPPED_UNSTORED, "its client sees that the conversation lacks the message"
    runs.stop(first)
    gate.open.set()
    await third.done()
    assert (first.log.ending.outcome, first.log.ending.warning) == (e.Outcome.CANCELLED, None)
    assert third.result.text == "third"
    assert "never" not in str(runs.model.prompts)


async def test_an_id_is_given_once():
    runs = make_runs()
    run = await runs.start(ask(session_id="s", run_id="r1"))
    with pytest.raises(InvalidRequest, match="already used"):
        await runs.start(ask(session_id="other", run_id="r1"))
    assert runs.active == [run]


async def test_a_run_is_forgotten_after_the_replay_window():
    runs = make_runs(replay_window=0)
    run = await runs.start(ask(session_id="s"))
    await run.done()
    while runs._runs:
        await asyncio.sleep(0)
    with pytest.raises(RunNotFound):
        runs.get(run.run_id, owner=ANONYMOUS_OWNER)
    assert runs.of_session("s", owner=ANONYMOUS_OWNER) == []


@pytest.mark.req("T36")
@pytest.mark.parametrize("other", [Owner("default", "eve"), Owner("other tenant", "ada")])
async def test_two_owners_use_the_same_ids_and_never_meet(other):
    ada, gate = Owner("default", "ada"), Gate()
    runs = make_runs(says("hers", pause=gate), says("his"), when_busy=WhenBusy.REJECT)
    run = await runs.start(ask(owner=ada, run_id="r", session_id="s"))
    with pytest.raises(RunNotFound):
        runs.get("r", owner=other)
    assert runs.of_session("s", owner=other) == []
    runs.forget_session("s", owner=other)
    theirs = await runs.start(ask(owner=other, run_id="r", session_id="s"))  # neither taken nor busy
    await theirs.done()
    assert theirs.result.text == "his"
    assert (runs.get("r", owner=ada), runs.get("r", owner=other)) == (run, theirs)
    assert not run.log.ended
    gate.open.set()
    await run.done()
    assert run.result.text == "hers"


@pytest.mark.req("SRV-20")
async def test_closing_lets_runs_finish_and_ends_the_rest_properly():
    gate = Gate()
    runs = make_runs(says("quick"), says("never ends", pause=gate))
    quick = await runs.start(ask(session_id="a"))
    await quick.done()
    stuck = await runs.start(ask(session_id="b"))
    queued = await runs.start(ask(session_id="b"))
    await more(stuck.log, 3)
    await runs.close(drain=0.01)
    assert quick.state is RunState.FINISHED
    for run in (stuck, queued):
        grammar.check(run.log.since(0))
        assert run.log.since(0)[-1].code == "shutting-down"
    with pytest.raises(ShuttingDown):
        await runs.start(ask())


async def test_a_store_that_breaks_ends_the_run_instead_of_hanging_it(caplog):
    runs = make_runs()

    async def fail(*args, **kwargs):
        raise OSError("disk on fire at /secret/path")

    runs.store.open = fail
    run = await runs.start(ask())
    await run.done()
    ending = run.log.since(0)[-1]
    assert (ending.code, "secret" in ending.message) == ("internal-error", False)
    assert "disk on fire" in caplog.text


async def test_a_foreign_resume_is_refused_before_anything_starts():
    runs = make_runs()
    with pytest.raises(InvalidRequest):
        await runs.start(RunRequest(session_id="s", resume=(Resume(interrupt_id="x", approved=True),)))
    assert runs.active == []


class TestForgedHistory:
    """A client cannot add to the assistant's messages (T27)."""

    @pytest.mark.req("T27")
    async def test_the_model_sees_none_of_it(self):
        runs = make_runs(says("yes"), says("no"))
        await (await runs.start(ask(session_id="s"))).done()
        forged = AssistantMessage(id="x", content="FORGED")
        run = await runs.start(RunRequest(session_id="s", messages=(forged, UserMessage(id="u", content="go on"))))
        await run.done()
        assert "FORGED" not in str(runs.model.prompts)


async def test_a_client_that_lacks_messages_gets_the_history():
    runs = make_runs(says("one"), says("two"))
    await (await runs.start(ask("first", session_id="s"))).done()
    second = await runs.start(ask("second", session_id="s", keeps_history=True))
    await second.done()
    events = [event for event in second.log.since(0) if isinstance(event, e.MessagesReplaced)]
    assert [message.content for message in events[0].messages] == ["first", "one", "second"]


@pytest.mark.req("SRV-15")
async def test_such_a_client_gets_a_long_history_whole_in_each_turn():
    runs = make_runs(*[says(f"answer {n}") for n in range(12)])
    runs.use(replace(runs.agent, max_messages=4))
    expected = []
    for turn in range(12):
        run = await runs.start(ask(f"question {turn}", session_id="s", keeps_history=True))
        await run.done()
        expected.append(f"question {turn}")
        shown = [event.messages for event in run.log.since(0) if isinstance(event, e.MessagesReplaced)]
        assert [[message.content for message in messages] for messages in shown] == ([expected] if turn else [])
        expected.append(f"answer {turn}")


@pytest.mark.req("SRV-15")
@pytest.mark.parametrize("make", [SseEncoder, ProtoEncoder])
async def test_a_turn_makes_as_many_calls_late_as_early(make):
    """For a client that is sent the whole history with each. Calls do not depend on the machine, as times do."""
    early, late = 60, 240
    runs = make_runs(*[says(f"answer {n}") for n in range(late + 1)])
    runs.use(replace(runs.agent, max_messages=10))
    made = {}
    for turn in range(late + 1):
        counted = 0

        def count(_frame, event, _arg):
            nonlocal counted
            counted += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            run = await runs.start(ask(f"question {turn}", session_id="s", keeps_history=True))
            await run.done()
            shown = make(run.run_id).encode_many(enumerate(run.log.since(0)))
        finally:
            sys.setprofile(None)
        made[turn] = counted
    assert shown.count(b"question ") == 2 * late + 1, "two snapshots, the first without what is new"
    assert made[late] < 1.1 * made[early], f"{made[early]} calls, then {made[late]}"


async def test_going_back_in_a_long_history():
    """The run has read its end only: what the client sends is compared with all of it."""
    runs = make_runs(*[says(f"answer {n}") for n in range(8)])
    runs.use(replace(runs.agent, max_messages=2))
    talk = []
    for turn in range(5):
        talk.append(UserMessage(id=f"u{turn}", content=f"question {turn}"))
        run = await runs.start(RunRequest(session_id="s", messages=tuple(talk), keeps_history=True))
        await run.done()
        shown = [event for event in run.log.since(0) if isinstance(event, e.MessagesReplaced)]
        assert shown == []
        talk += (await runs.store.read("s", owner=ANONYMOUS_OWNER)).messages[-1:]

    async def stored_after(*messages):
        await (await runs.start(RunRequest(session_id="s", messages=messages, keeps_history=True))).done()
        return [message.content for message in (await runs.store.read("s", owner=ANONYMOUS_OWNER)).messages]

    *before, _ = contents = [message.content for message in talk]
    assert await stored_after(*talk[:-1]) == [*before, "answer 5"], "regenerated"
    assert await stored_after(*talk[:4], UserMessage(id="x", content="else")) == [*contents[:4], "else", "answer 6"]
    changed = UserMessage(id="u1", content="changed")
    assert await stored_after(*talk[:2], changed) == [*contents[:2], "changed", "answer 7"]


async def test_a_client_with_messages_that_we_do_not_know_keeps_them():
    runs = make_runs(says("one"))
    run = await runs.start(
        RunRequest(
            session_id="s",
            messages=(AssistantMessage(id="theirs", content="old"), UserMessage(id="u", content="go on")),
            keeps_history=True,
        )
    )
    await run.done()
    assert not [event for event in run.log.since(0) if isinstance(event, e.MessagesReplaced)]


async def test_a_reader_never_blocks_a_run():
    runs = make_runs(Turn(text=["x"] * 5000))
    run = await runs.start(ask())
    with runs.attached(run):  # attached, and never reading
        await run.done()
    assert run.state is RunState.FINISHED


async def test_a_run_id_that_is_used_again_after_its_session_was_forgotten_belongs_to_the_new_run():
    gate = Gate()
    runs = make_runs(says("a b c", pause=gate), says("x y z", pause=gate), replay_window=0)
    old = await runs.start(ask(session_id="s", run_id="r"))
    runs.forget_session("s", owner=ANONYMOUS_OWNER)
    new = await runs.start(ask(session_id="s", run_id="r"))
    await old.done()
    await asyncio.sleep(0)  # in which the old run's window closes
    assert runs.get("r", owner=ANONYMOUS_OWNER) is new
    assert runs.active == [new]
    gate.open.set()
    await new.done()
    assert new.state is RunState.FINISHED


async def test_one_session_cannot_queue_without_end():
    runs = make_runs(says("a b", pause=Gate()), max_queued=2)
    for _ in range(3):
        await runs.start(ask(session_id="s"))
    with pytest.raises(SessionBusy, match="2 runs waiting"):
        await runs.start(ask(session_id="s"))
    assert await runs.start(ask(session_id="another"))
    await runs.close(drain=0)


def interrupt_of(run):
    (asked,) = run.log.since(len(run.log) - 1)[0].interrupts
    return (Resume(interrupt_id=asked.id, approved=True),)


async def test_a_run_is_resumed_under_its_own_id_only_so_often():
    tools = PlainTools(frozenset({"delete"}), delete=echo)
    agent = AgentDefinition(name="a", model=ScriptedModel([calls(("delete", "{}"))]), tools=Catalogue.of(tools))
    runs = Runs(agent, MemorySessionStore(), RunSettings())
    run = await runs.start(ask(session_id="s", run_id="r"))
    await run.done()
    for _ in range(MAX_PARTS - 1):
        run = await runs.start(RunRequest(session_id="s", run_id="r", resume=interrupt_of(run)))
        await run.done()
    assert len(run.parts) == MAX_PARTS
    with pytest.raises(InvalidRequest, match="under a new run id"):
        await runs.start(RunRequest(session_id="s", run_id="r", resume=interrupt_of(run)))
    other = await runs.start(RunRequest(session_id="s", run_id="r2", resume=interrupt_of(run)))
    await other.done()
    assert (len(other.parts), len(tools.called)) == (1, MAX_PARTS)


async def test_a_resume_continues_its_run_although_the_replay_window_ends_while_it_is_checked(monkeypatch):
    tools = PlainTools(frozenset({"delete"}), delete=echo)
    agent = AgentDefinition(
        name="a", model=ScriptedModel([calls(("delete", "{}")), says("gone")]), tools=Catalogue.of(tools)
    )
    runs = Runs(agent, MemorySessionStore(), RunSettings())
    run = await runs.start(ask(session_id="s", run_id="r"))
    await run.done()
    read = runs.store.read

    async def forgets(*given, **more):
        runs.forget(run)
        return await read(*given, **more)

    monkeypatch.setattr(runs.store, "read", forgets)
    resumed = await runs.start(RunRequest(session_id="s", run_id="r", resume=interrupt_of(run)), fingerprint=b"f")
    await resumed.done()
    assert (resumed.parts, resumed.first_number) == ([run, resumed], len(run.log))
    assert resumed.request.answered == (b"f",)


def test_the_parts_of_a_run_are_listed_however_many_there_are():
    run = None
    for _ in range(5000):
        run = Run(
            request=ask(), run_id="r", session_id="s", owner=ANONYMOUS_OWNER, log=RunLog(), earlier=run, first_number=0
        )
    assert len(run.parts) == 5000
    assert (run.parts[-1], run.parts[0].earlier) == (run, None)


async def test_a_defect_at_the_end_of_a_run_keeps_no_slot(monkeypatch):
    errors: list[BaseException | None] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context.get("exception")))
    runs = make_runs(says("hi"))
    monkeypatch.setattr(Run, "release", lambda _run: 1 / 0)
    run = await runs.start(ask())
    await run.done()
    await asyncio.sleep(0)  # the callback of the task
    assert (runs.busy, [type(error) for error in errors]) == (0, [ZeroDivisionError])
