"""Runs that a crash cut, and that continue when a reader comes back: when, with what of their request, and when not."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from holodeck.agent.settings import StateSettings
from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.messages import AssistantMessage, PendingStep, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.core.tools import ToolSchema
from holodeck.errors import StorageFull, StoreUnavailable, Unauthorized
from holodeck.models.scripted import says
from holodeck.runs import interrupted_runs
from holodeck.runs.interrupted_runs import InterruptedRuns
from holodeck.runs.port import RunState
from holodeck.runs.recovery import CALL_AGAIN, PART_STRIDE
from holodeck.runs.remote_runs import parts_of
from holodeck.runs.run import MAX_KEPT_BYTES, kept_of
from tests.agent.agent_fixture import PlainTools, echo
from tests.runs.restarted import BEGINNING, QUESTION, RECORD, REPLY, follow, restarted

__all__ = ["restarted"]


@pytest.mark.req("D03b")
async def test_a_run_that_only_talked_continues_when_a_reader_comes_back(restarted):
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.interrupted.recover()
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
@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_run_that_continues_has_the_state_that_it_stored_and_not_the_one_that_its_client_sent(
    restarted, has_begun
):
    """Unless nothing of it was stored: then the session does not have the client's state yet."""
    record = msgspec.structs.replace(RECORD, request=msgspec.structs.replace(RECORD.request, state={"count": 1}))
    async with restarted() as server:
        server.runs.use(replace(server.runs.agent, state=StateSettings(initial={"count": 0})))
        conversation = await server.store.open("s", owner=ME, create=True)
        await conversation.commit([UserMessage(content="before"), AssistantMessage(content="yes")], state={"count": 7})
        conversation.close()
        await server.left(*([QUESTION] if has_begun else []), record=record)
        if has_begun:
            conversation = await server.store.open("s", owner=ME, run_id="r")
            await conversation.commit(
                [AssistantMessage(content="counted", cut="length", run_id="r")], state={"count": 2}
            )
            conversation.close()
        await server.interrupted.recover()
        events = await asyncio.wait_for(follow(server, await server.stored.find("r", owner=ME)), 30)
        state = {"count": 2 if has_begun else 1}
        assert (await server.store.read("s", owner=ME)).state == state
        assert f'{{"count":{state["count"]}}}' in server.model.prompts[0].system
        assert [each.state for each in events if isinstance(each, e.StateReplaced)] == [state]


@pytest.mark.req("D03b")
async def test_numbers_of_a_part_that_was_shown_and_never_copied_are_not_used_again(restarted):
    async with restarted() as server:
        await server.left(QUESTION)
        await server.records.take_up(RECORD)  # by a process that was killed as well, before it copied anything
        await server.interrupted.recover()
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
        await server.interrupted.recover()
        run = await server.stored.find("r", owner=ME)
        await run.done()
        assert run.log.since(0)[-1].code == "interrupted"
        assert run.log.since(0)[-1].message.endswith("a new message continues from there.")
        assert server.model.prompts == []
        assert (await server.records.find("r", owner=ME)).state is RunState.INTERRUPTED


@pytest.mark.req("D03b", "D10")
@pytest.mark.parametrize("error", [StorageFull("full"), StoreUnavailable("locked")], ids=type)
async def test_what_is_left_of_a_run_is_stored_as_soon_as_the_store_takes_it(restarted, monkeypatch, error):
    """The message of a run that waited for its turn is in its row only, and was acknowledged."""
    monkeypatch.setattr(interrupted_runs, "AGAIN_SECONDS", 0)
    record = msgspec.structs.replace(RECORD, request=msgspec.structs.replace(RECORD.request, detached=True))
    async with restarted() as server:
        await server.left(record=record)
        refused, taken_up = asyncio.Event(), asyncio.get_running_loop().create_future()
        server.interrupted.on_taken_up.append(taken_up.set_result)
        with monkeypatch.context() as patch:
            patch.setattr(server.store, "change", lambda *_: refused.set() or _failed(error))
            await server.interrupted.recover()
            assert refused.is_set()
            with pytest.raises(StoreUnavailable):
                await server.stored.find("r", owner=ME)
        run = await asyncio.wait_for(taken_up, 50)
        await run.done()
        assert [each.content for each in await server.history()] == ["go", "fresh answer"]
        assert (await server.records.find("r", owner=ME)).state is RunState.FINISHED


