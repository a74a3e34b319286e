"""What every session store promises. A new store joins by one more line in `session_stores`; no test changes."""

import asyncio

import pytest

from holodeck.core.events import RunFinished
from holodeck.core.ids import is_ulid
from holodeck.core.messages import (
    AssistantMessage,
    PendingStep,
    Summary,
    UserMessage,
)
from holodeck.core.usage import TokenUsage
from holodeck.errors import InvalidRequest, SessionBusy, SessionFull, SessionNotFound
from holodeck.sessions.port import KEEP
from tests.contracts.session_stores import ADA, EVE
from tests.contracts.stored_turns import ENDING, STEP, conversation_of, turns


@pytest.mark.req("SRV-15")
async def test_a_new_session_has_a_ulid_and_is_empty(store):
    session = await store.create(owner=ADA)
    assert is_ulid(session.session_id)
    assert (session.message_count, session.size) == (0, 0)
    assert session.created_at.tzinfo is not None
    assert await store.get(session.session_id, owner=ADA) == session


async def test_an_id_may_be_given_and_creating_it_again_gives_the_same_session(store):
    first = await store.create("my thread", owner=ADA)
    await (await store.open("my thread", owner=ADA)).commit([UserMessage(content="hi")])
    again = await store.create("my thread", owner=ADA)
    assert again.created_at == first.created_at
    assert again.message_count == 1


@pytest.mark.req("SRV-15", "DUR-01")
async def test_what_is_committed_comes_back_unchanged(store):
    conversation = await conversation_of(store)
    question = UserMessage(content="what is it? 😀 \x00")
    await conversation.commit([question])
    await conversation.commit(STEP, ending=ENDING)
    assert list(conversation.messages) == [question, *STEP]
    assert list((await store.open("s", owner=ADA)).messages) == [question, *STEP]
    stored = await store.read("s", owner=ADA)
    assert list(stored.messages) == [question, *STEP]
    assert stored.session == await store.get("s", owner=ADA)
    assert stored.session.message_count == 3
    assert stored.session.size > 200


async def test_a_pending_step_is_kept_until_a_commit_replaces_it(store):
    conversation = await conversation_of(store)
    pending = PendingStep(assistant=STEP[0], approvals={"i": "c"}, run_id="r")
    await conversation.commit([], pending)
    assert (await store.read("s", owner=ADA)).pending == pending
    await conversation.commit([], KEEP, ending=ENDING)
    assert (await store.read("s", owner=ADA)).pending == pending
    await conversation.commit(STEP)
    assert (await store.read("s", owner=ADA)).pending is None
    assert conversation.pending is None


@pytest.mark.req("D03")
async def test_the_last_step_of_a_run_is_durable_when_its_future_is_done(store):
    conversation = await store.open("s", owner=ADA, create=True)
    accepted = conversation.accept([UserMessage(content="hi")])
    stored = conversation.end([AssistantMessage(content="ho")], None, state={"n": 1}, ending=RunFinished("r", "s"))
    if stored is not None:
        await stored
    assert accepted is None or accepted.done()
    session = await store.read("s", owner=ADA)
    assert [message.content for message in session.messages] == ["hi", "ho"]
    assert (session.pending, session.state) == (None, {"n": 1})
    assert [message.content for message in conversation.messages] == ["hi", "ho"]


async def test_calls_that_begin_are_stored_before_they_are_made(store):
    conversation = await conversation_of(store)
    step = PendingStep(assistant=STEP[0], begun=("c",), run_id="r")
    await conversation.begin_calls(step)
    assert (await store.read("s", owner=ADA)).pending == step
    assert conversation.pending == step
    await conversation.commit(STEP)
    assert (await store.read("s", owner=ADA)).pending is None


