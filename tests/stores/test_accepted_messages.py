"""Questions that a store has accepted and writes with their answers: nothing of them is lost, or stored without the other."""

import asyncio
import threading

import pytest

from holodeck.core.events import RunFinished
from holodeck.core.messages import AssistantMessage, PendingStep, UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER as ME
from holodeck.errors import SessionDeleted, StorageFull, StoreUnavailable
from holodeck.runs.port import RunRecord
from holodeck.sessions.port import KEEP
from tests.stores.stored_sessions import say, texts


async def accepted_by(store, run_id=""):
    """A conversation whose question is about to be written."""
    conversation = await store.open("s", owner=ME, run_id=run_id, create=True)
    accepted = conversation.accept([UserMessage(content="question")])
    while store.accepted:  # until the store has waited long enough for an answer
        await asyncio.sleep(0.001)
    storing = asyncio.create_task(conversation.commit([AssistantMessage(content="answer")]))
    await asyncio.sleep(0)
    return conversation, accepted, storing


@pytest.mark.req("D03")
async def test_an_answer_that_waits_for_its_question_is_stored_although_its_run_is_cancelled(opened):
    store, held = await opened(), threading.Event()
    store.file.write(lambda _connection: held.wait(30))
    conversation, accepted, storing = await accepted_by(store)
    storing.cancel()
    await asyncio.wait({storing})
    held.set()
    await accepted
    await conversation.commit([UserMessage(content="next")])
    assert await texts(store) == ["question", "answer", "next"]


async def refused_by(store, monkeypatch, run_id=""):
    """A conversation whose question the store has refused, as well as the answer behind it."""
    question = asyncio.get_running_loop().create_future()
    with monkeypatch.context() as patch:
        patch.setattr(store, "change", lambda _session, _job: question)
        conversation, accepted, storing = await accepted_by(store, run_id)
    question.set_exception(StorageFull("The disk is full."))
    for stored in (accepted, storing):
        with pytest.raises(StorageFull):
            await stored
    return conversation


@pytest.mark.req("D03")
async def test_nothing_is_stored_behind_a_question_that_was_refused_although_the_store_works_again(opened, monkeypatch):
    store = await opened()
    conversation = await refused_by(store, monkeypatch)
    step = PendingStep(assistant=AssistantMessage(content="answer"))
    for later in (conversation.commit([AssistantMessage(content="later")]), conversation.begin_calls(step)):
        with pytest.raises(StorageFull, match="The disk is full"):
            await later
    assert await texts(store) is None
    await say(store, "next")
    assert await texts(store) == ["next"]


@pytest.mark.req("D03")
async def test_the_ending_of_a_run_is_stored_although_its_question_was_refused(opened, monkeypatch):
    store = await opened()
    store.runs.register(RunRecord(run_id="r", owner=ME, session_id="s"))
    conversation = await refused_by(store, monkeypatch, run_id="r")
    await conversation.end([], KEEP, state=KEEP, ending=RunFinished("r", "s"))
    assert (await store.runs.find("r", owner=ME)).state == "finished"


async def test_an_accepted_message_is_kept_if_the_next_commit_comes_before_the_loop_has_seen_it_stored(opened):
    store = await opened()
    conversation = await store.open("s", owner=ME, create=True)
    accepted = conversation.accept([UserMessage(content="question")])
    while not accepted.done():  # not awaited: the callbacks of the future have not run
        await asyncio.sleep(0)
    await conversation.commit([AssistantMessage(content="answer")])
    assert await texts(store) == ["question", "answer"]


async def committed(store, work) -> list[str]:
    """The statements of the file's thread while this work is done."""
    statements = []
    await store.file.read(lambda connection: connection.set_trace_callback(statements.append))
    await work
    await store.file.read(lambda connection: connection.set_trace_callback(None))
    return statements


async def answered_at_once(store, conversation):
    conversation.accept([UserMessage(content="question")])
    await conversation.commit([AssistantMessage(content="answer")], ending=RunFinished("r", "s"))


async def test_an_answer_that_comes_at_once_is_stored_with_its_question_in_one_transaction(opened):
    store = await opened()
    store.runs.register(RunRecord(run_id="r", owner=ME, session_id="s"))
    conversation = await store.open("s", owner=ME, run_id="r", create=True)
    statements = await committed(store, answered_at_once(store, conversation))
    assert statements.count("BEGIN IMMEDIATE") == 1
    assert await texts(store) == ["question", "answer"]
    assert (await store.runs.find("r", owner=ME)).state == "finished"
    again = await store.open("s", owner=ME)
    assert [message.content for message in again.messages] == ["question", "answer"]
    assert (await store.get("s", owner=ME)).message_count == 2


async def test_messages_that_no_commit_follows_are_stored_by_themselves(opened):
    store = await opened()
    conversation = await store.open("s", owner=ME, create=True)
    await asyncio.wait_for(conversation.accept([UserMessage(content="question")]), 30)
    assert await texts(store) == ["question"]


async def test_a_store_that_is_closed_at_once_keeps_what_was_accepted(opened):
    store = await opened()
    conversation = await store.open("s", owner=ME, create=True)
    accepted = conversation.accept([UserMessage(content="question")])
    await store.close()
    await accepted
    assert await texts(await opened()) == ["question"]


async def test_a_conversation_that_is_closed_at_once_keeps_what_it_accepted(opened):
    store = await opened()
    conversation = await store.open("s", owner=ME, create=True)
    conversation.accept([UserMessage(content="question")])
    conversation.close()
    assert await texts(store) == ["question"]


@pytest.mark.parametrize("everything", [True, False])
async def test_a_session_that_is_deleted_while_its_first_message_waits_does_not_come_back(opened, everything):
    store = await opened()
    conversation = await store.open("s", owner=ME, create=True)
    accepted = conversation.accept([UserMessage(content="question")])
    await (store.delete_all(owner=ME) if everything else store.delete("s", owner=ME))
    await accepted
    with pytest.raises(SessionDeleted):
        await conversation.commit([AssistantMessage(content="answer")])
    assert await texts(store) is None


async def test_a_question_and_an_answer_that_do_not_fit_on_the_disk_both_fail(opened):
    store = await opened()
    await say(store, "before")
    (used,) = await store.file.read(lambda connection: connection.execute("PRAGMA page_count").fetchone())
    await store.file.write(lambda connection: connection.execute(f"PRAGMA max_page_count={used}").fetchone())
    conversation = await store.open("s", owner=ME)
    accepted = conversation.accept([UserMessage(content="x" * 100_000)])
    with pytest.raises(StorageFull):
        await conversation.commit([AssistantMessage(content="answer")])
    with pytest.raises(StorageFull):
        await accepted
    assert await texts(store) == ["before"]


async def test_what_a_closed_store_cannot_take_fails_the_accepted_message_as_well(opened):
    store = await opened()
    conversation = await store.open("s", owner=ME, create=True)
    accepted = conversation.accept([UserMessage(content="question")])
    await store.file.close()
    with pytest.raises(StoreUnavailable):
        await conversation.commit([AssistantMessage(content="answer")])
    with pytest.raises(StoreUnavailable):
        await accepted