@pytest.mark.req("D03b")
async def test_a_run_whose_session_refuses_what_is_left_of_it_ends_and_the_others_are_recovered(restarted, caplog):
    """The error is about the data of this session, so another attempt would fail as well."""
    other = msgspec.structs.replace(RECORD, run_id="other", session_id="other", request=RunRequest(run_id="other"))
    refused = "CREATE TRIGGER refused BEFORE INSERT ON steps WHEN new.seq > 0 BEGIN SELECT RAISE(ABORT, 'refused'); END"
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.left(record=other)
        await server.store.file.write(lambda connection: connection.execute(refused))
        with caplog.at_level("INFO"):
            await server.interrupted.recover()
        assert not server.interrupted._waiting
        found = await server.records.find("r", owner=ME)
        assert (found.state, found.ending.code) == (RunState.INTERRUPTED, "interrupted")
        assert [each.content for each in await server.history()] == ["go"]
        lines = [each for each in caplog.messages if "run r " in each]
        assert lines == ["run r cannot be recovered: The session store refuses this: refused"]
        assert (await server.stored.find("other", owner=ME)).run_id == "other"


@pytest.mark.req("D03b")
async def test_a_store_that_stays_away_is_named_once(restarted, monkeypatch, caplog):
    monkeypatch.setattr(interrupted_runs, "AGAIN_SECONDS", 0)
    refused = []
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        with caplog.at_level("INFO"), monkeypatch.context() as patch:
            patch.setattr(server.store, "change", lambda *_: refused.append(1) or _failed(StoreUnavailable("locked")))
            await server.interrupted.recover()
            while len(refused) < 8:
                await asyncio.sleep(0)
        await server.interrupted.close()
        named = [each for each in caplog.messages if "run r " in each]
        assert named == ["run r is recovered when the store works again: locked"]


async def test_a_session_that_is_deleted_before_its_run_can_be_recovered_stays_deleted(restarted, monkeypatch):
    """A user who makes room on a full disk deletes sessions. What is left of the run is in memory only by then."""
    monkeypatch.setattr(interrupted_runs, "AGAIN_SECONDS", 0)
    record = msgspec.structs.replace(RECORD, request=msgspec.structs.replace(RECORD.request, detached=True))
    async with restarted() as server:
        await server.left(record=record)
        server.records.release(record)  # as after a restart
        with monkeypatch.context() as patch:
            patch.setattr(server.store, "change", lambda *_: _failed(StorageFull("full")))
            await server.interrupted.recover()
        await server.store.delete("s", owner=ME)
        async with asyncio.timeout(50):
            while server.interrupted._waiting:
                await asyncio.wait(server.interrupted._waiting)
        await asyncio.gather(*(run.done() for run in server.runs.active))
        assert await server.store.read("s", owner=ME) is None
        assert await server.records.find("r", owner=ME) is None
        assert server.model.prompts == []


def _failed(error):
    future = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


async def test_a_run_that_is_recovered_while_the_server_stops_is_left_to_the_next_start(restarted, monkeypatch):
    """The server has stopped its runs by then: one more would ask the model, and fail when the store closes."""
    record = msgspec.structs.replace(RECORD, request=msgspec.structs.replace(RECORD.request, detached=True))
    async with restarted() as server:
        await server.left(QUESTION, record=record)
        reading, may_read, works = asyncio.Event(), asyncio.Event(), server.store.open

        async def slow(*args, **named):
            reading.set()
            await may_read.wait()
            return await works(*args, **named)

        monkeypatch.setattr(server.store, "open", slow)
        recovering = asyncio.create_task(server.interrupted.recover())
        await asyncio.wait_for(reading.wait(), 50)
        await server.runs.close(0)
        may_read.set()
        await asyncio.wait_for(recovering, 50)
        assert (server.runs.active, server.model.prompts) == ([], [])
        left = await server.records.find("r", owner=ME)
        assert (left.ending, left.recovered) == (None, 0)


