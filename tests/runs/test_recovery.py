"""What becomes of runs that a crash cut: the history is whole, nothing is called again, readers get an ending."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.agent.pending import NOT_MADE, OUTCOME_UNKNOWN
from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.messages import AssistantMessage, PendingStep, ToolCall, ToolMessage, UserMessage, unanswered
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.core.tools import ToolSchema
from holodeck.errors import RunInterrupted, RunNotFound, Unauthorized
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.runs.idempotency import Idempotency
from holodeck.runs.port import RunKey, RunRecord, RunState
from holodeck.runs.recovery import CALL_AGAIN, PART_STRIDE, remains_of
from holodeck.runs.remote_runs import parts_of
from holodeck.runs.run import MAX_KEPT_BYTES, kept_of
from holodeck.runs.run_settings import RunSettings
from holodeck.runs.runs import Runs
from holodeck.runs.stored_runs import StoredRuns
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.stores.stored_conversation import StoredConversation
from tests.agent.parts import PlainTools, echo
from tests.runs.following import more

QUESTION = UserMessage(content="go", id="q", run_id="r")
CALLS = tuple(ToolCall(id=f"c{n}", name="echo", arguments="{}") for n in (1, 2, 3))
REPLY = AssistantMessage(id="a", content="let me see", tool_calls=CALLS, run_id="r")
RECORD = RunRecord(run_id="r", owner=ME, session_id="s", request=RunRequest(run_id="r", messages=(QUESTION,)))
BEGINNING = [
    e.RunStarted("r", "s"),
    e.StepStarted(1),
    e.TextStarted("a"),
    e.TextAdded("a", "let "),
    e.TextAdded("a", "me"),
]
CALLING = [
    *BEGINNING,
    e.TextEnded("a"),
    *(
        event
        for call in CALLS
        for event in (e.ToolCallStarted(call.id, "echo", "a"), e.ToolCallEnded(call.id, "echo", "{}"))
    ),
]


def log_after(events, remains, *endings):
    """The log as a reader gets it, checked against the grammar."""
    whole = [*events, *remains.closings, *(endings or (e.RunFailed("r", "s", "interrupted", "cut"),))]
    grammar.check(whole)
    return whole


class Restarted:
    """A store on a file, and what a server that starts on it makes of it."""

    def __init__(self, path, *turns, tools=None, **settings):
        self.path, self.turns, self.settings = path, turns or (says("fresh answer"),), settings
        self.tools = tools or PlainTools(echo=echo)

    async def __aenter__(self):
        file = SqliteFile(self.path)
        self.records = SqliteRunStore(file, "tester")
        self.store = SqliteSessionStore(file, "tester", runs=self.records)
        await self.store.start()
        self.model = ScriptedModel(self.turns)
        agent = AgentDefinition(name="tester", model=self.model, tools=self.tools)
        self.runs = Runs(agent, self.store, RunSettings(**self.settings), records=self.records)
        self.stored = StoredRuns(self.runs, self.store, self.records)
        return self

    async def __aexit__(self, *_):
        await self.runs.close(0)
        await self.store.close()

    async def left(self, *messages, pending=None, events=(), record=RECORD):
        """What a process that was killed leaves behind."""
        self.records.register(record)
        conversation = await self.store.open("s", owner=ME, run_id=record.run_id, create=True)
        if messages:
            await conversation.commit(messages)
        else:
            await self.records.begin(record)
        if pending is not None:
            await conversation.begin_calls(pending)
        conversation.close()
        if events:
            from holodeck.stores import records as bodies

            body, insert = bodies.encode(list(events)), "INSERT INTO pieces SELECT key, 0, ? FROM runs WHERE id = ?"
            await self.store.file.write(lambda connection: connection.execute(insert, (body, record.run_id)).rowcount)

    async def history(self):
        return (await self.store.read("s", owner=ME)).messages


@pytest.fixture
def restarted(tmp_path):
    return lambda *turns, **settings: Restarted(tmp_path / "sessions.db", *turns, **settings)


def events_of(run):
    return [event for part in run.parts for event in part.log.since(0)]


# what is left of a run


def test_nothing_is_left_of_a_run_that_had_produced_nothing():
    remains = remains_of(RECORD, [e.RunStarted("r", "s")], None)
    assert remains.messages == [QUESTION]
    assert remains.is_certain
    log_after([e.RunStarted("r", "s")], remains)


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
        assert await server.stored.recover() == 1
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
        assert await server.stored.recover() == 1
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
        await server.stored.recover()
        assert (await server.store.read("s", owner=ME)).pending == waiting


# going on


async def follow(server, run):
    server.runs.attach(run)
    events = [event for part in run.parts[:-1] for event in part.log.since(0)]
    number = 0
    while await more(run.log, number):
        new = run.log.since(number)
        events += new
        number += len(new)
    server.runs.detach(run)
    return events


@pytest.mark.req("D03b")
async def test_a_run_that_only_talked_continues_when_a_reader_comes_back(restarted):
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        assert run.state is RunState.RUNNING
        assert server.model.prompts == [], "the model is not called before a reader comes back"
        events = await asyncio.wait_for(follow(server, run), 30)
        grammar.check(events)
        assert [each.code for each in events if isinstance(each, e.WarningRaised)] == ["taken-up"]
        assert isinstance(events[-1], e.RunFinished)
        (prompt,) = server.model.prompts
        assert [message.content for message in prompt.messages] == ["go"], "the cut answer is not shown to the model"
        assert [message.content for message in await server.history()] == ["go", "let me", "fresh answer"]
        assert (run.first_number, run.events) == (PART_STRIDE, len(events))
        assert (await server.records.find("r", owner=ME)).state is RunState.FINISHED


@pytest.mark.req("D03b")
async def test_numbers_of_a_part_that_was_shown_and_never_copied_are_not_used_again(restarted):
    async with restarted() as server:
        await server.left(QUESTION)
        await server.records.take_up(RECORD)  # by a process that was killed as well, before it copied anything
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        assert run.first_number == 2 * PART_STRIDE


@pytest.mark.parametrize(("last", "shown"), [("q", 1), ("a", 2), ("", 0), (None, 2), ("of a turn that was cut", 2)])
def test_a_snapshot_of_a_copied_log_has_no_message_that_the_log_shows_later(last, shown):
    history = [UserMessage(content="go", id="q"), AssistantMessage(content="there", id="a")]
    pieces = [(0, [e.RunStarted("r", "s"), e.MessagesReplaced((), last)])]
    (run,) = parts_of(RECORD, pieces, history, 100)
    assert run.log.since(1)[0].messages == tuple(history[:shown])


@pytest.mark.req("D03b")
async def test_without_a_reader_it_ends(restarted):
    async with restarted(detach_grace=0.01) as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        await run.done()
        assert run.log.since(0)[-1].code == "interrupted"
        assert server.model.prompts == []
        assert (await server.records.find("r", owner=ME)).state is RunState.INTERRUPTED


async def test_a_run_whose_credential_is_no_longer_valid_does_not_continue(restarted):
    refused = Unauthorized("The key of this run was revoked.")
    record = msgspec.structs.replace(RECORD, request=msgspec.structs.replace(RECORD.request, api_key_id="K"))
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING, record=record)
        asked = []
        stored = StoredRuns(
            server.runs, server.store, server.records, refusal=lambda given: asked.append(given.api_key_id) or refused
        )
        await stored.recover()
        run = await stored.find("r", owner=ME)
        assert asked == ["K"], "the id of the key is stored with the run"
        assert run.log.since(0)[-1].code == "unauthorized"
        assert server.model.prompts == []


async def test_a_run_that_waits_for_a_reader_takes_no_room_until_one_comes(restarted):
    async with restarted(says("fresh", pause=asyncio.Event().wait)) as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        assert server.runs.active == [run]
        assert server.runs.busy == 0
        with server.runs.attached(run):
            assert server.runs.busy == 1
            await asyncio.sleep(0)
            assert server.runs.busy == 1
            server.runs.stop(run)
            await run.done()
        assert server.runs.busy == 0


async def test_a_run_that_no_reader_came_back_to_is_no_longer_counted(restarted):
    async with restarted(detach_grace=0.01) as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.stored.recover()
        await (await server.stored.find("r", owner=ME)).done()
        await asyncio.sleep(0)
        assert server.runs.busy == 0


async def test_a_run_that_waits_for_a_reader_does_not_hold_a_shutdown(restarted):
    async with restarted(detach_grace=3600) as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        await asyncio.wait_for(server.runs.close(3600), 30)
        assert run.log.since(0)[-1].code == "shutting-down"


TOOL = ToolSchema(name="mine", description="of the client")


@pytest.mark.parametrize("waits", [False, True])
async def test_a_stored_request_has_only_what_a_run_that_continues_needs(restarted, waits):
    talks = asyncio.Event()
    async with restarted(says("one", pause=talks.wait), says("two")) as server:
        first = await server.runs.start(RunRequest(session_id="s", messages=(QUESTION,))) if waits else None
        request = RunRequest(
            session_id="s",
            messages=(UserMessage(content="and?"),),
            properties={"timezone": "Europe/Berlin", "token": "my secret"},
            context=(("page", "todos"),),
            client_tools=(TOOL,),
            state={"n": 1},
        )
        run = await server.runs.start(request)
        talks.set()
        await asyncio.gather(*(each.done() for each in (first, run) if each))
        assert run.request.properties == request.properties, "readers of this process are shown all of it"
        stored = (await server.records.find(run.run_id, owner=ME)).request
        assert stored.properties == {"timezone": "Europe/Berlin"}
        assert (stored.context, stored.client_tools, stored.state) == (request.context, (TOOL,), {"n": 1})
        assert not stored.shortened


@pytest.mark.parametrize("zone", ["x" * 500_000, 7, None])
def test_a_zone_that_is_none_is_not_kept(zone):
    assert kept_of(RunRequest(properties={"timezone": zone})).properties == {}


@pytest.mark.req("D03b")
async def test_a_run_that_continues_has_the_tools_and_the_context_of_its_request(restarted):
    request = kept_of(RunRequest(run_id="r", messages=(QUESTION,), client_tools=(TOOL,), context=(("page", "todos"),)))
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING, record=msgspec.structs.replace(RECORD, request=request))
        await server.stored.recover()
        await asyncio.wait_for(follow(server, await server.stored.find("r", owner=ME)), 30)
        (prompt,) = server.model.prompts
        assert "mine" in [tool.name for tool in prompt.tools]
        assert "todos" in str(prompt)


@pytest.mark.parametrize("field", ["client_tools", "context", "state"])
async def test_a_request_that_is_too_long_to_keep_is_stored_short_and_its_run_ends(restarted, field):
    long = "x" * MAX_KEPT_BYTES
    value = {"client_tools": (ToolSchema(name="mine", description=long),), "context": (("page", long),), "state": long}
    request = kept_of(RunRequest(run_id="r", messages=(QUESTION,), **{field: value[field]}))
    assert len(msgspec.json.encode(request)) < 2000
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING, record=msgspec.structs.replace(RECORD, request=request))
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        assert run.log.since(0)[-1].code == "interrupted"
        assert server.model.prompts == []


@pytest.mark.req("D03b")
async def test_it_does_not_continue_with_another_agent_file(restarted):
    request = msgspec.structs.replace(RECORD.request, agent_version="before")
    async with restarted(says("one"), says("two")) as server:
        server.runs.agent = replace(server.runs.agent, version="after")
        await server.left(QUESTION, events=BEGINNING, record=msgspec.structs.replace(RECORD, request=request))
        await server.stored.recover()
        ending = (await server.stored.find("r", owner=ME)).log.since(0)[-1]
        assert (ending.code, "agent file was changed" in ending.message) == ("interrupted", True)
        assert (await server.records.find("r", owner=ME)).state is RunState.INTERRUPTED
        assert server.model.prompts == []
        run = await server.runs.start(RunRequest(session_id="t", messages=(UserMessage(content="hi"),)))
        await run.done()
        assert (await server.records.find(run.run_id, owner=ME)).request.agent_version == "after"


@pytest.mark.parametrize("how", ["told not to", "a second time", "a call is unknown"])
async def test_it_does_not_continue(restarted, how):
    async with restarted(continues=how != "told not to") as server:
        unknown = PendingStep(assistant=REPLY, begun=("c1",), run_id="r") if how == "a call is unknown" else None
        await server.left(QUESTION, pending=unknown, events=BEGINNING)
        if how == "a second time":
            await server.records.take_up(RECORD)
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        assert run.log.since(0)[-1].code == "interrupted"
        assert server.model.prompts == []


class Repeatable(PlainTools):
    def schemas(self):
        import msgspec

        return [msgspec.structs.replace(schema, repeatable=True) for schema in super().schemas()]


async def test_calls_that_may_be_repeated_are_the_models_to_repeat(restarted):
    async with restarted(tools=Repeatable(echo=echo)) as server:
        await server.left(QUESTION, pending=PendingStep(assistant=REPLY, begun=("c1", "c2", "c3"), run_id="r"))
        await server.stored.recover()
        run = await server.stored.find("r", owner=ME)
        events = await asyncio.wait_for(follow(server, run), 30)
        assert isinstance(events[-1], e.RunFinished)
        assert [message.content for message in server.model.prompts[0].messages[-3:]] == [CALL_AGAIN] * 3


async def test_a_user_who_continues_ends_the_run_that_was_cut(restarted):
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.stored.recover()
        cut = await server.stored.find("r", owner=ME)
        run = await server.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="and?"),)))
        await asyncio.gather(run.done(), cut.done())
        assert cut.log.since(0)[-1].code == "interrupted"
        assert [message.content for message in await server.history()] == ["go", "let me", "and?", "fresh answer"]


async def test_a_run_that_waited_for_its_turn_is_not_lost(restarted):
    second = RunRecord(
        run_id="r2", owner=ME, session_id="s", request=RunRequest(messages=(UserMessage(content="me too", id="q2"),))
    )
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.records.begin(second)
        await server.stored.recover()
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
        assert await server.stored.recover() == 2
        assert (await server.store.read("t", owner=ME)).messages == (QUESTION,)
        assert "run r cannot be recovered" in caplog.text
        assert await server.records.unfinished() == []


# reading runs of the process before


async def test_a_finished_run_can_be_read_after_a_restart(restarted):
    async with restarted(says("one two three")) as server:
        run = await server.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="hi"),)))
        await run.done()
        output = list(run.log.since(0))
    async with restarted() as server:
        again = await server.stored.find(run.run_id, owner=ME)
        events = events_of(again)
        grammar.check(events)
        assert events[-1] == output[-1]
        assert "".join(each.delta for each in events if isinstance(each, e.TextAdded)) == "one two three"
        assert again.state is RunState.FINISHED
        assert await server.stored.find(run.run_id, owner=ME) is again
        with pytest.raises(RunNotFound):
            await server.stored.find("another", owner=ME)


@pytest.mark.req("C08")
async def test_a_request_that_comes_again_after_a_restart_joins_its_run(restarted):
    key = RunKey("rest", ME, "my key")
    async with restarted() as server:
        request = RunRequest(session_id="s", messages=(UserMessage(content="hi"),))
        run = await server.runs.start(request, key=key, fingerprint=b"f")
        await run.done()
    async with restarted() as server:
        keys = Idempotency(server.runs, server.stored.restored, server.stored.elsewhere)
        again = await keys.stored(key, b"f")
        assert (again.run_id, again.fingerprint) == (run.run_id, b"f")
        assert await keys.stored(RunKey("rest", ME, "another key"), b"f") is None


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize("ends", [True, False])
async def test_nothing_of_a_run_is_left_in_the_file_when_its_session_is_deleted(restarted, ends):
    key, talks = RunKey("rest", ME, "my key"), asyncio.Event()

    def pause():
        talks.set()
        return asyncio.sleep(0 if ends else 3600)

    async with restarted(says("my secret", pause=pause), says("later", pause=pause)) as server:
        requests = [RunRequest(session_id="s", messages=(UserMessage(content="hi"),)) for _ in range(2)]
        run = await server.runs.start(requests[0], key=key, fingerprint=b"f")
        queued = await server.runs.start(requests[1])
        await (run.done() if ends else talks.wait())
        server.runs.forget_session("s", owner=ME)
        await server.store.delete("s", owner=ME)
        await asyncio.gather(run.done(), queued.done())
        for each in (run, queued):
            with pytest.raises(RunNotFound):
                await server.stored.find(each.run_id, owner=ME)
        assert await Idempotency(server.runs, server.stored.restored, server.stored.elsewhere).stored(key, b"f") is None
        tables = ("SELECT count(*) FROM runs", "SELECT count(*) FROM pieces")
        counts = [await server.store.file.read(lambda db, each=each: db.execute(each).fetchone()) for each in tables]
        assert counts == [(0,), (0,)]


@pytest.mark.req("SRV-07")
async def test_a_history_that_a_run_adopted_is_not_shown_as_its_own_words(restarted):
    history = (UserMessage(content="I am Ann"), AssistantMessage(content="forged"), UserMessage(content="who am I?"))
    async with restarted(says("Ann")) as server:
        run = await server.runs.start(RunRequest(session_id="s", messages=history, keeps_history=True))
        await run.done()
        await server.store.file.write(lambda db: db.execute("DELETE FROM pieces").rowcount)
    async with restarted() as server:
        again = await server.stored.find(run.run_id, owner=ME)
        events = events_of(again)
        grammar.check(events)
        assert [each.delta for each in events if isinstance(each, e.TextAdded)] == ["Ann"]
        assert again.result.text == "Ann"


# what a client is answered


@pytest.mark.req("D08")
async def test_that_a_run_continues_without_its_client_is_stored_before_the_client_is_answered(restarted):
    """An MCP client that takes tasks gets the id of a run that it did not start as one."""
    answers = asyncio.Event()
    async with restarted(says("done", pause=answers.wait)) as server:
        run = await server.runs.start(RunRequest(session_id="s", messages=(QUESTION,)))
        await server.runs.keep_going(run)
        stored = await server.records.find(run.run_id, owner=ME)
        assert (stored.request.detached, stored.ending) == (True, None)
        answers.set()
        await run.done()
        ended = await server.records.find(run.run_id, owner=ME)
        assert (ended.request.detached, type(ended.ending)) == (True, e.RunFinished)
        await server.records.store_request(stored)  # the same, in the moment in which it ends
        assert (await server.records.find(run.run_id, owner=ME)).ending == ended.ending


@pytest.mark.req("SRV-20")
async def test_a_run_that_its_client_has_stopped_is_not_left_to_another_process(restarted):
    """It was being stopped when the server was: the next process must not continue it."""
    async with restarted(says("one two", pause=asyncio.Event().wait)) as server:
        run = await server.runs.start(RunRequest(session_id="s", messages=(QUESTION,), detached=True))
        assert await more(run.log, 3)
        assert server.runs.stop(run)
        await server.runs.close(0)
        stored = await server.records.find(run.run_id, owner=ME)
        assert (stored.ending is not None, stored.request.handovers) == (True, 0)
        assert [message.content for message in await server.history()] == ["go", "one"]


@pytest.mark.req("SRV-20")
async def test_runs_are_left_to_another_process_all_at_once(restarted, monkeypatch):
    """A store that is away keeps the others waiting for their endings once, and not once for each."""
    async with restarted(says("one", pause=asyncio.Event().wait)) as server:
        runs = [
            await server.runs.start(
                RunRequest(session_id=f"s{n}", messages=(UserMessage(content="go"),), detached=True)
            )
            for n in range(3)
        ]
        asked, all_asked, store_request = list[str](), asyncio.Event(), server.records.store_request

        async def slow(record):
            asked.append(record.run_id)
            if len(asked) == len(runs):
                all_asked.set()
            await all_asked.wait()
            await store_request(record)

        monkeypatch.setattr(server.records, "store_request", slow)
        await asyncio.wait_for(server.runs.close(0), 30)
        assert sorted(asked) == sorted(run.run_id for run in runs)
        assert [run.log.is_cut for run in runs] == [True, True, True]


@pytest.mark.req("D03")
@pytest.mark.parametrize("how", ["answered", "waiting"])
async def test_a_stop_that_comes_while_the_ending_is_stored_comes_too_late(restarted, monkeypatch, how):
    """The store has the ending of the run itself, so its readers are shown that one."""
    storing, start_writing = asyncio.Event(), StoredConversation._start_writing

    def started(conversation, steps, parts, ending, added):
        if ending is not None:
            storing.set()
        return start_writing(conversation, steps, parts, ending, added)

    monkeypatch.setattr(StoredConversation, "_start_writing", started)
    turn, tools = (
        says("one") if how == "answered" else calls(("echo", "{}")),
        PlainTools(frozenset({"echo"}), echo=echo),
    )
    async with restarted(turn, tools=tools) as server:
        run = await server.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="go"),)))
        await storing.wait()
        server.runs.stop(run, RunInterrupted("The store did not answer in time."))
        await run.done()
        stored = await server.records.find(run.run_id, owner=ME)
        assert run.log.ending == stored.ending
        assert stored.state is RunState.FINISHED
        assert run.result.text == ("one" if how == "answered" else None)
