"""What one user, and one address, may take of the server."""

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.agent.agent import Agent
from holodeck.agent.settings import AgentLoopConfig, RunBudget
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelInterrupted, RateLimited
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.server import quota
from holodeck.server.options import ServerSettings, UseLimits
from holodeck.server.quota import DAY, MAX_USERS, MovingWindow, Quotas, network_of, payers_of
from holodeck.sessions.memory import MemorySessionStore
from tests.agent.parts import PlainTools, echo
from tests.examples import examples
from tests.server.serving import Gate, ask, read_to, served, types, until


def limited(**limits) -> ServerSettings:
    return ServerSettings(use=UseLimits(**limits), protocols=("ag-ui", "chat-stream"))


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.req("T30")
@examples(100)
@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from([0, 0.5, 1, 3, 9.5, 10, 11]), st.integers(1, 4)), max_size=40),
)
def test_a_moving_window_lets_through_what_a_list_of_all_uses_would(limit, uses):
    window, every_use, now = MovingWindow(limit, 10), [], 0.0
    for passed, amount in uses:
        now += passed
        used = sum(size for at, size in every_use if at > now - 10)
        wait = window.wait(now)
        assert (wait == 0) == (used < limit)
        if wait:
            left = [size for at, size in every_use if at > now + wait - 10]
            assert sum(left) < limit, "after the time that was told there is room"
        else:
            window.use(now, amount)
            every_use.append((now, amount))


def test_a_grain_keeps_a_day_small_and_never_lets_more_through():
    window = MovingWindow(10_000, DAY, grain=60)
    for second in range(0, 40_000, 5):
        window.use(float(second))
    assert len(window._uses) <= 40_000 / 60 + 1
    window.use(40_000.0, 2000)
    assert window.wait(40_000.0) > 0
    assert window.wait(40_000.0 + DAY - 1) == 0  # the first uses are forgotten, at most a minute late


@pytest.mark.req("T30")
def test_users_have_windows_of_their_own_and_only_empty_ones_are_forgotten():
    clock = Clock()
    quotas = Quotas(UseLimits(requests_per_minute=1), clock)
    for n in range(MAX_USERS + 10):
        quotas.admit(f"user {n}")
    for n in (0, 5, MAX_USERS + 9):
        with pytest.raises(RateLimited):
            quotas.admit(f"user {n}")
    clock.now += 61
    for n in range(MAX_USERS + 11):
        quotas.admit(f"other {n}")
    assert len(quotas._requests._windows) <= 2 * MAX_USERS


@pytest.mark.req("T30")
def test_names_that_come_later_do_not_give_back_what_was_spent():
    quotas = Quotas(UseLimits(tokens_per_day=1000), Clock())
    quotas.admit("spender")
    quotas.charge(999_999, "spender")
    for n in range(MAX_USERS + 10):
        quotas.admit(f"user {n}")
        quotas.charge(1, f"user {n}")
    with pytest.raises(RateLimited):
        quotas.admit("spender")


@pytest.mark.req("T30")
def test_a_table_that_is_full_admits_no_other_user(monkeypatch):
    monkeypatch.setattr(quota, "MOST_USERS", 3)
    quotas = Quotas(UseLimits(requests_per_minute=5), Clock())
    for n in range(3):
        quotas.admit(f"user {n}")
    with pytest.raises(RateLimited):
        quotas.admit("another")
    quotas.admit("user 0")


@pytest.mark.req("T30")
async def test_a_name_in_a_body_does_not_free_a_client_from_the_limit_of_its_address():
    async with served(settings=limited(requests_per_minute=3)) as s:
        statuses = []
        for user in (None, None, None, None, *(f"u{n}" for n in range(8))):
            body = {"input": "hi"} | ({"user_id": user} if user else {})
            async with s.post(body, "/chat/stream") as answer:
                await answer.read()
                statuses.append(answer.status)
        assert statuses == [200] * 3 + [429] * 9


@pytest.mark.req("T30")
def test_a_credential_frees_its_user_from_the_address_and_a_name_does_not():
    ann = Owner("default", "ann")
    assert payers_of(ann, "10.0.0.1", authenticated=True) == (ann,)
    assert payers_of(ann, "10.0.0.1", authenticated=False) == (ann, "10.0.0.1")
    assert payers_of(ANONYMOUS_OWNER, "10.0.0.1", authenticated=False) == ("10.0.0.1",)


@pytest.mark.req("T30")
def test_a_minute_later_there_is_room_again():
    clock = Clock()
    quotas = Quotas(UseLimits(requests_per_minute=2), clock)
    quotas.admit("ann")
    clock.now += 20
    quotas.admit("ann")
    clock.now += 10
    with pytest.raises(RateLimited) as refused:
        quotas.admit("ann")
    assert refused.value.retry_after == 30
    clock.now += refused.value.retry_after
    quotas.admit("ann")