async def test_a_run_whose_credential_is_no_longer_valid_does_not_continue(restarted):
    refused = Unauthorized("The key of this run was revoked.")
    record = msgspec.structs.replace(RECORD, request=msgspec.structs.replace(RECORD.request, api_key_id="K"))
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING, record=record)
        asked = []
        interrupted = InterruptedRuns(server.runs, refusal=lambda given: asked.append(given.api_key_id) or refused)
        await interrupted.recover()
        run = await server.stored.find("r", owner=ME)
        assert asked == ["K"], "the id of the key is stored with the run"
        assert run.log.since(0)[-1].code == "unauthorized"
        assert server.model.prompts == []


async def test_a_run_that_waits_for_a_reader_takes_no_room_until_one_comes(restarted):
    async with restarted(says("fresh", pause=asyncio.Event().wait)) as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.interrupted.recover()
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
        await server.interrupted.recover()
        await (await server.stored.find("r", owner=ME)).done()
        await asyncio.sleep(0)
        assert server.runs.busy == 0


async def test_a_run_that_waits_for_a_reader_does_not_hold_a_shutdown(restarted):
    async with restarted(detach_grace=3600) as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.interrupted.recover()
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
        await server.interrupted.recover()
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
        await server.interrupted.recover()
        run = await server.stored.find("r", owner=ME)
        assert run.log.since(0)[-1].code == "interrupted"
        assert server.model.prompts == []


@pytest.mark.req("D03b")
async def test_it_does_not_continue_with_another_agent_file(restarted):
    request = msgspec.structs.replace(RECORD.request, agent_version="before")
    async with restarted(says("one"), says("two")) as server:
        server.runs.use(replace(server.runs.agent, version="after"))
        await server.left(QUESTION, events=BEGINNING, record=msgspec.structs.replace(RECORD, request=request))
        await server.interrupted.recover()
        ending = (await server.stored.find("r", owner=ME)).log.since(0)[-1]
        assert (ending.code, "agent file was changed" in ending.message) == ("interrupted", True)
        assert ending.message.endswith("a new message continues the session."), "the same one could repeat a tool call"
        assert (await server.records.find("r", owner=ME)).state is RunState.INTERRUPTED
        assert server.model.prompts == []
        run = await server.runs.start(RunRequest(session_id="t", messages=(UserMessage(content="hi"),)))
        await run.done()
        assert (await server.records.find(run.run_id, owner=ME)).request.agent_version == "after"


@pytest.mark.parametrize("how", ["not allowed", "a second time", "a call is unknown"])
async def test_it_does_not_continue(restarted, how):
    async with restarted(continues=how != "not allowed") as server:
        unknown = PendingStep(assistant=REPLY, begun=("c1",), run_id="r") if how == "a call is unknown" else None
        await server.left(QUESTION, pending=unknown, events=BEGINNING)
        if how == "a second time":
            await server.records.take_up(RECORD)
        await server.interrupted.recover()
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
        await server.interrupted.recover()
        run = await server.stored.find("r", owner=ME)
        events = await asyncio.wait_for(follow(server, run), 30)
        assert isinstance(events[-1], e.RunFinished)
        assert [message.content for message in server.model.prompts[0].messages[-3:]] == [CALL_AGAIN] * 3


async def test_a_user_who_continues_ends_the_run_that_was_cut(restarted):
    async with restarted() as server:
        await server.left(QUESTION, events=BEGINNING)
        await server.interrupted.recover()
        cut = await server.stored.find("r", owner=ME)
        run = await server.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="and?"),)))
        await asyncio.gather(run.done(), cut.done())
        assert cut.log.since(0)[-1].code == "interrupted"
        assert [message.content for message in await server.history()] == ["go", "let me", "and?", "fresh answer"]
