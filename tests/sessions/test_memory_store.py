"""What only the store in memory promises: it is bounded, and it is small."""

import gc
import sys
import tracemalloc

import pytest

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.core.owner import Owner
from holodeck.errors import RateLimited
from holodeck.sessions.memory import MemorySessionStore

ANN, BOB = Owner("default", "ann"), Owner("default", "bob")


async def use(store, name, owner=ANN):
    """A run that does nothing: the session was used just now."""
    (await store.open(name, owner=owner)).close()


async def left(store, names, owner=ANN):
    return [name for name in names if await store.get(name, owner=owner)]


async def test_the_least_recently_used_session_makes_room():
    store = MemorySessionStore(max_sessions=3)
    for name in ("a", "b", "c"):
        await store.create(name, owner=ANN)
    await use(store, "a")
    await store.create("d", owner=ANN)
    assert await left(store, "abcd") == ["a", "c", "d"]


async def test_a_users_own_oldest_session_makes_room_and_no_other():
    store = MemorySessionStore(max_per_user=2)
    for owner, name in ((ANN, "a1"), (BOB, "b1"), (ANN, "a2")):
        await store.create(name, owner=owner)
    await use(store, "a1")
    await store.create("a3", owner=ANN)
    assert await left(store, ("a1", "a2", "a3")) == ["a1", "a3"]
    assert await store.get("b1", owner=BOB)
    await store.create("a1", owner=ANN)  # there already: no session has to go
    assert await store.get("a3", owner=ANN)
    await store.delete("a3", owner=ANN)
    await store.create("a4", owner=ANN)
    assert await store.get("a1", owner=ANN), "a deleted session made room"


@pytest.mark.req("C10")
async def test_a_session_in_use_makes_no_room_and_does_not_expire():
    now = [0.0]
    store = MemorySessionStore(ttl_seconds=10, max_per_user=2, clock=lambda: now[0])
    for name in ("a", "b"):
        await store.create(name, owner=ANN)
    using = await store.open("a", owner=ANN)
    await use(store, "b")
    await store.create("c", owner=ANN)
    assert await left(store, "abc") == ["a", "c"], "b was idle"
    now[0] = 20.0
    assert await store.cleanup_expired() == 1
    assert await store.count() == 1
    assert await store.get("a", owner=ANN)
    await using.commit([UserMessage(content="late")])
    using.close()
    now[0] = 29.0
    assert (await store.get("a", owner=ANN)).message_count == 1, "its time starts with its last use"
    now[0] = 31.0
    assert await store.get("a", owner=ANN) is None


async def test_a_user_whose_sessions_are_all_in_use_has_to_wait():
    store = MemorySessionStore(max_per_user=1)
    await store.create("a", owner=ANN)
    using = await store.open("a", owner=ANN)
    with pytest.raises(RateLimited, match="Session limit reached: 1 active"):
        await store.create("b", owner=ANN)
    using.close()
    await store.create("b", owner=ANN)
    assert await store.get("a", owner=ANN) is None


async def test_nothing_is_kept_of_owners_without_sessions():
    now = [0.0]
    store = MemorySessionStore(ttl_seconds=1, max_per_user=5, max_sessions=50, clock=lambda: now[0])
    for number in range(200):
        await store.create(f"s{number}", owner=Owner("default", f"user {number % 100}"))
    assert len(store._all) == 50
    assert sum(len(shelf.kept) for shelf in store._shelves.values()) == 50
    now[0] = 2.0
    await store.cleanup_expired()
    assert (store._shelves, store._of_tenants) == ({}, {})


async def test_a_kept_session_of_ten_messages_is_a_few_kib():
    store = MemorySessionStore()
    await store.create("s", owner=ANN)
    conversation = await store.open("s", owner=ANN)
    for number in range(5):
        await conversation.commit([UserMessage(content=f"question {number} " + "x" * 60)])
        await conversation.commit([AssistantMessage(content=f"answer {number} " + "y" * 120)])
    (kept,) = store._all
    steps = kept.steps._steps
    size = sum(map(sys.getsizeof, (*steps, steps, kept.steps, kept)))
    assert size < 4096


async def test_the_steps_of_a_turn_are_packed_together_when_the_run_ends():
    store, spoken = MemorySessionStore(), "I have a list of many things to say. " * 12
    together = [UserMessage(content=spoken), AssistantMessage(content=spoken), AssistantMessage(content=spoken)]
    conversation = await store.open("s", owner=ANN, create=True)
    for message in together:
        await conversation.commit([message])
    assert (await store.read("s", owner=ANN)).messages == tuple(together)  # while the run is in progress
    conversation.close()
    assert (await store.read("s", owner=ANN)).messages == tuple(together)
    again = await store.open("s", owner=ANN, last=1)
    assert again.messages == together  # a turn is read whole
    await again.commit([UserMessage(content=spoken)])
    again.close()
    sizes = [len(step) for step in store._all.popitem()[0].steps._steps]
    assert len(sizes) == 2
    assert sizes[0] < 2 * sizes[1]  # three messages, in less than the bytes of two


async def test_short_turns_are_packed_when_there_are_several():
    store = MemorySessionStore()
    turns = [UserMessage(content=f"hello {number}") for number in range(12)]
    packed = []
    for turn in turns:
        conversation = await store.open("s", owner=ANN, create=True)
        await conversation.commit([turn])
        conversation.close()
        steps = next(iter(store._all)).steps._steps
        packed.append(sum(step[3] for step in steps))
        assert sum(len(step) for step in steps if not step[3]) < 512
    assert packed[0] == 0
    assert packed[-1] > 6
    assert (await store.read("s", owner=ANN)).messages == tuple(turns)


async def test_the_cleaner_ends_with_the_store():
    store = MemorySessionStore()
    await store.start()
    cleaner = store._cleaner
    await store.close()
    await store.close()
    assert cleaner.done()


@pytest.mark.req("C10")
async def test_one_user_who_begins_conversations_without_end_costs_no_more_memory():
    """Of 100,000 conversations a user keeps as many as `max_per_user` says; tried with 2,000 and a limit of 50."""
    store = MemorySessionStore(max_per_user=50)

    async def begin(numbers):
        for number in numbers:
            await store.create(f"session {number}", owner=ANN)
            using = await store.open(f"session {number}", owner=ANN)
            await using.commit([UserMessage(content=f"question {number}")])
            using.close()

    await begin(range(200))
    gc.collect()
    tracemalloc.start()
    try:
        await begin(range(200, 400))
        before = tracemalloc.get_traced_memory()[0]
        await begin(range(400, 2_000))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert await store.count() == 50
    assert grown < 100_000
