"""Runs on a store that outlives the process: read again after a restart, left to another process, and answered."""

import asyncio

import pytest

from holodeck.core import events as e
from holodeck.core import grammar
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.core.request import RunRequest
from holodeck.core.tools import ToolResult
from holodeck.errors import RunInterrupted, RunNotFound, StorageFull
from holodeck.models.scripted import calls, says
from holodeck.runs.idempotency import Idempotency
from holodeck.runs.port import RunKey, RunState
from holodeck.stores.stored_conversation import StoredConversation
from tests.agent.agent_fixture import PlainTools, echo
from tests.runs.following import more
from tests.runs.restarted import BEGINNING, QUESTION, events_of, restarted

__all__ = ["restarted"]


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
@pytest.mark.parametrize("lost", ["expired", "cut"])
async def test_an_answer_that_is_no_longer_stored_does_not_look_like_an_empty_one(restarted, lost):
    """The record is kept for at least a day. Its session may expire before, make room for another, or be cut."""
    async with restarted(says("one"), says("the answer")) as server:
        for number in "12":
            message = UserMessage(content="hi", id=number)
            run = await server.runs.start(RunRequest(session_id="s", messages=(message,)))
            await run.done()
    async with restarted() as server:
        await server.store.file.execute("DELETE FROM pieces", ())
        if lost == "cut":
            await server.store.rewind("s", "2", owner=ME)
        else:
            await server.store.file.execute("DELETE FROM sessions", ())
        again = await server.stored.find(run.run_id, owner=ME)
        assert (again.log.ending.code, again.log.ending.retryable) == ("replay-gone", False)
        assert (again.state, again.result.text) == (RunState.FINISHED, None)
        grammar.check(events_of(again))


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


@pytest.mark.req("SRV-11")
@pytest.mark.parametrize(
    ("how", "why"),
    [("its client stops it", "stopped"), ("the server stops", "shutting-down"), ("a kill", "interrupted")],
)
async def test_a_session_names_the_run_that_the_server_cut(restarted, how, why):
    """A page that is loaded again offers to continue it, but not what its user has stopped."""
    async with restarted(says("one two", pause=asyncio.Event().wait)) as server:
        if how == "a kill":
            await server.left(QUESTION, events=BEGINNING)
        else:
            run = await server.runs.start(RunRequest(run_id="r", session_id="s", messages=(QUESTION,)))
            assert await more(run.log, 3)
            assert await server.stored.cut_run(await server.store.read("s", owner=ME)) is None, "it has not ended"
        if how == "the server stops":
            await server.runs.close(0)
        elif how == "its client stops it":
            server.runs.stop(run)
            await run.done()
    async with restarted(continues=False) as server:
        await server.interrupted.recover()
        stored = await server.store.read("s", owner=ME)
        assert [getattr(message, "cut", "") for message in stored.messages] == ["", why]
        assert await server.stored.cut_run(stored) == (None if why == "stopped" else "r")


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
@pytest.mark.parametrize("when", ["before its turn", "at its turn"])
async def test_a_run_that_fails_before_its_message_is_stored_says_so(restarted, monkeypatch, when):
    """Its client was not answered, and has to send the message again."""
    async with restarted(says("one", pause=asyncio.Event().wait)) as server:
        question = RunRequest(session_id="s", messages=(UserMessage(content="go"),))
        if when == "before its turn":
            first = await server.runs.start(question)
            assert await more(first.log, 3)
            run = await server.runs.start(RunRequest(session_id="s", messages=(UserMessage(content="next"),)))
            await server.runs.close(0)
            expected = ["go", "one"]
        else:
            full = asyncio.get_running_loop().create_future()
            full.set_exception(StorageFull("The disk is full."))
            monkeypatch.setattr(server.store, "change", lambda *_: full)
            run = await server.runs.start(question)
            await run.done()
            expected = None
        stored = await server.store.read("s", owner=ME)
        assert (stored and [message.content for message in stored.messages]) == expected
        assert [type(event) for event in events_of(run)] == [e.RunStarted, e.RunFailed]
        assert (run.log.ending.retryable, run.log.ending.message.endswith(f". {e.NOT_STORED}")) == (True, True)
        if expected:
            assert (await server.records.find(run.run_id, owner=ME)).ending == run.log.ending


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


@pytest.mark.req("D03")
async def test_a_call_that_was_made_leaves_a_trace_although_its_result_could_not_be_stored(restarted):
    """The disk has no room for the result, but for the next, shorter step."""

    async def fill_disk(_arguments, _context):
        (used,) = await server.store.file.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
        await server.store.file.write(lambda connection: connection.execute(f"PRAGMA max_page_count={used}").fetchone())
        return ToolResult(content="x" * 15_000)

    turns = calls(("act", "{}")), calls(("act", "{}"))
    async with restarted(*turns, tools=PlainTools(act=fill_disk)) as server:
        request = RunRequest(run_id="r", session_id="s", owner=ME, messages=(UserMessage(content="go", id="q"),))
        run = await server.runs.start(request)
        await run.done()
        assert run.log.ending.code == StorageFull.code
        assert len(server.tools.called) == 1
        stored = await server.store.read("s", owner=ME)
        assert [message.content for message in stored.messages] == ["go"]
        assert stored.pending.begun == (stored.pending.assistant.tool_calls[0].id,)
