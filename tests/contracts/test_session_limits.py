"""How long, for whom and how much every session store keeps: time to live, room, owners, lists."""

import asyncio

import pytest

from holodeck.core.messages import (
    AssistantMessage,
    MediaPart,
    PendingStep,
    TextPart,
    UserMessage,
)
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.errors import SessionDeleted, SessionFull, SessionNotFound
from holodeck.sessions.port import KEEP
from holodeck.sessions.values import KeptValue
from tests.contracts.session_stores import ADA, EVE, SAME_NAME_ELSEWHERE
from tests.contracts.stored_turns import ENDING, STEP, conversation_of


@pytest.mark.req("T18", "T30")
async def test_a_limit_may_spare_clients_without_a_credential(opened):
    """They have one owner together: it stands for many people."""
    async with opened(max_per_user=2, spares_anonymous=True) as store:
        for number in range(3):
            for owner in (ADA, EVE, ANONYMOUS_OWNER):
                await store.create(f"s{number}", owner=owner)
        kept = [[each.session_id for each in await store.sessions_of(owner=owner)] for owner in (ADA, EVE)]
        assert [sorted(each) for each in kept] == [["s1", "s2"], ["s1", "s2"]]
        assert len(await store.sessions_of(owner=ANONYMOUS_OWNER)) == 3


HOSTILE = [
    "'; DROP TABLE sessions; --",
    '" OR ""="',
    "%",
    "_",
    "a%",
    "\\",
    "{}*:\n",
    "{}*:\r\n",
    "\r",
    "\na: b",
    "$1",
    "%(id)s",
    "?",
    "\u202e",
    "s' OR '1'='1",
]


@pytest.mark.req("T06")
async def test_a_name_is_a_name_whatever_is_in_it(store):
    """A19: none of them finds, changes or deletes what is stored under another."""
    for name in HOSTILE:
        for owner in (ADA, Owner(name, "ada"), Owner("default", name)):
            conversation = await store.open(name, owner=owner, create=True)
            await conversation.commit([UserMessage(content=f"{owner} {name}")])
            conversation.close()
            await store.values.put(KeptValue(kind=name, topic=name, name=name), owner=owner)
    for name in HOSTILE:
        for owner in (ADA, Owner(name, "ada"), Owner("default", name)):
            assert [each.content for each in (await store.read(name, owner=owner)).messages] == [f"{owner} {name}"]
            assert len(await store.values.of_topic(name, name, owner=owner)) == 1
    assert len(await store.sessions_of(owner=ADA)) == len(HOSTILE)
    assert await store.delete("%", owner=ADA)
    assert len(await store.sessions_of(owner=ADA)) == len(HOSTILE) - 1


@pytest.mark.req("T30")
async def test_a_tenant_stores_what_its_users_do(store):
    assert await store.tenant_bytes(ADA.tenant) == 0
    for owner, name in ((ADA, "a"), (ADA, "b"), (EVE, "a"), (SAME_NAME_ELSEWHERE, "a")):
        conversation = await store.open(name, owner=owner, create=True)
        await conversation.commit([UserMessage(content="x" * 100)])
        conversation.close()
    sizes = [(await store.get(name, owner=owner)).size for owner, name in ((ADA, "a"), (ADA, "b"), (EVE, "a"))]
    assert await store.tenant_bytes(ADA.tenant) == sum(sizes) > 300
    assert 0 < await store.tenant_bytes(SAME_NAME_ELSEWHERE.tenant) < sum(sizes)
    await store.delete("b", owner=ADA)
    assert await store.tenant_bytes(ADA.tenant) == sizes[0] + sizes[2]
    conversation = await store.open("a", owner=EVE)
    await conversation.commit([UserMessage(content="y" * 1000, id="m")])
    conversation.close()
    assert await store.tenant_bytes(ADA.tenant) > sizes[0] + sizes[2] + 1000
    await store.rewind("a", "m", owner=EVE)
    assert await store.tenant_bytes(ADA.tenant) == sizes[0] + sizes[2]
    await store.fork("a", owner=ADA)
    assert await store.tenant_bytes(ADA.tenant) == 2 * sizes[0] + sizes[2]
    for owner in (ADA, EVE):
        for session in await store.sessions_of(owner=owner):
            await store.delete(session.session_id, owner=owner)
    assert await store.tenant_bytes(ADA.tenant) == 0


# time and room


@pytest.mark.req("SRV-15")
async def test_the_time_to_live_slides_and_ends(store, clock):
    conversation = await conversation_of(store)
    clock.now += 1700
    await conversation.commit([UserMessage(content="hi")])
    conversation.close()
    clock.now += 1700
    assert await store.get("s", owner=ADA) is not None
    clock.now += 200
    assert await store.get("s", owner=ADA) is None
    assert await store.read("s", owner=ADA) is None
    assert await store.sessions_of(owner=ADA) == []
    assert await store.count() == 0
    with pytest.raises(SessionNotFound):
        await store.open("s", owner=ADA)


