"""What credentials do: scopes, challenges, revocation, users and tenants (the answers of §1.9)."""

import asyncio
import base64
import time
from ipaddress import ip_network

import aiohttp
import pytest

from holodeck.access.authenticator import Authenticator
from holodeck.access.principal import ADMIN, APPROVE, CHAT, METRICS
from holodeck.access.proxy import ProxySettings, TrustedProxy
from holodeck.access.tokens import Tokens
from holodeck.config.limit_schema import ServerLimits, SubjectLimits
from holodeck.files.extraction import Extraction
from holodeck.models.scripted import calls, says
from tests.access.signing import NOW, claims, token
from tests.access.test_tokens import issuer
from tests.agent.agent_fixture import PlainTools, echo
from tests.files import documents
from tests.server.keyed import DEFAULTS, KeyHolders, keyed, settings
from tests.server.serving import Gate, ask, frames, read_to, served, until

SESSION = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"


@pytest.mark.parametrize("header", ["X-Original-URL", "X-Rewrite-URL", "X-HTTP-Method-Override"])
async def test_headers_that_other_servers_believe(tmp_path, header):
    """A07."""
    async with keyed(tmp_path) as (s, _), s.get("/me", **{header: "/health"}) as answer:
        assert answer.status == 401


HEADS = [
    b"GET /me HTTP/1.1\r\nHost: a/?x=\r\n\r\n",
    b"GET /me HTTP/1.1\r\nHost: x/health?\r\n\r\n",
    b"GET /me HTTP/1.1\r\nHost: h/#\r\n\r\n",
    b"GET /me HTTP/1.1\r\nHost: localhost@evil\r\n\r\n",
    b"GET /me HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://localhost/me HTTP/1.1\r\nHost: localhost/health\r\n\r\n",
    b"GET http://localhost/health/../me HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /health/../me HTTP/1.1\r\nHost: localhost\r\n\r\n",
]


async def test_a_host_or_a_target_cannot_stand_for_a_public_path(tmp_path):
    """A06: the path that is served is the path that was checked."""
    async with keyed(tmp_path) as (s, _):
        for head in HEADS:
            reader, writer = await s.connect()
            writer.write(head)
            status = (await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)).split()[1]
            assert status in (b"400", b"401", b"404"), (head, status)
            writer.close()


async def test_nothing_in_a_body_makes_an_identity(tmp_path):
    """A41: not in what a page sends along, not in the arguments that the model or a person writes."""
    seen = []

    async def note(arguments, context):
        seen.append((context.tenant, context.user_id))
        return await echo(arguments, context)

    tools = PlainTools(frozenset({"ask_first"}), note=note, ask_first=note)
    turns = calls(("note", '{"user_id": "bob"}'), ("ask_first", '{"user_id": "bob"}')), says("done")
    claims = {"user_id": "bob", "userId": "bob", "tenant": "other", "owner": {"tenant": "other", "user": "bob"}}
    sent = {"forwardedProps": claims, "state": claims, "context": [{"description": "user_id", "value": "bob"}]}
    async with keyed(tmp_path, *turns, tools=tools) as (s, holders):
        headers = holders.headers(user="ann", tenant="acme")
        bob = holders.headers(user="bob", tenant="acme")
        await s.server.access.refresh()
        async with s.post(ask("note it", thread=SESSION, **sent), **headers) as answer:
            (interrupt,) = frames(await answer.read())[-1][1]["outcome"]["interrupts"]
        edited = {"approved": True, "arguments": {"user_id": "bob"}}
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": edited}]
        async with s.post(ask(thread=SESSION, resume=resume, **sent), **headers) as answer:
            assert frames(await answer.read())[-1][1]["type"] == "RUN_FINISHED"
        async with s.get("/sessions", **bob) as answer:
            assert (await answer.json())["sessions"] == []
    assert seen == [("acme", "ann")] * 2