@pytest.mark.parametrize("state", [{"a": [1, None, "ü"]}, [], "text", 0])
async def test_messages_state_and_summary_are_one_commit(store, state):
    conversation = await conversation_of(store)
    usage = TokenUsage(prompt_tokens=3, completion_tokens=1)
    summary = Summary(content="They said hi. 😀", until="m1", messages=1, tokens_used=usage)
    await conversation.commit([UserMessage(content="hi", id="m1")], state=state, summary=summary)
    again = await store.open("s", owner=ADA)
    for seen in (conversation, again, await store.read("s", owner=ADA)):
        assert seen.state == state
        assert seen.summary == summary
    await again.commit([])
    assert (await store.read("s", owner=ADA)).state == state, "what is not named stays as it is"
    await again.commit([], state=None, summary=None)
    assert (again.state, again.summary) == (None, None)
    stored = await store.read("s", owner=ADA)
    assert (stored.state, stored.summary) == (None, None)


async def test_a_cancelled_caller_does_not_cut_a_commit(store):
    conversation = await conversation_of(store)
    task = asyncio.create_task(conversation.commit([UserMessage(content="whole")]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await conversation.commit([AssistantMessage(content="after it")])
    assert [each.content for each in (await store.read("s", owner=ADA)).messages] == ["whole", "after it"]


async def test_a_commit_stores_what_was_accepted_before_it(store):
    conversation = await conversation_of(store)
    accepted = conversation.accept([UserMessage(content="question")], state={"n": 1})
    assert [each.content for each in conversation.messages] == ["question"]
    await conversation.begin_calls(step := PendingStep(assistant=STEP[0], begun=("c",), run_id="r"))
    assert accepted is None or accepted.done()
    stored = await store.read("s", owner=ADA)
    assert [each.content for each in stored.messages] == ["question"]
    assert (stored.pending, stored.state) == (step, {"n": 1})
    accepted = conversation.accept(STEP)
    await conversation.commit([AssistantMessage(content="answer")])
    assert accepted is None or accepted.done()
    stored = await store.read("s", owner=ADA)
    assert stored.messages == tuple(conversation.messages)
    assert [each.content for each in stored.messages] == ["question", *[each.content for each in STEP], "answer"]
    assert (stored.pending, stored.state) == (None, {"n": 1})
    assert stored.session.size == (await store.get("s", owner=ADA)).size > 0
    assert stored.session.message_count == 2 + len(STEP)


# how much is read


@pytest.mark.req("SRV-15")
async def test_a_run_reads_only_the_end_of_a_long_history(store):
    conversation = await conversation_of(store)
    await turns(conversation, 50)
    tail = await store.open("s", owner=ADA, last=7)
    assert tail.messages[0].id == "u46", "whole turns"
    assert tail.earlier == 92
    assert len(tail.messages) == 8
    assert [message.id for message in await tail.history()][::10] == [f"u{n}" for n in range(0, 50, 5)]
    await turns(tail, 1, first=50)
    assert [message.id for message in tail.messages[-2:]] == ["u50", "a50"]
    assert len(await tail.history()) == 102
    assert (await store.get("s", owner=ADA)).message_count == 102


async def test_a_reader_may_read_only_the_end(store):
    conversation = await conversation_of(store)
    await turns(conversation, 20)
    await conversation.commit(STEP)
    summary = Summary(content="s", until="a17", messages=36)
    await conversation.commit([], PendingStep(assistant=STEP[0]), state={"x": 1}, summary=summary)
    whole = await store.read("s", owner=ADA)
    for last, expected in ((1, 4), (5, 8), (7, 8), (100, 42)):  # whole turns, and what the summary does not cover
        end = await store.read("s", owner=ADA, last=last)
        assert end.messages == whole.messages[-expected:]
        assert (end.pending, end.state, end.summary) == (whole.pending, whole.state, whole.summary)
        assert end.session == whole.session
    assert await store.read("another", owner=ADA, last=1) is None


async def rewritten(store):
    """The ids of all messages, and of those that were not written in the form of a wire before."""
    tail, seen = await store.open("s", owner=ADA, last=7), []
    history = await tail.history()
    history.written("a wire", lambda message: seen.append(message.id) or b"")
    tail.close()
    return [message.id for message in history], seen


@pytest.mark.req("SRV-15", "DUR-06")
async def test_a_turn_does_not_pay_for_what_clients_were_shown_before(store):
    conversation = await conversation_of(store)
    await turns(conversation, 50)
    every = [f"{kind}{n}" for n in range(50) for kind in "ua"]
    assert await rewritten(store) == (every, every)
    await turns(conversation, 1, first=50)
    assert await rewritten(store) == ([*every, "u50", "a50"], ["u50", "a50"])


async def test_a_history_that_was_cut_since_is_not_shown_again(store):
    conversation = await conversation_of(store)
    await turns(conversation, 50)
    conversation.close()
    await rewritten(store)
    await store.rewind("s", "u48", owner=ADA)
    again = await store.open("s", owner=ADA, last=7)
    await again.commit([UserMessage(id="u48", content="else", run_id="r2"), AssistantMessage(id="x", run_id="r2")])
    again.close()
    every = [f"{kind}{n}" for n in range(48) for kind in "ua"]
    assert (await rewritten(store))[0] == [*every, "u48", "x"]
    assert (await (await store.open("s", owner=ADA, last=7)).history())[-2].content == "else"
    await store.delete("s", owner=ADA)
    await turns(await conversation_of(store), 50, first=100)
    assert (await rewritten(store))[0] == [f"{kind}{n}" for n in range(100, 150) for kind in "ua"]


async def test_a_turn_that_is_longer_than_what_is_wanted_is_read_whole(store):
    conversation = await conversation_of(store)
    await turns(conversation, 3)
    await conversation.commit([UserMessage(content="much", id="much")])
    for _ in range(5):
        await conversation.commit(STEP)
    tail = await store.open("s", owner=ADA, last=4)
    assert tail.messages[0].id == "much"
    assert (len(tail.messages), tail.earlier) == (11, 6)


async def test_what_a_summary_does_not_cover_is_read(store):
    conversation = await conversation_of(store)
    await turns(conversation, 20)
    await conversation.commit([], summary=Summary(content="s", until="a13", messages=28))
    tail = await store.open("s", owner=ADA, last=8)
    assert tail.summary.rest_of(tail.messages)[0].id == "u14"


async def test_a_short_history_is_read_whole(store):
    conversation = await conversation_of(store)
    await turns(conversation, 3)
    tail = await store.open("s", owner=ADA, last=200)
    assert (len(tail.messages), tail.earlier) == (6, 0)


# cutting and copying


@pytest.mark.req("SRV-11")
async def test_rewinding_cuts_before_a_users_message(store):
    conversation = await conversation_of(store)
    await turns(conversation, 4)
    summary = Summary(content="s", until="a0", messages=2)
    await conversation.commit([], PendingStep(assistant=STEP[0]), state={"x": 1}, summary=summary)
    conversation.close()
    before = (await store.get("s", owner=ADA)).size
    await store.rewind("s", "u2", owner=ADA)
    stored = await store.read("s", owner=ADA)
    assert [message.id for message in stored.messages] == ["u0", "a0", "u1", "a1"]
    assert (stored.pending, stored.state, stored.summary) == (None, {"x": 1}, summary)
    assert stored.session.message_count == 4
    assert stored.session.size < before
    await store.rewind("s", "u0", owner=ADA)
    stored = await store.read("s", owner=ADA)
    assert (stored.messages, stored.summary) == ((), None), "a summary of what is gone goes with it"
    again = await store.open("s", owner=ADA)
    await turns(again, 1)
    assert len((await store.read("s", owner=ADA)).messages) == 2


async def test_rewinding_inside_a_commit_of_several_messages_cuts_there(store):
    conversation = await conversation_of(store)
    await conversation.commit([UserMessage(content="a", id="a"), UserMessage(content="b", id="b")])
    conversation.close()
    await store.rewind("s", "b", owner=ADA)
    assert [message.id for message in (await store.read("s", owner=ADA)).messages] == ["a"]


async def test_an_edit_is_stored_with_the_message_that_replaces_it_or_not_at_all(store):
    conversation = await conversation_of(store)
    await turns(conversation, 3)
    await conversation.commit([], PendingStep(assistant=STEP[0]), summary=Summary(content="s", until="a1", messages=4))
    conversation.close()
    again = await store.open("s", owner=ADA, run_id="r", last=2)
    await again.rewind("u1")
    assert (
        [message.id for message in again.messages] == [message.id for message in await again.history()] == ["u0", "a0"]
    )
    assert (again.pending, again.summary, again.earlier) == (None, None, 0)
    assert len((await store.read("s", owner=ADA)).messages) == 6, "nothing is cut before something is stored"
    await again.commit([], KEEP, ending=ENDING)
    stored = await store.read("s", owner=ADA)
    assert (len(stored.messages), stored.pending) == (6, PendingStep(assistant=STEP[0])), (
        "a run that failed cuts nothing"
    )
    await again.commit([UserMessage(content="edited", id="e")])
    stored = await store.read("s", owner=ADA)
    assert [message.id for message in stored.messages] == ["u0", "a0", "e"]
    assert (stored.pending, stored.summary, stored.session.message_count) == (None, None, 3)
    await again.commit([AssistantMessage(content="answer", id="f")])
    assert [message.id for message in (await store.read("s", owner=ADA)).messages] == ["u0", "a0", "e", "f"]
    assert [message.id for message in again.messages] == ["u0", "a0", "e", "f"]


async def test_an_edit_that_does_not_fit_leaves_the_conversation_as_it_was(opened):
    async with opened(max_bytes=4000) as store:
        conversation = await conversation_of(store)
        await turns(conversation, 2)
        await conversation.rewind("u0")
        with pytest.raises(SessionFull):
            await conversation.commit([UserMessage(content="x" * 5000)])
        assert len((await store.read("s", owner=ADA)).messages) == 4
        await conversation.commit([UserMessage(content="x" * 3500, id="e")])
        assert [message.id for message in (await store.read("s", owner=ADA)).messages] == ["e"], "the room of what goes"


async def test_tools_of_an_answer_asked_for_again_are_stored_on_the_shorter_history(store):
    conversation = await conversation_of(store)
    await turns(conversation, 2)
    await conversation.rewind("u1")
    await conversation.begin_calls(PendingStep(assistant=STEP[0], begun=("c",)))
    stored = await store.read("s", owner=ADA)
    assert (len(stored.messages), stored.pending.begun) == (2, ("c",))
    with pytest.raises(InvalidRequest):
        await conversation.rewind("nothing")


async def test_rewinding_refuses_what_cannot_be_cut(store):
    conversation = await conversation_of(store)
    await turns(conversation, 1)
    with pytest.raises(SessionBusy):
        await store.rewind("s", "u0", owner=ADA)
    conversation.close()
    conversation.close()
    for message in ("a0", "nothing"):
        with pytest.raises(InvalidRequest):
            await store.rewind("s", message, owner=ADA)
    with pytest.raises(SessionNotFound):
        await store.rewind("s", "u0", owner=EVE)
    assert len((await store.read("s", owner=ADA)).messages) == 2


async def test_a_fork_is_a_copy_of_its_own(store):
    conversation = await conversation_of(store)
    await turns(conversation, 3)
    await conversation.commit([], PendingStep(assistant=STEP[0]), state=[1])
    whole, early = await store.fork("s", owner=ADA), await store.fork("s", "u1", owner=ADA)
    assert is_ulid(whole)
    assert is_ulid(early)
    await turns(await store.open(early, owner=ADA), 1, first=9)
    read = {name: await store.read(name, owner=ADA) for name in ("s", whole, early)}
    assert [message.id for message in read[early].messages] == ["u0", "a0", "u9", "a9"]
    assert read[early].pending is None
    assert read[whole].messages == read["s"].messages
    assert (read[whole].pending, read[whole].state) == (read["s"].pending, [1])
    assert await store.read(whole, owner=EVE) is None
    with pytest.raises(InvalidRequest):
        await store.fork("s", "nothing", owner=ADA)
    with pytest.raises(SessionNotFound):
        await store.fork("s", owner=EVE)
    assert await store.count() == 3
