"""Limits of keys, users, tenants and addresses: requests, tokens, money, runs; what is left, and who is refused."""

import asyncio
import ipaddress
import json
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from holodeck.access.authenticator import Authenticator
from holodeck.access.key_file import KeyLimits
from holodeck.access.principal import METRICS
from holodeck.access.proxy import ProxySettings, TrustedProxy
from holodeck.agent.definition import AgentDefinition
from holodeck.config.limit_schema import ServerLimits, TenantLimits
from holodeck.config.load import load_config
from holodeck.core.messages import UserMessage
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.core.request import RunRequest
from holodeck.core.usage import TokenUsage
from holodeck.errors import ModelInterrupted, StartError, StoreUnavailable
from holodeck.limits.leases import ValkeyLeases
from holodeck.limits.valkey import ValkeyWindows
from holodeck.limits.window import MemoryWindows, StoreDown
from holodeck.models.price import Price
from holodeck.models.scripted import ScriptedModel, Turn, calls, says
from holodeck.runs.port import RunRecord
from holodeck.server import quota
from holodeck.server.agent_server import AgentServer
from holodeck.server.options import Access, ServerSettings, SpendingSettings
from holodeck.server.process import spending_of
from holodeck.server.quota import Spender
from holodeck.sessions.memory import MemorySessionStore
from holodeck.stores.sqlite_file import SqliteFile
from holodeck.stores.sqlite_runs import SqliteRunStore
from holodeck.stores.sqlite_sessions import SqliteSessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools, echo
from tests.limits.valkey_server import valkey
from tests.server.keyed import DEFAULTS, KeyHolders
from tests.server.serving import Gate, ask, frames, read_to, served, server_block, types, until

PRICE = Price(input=1.0, output=2.0)  # of a million tokens


def settings(*, price: Price | None = None, max_tokens: int = 1000, **limits):
    return ServerSettings(
        protocols=("ag-ui", "rest", "chat-stream"),
        access=Access(),
        block=server_block(limits=ServerLimits(**limits)),
        spending=SpendingSettings(price=price, max_tokens=max_tokens, has_keys=True),
    )