@pytest.mark.parametrize(
    ("client", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_ipv6_client_is_its_network(client, network):
    assert network_of(client) == network


def test_a_user_cannot_take_the_name_of_an_address():
    of_user = payers_of(Owner("default", "10.0.0.1"), "10.0.0.2", authenticated=False)
    assert "10.0.0.1" not in of_user


@pytest.mark.req("T30")
async def test_of_a_thousand_requests_at_once_exactly_a_hundred_pass():
    async with served(settings=limited(requests_per_minute=100)) as s:

        async def one(n):
            async with s.post(ask(thread=f"t{n}")) as answer:
                await answer.read()
                return answer.status

        statuses = Counter(await asyncio.gather(*(one(n) for n in range(1000))))
        assert statuses == {200: 100, 429: 900}
        assert len(s.model.prompts) == 100


@pytest.mark.req("T30", "SRV-17")
async def test_a_request_too_many_is_a_problem_that_says_when_to_come_back():
    async with served(settings=limited(requests_per_minute=1)) as s:
        async with s.post() as answer:
            assert answer.status == 200
        async with s.post() as answer:
            told = await answer.json(content_type=None)
            assert answer.status == told["status"] == 429
            assert told["type"].endswith("/rate-limited")
            assert 55 <= int(answer.headers["Retry-After"]) <= 60
            assert "1 requests a minute" in told["detail"]
        async with s.get("/health") as answer:
            assert answer.status == 200


SPOOFS = [
    {"X-Forwarded-For": "1.2.3.4"},
    {"X-Forwarded-For": "1.2.3.4, 5.6.7.8"},
    {"X-Forwarded-For": "::1"},
    {"X-Real-IP": "1.2.3.4"},
    {"Forwarded": "for=1.2.3.4;proto=https"},
    {"X-Client-IP": "1.2.3.4"},
    {"True-Client-IP": "1.2.3.4"},
    {"CF-Connecting-IP": "1.2.3.4"},
    {"X-Forwarded-Host": "elsewhere", "X-Forwarded-Proto": "https"},
    {"X-Cluster-Client-IP": "1.2.3.4", "Via": "1.1 proxy"},
]


@pytest.mark.req("T31")
async def test_no_header_makes_another_client_of_one():
    async with served(settings=limited(requests_per_minute=1)) as s:
        async with s.post() as answer:
            assert answer.status == 200
        for spoof in SPOOFS:
            async with s.post(**spoof) as answer:
                assert answer.status == 429, spoof


@pytest.mark.req("T30")
def test_a_named_user_has_one_quota_wherever_the_requests_come_from():
    quotas = Quotas(UseLimits(requests_per_minute=2), Clock())
    quotas.admit("ann", "10.0.0.1")
    quotas.admit("ann", "10.0.0.2")
    with pytest.raises(RateLimited):
        quotas.admit("ann", "10.0.0.3")
    quotas.admit("bob", "10.0.0.3")
    quotas.admit("10.0.0.3")  # what was refused was not counted
    with pytest.raises(RateLimited):
        quotas.admit("cid", "10.0.0.3")


@pytest.mark.req("T30")
async def test_a_user_without_tokens_waits_until_yesterdays_are_forgotten():
    turn = says("done", usage=TokenUsage(prompt_tokens=50, completion_tokens=10))
    async with served(turn, settings=limited(tokens_per_day=100)) as s:
        for _ in range(2):
            async with s.post() as answer:
                assert answer.status == 200
                await answer.read()
        async with s.post() as answer:
            assert answer.status == 429
            assert "100 tokens a day" in (await answer.json(content_type=None))["detail"]
            assert 86_300 < int(answer.headers["Retry-After"]) <= 86_400


@pytest.mark.req("T30")
async def test_an_endpoint_that_counts_no_tokens_is_not_free():
    async with served(says("word " * 400), settings=limited(tokens_per_day=500)) as s:
        async with s.post() as answer:  # 2,000 characters
            await answer.read()
        async with s.post() as answer:
            assert answer.status == 429


@pytest.mark.req("T17")
async def test_an_address_gets_so_many_answers_at_a_time():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=limited(streams_per_client=2)) as s:
        open_answers = [await s.post(ask(thread=f"t{n}", run=f"r{n}")) for n in range(2)]
        for answer in open_answers:
            await read_to(answer, "TEXT_MESSAGE_CONTENT")
        assert s.server.slots.taken == 2
        async with s.post(ask(thread="t3")) as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "5"
        async with s.get("/runs/r0/events") as answer:
            assert answer.status == 429
        assert len(s.model.prompts) == 2  # the one too many cost nothing
        async with s.post(b"", path="/runs/r0/stop") as answer:  # what is answered at once needs no place
            assert answer.status == 200
        assert types(await open_answers[0].read())[-1] == "RUN_FINISHED"
        await until(lambda: s.server.slots.taken == 1)
        async with s.get("/runs/r0/events") as answer:
            assert answer.status == 200
        gate.open.set()
        await open_answers[1].read()
        await until(lambda: s.server.slots.taken == 0)
        assert s.server.slots._by_client == {}


@pytest.mark.req("T17")
async def test_of_many_streams_at_once_exactly_as_many_as_allowed_begin():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=limited(streams_per_client=10)) as s:
        answers = await asyncio.gather(*(s.post(ask(thread=f"t{n}")) for n in range(60)))
        assert Counter(answer.status for answer in answers) == {200: 10, 429: 50}
        gate.open.set()
        for answer in answers:
            await answer.read()