async def test_act_as_names_the_user_in_its_own_tenant(tmp_path):
    async with keyed(tmp_path) as (s, holders):
        backend = holders.headers("act-as", CHAT, "sessions:read", user="backend", tenant="acme")
        bob = holders.headers(user="bob", tenant="acme")
        await s.server.access.refresh()
        async with s.post(ask(thread=SESSION), **backend, **{"X-HoloDeck-User": "bob"}) as answer:
            assert answer.status == 200
            await answer.read()
        async with s.get(f"/sessions/{SESSION}", **bob) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "scope"),
    [("info", CHAT), ("agent/run", CHAT), ("agent/connect", "runs:read"), ("agent/stop", "runs:stop")],
)
async def test_copilotkits_single_route_asks_by_its_method(tmp_path, method, scope):
    """A04."""
    async with keyed(tmp_path) as (s, holders):
        call = {"method": method, "params": {"agentId": "default", "threadId": "t"}, "body": ask()}
        for mine in ("chat", "runs:read", "runs:stop"):
            headers = holders.headers(mine)
            await s.server.access.refresh()
            async with s.post(call, "/copilotkit", **headers) as answer:
                assert answer.status == (200 if mine == scope else 403)
        for wrong in ({"method": "unknown"}, {}):
            async with s.post(wrong, "/copilotkit") as answer:
                assert answer.status == 401
            async with s.post(wrong, "/copilotkit", **headers) as answer:
                assert answer.status == 422