@pytest.mark.req("SRV-15")
async def test_reading_a_session_is_no_use_of_it(store, clock):
    (await conversation_of(store)).close()
    clock.now += 1700
    assert await store.read("s", owner=ADA) is not None
    clock.now += 200
    assert await store.get("s", owner=ADA) is None


@pytest.mark.req("SRV-15", "C10")
async def test_a_session_is_in_use_until_its_run_closes_it(store, clock):
    conversation, other = await conversation_of(store), await conversation_of(store)
    clock.now += 4000
    assert await store.cleanup_expired() == 0
    assert await store.get("s", owner=ADA) is not None
    other.close()
    other.close()
    assert await store.cleanup_expired() == 0, "one of two is still open"
    conversation.close()
    del conversation  # who still references it does not matter
    assert await store.get("s", owner=ADA) is None
    assert await store.cleanup_expired() == 1


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
    conversation = await conversation_of(store)
    await conversation.commit([UserMessage(content="old secret")])
    conversation.close()
    clock.now += 2000
    await store.create("s", owner=ADA)
    assert list((await store.open("s", owner=ADA)).messages) == []


async def test_a_session_that_is_full_takes_no_more_of_the_user_but_all_of_the_answer(opened):
    async with opened(max_bytes=2000) as store:
        conversation = await conversation_of(store)
        await conversation.commit([UserMessage(content="x" * 1000)])
        with pytest.raises(SessionFull, match="max_mb"):
            await conversation.commit([UserMessage(content="y" * 1000)])
        assert len(conversation.messages) == 1
        await conversation.commit([AssistantMessage(content="z" * 1000)])
        stored = await store.read("s", owner=ADA)
        assert [message.content[0] for message in stored.messages] == ["x", "z"]
        assert stored.session.size > 2000


async def test_an_owner_who_stores_too_much_loses_the_sessions_unused_for_longest(opened):
    async with opened(max_owner_bytes=4000) as store:
        for name in "abcd":
            conversation = await conversation_of(store, name)
            await conversation.commit([UserMessage(content=name * 1500)])
            if name != "a":
                conversation.close()
        left = [name for name in "abcd" if await store.get(name, owner=ADA)]
        assert left == ["a", "d"], "a is in use"


# owners


@pytest.mark.req("SRV-11")
async def test_deleting_is_idempotent_and_returns_whether_there_was_something(store):
    await store.create("s", owner=ADA)
    assert await store.delete("s", owner=ADA) is True
    assert await store.delete("s", owner=ADA) is False
    assert await store.get("s", owner=ADA) is None


async def test_a_run_that_continues_after_its_session_was_deleted_does_not_bring_it_back(store):
    conversation = await conversation_of(store)
    await store.delete("s", owner=ADA)
    with pytest.raises(SessionDeleted):
        await conversation.commit([UserMessage(content="late")])
    conversation.close()
    assert await store.get("s", owner=ADA) is None
    assert await store.count() == 0


async def test_nothing_of_a_run_whose_session_was_deleted_reaches_a_session_that_begins_then(store):
    """Not even if the new one gets the place of the old one in the store: it may be another user's."""
    late = await store.open("secret", owner=ADA, create=True)
    await late.commit([UserMessage(content="question")])
    await store.delete("secret", owner=ADA)
    new = await store.open("other", owner=EVE, create=True)
    await new.commit([UserMessage(content="hello")])
    step = PendingStep(assistant=STEP[0], begun=("c",), run_id="r")
    for write in (
        lambda: late.commit(STEP),
        lambda: late.commit([], step),
        lambda: late.begin_calls(step),
        lambda: late.commit([], KEEP, ending=ENDING),
        lambda: accepted(late, [UserMessage(content="another question")]),
        lambda: ended(late, STEP),
    ):
        with pytest.raises(SessionDeleted):
            await write()
    assert "hello" not in [each.content for each in (*await late.stored(), *await late.history())]
    late.close()
    await new.commit([AssistantMessage(content="ho")])
    new.close()
    stored = await store.read("other", owner=EVE)
    assert ([each.content for each in stored.messages], stored.pending) == (["hello", "ho"], None)
    assert await store.get("secret", owner=ADA) is None


async def accepted(conversation, messages):
    stored = conversation.accept(messages)
    if stored is not None:
        await stored


async def ended(conversation, messages):
    stored = conversation.end(messages, None, state=KEEP, ending=ENDING)
    if stored is not None:
        await stored