async def test_a_client_that_leaves_gives_its_place_back():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=limited(streams_per_client=1)) as s:
        answer = await s.post()
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        answer.close()
        await until(lambda: s.server.slots.taken == 0)
        gate.open.set()
        async with s.post(ask(thread="t2")) as answer:
            assert answer.status == 200


@pytest.mark.req("T30", "SRV-15")
async def test_a_user_keeps_so_many_conversations_and_the_oldest_is_forgotten():
    settings = ServerSettings(protocols=("rest",))
    async with served(settings=settings, store=MemorySessionStore(max_per_user=2)) as s:
        sessions = []
        for _ in range(3):
            async with s.post({"message": "hi"}, "/agent/tester/chat") as answer:
                sessions.append((await answer.json())["session_id"])
        statuses = []
        for session_id in sessions:
            async with s.get(f"/sessions/{session_id}") as answer:
                statuses.append(answer.status)
        assert statuses == [404, 200, 200]


@pytest.mark.req("T30", "SRV-17")
async def test_a_conversation_is_not_forgotten_while_it_goes_on():
    gate = Gate()
    settings = ServerSettings(protocols=("ag-ui", "rest"))
    store = MemorySessionStore(max_per_user=1)
    async with served(says("a b", pause=gate), settings=settings, store=store) as s:
        stream = await s.post(ask(thread="t1"))
        begun = await read_to(stream, "TEXT_MESSAGE_CONTENT")
        async with s.post({"message": "hi"}, "/agent/tester/chat") as answer:
            assert answer.status == 429
            assert "Session limit reached" in (await answer.json(content_type=None))["detail"]
        gate.open.set()
        assert types(begun + await stream.read())[-1] == "RUN_FINISHED"
        async with s.get("/sessions/t1") as answer:
            assert len((await answer.json())["messages"]) == 2
        async with s.post({"message": "hi"}, "/agent/tester/chat") as answer:
            assert answer.status == 200


STEP = TokenUsage(prompt_tokens=50, completion_tokens=10)
HALF_AN_ANSWER = "word " * 40  # 50 tokens, as we estimate


@pytest.mark.req("T30")
@pytest.mark.parametrize("how", ["fails in its second step", "is stopped in its second step", "has no more budget"])
async def test_every_step_is_charged_also_of_a_run_that_does_not_come_to_its_end(how):
    gate = Gate()
    first = calls(("echo", "{}"), usage=STEP)
    second = {
        "fails in its second step": says(HALF_AN_ANSWER, error=ModelInterrupted("cut", started=True)),
        "is stopped in its second step": Turn(text=[HALF_AN_ANSWER, "end"], pause=gate),
        "has no more budget": first,
    }[how]
    model = ScriptedModel([first, second])
    budget = RunBudget(tool_calls=1) if how == "has no more budget" else RunBudget()
    agent = Agent(name="tester", model=model, tools=PlainTools(echo=echo), loop=AgentLoopConfig(budget=budget))
    async with served(agent=agent, settings=limited(tokens_per_day=61)) as s:
        stream = await s.post(ask(run="r1"))
        if "stopped" in how:
            await read_to(stream, "word word")
            async with s.post(b"", path="/runs/r1/stop") as answer:
                assert answer.status == 200
        last = types(await stream.read())[-1]
        assert last == ("RUN_FINISHED" if "stopped" in how else "RUN_ERROR")
        assert len(model.prompts) == 2
        async with s.post(ask(thread="t2")) as answer:
            assert answer.status == 429, "the first step alone leaves one token"


@pytest.mark.req("T30")
async def test_a_run_that_failed_before_it_said_anything_costs_nothing():
    async with served(says("", error=ModelInterrupted("cut")), settings=limited(tokens_per_day=1)) as s:
        for _ in range(3):
            async with s.post() as answer:
                assert answer.status == 200
                assert types(await answer.read())[-1] == "RUN_ERROR"
