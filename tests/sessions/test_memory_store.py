"""What only the store in memory promises: it is bounded, and it is small."""

import sys

from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.sessions.memory import MemorySessionStore


async def test_the_least_recently_used_session_makes_room():
    store = MemorySessionStore(max_sessions=3)
    for name in ("a", "b", "c"):
        await store.create(name)
    await store.touch("a")
    await store.create("d")
    assert [name for name in "abcd" if await store.get(name)] == ["a", "c", "d"]


async def test_a_kept_session_of_ten_messages_is_a_few_kib():
    store = MemorySessionStore()
    await store.create("s")
    conversation = await store.open("s")
    for number in range(5):
        await conversation.commit([UserMessage(content=f"question {number} " + "x" * 60)])
        await conversation.commit([AssistantMessage(content=f"answer {number} " + "y" * 120)])
    kept = store._kept["s"]
    size = sum(sys.getsizeof(step) for step in kept.steps) + sys.getsizeof(kept.steps) + sys.getsizeof(kept)
    assert size < 4096


async def test_the_cleaner_ends_with_the_store():
    store = MemorySessionStore()
    await store.start()
    cleaner = store._cleaner
    await store.close()
    await store.close()
    assert cleaner.done()