@pytest.mark.req("ORC-11")
@pytest.mark.parametrize("other", [EVE, SAME_NAME_ELSEWHERE])
async def test_another_owners_session_is_as_if_it_were_not_there(store, other):
    await (await conversation_of(store)).commit([UserMessage(content="mine")])
    assert await store.get("s", owner=other) is None
    assert await store.read("s", owner=other) is None
    assert await store.delete("s", owner=other) is False
    assert await store.sessions_of(owner=other) in ([], ())
    with pytest.raises(SessionNotFound) as unknown:
        await store.open("nope", owner=other)
    with pytest.raises(SessionNotFound) as foreign:
        await store.open("s", owner=other)
    assert str(foreign.value).replace("'s'", "'nope'") == str(unknown.value)
    await store.create("s", owner=other)
    assert list((await store.open("s", owner=other)).messages) == [], "the id is free for this owner"
    assert len((await store.read("s", owner=ADA)).messages) == 1


async def test_the_sessions_of_an_owner_are_listed_newest_first(store, clock):
    for name in "abc":
        await store.create(name, owner=ADA)
        clock.now += 1
    await store.create("d", owner=EVE)
    (await store.open("a", owner=ADA)).close()
    clock.now += 1
    await (await store.open("a", owner=ADA)).commit([UserMessage(content="hi")])
    assert [each.session_id for each in await store.sessions_of(owner=ADA)] == ["a", "c", "b"]
    assert [each.session_id for each in await store.sessions_of(owner=ADA, limit=2)] == ["a", "c"]


TITLED = {
    "Buy milk": "Buy milk",
    'He said:\n "no" \\ \u2028 \U0001f600': 'He said: "no" \\ \U0001f600',
    "C:\\u": "C:\\u",
    "C:\\u00e": "C:\\u00e",
    "x" * 9000: "x" * 59 + "…",
    "é" * 9000: "é" * 59 + "…",
}


@pytest.mark.parametrize(
    "text", TITLED, ids=["plain", "odd", "backslash u", "and digits", "long", "cut in a character"]
)
async def test_a_list_has_the_beginning_of_the_first_text_as_title(store, text):
    conversation = await store.open("a", owner=ADA, create=True)
    await conversation.commit([UserMessage(content=text), AssistantMessage(content="Yes.")])
    await conversation.commit([UserMessage(content="second")])
    parts = (MediaPart(mime_type="image/png", data="AAAA", filename='"text":"no'), TextPart(text))
    await (await store.open("b", owner=ADA, create=True)).commit([UserMessage(content=parts)])
    await store.create("c", owner=ADA)
    titles = {each.session_id: each.title for each in await store.sessions_of(owner=ADA)}
    assert titles == {"a": TITLED[text], "b": TITLED[text], "c": ""}


async def test_many_sessions_at_once_do_not_mix(store):
    async def talk(number):
        conversation = await conversation_of(store, f"s{number}")
        for _ in range(3):
            await conversation.commit([UserMessage(content=f"text {number}")])
            await asyncio.sleep(0)
        conversation.close()

    await asyncio.gather(*(talk(number) for number in range(50)))
    for number in range(50):
        messages = (await store.read(f"s{number}", owner=ADA)).messages
        assert [message.content for message in messages] == [f"text {number}"] * 3
    assert await store.count() == 50


@pytest.mark.parametrize("name", ["a/b", "{}*:", "ü😀", "x" * 128, "'; DROP TABLE sessions; --", "%_"])
async def test_an_id_is_only_a_name(store, name):
    await store.create("s", owner=ADA)
    await (await conversation_of(store, name)).commit([UserMessage(content=name)])
    assert [message.content for message in (await store.read(name, owner=ADA)).messages] == [name]
    assert await store.count() == 2


async def test_sessions_are_listed_in_pages_that_miss_and_repeat_none(store, clock):
    for number in range(7):
        clock.now += 1
        await store.create(f"s{number}", owner=ADA)
    await store.create("another's", owner=EVE)
    pages, after = [], None
    while page := await store.sessions_of(owner=ADA, limit=3, after=after):
        pages.append([each.session_id for each in page])
        after = page[-1]
    assert pages == [["s6", "s5", "s4"], ["s3", "s2", "s1"], ["s0"]]


async def test_a_page_continues_where_the_last_one_ended_also_if_that_session_is_gone(store, clock):
    for number in range(4):
        clock.now += 1
        await store.create(f"s{number}", owner=ADA)
    page = await store.sessions_of(owner=ADA, limit=2)
    await store.delete("s2", owner=ADA)
    rest = await store.sessions_of(owner=ADA, limit=2, after=page[-1])
    assert [each.session_id for each in rest] == ["s1", "s0"]
