"""What every session store promises. A new store joins by one more parameter; no test changes."""

import asyncio

import pytest

from holodeck.core.ids import is_ulid
from holodeck.core.messages import AssistantMessage, PendingStep, Summary, ToolCall, ToolMessage, UserMessage
from holodeck.core.usage import TokenUsage
from holodeck.errors import SessionNotFound
from holodeck.sessions.memory import MemorySessionStore


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory"])
async def store(request, clock):
    made = MemorySessionStore(ttl_seconds=1800, clock=clock)
    await made.start()
    yield made
    await made.close()


STEP = [
    AssistantMessage(
        content="let me see",
        reasoning="hm",
        tool_calls=(ToolCall(id="c", name="t", arguments="{}", extra={"extra_content": {"google": {"sig": "x"}}}),),
        tokens_used=TokenUsage(prompt_tokens=1, completion_tokens=2),
    ),
    ToolMessage(call_id="c", name="t", content="42", failed=True),
]


@pytest.mark.req("SRV-15")
async def test_a_new_session_has_a_ulid_and_is_empty(store):
    session = await store.create()
    assert is_ulid(session.session_id)
    assert session.message_count == 0
    assert session.created_at.tzinfo is not None
    assert await store.get(session.session_id) == session


async def test_an_id_may_be_given_and_creating_it_again_gives_the_same_session(store):
    first = await store.create("my thread")
    await (await store.open("my thread")).commit([UserMessage(content="hi")])
    again = await store.create("my thread")
    assert again.created_at == first.created_at
    assert again.message_count == 1


@pytest.mark.req("SRV-15")
async def test_what_is_committed_comes_back_unchanged(store):
    await store.create("s")
    conversation = await store.open("s")
    question = UserMessage(content="what is it?")
    await conversation.commit([question])
    await conversation.commit(STEP)
    for seen in (conversation, await store.open("s")):
        assert list(seen.messages) == [question, *STEP]
    assert (await store.get("s")).message_count == 3


async def test_a_pending_step_is_kept_until_the_next_commit(store):
    await store.create("s")
    conversation = await store.open("s")
    pending = PendingStep(assistant=STEP[0], approvals={"i": "c"})
    await conversation.commit([], pending)
    assert (await store.open("s")).pending == pending
    await conversation.commit(STEP)
    assert (await store.open("s")).pending is None


@pytest.mark.parametrize("state", [{"a": [1, None, "ü"]}, [], "text", 0])
async def test_shared_state_is_kept(store, state):
    await store.create("s")
    await (await store.open("s")).put_state(state)
    assert (await store.open("s")).state == state


async def test_a_summary_is_kept_beside_the_messages(store):
    session = await store.create()
    conversation = await store.open(session.session_id)
    assert conversation.summary is None
    await conversation.commit([UserMessage(content="hi", id="m1")])
    usage = TokenUsage(prompt_tokens=3, completion_tokens=1)
    summary = Summary(content="They said hi. 😀", until="m1", messages=1, tokens_used=usage)
    await conversation.put_summary(summary)
    again = await store.open(session.session_id)
    assert again.summary == summary
    assert [message.content for message in again.messages] == ["hi"]
    await again.put_summary(None)
    assert (await store.open(session.session_id)).summary is None


@pytest.mark.req("SRV-15")
async def test_the_time_to_live_slides_and_ends(store, clock):
    await store.create("s")
    clock.now += 1700
    await store.touch("s")
    clock.now += 1700
    assert await store.get("s") is not None
    clock.now += 1800
    assert await store.get("s") is None
    assert await store.count() == 0
    with pytest.raises(SessionNotFound):
        await store.open("s")


@pytest.mark.req("SRV-15")
async def test_clean_up_forgets_only_what_is_expired(store, clock):
    await store.create("old")
    clock.now += 1000
    await store.create("new")
    clock.now += 900
    assert await store.cleanup_expired() == 1
    assert await store.get("new") is not None
    assert await store.cleanup_expired() == 0


async def test_an_expired_id_starts_a_new_empty_session(store, clock):
    await store.create("s")
    await (await store.open("s")).commit([UserMessage(content="old secret")])
    clock.now += 2000
    await store.create("s")
    assert list((await store.open("s")).messages) == []


@pytest.mark.req("SRV-11")
async def test_deleting_is_idempotent_and_says_whether_there_was_something(store):
    await store.create("s")
    assert await store.delete("s") is True
    assert await store.delete("s") is False
    assert await store.get("s") is None


async def test_a_run_that_goes_on_after_its_session_was_deleted_does_not_bring_it_back(store):
    await store.create("s")
    conversation = await store.open("s")
    await store.delete("s")
    await conversation.commit([UserMessage(content="late")])
    assert await store.get("s") is None


async def test_another_users_session_is_as_if_it_were_not_there(store):
    await store.create("s", user_id="ada")
    assert await store.get("s", user_id="eve") is None
    assert await store.delete("s", user_id="eve") is False
    await store.touch("s", user_id="eve")
    with pytest.raises(SessionNotFound) as unknown:
        await store.open("nope", user_id="eve")
    with pytest.raises(SessionNotFound) as foreign:
        await store.open("s", user_id="eve")
    with pytest.raises(SessionNotFound):
        await store.create("s", user_id="eve")
    assert str(foreign.value).replace("'s'", "'nope'") == str(unknown.value)
    assert await store.get("s", user_id="ada") is not None


async def test_many_sessions_at_once_do_not_mix(store):
    async def talk(number):
        await store.create(f"s{number}")
        conversation = await store.open(f"s{number}")
        for _ in range(3):
            await conversation.commit([UserMessage(content=f"text {number}")])
            await asyncio.sleep(0)

    await asyncio.gather(*(talk(number) for number in range(50)))
    for number in range(50):
        messages = (await store.open(f"s{number}")).messages
        assert {message.content for message in messages} == {f"text {number}"}
    assert await store.count() == 50
