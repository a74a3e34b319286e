"""What every session store promises. A new store joins by one more parameter; no test changes."""

import asyncio

import pytest

from holodeck.core.ids import is_ulid
from holodeck.core.messages import AssistantMessage, PendingStep, Summary, ToolCall, ToolMessage, UserMessage
from holodeck.core.owner import Owner
from holodeck.core.usage import TokenUsage
from holodeck.errors import SessionNotFound
from holodeck.sessions.memory import MemorySessionStore

ADA, EVE = Owner("default", "ada"), Owner("default", "eve")


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
    session = await store.create(owner=ADA)
    assert is_ulid(session.session_id)
    assert session.message_count == 0
    assert session.created_at.tzinfo is not None
    assert await store.get(session.session_id, owner=ADA) == session


async def test_an_id_may_be_given_and_creating_it_again_gives_the_same_session(store):
    first = await store.create("my thread", owner=ADA)
    await (await store.open("my thread", owner=ADA)).commit([UserMessage(content="hi")])
    again = await store.create("my thread", owner=ADA)
    assert again.created_at == first.created_at
    assert again.message_count == 1


@pytest.mark.req("SRV-15")
async def test_what_is_committed_comes_back_unchanged(store):
    await store.create("s", owner=ADA)
    conversation = await store.open("s", owner=ADA)
    question = UserMessage(content="what is it?")
    await conversation.commit([question])
    await conversation.commit(STEP)
    for seen in (conversation, await store.open("s", owner=ADA)):
        assert list(seen.messages) == [question, *STEP]
    assert (await store.get("s", owner=ADA)).message_count == 3


async def test_a_pending_step_is_kept_until_the_next_commit(store):
    await store.create("s", owner=ADA)
    conversation = await store.open("s", owner=ADA)
    pending = PendingStep(assistant=STEP[0], approvals={"i": "c"})
    await conversation.commit([], pending)
    assert (await store.open("s", owner=ADA)).pending == pending
    await conversation.commit(STEP)
    assert (await store.open("s", owner=ADA)).pending is None


@pytest.mark.parametrize("state", [{"a": [1, None, "ü"]}, [], "text", 0])
async def test_shared_state_is_kept(store, state):
    await store.create("s", owner=ADA)
    await (await store.open("s", owner=ADA)).put_state(state)
    assert (await store.open("s", owner=ADA)).state == state


async def test_a_summary_is_kept_beside_the_messages(store):
    session = await store.create(owner=ADA)
    conversation = await store.open(session.session_id, owner=ADA)
    assert conversation.summary is None
    await conversation.commit([UserMessage(content="hi", id="m1")])
    usage = TokenUsage(prompt_tokens=3, completion_tokens=1)
    summary = Summary(content="They said hi. 😀", until="m1", messages=1, tokens_used=usage)
    await conversation.put_summary(summary)
    again = await store.open(session.session_id, owner=ADA)
    assert again.summary == summary
    assert [message.content for message in again.messages] == ["hi"]
    await again.put_summary(None)
    assert (await store.open(session.session_id, owner=ADA)).summary is None


@pytest.mark.req("SRV-15")
async def test_the_time_to_live_slides_and_ends(store, clock):
    await store.create("s", owner=ADA)
    clock.now += 1700
    await store.touch("s", owner=ADA)
    clock.now += 1700
    assert await store.get("s", owner=ADA) is not None
    clock.now += 1800
    assert await store.get("s", owner=ADA) is None
    assert await store.count() == 0
    with pytest.raises(SessionNotFound):
        await store.open("s", owner=ADA)


@pytest.mark.req("SRV-15")
async def test_clean_up_forgets_only_what_is_expired(store, clock):
    await store.create("old", owner=ADA)
    clock.now += 1000
    await store.create("new", owner=ADA)
    clock.now += 900
    assert await store.cleanup_expired() == 1
    assert await store.get("new", owner=ADA) is not None
    assert await store.cleanup_expired() == 0


async def test_an_expired_id_starts_a_new_empty_session(store, clock):
    await store.create("s", owner=ADA)
    await (await store.open("s", owner=ADA)).commit([UserMessage(content="old secret")])
    clock.now += 2000
    await store.create("s", owner=ADA)
    assert list((await store.open("s", owner=ADA)).messages) == []


@pytest.mark.req("SRV-11")
async def test_deleting_is_idempotent_and_says_whether_there_was_something(store):
    await store.create("s", owner=ADA)
    assert await store.delete("s", owner=ADA) is True
    assert await store.delete("s", owner=ADA) is False
    assert await store.get("s", owner=ADA) is None


async def test_a_run_that_goes_on_after_its_session_was_deleted_does_not_bring_it_back(store):
    await store.create("s", owner=ADA)
    conversation = await store.open("s", owner=ADA)
    await store.delete("s", owner=ADA)
    await conversation.commit([UserMessage(content="late")])
    assert await store.get("s", owner=ADA) is None


@pytest.mark.req("T10", "T36")
@pytest.mark.parametrize("other", [EVE, Owner("other tenant", "ada")])
async def test_two_owners_use_the_same_id_and_never_meet(store, other):
    await store.create("s", owner=ADA)
    await (await store.open("s", owner=ADA)).commit([UserMessage(content="a secret")])
    assert await store.get("s", owner=other) is None
    assert await store.delete("s", owner=other) is False
    await store.touch("s", owner=other)
    with pytest.raises(SessionNotFound) as unknown:
        await store.open("nope", owner=other)
    with pytest.raises(SessionNotFound) as foreign:
        await store.open("s", owner=other)
    assert str(foreign.value).replace("'s'", "'nope'") == str(unknown.value)
    session = await store.create("s", owner=other)
    assert (session.owner, session.message_count) == (other, 0)
    await (await store.open("s", owner=other)).commit([UserMessage(content="mine"), UserMessage(content="too")])
    assert await store.count() == 2
    assert (await store.get("s", owner=ADA)).message_count == 1
    assert await store.delete("s", owner=other) is True
    assert [each.content for each in (await store.open("s", owner=ADA)).messages] == ["a secret"]


async def test_many_sessions_at_once_do_not_mix(store):
    async def talk(number):
        await store.create(f"s{number}", owner=ADA)
        conversation = await store.open(f"s{number}", owner=ADA)
        for _ in range(3):
            await conversation.commit([UserMessage(content=f"text {number}")])
            await asyncio.sleep(0)

    await asyncio.gather(*(talk(number) for number in range(50)))
    for number in range(50):
        messages = (await store.open(f"s{number}", owner=ADA)).messages
        assert {message.content for message in messages} == {f"text {number}"}
    assert await store.count() == 50
