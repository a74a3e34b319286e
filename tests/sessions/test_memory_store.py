"""What only the store in memory promises: it is bounded, and it is small."""

import sys

import pytest

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import Owner
from holodeck.errors import RateLimited
from holodeck.sessions.memory import MemorySessionStore

ANN, BOB = Owner("default", "ann"), Owner("default", "bob")


async def test_the_least_recently_used_session_makes_room():
    store = MemorySessionStore(max_sessions=3)
    for name in ("a", "b", "c"):
        await store.create(name, owner=ANN)
    await store.touch("a", owner=ANN)
    await store.create("d", owner=ANN)
    assert [name for name in "abcd" if await store.get(name, owner=ANN)] == ["a", "c", "d"]


async def test_a_users_own_oldest_session_makes_room_and_nobody_elses():
    store = MemorySessionStore(max_per_user=2)
    for user, name in (("ann", "a1"), ("bob", "b1"), ("ann", "a2")):
        await store.create(name, owner=Owner("default", user))
    await store.touch("a1", owner=ANN)
    await store.create("a3", owner=ANN)
    assert [name for name in ("a1", "a2", "a3") if await store.get(name, owner=ANN)] == ["a1", "a3"]
    assert await store.get("b1", owner=BOB)
    await store.create("a1", owner=ANN)  # there already: nobody has to go
    assert await store.get("a3", owner=ANN)
    await store.delete("a3", owner=ANN)
    await store.create("a4", owner=ANN)
    assert await store.get("a1", owner=ANN), "a place that was given back is free"


@pytest.mark.req("C10")
async def test_a_session_in_use_makes_no_room_and_does_not_expire():
    now = [0.0]
    store = MemorySessionStore(ttl_seconds=10, max_per_user=2, clock=lambda: now[0])
    for name in ("a", "b"):
        await store.create(name, owner=ANN)
    using = [await store.open("a", owner=ANN)]
    await store.touch("b", owner=ANN)
    await store.create("c", owner=ANN)
    assert [name for name in "abc" if await store.get(name, owner=ANN)] == ["a", "c"], "b was idle"
    now[0] = 20.0
    assert await store.cleanup_expired() == 1
    assert await store.count() == 1
    assert await store.get("a", owner=ANN)
    await using[0].commit([UserMessage(content="late")])
    using.clear()
    now[0] = 29.0
    assert (await store.get("a", owner=ANN)).message_count == 1, "its time starts with what it was last used for"
    now[0] = 31.0
    assert await store.get("a", owner=ANN) is None


async def test_a_user_whose_sessions_are_all_in_use_has_to_wait():
    store = MemorySessionStore(max_per_user=1)
    await store.create("a", owner=ANN)
    using = [await store.open("a", owner=ANN)]
    with pytest.raises(RateLimited, match="Session limit reached: 1 active"):
        await store.create("b", owner=ANN)
    using.clear()
    await store.create("b", owner=ANN)
    assert await store.get("a", owner=ANN) is None


async def test_what_is_kept_by_owners_goes_with_their_last_session():
    now = [0.0]
    store = MemorySessionStore(ttl_seconds=1, max_per_user=5, max_sessions=50, clock=lambda: now[0])
    for number in range(200):
        await store.create(f"s{number}", owner=Owner("default", f"user {number % 100}"))
    assert len(store._kept) == 50
    assert sum(map(len, store._by_owner.values())) == 50
    now[0] = 2.0
    await store.cleanup_expired()
    assert store._by_owner == {}


async def test_a_kept_session_of_ten_messages_is_a_few_kib():
    store = MemorySessionStore()
    await store.create("s", owner=ANN)
    conversation = await store.open("s", owner=ANN)
    for number in range(5):
        await conversation.commit([UserMessage(content=f"question {number} " + "x" * 60)])
        await conversation.commit([AssistantMessage(content=f"answer {number} " + "y" * 120)])
    kept = store._kept[ANN, "s"]
    size = sum(sys.getsizeof(step) for step in kept.steps) + sys.getsizeof(kept.steps) + sys.getsizeof(kept)
    assert size < 4096


async def test_the_cleaner_ends_with_the_store():
    store = MemorySessionStore()
    await store.start()
    cleaner = store._cleaner
    await store.close()
    await store.close()
    assert cleaner.done()