async def test_approving_needs_its_own_scope(tmp_path):
    """A05."""
    tools = PlainTools(frozenset({"delete"}), delete=echo)
    async with keyed(tmp_path, calls(("delete", "{}")), says("done"), tools=tools) as (s, holders):
        chats = holders.headers(CHAT, user="ann")
        approves = holders.headers(CHAT, APPROVE, user="ann")
        await s.server.access.refresh()
        async with s.post(ask("delete it", thread=SESSION), **chats) as answer:
            (interrupt,) = frames(await answer.read())[-1][1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        agui = ask(thread=SESSION, resume=resume)
        rest = {"session_id": SESSION, "resume": [{"interrupt_id": interrupt["id"], "approved": True}]}
        single = {"method": "agent/run", "params": {"agentId": "default"}, "body": agui}
        ways = {"/awp": agui, "/copilotkit/agent/default/run": agui, "/copilotkit": single, "/agent/tester/chat": rest, "/agent/tester/chat/stream": rest}  # fmt: skip
        for path, body in ways.items():
            async with s.post(body, path, **chats) as answer:
                assert answer.status == 403, path
                assert 'scope="approve"' in answer.headers["WWW-Authenticate"]
        assert tools.called == []
        async with s.post(rest, "/agent/tester/chat", **approves) as answer:
            assert answer.status == 200
        assert tools.called != []


BAD = {
    "unknown": ({"Authorization": "Bearer hdk_nonsense"}, 401, "invalid_token", "This key is not valid."),
    "basic": ({"Authorization": "Basic abc"}, 401, "invalid_token", "not valid: send Authorization: Bearer <key"),
    "no Bearer": (
        {"Authorization": "hdk_nonsense"},
        401,
        "invalid_token",
        "not valid: send Authorization: Bearer <key",
    ),
    "two": ({"Authorization": "Bearer a", "X-Api-Key": "b"}, 400, "invalid_request", "Send exactly one credential"),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_credentials_are_answered_with_a_challenge(tmp_path, case):
    headers, status, code, words = BAD[case]
    async with keyed(tmp_path) as (s, _), s.get("/me", **headers) as answer:
        assert answer.status == status
        assert answer.headers["WWW-Authenticate"] == f'Bearer realm="tester", error="{code}"'
        assert words in (await answer.json(content_type=None))["detail"]


async def test_an_expired_key_says_so(tmp_path):
    from datetime import UTC, datetime, timedelta

    async with keyed(tmp_path) as (s, holders):
        headers = holders.headers(expires=datetime.now(UTC) - timedelta(hours=1))
        await s.server.access.refresh()
        async with s.get("/me", **headers) as answer:
            assert 'error_description="expired"' in answer.headers["WWW-Authenticate"]


async def test_a_key_in_the_url_is_refused_and_not_repeated(tmp_path):
    """A12."""
    async with keyed(tmp_path) as (s, holders):
        key = holders.headers()["Authorization"].removeprefix("Bearer ")
        for name in ("api_key", "key", "jwt", "whatever"):
            async with s.get(f"/me?{name}={key}") as answer:
                assert answer.status == 400, name
                assert answer.headers["WWW-Authenticate"] == 'Bearer realm="tester", error="invalid_request"'
                assert key not in await answer.text()


async def test_who_am_i(tmp_path):
    async with keyed(tmp_path) as (s, holders):
        key_id, headers = holders.create(CHAT, user="ann", tenant="acme")
        await s.server.access.refresh()
        async with s.get("/me", **headers) as answer:
            result = await answer.json()
            assert answer.headers["Cache-Control"] == "no-store"
        expected = {"tenant": "acme", "user": "ann", "scopes": ["chat"], "via": "api_key", "credential_id": key_id}
        assert {name: result[name] for name in expected} == expected


async def test_health_for_strangers_is_a_word(tmp_path):
    """A08."""
    async with keyed(tmp_path) as (s, holders):
        full = holders.headers(METRICS)
        await s.server.access.refresh()
        for path in ("/health", "/ready"):
            for headers in ({}, {"Authorization": "Bearer hdk_wrong"}, holders.headers(CHAT)):
                async with s.get(path, **headers) as answer:
                    assert (answer.status, await answer.json()) == (200, {"status": "healthy"})
            async with s.get(path, **full) as answer:
                assert "agent_name" in await answer.json()
        async with s.get("/") as answer:
            assert "agent" not in await answer.json()


async def test_public_routes_of_the_agent_file_need_no_credential(tmp_path):
    async with keyed(tmp_path, public=frozenset({"openapi", "metrics", "capabilities"})) as (s, _):
        for path, status in (("/openapi.json", 200), ("/metrics", 200), ("/awp/capabilities", 200), ("/health", 401)):
            async with s.get(path) as answer:
                assert answer.status == status, path


async def test_a_refused_client_need_not_send_its_body(tmp_path):
    async with keyed(tmp_path) as (s, _):
        reader, writer = await s.connect()
        writer.write(b"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")  # fmt: skip
        head = await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)
        assert head.startswith(b"HTTP/1.1 401")
        writer.close()


@pytest.mark.req("ACC-02")
async def test_a_revoked_key_ends_its_streams_and_runs(tmp_path):
    """A16."""
    gate = Gate()
    turns = [says("a b", pause=gate) for _ in range(8)]
    async with keyed(tmp_path, *turns) as (s, holders):
        key_id, doomed = holders.create(user="ann")
        other = holders.headers(user="ann")
        await s.server.access.refresh()
        streams = [await s.post(ask(thread=f"t{n}", run=f"r{n}"), **doomed) for n in range(5)]
        kept = await s.post(ask(thread="kept", run="kept"), **other)
        for stream in (*streams, kept):
            await read_to(stream, "TEXT_MESSAGE_CONTENT")
        reader = await s.get("/runs/kept/events", **doomed)
        await read_to(reader, "TEXT_MESSAGE_CONTENT")
        holders.revoke(key_id)
        for stream in streams:
            _, last = frames(await asyncio.wait_for(stream.read(), 30))[-1]
            assert (last["type"], last["code"]) == ("RUN_ERROR", "unauthorized")
        with pytest.raises(aiohttp.ClientError):  # the connection is cut
            await asyncio.wait_for(reader.read(), 30)
        async with s.get("/me", **doomed) as answer:
            assert answer.status == 401
        gate.open.set()
        assert b"RUN_FINISHED" in await kept.read()
        await until(lambda: not s.server.gate._open)


MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
RPC = {"jsonrpc": "2.0", "id": 1}
ON_EVERY_WIRE = {  # path → body; an answer that is a stream, a whole one, one that comes before the run has ended
    "/awp": ask(thread="awp"),
    "/copilotkit/agent/default/run": ask(thread="copilotkit"),
    "/agent/tester/chat": {"message": "hi"},
    "/agent/tester/chat/stream": {"message": "hi"},
    "/chat/stream": {"input": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/chat/completions?streamed": {"messages": [{"role": "user", "content": "hi"}], "stream": True},
    "/v1/responses": {"input": "hi"},
    "/v1/responses?streamed": {"input": "hi", "stream": True},
    "/v1/responses?later": {"input": "hi", "background": True},
    "/ai-sdk/chat": {"id": "c", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]},
    "/mcp": {**RPC, "method": "tools/call", "params": {"name": "ask", "arguments": {"message": "hi"}}},
    "/a2a": {**RPC, "method": "SendMessage", "params": {"message": MESSAGE}},
    "/a2a?streamed": {**RPC, "method": "SendStreamingMessage", "params": {"message": MESSAGE}},
    "/a2a/message:send": {"message": MESSAGE, "configuration": {"returnImmediately": True}},
}


async def test_a_revoked_key_ends_its_runs_on_every_wire(tmp_path, monkeypatch):
    """A16: also runs that no client reads, such as those of Responses in the background and tasks of A2A."""
    monkeypatch.setattr("holodeck.server.identity.REVOKED_GRACE", 60)  # a busy machine may need more than a second
    gate = Gate()
    async with keyed(tmp_path, *(says("a b", pause=gate) for _ in ON_EVERY_WIRE)) as (s, holders):
        key_id, doomed = holders.create(user="ann")
        await s.server.access.refresh()

        async def answered(path, body):
            async with s.post(body, path, **doomed, **{"A2A-Version": "1.0"}) as answer:
                return answer.status, answer.headers, (await answer.read()).decode()

        waiting = {path: asyncio.create_task(answered(path, body)) for path, body in ON_EVERY_WIRE.items()}
        await until(lambda: len(s.server.runs.active) == len(ON_EVERY_WIRE), 30)
        runs = list(s.server.runs.active)
        early = {path for path in waiting if path in ("/v1/responses?later", "/a2a/message:send")}
        for path in early:
            assert (await waiting[path])[0] == 200, path
        holders.revoke(key_id)
        for path, task in waiting.items():
            status, headers, body = await asyncio.wait_for(task, 30)
            assert path in early or "The key of this run was revoked." in body, path
            if status == 401:
                assert headers["WWW-Authenticate"] == 'Bearer realm="tester", error="invalid_token"', path
        await until(lambda: not s.server.runs.active, 30)
        assert {(run.log.kept[-1].code, run.log.kept[-1].reason) for run in runs} == {("unauthorized", "revoked")}


async def test_a_run_that_continues_after_a_crash_ends_with_its_key(tmp_path):
    """A16: the key is known from the stored request, not from a connection."""
    gate = Gate()
    async with keyed(tmp_path, says("a b", pause=gate)) as (s, holders):
        key_id, doomed = holders.create(user="ann")
        await s.server.access.refresh()
        stream = await s.post(ask(thread="t", run="r"), **doomed)
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        (run,) = s.server.runs.active
        assert run.request.api_key_id == key_id
        assert s.server._refusal(run.request) is None
        holders.revoke(key_id)
        await s.server.access.refresh()
        assert s.server._refusal(run.request).code == "unauthorized"
        await asyncio.wait_for(stream.read(), 30)


async def test_without_auth_everyone_may_do_everything():
    async with served(settings=settings(), access=Authenticator()) as s:
        async with s.get("/me") as answer:
            assert (await answer.json())["user"] == "anonymous"
        async with s.get("/health") as answer:
            assert "agent_name" in await answer.json()


@pytest.mark.parametrize("wire", ["AG-UI", "OpenAI", "REST"])
async def test_what_was_read_of_a_file_stays_in_its_tenant(tmp_path, monkeypatch, wire):
    extract, kinds = Extraction.read, []

    async def counted(self, kind, data, limits, **part):
        kinds.append(kind)
        return await extract(self, kind, data, limits, **part)

    def body():
        if wire == "REST":
            form = aiohttp.FormData({"message": "Read it"})
            form.add_field("files", report, filename="report.docx", content_type=documents.DOCX)
            return {"data": form}
        if wire == "OpenAI":
            file = {"file_data": f"data:{documents.DOCX};base64,{encoded}", "filename": "report.docx"}
            return {"json": {"messages": [{"role": "user", "content": [{"type": "file", "file": file}]}]}}
        source = {"type": "data", "value": encoded, "mimeType": documents.DOCX}
        message = {"id": "u1", "role": "user", "content": [{"type": "document", "source": source}]}
        return {"json": ask(messages=[message])}

    monkeypatch.setattr(Extraction, "read", counted)
    report = documents.report_docx()
    encoded = base64.b64encode(report).decode()
    path = {"AG-UI": "/awp", "OpenAI": "/v1/chat/completions", "REST": "/agent/tester/chat"}[wire]
    holders = KeyHolders(tmp_path / "keys.json")
    of_tenants = [holders.headers(user="ann", tenant=tenant) for tenant in ("acme", "other")]
    async with keyed(tmp_path, holders=holders) as (s, _):
        for times_read, headers in enumerate(of_tenants, 1):
            async with s.client.post(s.url + path, headers=headers, **body()) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()
            assert len(kinds) == times_read


async def test_the_tenant_reaches_the_tools(tmp_path):
    seen = []

    async def note(arguments, context):
        seen.append((context.tenant, context.user_id))
        return await echo(arguments, context)

    async with keyed(tmp_path, calls(("note", "{}")), says("done"), tools=PlainTools(note=note)) as (s, holders):
        headers = holders.headers(user="ann", tenant="acme")
        await s.server.access.refresh()
        async with s.post({"message": "hi"}, "/agent/tester/chat", **headers) as answer:
            assert answer.status == 200
    assert seen == [("acme", "ann")]


async def test_the_credential_reaches_no_tool_and_no_model(tmp_path):
    """A73."""
    async with keyed(tmp_path, says("hi")) as (s, holders):
        headers = holders.headers(user="ann")
        await s.server.access.refresh()
        async with s.post(ask(), **headers) as answer:
            body = await answer.text()
        secret = headers["Authorization"].removeprefix("Bearer ")
        assert secret not in body
        assert secret not in str(s.model.prompts)


def test_keys_of_a_test_are_real(tmp_path):
    assert KeyHolders(tmp_path / "k.json").headers()["Authorization"].startswith("Bearer hdk_")


async def test_a_preflight_lists_the_headers_of_the_interface(tmp_path):
    """With auth a page may send these, not whatever it asks for."""
    asked = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    wanted = {"Access-Control-Request-Headers": "authorization, x-evil"}
    async with keyed(tmp_path) as (s, _), s.client.options(s.url + "/awp", headers={**asked, **wanted}) as answer:
        allowed = answer.headers["Access-Control-Allow-Headers"]
        assert answer.status == 204
        assert "Authorization" in allowed
        assert "evil" not in allowed
        assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_a_user_at_all_limits_costs_the_others_nothing(tmp_path):
    """A70: other users' requests ask the limits the same questions as before, and pass."""
    user = SubjectLimits(requests_per_minute=3, tokens_per_day=10_000, runs=1, streams=1)
    gate = Gate()
    given = settings(limits=ServerLimits(user=user))
    holders = KeyHolders(tmp_path / "keys.json")
    ann, bob = holders.headers(user="ann"), holders.headers(user="bob")
    turns = (says("hello"), says("a b", pause=gate), says("hello"))
    async with served(*turns, settings=given, access=holders.authenticator()) as s:
        taken, plain = [], s.server.quotas.take

        async def counted(uses):
            taken.append([use.window.name for use in uses])
            return await plain(uses)

        s.server.quotas.take = counted

        async def asks(who, thread):
            taken.clear()
            async with s.post(ask(thread=thread), **who) as answer:
                await answer.read()
                return answer.status, list(taken)

        alone = await asks(bob, "before")
        stream = await s.post(ask(thread="a"), **ann)
        await read_to(stream, "TEXT_MESSAGE_CONTENT")
        for n in range(20):
            assert (await asks(ann, f"a{n}"))[0] == 429
        assert await asks(bob, "after") == alone
        assert alone[0] == 200
        gate.open.set()
        await stream.read()


async def test_a_code_of_open_is_for_browsers_of_this_machine(tmp_path):
    """A58: a code that someone else read from a screen or a process list is worth nothing elsewhere."""
    proxy = TrustedProxy(
        ProxySettings(networks=(ip_network("127.0.0.1/32"),), secret="s" * 32, address_header=b"x-forwarded-for"),
        DEFAULTS,
    )
    holders = KeyHolders(tmp_path / "keys.json")
    holders.create()
    async with served(settings=settings(), access=holders.authenticator(proxy=proxy)) as s:
        code = {"code": s.server.access.page.new_code()}
        found = []
        for address in ("198.51.100.7", "2001:db8::7", "127.0.0.1", "127.0.0.1"):
            async with s.post(code, "/playground/session", **{"X-Forwarded-For": address}) as answer:
                found.append((answer.status, answer.headers.get("WWW-Authenticate", "")))
        refused = 401, 'Bearer realm="tester", error="invalid_token"'
        # one of another machine does not spend it; the last is the second use
        assert found == [refused, refused, (200, ""), refused]


def granting(**more):
    """An authenticator that takes tokens whose scopes have names of the issuer's own."""
    grant = {"agents.use": [CHAT, "runs:read"], "agents.admin": [ADMIN], "agents.watch": [METRICS]}
    return Authenticator(tokens=Tokens([issuer(grant=grant, **more)], DEFAULTS, clock=lambda: NOW))


async def test_a_challenge_names_what_to_ask_the_issuer_for():
    """MCP clients choose scopes from it. An issuer that knows `agents.use` would refuse to grant `chat`."""
    use = settings(public_url="https://agent.example.com")
    start = 'Bearer realm="tester", resource_metadata="https://agent.example.com/.well-known/oauth-protected-resource"'
    ann = {"Authorization": f"Bearer {token(claims(scope='agents.use'))}"}
    async with served(settings=use, access=granting()) as s:
        cases = {
            ("POST", "/mcp"): ({}, f'{start}, scope="agents.use"'),
            ("GET", "/sessions"): ({"Authorization": "Bearer a.b.c"}, f'{start}, error="invalid_token", scope="agents.admin"'),
            ("GET", "/metrics"): (ann, f'{start}, error="insufficient_scope", scope="agents.watch"'),
            ("DELETE", "/sessions/x"): (ann, f'{start}, error="insufficient_scope", scope="agents.admin"'),
        }  # fmt: skip
        for (method, path), (headers, expected) in cases.items():
            async with s.client.request(method, s.url + path, headers=headers) as answer:
                assert answer.headers["WWW-Authenticate"] == expected, path
        async with s.get("/.well-known/oauth-protected-resource") as answer:
            assert (await answer.json())["scopes_supported"] == ["agents.admin", "agents.use", "agents.watch"]
    async with (
        served(settings=use, access=granting(required=("agents.in",))) as s,
        s.get("/me", **ann) as answer,
    ):
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (
            403,
            f'{start}, error="insufficient_scope", scope="agents.in"',
        )


async def test_what_a_token_started_continues_when_it_expires():
    """Reading it again needs a new token."""
    clock, gate = [NOW], Gate()
    access = Authenticator(tokens=Tokens([issuer()], DEFAULTS, clock=lambda: clock[0]))
    ann = {"Authorization": f"Bearer {token(claims(scope='chat runs:read'))}"}
    async with served(says("a b", pause=gate), settings=settings(), access=access) as s:
        running = await s.post(ask(run="r"), **ann)
        await read_to(running, "TEXT_MESSAGE_CONTENT")
        clock[0] += 90_000
        async with s.get("/runs/r/events", **ann) as answer:
            assert (answer.status, 'error_description="expired"' in answer.headers["WWW-Authenticate"]) == (401, True)
        gate.open.set()
        assert frames(await running.read())[-1][1]["type"] == "RUN_FINISHED"


async def test_a_token_within_the_leeway_reads_new_runs_of_a_session():
    """It is accepted, so its stream must not end at once."""
    access = Authenticator(tokens=Tokens([issuer()], DEFAULTS))
    times = {"iat": time.time() - 600, "exp": time.time() - 10}
    ann = {"Authorization": f"Bearer {token(claims(scope='chat runs:read sessions:read', **times))}"}
    async with served(says("one"), says("two"), settings=settings(), access=access) as s:
        async with s.post(ask(thread="t", run="r1"), **ann) as answer:
            await answer.read()
        feed = await s.get("/sessions/t/events", **ann)
        async with s.post(ask(thread="t", run="r2"), **ann) as answer:
            await answer.read()
        shown = await read_to(feed, '"type":"RUN_')
        feed.close()
    assert (feed.status, b"RUN_STARTED" in shown, b"expired" in shown) == (200, True, False)
