"""What every store promises of the small values that it keeps beside its sessions."""

import asyncio

import pytest

from holodeck.core.messages import UserMessage
from holodeck.sessions.values import KeptValue, MemoryValues
from tests.contracts.session_stores import ADA, EVE, SAME_NAME_ELSEWHERE, STORES, TTL, Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=STORES)
async def store(request, clock, tmp_path):
    place = request.getfixturevalue("postgres_database") if request.param.startswith("postgres") else tmp_path
    async with STORES[request.param](place, clock) as made:
        yield made


def value(name, body=b"", topic="t", **others):
    return KeptValue(kind="k", topic=topic, name=name, body=body, **others)


async def names(store, topic="t", owner=ADA, kind="k"):
    return [each.name for each in await store.values.of_topic(kind, topic, owner=owner)]


async def test_what_is_put_is_found_by_its_owner_kind_and_topic_only(store):
    first = value("a", b"\x00\xff one", session_id="s")
    await store.values.put(first, owner=ADA)
    await store.values.put(value("b", b"two"), owner=ADA)
    assert await store.values.of_topic("k", "t", owner=ADA) == [first, value("b", b"two")]
    for owner, kind, topic in ((EVE, "k", "t"), (SAME_NAME_ELSEWHERE, "k", "t"), (ADA, "K", "t"), (ADA, "k", "")):
        assert await names(store, topic, owner, kind) == []
        assert not await store.values.remove(kind, topic, "a", owner=owner)
    await store.values.put(value("a", b"new"), owner=ADA)
    assert [(each.name, each.body) for each in await store.values.of_topic("k", "t", owner=ADA)] == [
        ("b", b"two"),
        ("a", b"new"),
    ], "the one that was put last comes last"
    assert await store.values.remove("k", "t", "a", owner=ADA)
    assert not await store.values.remove("k", "t", "a", owner=ADA)
    assert await names(store) == ["b"]


async def test_one_of_several_first_puts_wins(store):
    bodies = [bytes([number]) for number in range(8)]
    done = await asyncio.gather(*(store.values.put_first(value("a", body), owner=ADA) for body in bodies))
    (found,) = await store.values.of_topic("k", "t", owner=ADA)
    assert [body for body, was_first in zip(bodies, done, strict=True) if was_first] == [found.body]
    assert await store.values.put_first(value("a", b"eve's"), owner=EVE), "names belong to their owner"


async def test_a_value_has_its_time(store, clock):
    await store.values.put(value("short"), owner=ADA, seconds=10)
    await store.values.put(value("long"), owner=ADA, seconds=20)
    await store.values.put(value("for good"), owner=ADA)
    clock.now += 10
    assert await names(store) == ["long", "for good"]
    assert not await store.values.put_first(value("long"), owner=ADA, seconds=10)
    assert await store.values.put_first(value("short", b"again"), owner=ADA, seconds=20)
    clock.now += 10
    assert not await store.values.remove("k", "t", "long", owner=ADA), "its time is over"
    await store.values.put(value("gone"), owner=EVE, seconds=1)
    clock.now += 1
    assert (await store.values.remove_expired(), await store.values.remove_expired()) == (1, 0)
    assert await names(store) == ["for good", "short"]


async def test_all_values_whose_time_is_over_are_removed_at_once(store, clock, monkeypatch):
    """A busy server puts more between two clean-ups than one batch has."""
    for module in ("sqlite_values", "postgres_values"):
        monkeypatch.setattr(f"holodeck.stores.{module}.BATCH", 2)
    for number in range(5):
        await store.values.put(value(str(number)), owner=ADA, seconds=1)
    clock.now += 1
    assert (await store.values.remove_expired(), await store.values.remove_expired()) == (5, 0)


async def test_an_owner_with_too_many_loses_its_own_oldest(store):
    await store.values.put(value("hers"), owner=EVE)
    await store.values.put(KeptValue(kind="another", name="a"), owner=ADA)
    for number in range(5):
        await store.values.put(value(str(number), topic=f"t{number % 2}"), owner=ADA, at_most=3)
    assert (await names(store, "t0"), await names(store, "t1")) == (["2", "4"], ["3"])
    assert (await names(store, owner=EVE), await names(store, "", kind="another")) == (["hers"], ["a"])


async def test_a_deleted_session_takes_its_values_with_it(store):
    await store.create("s", owner=ADA)
    await store.values.put(value("of s", session_id="s"), owner=ADA)
    await store.values.put(value("of another", session_id="s2"), owner=ADA)
    await store.values.put(value("of eve", session_id="s"), owner=EVE)
    await store.values.put(value("of none"), owner=ADA)
    await store.delete("s", owner=ADA)
    assert (await names(store), await names(store, owner=EVE)) == (["of another", "of none"], ["of eve"])


async def test_in_memory_the_owner_with_the_most_makes_room():
    values = MemoryValues(limit=3)
    for owner, name in ((ADA, "a"), (EVE, "b"), (EVE, "c"), (EVE, "d")):
        await values.put(value(name), owner=owner)
    assert [each.name for each in await values.of_topic("k", "t", owner=EVE)] == ["c", "d"]
    assert [each.name for each in await values.of_topic("k", "t", owner=ADA)] == ["a"]


@pytest.mark.parametrize("how", ["it expires", "its id is used again", "too many sessions", "too many bytes"])
async def test_a_session_that_the_store_drops_takes_its_values_with_it(opened, clock, how):
    """They are a client's words about the session, and would be those of the next session with this id."""
    limits = {"too many sessions": {"max_per_user": 1}, "too many bytes": {"max_owner_bytes": 3000}}.get(how, {})
    async with opened(**limits) as store:
        await store_message(store, "s", "hello")
        for owner, session_id in ((ADA, "s"), (ADA, "kept"), (EVE, "s")):
            await store.values.put(value("v", topic=session_id, session_id=session_id), owner=owner)
        clock.now += TTL + 1 if how in ("it expires", "its id is used again") else 1  # the next session is used later
        if how == "it expires":
            assert await store.cleanup_expired() == 1
        else:
            await store_message(store, "s" if how == "its id is used again" else "next", "x" * 2900)
        async with asyncio.timeout(50):
            while await store.values.of_topic(
                "k", "s", owner=ADA
            ):  # one that makes room for bytes is dropped afterwards
                await asyncio.sleep(0.01)
        assert await store.values.of_topic("k", "kept", owner=ADA)
        assert await store.values.of_topic("k", "s", owner=EVE)


async def store_message(store, session_id, text):
    conversation = await store.open(session_id, owner=ADA, create=True)
    await conversation.commit([UserMessage(content=text)])
    conversation.close()


async def test_a_run_that_uses_an_expired_id_again_keeps_what_it_put_before_its_first_message_is_stored(opened, clock):
    """A2A stores the address for notifications when the run has started, which may be before its first commit."""
    async with opened() as store:
        await store_message(store, "s", "hello")
        clock.now += TTL + 1
        conversation = await store.open("s", owner=ADA, create=True)
        await store.values.put(value("v", session_id="s"), owner=ADA, seconds=60)
        await conversation.commit([UserMessage(content="again")])
        conversation.close()
        assert await store.values.of_topic("k", "t", owner=ADA)
