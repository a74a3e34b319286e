"""What one user, and one address, may take of the server."""

import asyncio
from collections import Counter

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.agent.settings import AgentLoopConfig, RunBudget
from holodeck.config.limit_schema import AddressLimits, ServerLimits, SubjectLimits
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelInterrupted
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.server.options import ServerSettings, SpendingSettings
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools, echo
from tests.server.serving import Gate, ask, read_to, served, server_block, types, until


def limited(*, max_tokens: int = 1000, **limits) -> ServerSettings:
    user = {name: limits.pop(name) for name in SubjectLimits.model_fields if name in limits}
    return ServerSettings(
        block=server_block(limits=ServerLimits(user=SubjectLimits(**user), **limits)),
        spending=SpendingSettings(max_tokens=max_tokens),
        protocols=("ag-ui", "chat-stream"),
    )


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
            result = await answer.json(content_type=None)
            assert answer.status == result["status"] == 429
            assert result["type"].endswith("/rate-limited")
            assert 55 <= int(answer.headers["Retry-After"]) <= 61
            assert "1 requests a minute" in result["detail"]
        async with s.get("/health") as answer:
            assert answer.status == 200


@pytest.mark.req("T30")
async def test_an_empty_conversation_counts_as_a_request():
    """Each is a stored session: without a limit a client could fill the store with them."""
    settings = ServerSettings(
        block=server_block(limits=ServerLimits(user=SubjectLimits(requests_per_minute=3))),
        protocols=("ag-ui", "responses"),
    )
    async with served(settings=settings) as s:
        async with s.post({"items": [{}]}, "/v1/conversations") as answer:
            assert answer.status == 400, "what is refused costs nothing"
        for left in (2, 1):
            async with s.post({}, "/v1/conversations") as answer:
                assert answer.status == 200
                assert f";r={left};" in answer.headers["RateLimit"]
        async with s.post() as answer:
            assert answer.status == 200, "it counts together with runs"
        async with s.post({}, "/v1/conversations") as answer:
            result = await answer.json()
            assert (answer.status, result["error"]["type"]) == (429, "rate_limit_error")
            assert "3 requests a minute" in result["error"]["message"]
        assert await s.server.store.count() == 3


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
            assert 86_300 < int(answer.headers["Retry-After"]) <= 87_300


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
    async with served(says("a b", pause=gate), settings=limited(address=AddressLimits(streams=2))) as s:
        open_answers = [await s.post(ask(thread=f"t{n}", run=f"r{n}")) for n in range(2)]
        for answer in open_answers:
            await read_to(answer, "TEXT_MESSAGE_CONTENT")
        assert s.server.answering == 2
        async with s.post(ask(thread="t3")) as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "5"
        async with s.get("/runs/r0/events") as answer:
            assert answer.status == 429
        assert len(s.model.prompts) == 2  # the one too many cost nothing
        async with s.post(b"", path="/runs/r0/stop") as answer:  # what is answered at once needs no place
            assert answer.status == 200
        assert types(await open_answers[0].read())[-1] == "RUN_FINISHED"
        await until(lambda: s.server.answering == 1)
        async with s.get("/runs/r0/events") as answer:
            assert answer.status == 200
        gate.open.set()
        await open_answers[1].read()
        await until(lambda: s.server.answering == 0)


@pytest.mark.req("ACC-05")
@pytest.mark.req("T17")
async def test_of_many_streams_at_once_exactly_as_many_as_allowed_begin():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=limited(address=AddressLimits(streams=10))) as s:
        answers = await asyncio.gather(*(s.post(ask(thread=f"t{n}")) for n in range(60)))
        assert Counter(answer.status for answer in answers) == {200: 10, 429: 50}
        gate.open.set()
        for answer in answers:
            await answer.read()


async def test_a_client_that_leaves_gives_its_place_back():
    gate = Gate()
    async with served(says("a b", pause=gate), settings=limited(address=AddressLimits(streams=1))) as s:
        answer = await s.post()
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        answer.close()
        await until(lambda: s.server.answering == 0)
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
async def test_a_conversation_is_not_forgotten_while_it_continues():
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
    agent = AgentDefinition(
        name="tester", model=model, tools=Catalogue.of(PlainTools(echo=echo)), loop=AgentLoopConfig(budget=budget)
    )
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
async def test_a_run_that_failed_before_it_produced_anything_costs_nothing():
    async with served(says("", error=ModelInterrupted("cut")), settings=limited(tokens_per_day=1)) as s:
        for _ in range(3):
            async with s.post() as answer:
                assert answer.status == 200
                assert types(await answer.read())[-1] == "RUN_ERROR"


async def test_a_request_with_a_key_takes_its_slot_before_its_body_is_read():
    """Otherwise a client whose slots are all taken could make the server read files (T17)."""
    gate, path = Gate(), "/agent/tester/chat"
    limits = ServerLimits(address=AddressLimits(streams=1))
    settings = ServerSettings(protocols=("ag-ui", "rest"), block=server_block(limits=limits))
    async with (
        served(says("a b", pause=gate), settings=settings) as s,
        s.post(ask()) as first,
    ):
        for headers in ({}, {"Idempotency-Key": "k"}):
            async with s.post(b"no JSON at all", path, **headers) as answer:
                body = await answer.text()
                assert (answer.status, "address-streams" in body) == (429, True), (headers, body)
        gate.open.set()
        await first.read()