def used(tokens):
    return TokenUsage(prompt_tokens=tokens // 2, completion_tokens=tokens - tokens // 2)


@pytest.fixture
def holders(tmp_path):
    made = KeyHolders(tmp_path / "keys.json")
    made.create()
    return made


async def status(s, headers, **more):
    async with s.post(ask(**more), **headers) as answer:
        body = await answer.read()
        return answer.status, body, answer.headers


def test_which_limits_apply_to_a_request():
    ann = Owner("acme", "ann")
    known = Spender(ann, "10.0.0.1", "KEY", authenticated=True)
    assert [kind for kind, *_ in known.subjects] == ["address", "key", "user", "tenant"]
    named = Spender(Owner("default", "10.0.0.9"), "10.0.0.1")
    assert [(kind, subject) for kind, subject, _ in named.subjects] == [
        ("address", "10.0.0.1"),
        ("user", "10.0.0.1"),
        ("user", "default\n10.0.0.9"),
    ]
    assert [subject for _, subject, _ in Spender(ANONYMOUS_OWNER, "10.0.0.1").subjects] == ["10.0.0.1", "10.0.0.1"]


@pytest.mark.req("T30")
@pytest.mark.parametrize(
    ("use", "reason", "passed"),
    [
        ({"key": {"requests_per_minute": 2}}, "key-requests", [2, 2, 2]),
        ({"user": {"requests_per_minute": 2}}, "user-requests", [2, 0, 2]),
        ({"tenant": {"requests_per_minute": 2}}, "tenant-requests", [2, 0, 0]),
        ({"address": {"requests_per_minute": 2}}, "address-requests", [2, 0, 0]),
    ],
)
async def test_each_kind_of_limit_counts_its_own(holders, use, reason, passed):
    """Two keys of ann, one of bob, one tenant, one address."""
    clients = [holders.headers(user=user, tenant="acme") for user in ("ann", "ann", "bob")]
    async with served(says("hi"), settings=settings(**use), access=holders.authenticator()) as s:
        for headers, expected in zip(clients, passed, strict=True):
            answers = [await status(s, headers) for _ in range(3)]
            assert [each[0] for each in answers].count(200) == expected
            refused = next(body for code, body, _ in answers if code == 429)
            assert reason.encode() in refused


@pytest.mark.req("T30")
async def test_a_key_and_an_override_have_limits_of_their_own(holders):
    key_id, narrow = holders.create(limits=KeyLimits(requests_per_minute=1), tenant="acme", user="ann")
    wide_id, wide = holders.create(tenant="acme", user="ann")
    use = settings(key={"requests_per_minute": 2}, overrides={f"key:{wide_id}": TenantLimits(requests_per_minute=4)})
    async with served(says("hi"), settings=use, access=holders.authenticator()) as s:
        for headers, expected in ((narrow, 1), (wide, 4)):
            assert Counter([(await status(s, headers))[0] for _ in range(6)])[200] == expected
    assert key_id != wide_id


@pytest.mark.req("T30")
async def test_an_override_names_a_user_of_one_tenant_or_of_all(holders):
    wide, one = TenantLimits(requests_per_minute=3), TenantLimits(requests_per_minute=1)
    use = settings(user={"requests_per_minute": 2}, overrides={"tenant:acme/user:ann": wide, "user:bob": one})
    users = list(product(("ann", "bob"), ("acme", "other")))
    clients = [holders.headers(user=user, tenant=tenant) for user, tenant in users]
    async with served(says("hi"), settings=use, access=holders.authenticator()) as s:
        passed = [Counter([(await status(s, headers))[0] for _ in range(5)])[200] for headers in clients]
    assert dict(zip(users, passed, strict=True)) == {
        ("ann", "acme"): 3,
        ("ann", "other"): 2,
        ("bob", "acme"): 1,
        ("bob", "other"): 1,
    }


@pytest.mark.req("T30", "T17")
async def test_a_request_that_waits_behind_another_is_not_charged_to_its_user(holders):
    ann, bob = (holders.headers(user=user, tenant="acme") for user in ("ann", "bob"))
    use = settings(overrides={"user:ann": {"tokens_per_day": 100_000}})
    async with served(says("hi", usage=used(100)), settings=use, access=holders.authenticator()) as s:
        reader, writer = await s.connect()
        for number, user in enumerate((ann, bob)):
            data = json.dumps(ask(thread=f"t{number}")).encode()
            lines = [f"{name}: {text}" for name, text in {**user, "Content-Length": len(data)}.items()]
            head = ["POST /awp HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines, "", ""]
            writer.write("\r\n".join(head).encode() + data)
        for _ in range(2):
            await asyncio.wait_for(reader.readuntil(b"RUN_FINISHED"), 30)
        writer.close()
        async with s.get("/me", **ann) as answer:
            (tokens,) = (await answer.json())["limits"]
        assert tokens["limit"] - tokens["left"] == 100


@pytest.mark.req("T30")
async def test_a_tenant_stores_so_much_and_no_more(holders, monkeypatch):
    """Its users' conversations together; the room of another tenant, and who reads or deletes, are not touched."""
    monkeypatch.setattr(quota, "FRESH_SECONDS", 0.0)
    ann, bob, eve = (holders.headers(user=u, tenant=t) for u, t in (("ann", "acme"), ("bob", "acme"), ("eve", "other")))
    use = settings(tenant={"stored_mb": 0.002}, overrides={"tenant:other": {"stored_mb": 0.1}})
    async with served(says("hi"), settings=use, access=holders.authenticator()) as s:

        async def stored_left(headers):
            async with s.get("/me", **headers) as answer:
                (found,) = [each for each in (await answer.json())["limits"] if each["name"] == "tenant-stored"]
                return found["limit"], found["left"], found["window_seconds"]

        assert await stored_left(ann) == (2000, 2000, 0)
        assert (await status(s, ann, text="x" * 3000, thread="long"))[0] == 200
        for headers in (ann, bob):
            code, body, answered = await status(s, headers)
            assert (code, json.loads(body)["reason"]) == (429, "tenant-stored")
            assert "Retry-After" not in answered, "no time frees it"
            assert await stored_left(headers) == (2000, 0, 0)
        assert (await status(s, eve))[0] == 200
        assert (await stored_left(eve))[0] == 100_000
        async with s.client.delete(f"{s.url}/sessions/long", headers=ann) as answer:
            assert answer.status == 204
        assert (await status(s, bob))[0] == 200


@pytest.mark.req("T30")
async def test_a_sum_that_was_just_looked_up_is_taken_as_it_is():
    looked_up = []

    async def stored(tenant):
        looked_up.append(tenant)
        if tenant == "away":
            raise StoreUnavailable("The store is away.")
        return 10

    storage = quota.TenantStorage(ServerLimits(tenant={"stored_mb": 1}), stored)
    for tenant in ("acme", "acme", "other", "away"):
        await storage.check(tenant)
    assert looked_up == ["acme", "other", "away"]
    assert await quota.TenantStorage(ServerLimits(), stored).level("acme") is None


def test_only_a_tenant_has_a_limit_of_what_is_stored():
    with pytest.raises(ValueError, match="stored_mb is a limit of tenants"):
        ServerLimits(overrides={"user:ann": {"stored_mb": 1}})
    with pytest.raises(ValueError, match="stored_mb is a limit of tenants; tenant:acme/user:ann"):
        ServerLimits(overrides={"tenant:acme/user:ann": {"stored_mb": 1}})


def test_an_override_names_a_kind_of_subject():
    """One for nothing that is counted would have no effect, and its writer would not learn of it."""
    with pytest.raises(ValueError, match="tenant:NAME, tenant:NAME/user:NAME, user:NAME, key:ID, address:ADDRESS"):
        ServerLimits(overrides={"team:acme": {"runs": 1}})


@pytest.mark.req("T30")
async def test_a_budget_is_not_passed_by_parallel_requests(holders):
    """A64: tokens are reserved before and settled after."""
    headers = holders.headers(user="ann")
    gate = Gate()
    use = settings(user={"tokens_per_day": 1000}, max_tokens=900)
    turns = [says("a b", pause=gate, usage=used(100)) for _ in range(40)]
    async with served(*turns, settings=use, access=holders.authenticator()) as s:
        begun = [asyncio.create_task(status(s, headers, thread=f"t{n}")) for n in range(20)]
        await until(lambda: sum(task.done() for task in begun) >= 18)
        gate.open.set()
        statuses = Counter([(await task)[0] for task in begun])
        assert statuses == {200: 2, 429: 18}  # the first reserves 900 and its prompt, the second what is left
        after = Counter([(await status(s, headers, thread="after"))[0] for _ in range(4)])
        assert after[200] == 4  # what was reserved and not used came back


@pytest.mark.req("T30")
async def test_money_is_counted_in_millionths(holders):
    headers = holders.headers(user="ann")
    use = settings(user={"money_per_day": 0.01}, price=PRICE, max_tokens=10)
    usage = TokenUsage(prompt_tokens=4000, completion_tokens=500)  # 0.005
    async with served(says("hi", usage=usage), settings=use, access=holders.authenticator()) as s:
        codes = [await status(s, headers, thread=f"t{n}") for n in range(3)]
        assert [code for code, *_ in codes] == [200, 200, 429]
        assert b"user-money" in codes[-1][1]
        assert b"0.01 of money a day" in codes[-1][1]


@pytest.mark.req("T30")
@pytest.mark.parametrize(
    "turn",
    [
        says("word " * 400),  # counts nothing
        says("x", usage=TokenUsage(prompt_tokens=10**18, completion_tokens=10**18)),
        Turn(text="word " * 400, error=ModelInterrupted("cut", started=True)),
    ],
    ids=["none", "huge", "cut"],
)
async def test_an_endpoint_that_counts_badly_is_not_free(holders, turn):
    """A65."""
    headers = holders.headers(user="ann")
    use = settings(user={"tokens_per_day": 500}, max_tokens=10)
    async with served(turn, settings=use, access=holders.authenticator()) as s:
        assert (await status(s, headers))[0] == 200
        assert (await status(s, headers))[0] == 429


async def test_a_run_that_uses_up_the_budget_ends_before_its_next_step(holders):
    headers = holders.headers(user="ann")
    use = settings(user={"tokens_per_day": 1000}, max_tokens=10)
    turns = calls(("echo", "{}"), usage=used(2000)), says("never")
    async with served(*turns, tools=PlainTools(echo=echo), settings=use, access=holders.authenticator()) as s:
        _, body, _ = await status(s, headers)
        _, last = frames(body)[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "budget-exceeded")
        assert len(s.model.prompts) == 1


async def test_a_request_that_is_refused_otherwise_gives_everything_back(holders):
    headers = holders.headers(user="ann")
    use = settings(user={"tokens_per_day": 1000, "runs": 1, "requests_per_minute": 100}, max_tokens=900)
    async with served(says("hi", usage=used(10)), settings=use, access=holders.authenticator()) as s:
        for _ in range(5):
            async with s.post(b"{", "/agent/tester/chat", **headers) as answer:
                assert answer.status == 400
        await until(lambda: not s.server.quotas._leases._held)
        assert (await status(s, headers))[0] == 200
        async with s.get("/me", **headers) as answer:
            levels = {each["name"]: each["left"] for each in (await answer.json())["limits"]}
        assert levels["user-tokens"] == 990
        assert levels["user-requests"] == 94


@pytest.mark.req("T30")
async def test_runs_at_a_time(holders):
    ann, bob = holders.headers(user="ann", tenant="acme"), holders.headers(user="bob", tenant="acme")
    gate = Gate()
    use = settings(user={"runs": 2}, tenant={"runs": 3})
    async with served(*[says("a b", pause=gate)] * 9, settings=use, access=holders.authenticator()) as s:
        streams = [await s.post(ask(thread=f"t{n}"), **ann) for n in range(2)]
        for stream in streams:
            await read_to(stream, "TEXT_MESSAGE_CONTENT")
        code, body, answered = await status(s, ann, thread="t3")
        assert (code, b"user-runs" in body) == (429, True)
        assert int(answered["Retry-After"]) > 0
        streams.append(await s.post(ask(thread="b1"), **bob))
        assert b"tenant-runs" in (await status(s, bob, thread="b2"))[1]
        gate.open.set()
        for stream in streams:
            assert types(await stream.read())[-1] == "RUN_FINISHED"
        assert (await status(s, ann, thread="t4"))[0] == 200


async def test_what_is_left_is_reported_in_headers_and_by_me(holders):
    headers = holders.headers(user="ann")
    user = {"requests_per_minute": 10, "runs": 3, "streams": 4}
    use, gate = settings(user=user, tenant={"requests_per_minute": 100}), Gate()
    async with served(says("hi"), says("a b", pause=gate), settings=use, access=holders.authenticator()) as s:
        _, _, answered = await status(s, headers)
        assert answered["RateLimit-Policy"] == '"user-requests";q=10;w=60'
        assert answered["RateLimit"].startswith('"user-requests";r=9;t=')
        async with s.get("/me", **headers) as answer:
            result = {each["name"]: each for each in (await answer.json())["limits"]}
            assert "RateLimit" not in answer.headers
        assert (result["user-requests"]["left"], result["tenant-requests"]["left"]) == (9, 99)
        assert 0 < result["user-requests"]["reset_seconds"] <= 61
        running = await s.post(ask(thread="t2"), **headers)
        await read_to(running, "TEXT_MESSAGE_CONTENT")
        async with s.get("/me", **headers) as answer:
            result = {each["name"]: each for each in (await answer.json())["limits"]}
        assert (result["user-runs"]["left"], result["user-streams"]["left"]) == (2, 3)
        gate.open.set()
        await running.read()


async def test_a_refusal_is_counted_by_the_name_of_its_limit(holders, caplog):
    headers = holders.headers(user="ann")
    async with served(
        says("hi"), settings=settings(user={"requests_per_minute": 1}), access=holders.authenticator()
    ) as s:
        for _ in range(3):
            await status(s, headers)
        assert "user-requests" in str(s.server.metrics.limit_refusals.__dict__)
    lines = [record.details for record in caplog.records if record.message == "limit_reached"]
    assert [line["limit"] for line in lines] == ["user-requests"], "once, however many it refuses"


def test_a_limit_of_money_needs_a_price(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text("name: a\nmodel: {provider: demo}\nserver: {limits: {user: {money_per_day: 1}}}\n")
    with pytest.raises(StartError, match=r"agent\.yaml:3.*add model\.price"):
        spending_of(load_config(file), has_keys=False)


@pytest.mark.req("T30")
async def test_two_servers_share_their_limits(holders):
    """A63, A64: two replicas with one Valkey; of 60 requests exactly 20 pass, and no budget is passed in parallel."""
    ann, bob, cyd = (holders.headers(user=name) for name in ("ann", "bob", "cyd"))
    use = settings(
        user={"requests_per_minute": 20, "tokens_per_day": 10**9, "money_per_day": 1000},
        tenant={"requests_per_minute": 10**6},
        overrides={"user:bob": {"tokens_per_day": 1000}, "user:cyd": {"money_per_day": 1000 * PRICE.output / 10**6}},
        price=PRICE,
        max_tokens=900,
    )
    gate = Gate()
    with tempfile.TemporaryDirectory() as folder, valkey(Path(folder)) as url:
        stores = [ValkeyWindows(url, seconds=30) for _ in range(2)]
        replicas = [
            served(
                says("hi", pause=gate, usage=used(10)),
                settings=use,
                access=holders.authenticator(),
                windows=store,
                leases=ValkeyLeases(store),
            )
            for store in stores
        ]
        async with replicas[0] as one, replicas[1] as two:

            def asked(headers, number):
                return [asyncio.create_task(status((one, two)[n % 2], headers, thread=f"t{n}")) for n in range(number)]

            begun = asked(ann, 60)
            await until(lambda: sum(task.done() for task in begun) >= 40, 30)
            gate.open.set()
            assert Counter([(await task)[0] for task in begun]) == {200: 20, 429: 40}
            for headers in (bob, cyd):
                gate.open.clear()
                begun = asked(headers, 20)
                await until(lambda: sum(task.done() for task in begun) >= 18, 30)  # noqa: B023  awaited at once
                gate.open.set()
                # the first reserves 900 tokens and its prompt, the second what is left
                assert Counter([(await task)[0] for task in begun]) == {200: 2, 429: 18}


async def test_a_store_that_is_down_counts_here_or_refuses(holders, tmp_path):
    """A66."""
    headers, watcher = holders.headers(user="ann"), holders.headers(METRICS)
    use = settings(user={"requests_per_minute": 2})
    for when_down, expected in (("local", [200, 200, 429]), ("refuse", [503, 503, 503])):
        store = ValkeyWindows(f"unix://{tmp_path}/none.sock", when_down)
        async with served(
            says("hi"), settings=use, access=holders.authenticator(), windows=store, leases=ValkeyLeases(store)
        ) as s:
            assert [(await status(s, headers, thread=f"t{n}"))[0] for n in range(3)] == expected
            async with s.get("/metrics", **watcher) as answer:
                assert "\nholodeck_limits_store_up 0\n" in await answer.text()


@pytest.mark.req("T30")
async def test_users_behind_one_proxy_do_not_share_the_limits_of_a_key():
    networks = (ipaddress.ip_network("127.0.0.1/32"),)
    proxy = TrustedProxy(ProxySettings(networks=networks, secret="s" * 32), DEFAULTS)
    async with served(settings=settings(key={"requests_per_minute": 1}), access=Authenticator(proxy=proxy)) as s:
        for user in ("ann", "bob"):
            headers = {"X-HoloDeck-Proxy": "s" * 32, "X-Auth-Request-User": user}
            assert (await status(s, headers, thread=user))[0] == 200


class Unsteady(MemoryWindows):
    """Windows in a store that is down at first."""

    up = False

    async def take(self, uses):
        if not self.up:
            raise StoreDown
        return await super().take(uses)


@pytest.mark.req("T30")
async def test_a_request_that_a_broken_store_refuses_keeps_no_share():
    windows = Unsteady()
    async with served(settings=settings(user={"requests_per_minute": 60, "runs": 1}), windows=windows) as s:
        assert (await status(s, {}))[0] == 503
        windows.up = True
        assert (await status(s, {}))[0] == 200


@pytest.mark.req("T30")
async def test_a_store_that_breaks_during_a_run_is_named_as_what_failed():
    windows = Unsteady()
    windows.up = True
    take, asked = windows.take, []

    async def once(uses):
        asked.append(uses)
        windows.up = len(asked) == 1
        return await take(uses)

    windows.take = once
    async with served(settings=settings(user={"tokens_per_day": 1_000_000}), windows=windows) as s:
        _, body, _ = await status(s, {})
        last = frames(body)[-1][1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "limits-unavailable")


@pytest.mark.req("T30")
@pytest.mark.parametrize("is_used_up", [False, True])
async def test_what_a_run_spends_after_a_crash_counts_for_its_user_and_tenant(holders, tmp_path, is_used_up):
    ann = Owner("acme", "ann")
    request = RunRequest(run_id="r", owner=ann, messages=(UserMessage(content="go"),), detached=True)
    store, records = stores(tmp_path)
    await store.start()
    await records.begin(RunRecord(run_id="r", owner=ann, session_id="s", request=request))
    await store.close()
    model = ScriptedModel([says("hi", usage=used(100))])
    store, records = stores(tmp_path)
    limits = settings(**{kind: {"tokens_per_day": 1000} for kind in ("user", "tenant", "address")})
    agent = AgentDefinition(name="tester", model=model, tools=Catalogue.of(PlainTools()))
    server = AgentServer(agent, store, records=records, settings=limits, access=holders.authenticator())
    if is_used_up:
        server.quotas.settle(server.quotas.spending_windows(Spender(ann, None), 1000))
    async with server.running():
        run = server.runs.get("r", owner=ann)
        await asyncio.wait_for(run.done(), 30)
        levels = await server.quotas.levels(Spender(ann, "10.0.0.1", authenticated=True))
    left = {level.window.name: level.left for level in levels}
    if is_used_up:
        assert model.prompts == []
        assert left == {"address-tokens": 1000, "user-tokens": 0, "tenant-tokens": 1000}
    else:
        assert len(model.prompts) == 1
        assert left == {"address-tokens": 1000, "user-tokens": 900, "tenant-tokens": 900}


async def test_a_run_spends_from_the_meter_that_it_was_started_with():
    """Also if the task that starts it has admitted another request, as a task of another ASGI server may."""
    ann, bob = (Spender(Owner("acme", user), None, authenticated=True) for user in ("ann", "bob"))
    agent = AgentDefinition(
        name="tester", model=ScriptedModel([says("hi", usage=used(100))] * 3), tools=Catalogue.of(PlainTools())
    )
    server = AgentServer(agent, MemorySessionStore(), settings=settings(user={"tokens_per_day": 2000}))
    async with server.running():
        meters = [await server.quotas.admit(spender) for spender in (ann, bob)]
        for meter in (*meters, None):
            run = await server.runs.start(RunRequest(messages=(UserMessage(content="go"),)), meter=meter)
            await asyncio.wait_for(run.done(), 30)
            assert run.meter is None  # it references the run
        left = [level.left for each in (ann, bob) for level in await server.quotas.levels(each)]
    assert left == [1900, 1900]


def stores(folder):
    """The stores of a process, on a file that outlives it."""
    file = SqliteFile(folder / "sessions.db")
    records = SqliteRunStore(file, "tester")
    return SqliteSessionStore(file, "tester", runs=records), records
