"""Every operation and every kind of client: the matrix of the route table. A new route is in it by itself."""

import json
from urllib.parse import quote

import pytest
from yarl import URL

from holodeck.access.principal import ACT_AS, ADMIN, CHAT, OF_ONE_USER, SCOPES
from holodeck.models.scripted import says
from holodeck.server.app import operations_of
from holodeck.server.routing import Routes
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.server.keyed import keyed, settings
from tests.server.serving import Gate, ask, read_to, served

SESSION, RUN = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G", "run-of-ann"
BODIES = {
    "/playground/session": {"code": "guessed"},
    "/awp": ask(thread="other"),
    "/copilotkit": {"method": "info"},
    "/copilotkit/agent/{agent_id}/run": ask(thread="other"),
    "/copilotkit/agent/{agent_id}/connect": ask(thread="other"),
    "/agent/{name}/chat": {"message": "hi"},
    "/agent/{name}/chat/stream": {"message": "hi"},
    "/chat/stream": {"input": "hi"},
    "/a2a": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/send",
        "params": {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}},
    },
    "/a2a/message:send": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
    "/a2a/v1/message:send": {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}},
    "/a2a/v1/message:stream": {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}},
    "/a2a/message:stream": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
    "/mcp": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "ask", "arguments": {"message": "hi"}},
    },
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/ai-sdk/chat": {
        "id": "other",
        "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}],
    },
}
PARAMETERS = {
    "agent_id": "default",
    "name": "tester",
    "thread_id": SESSION,
    "run_id": RUN,
    "id": SESSION,
    "version": "v",
    "model": "tester",
    "task_id": RUN,
    "config_id": "c",
    "item_id": "i",
}


def operations():
    from holodeck.agent.definition import AgentDefinition
    from holodeck.models.scripted import ScriptedModel
    from holodeck.server.agent_server import AgentServer
    from holodeck.sessions.memory import MemorySessionStore

    agent = AgentDefinition(name="tester", model=ScriptedModel([]), tools=Catalogue.of(PlainTools()))
    return operations_of(AgentServer(agent, MemorySessionStore(), settings=settings()))


OPERATIONS = {f"{each.method} {each.shown_path}": each for each in operations()}
GUARDED = {name: each for name, each in OPERATIONS.items() if each.access.kind in ("principal", "scope") and each.access.open_as != "health"}  # fmt: skip
NEW_A2A = {"A2A-Version": "1.0"}
_CONFIG = "tasks/{task_id}/pushNotificationConfigs/{config_id}"
NO_CONFIG = {f"GET /a2a/{_CONFIG}", f"GET /a2a/v1/{_CONFIG}"}  # the owner has none either
NO_ITEM = "GET /v1/conversations/{id}/items/{item_id}"  # nor an item of this id
SHARED = {
    *NO_CONFIG,
    NO_ITEM,
    "GET /v1/models/{model}",
}  # has a parameter, but the same answer for everyone who may chat


async def request(s, operation, headers, method=None, **parameters):
    path = operation.shown_path
    for name, value in {**PARAMETERS, **parameters}.items():
        path = path.replace("{" + name + "}", value)
    body = BODIES.get(operation.shown_path)
    data = None if operation.method != "POST" else json.dumps(body or {}).encode()
    given = {"Content-Type": "application/json", **headers} if data is not None else headers
    is_new = path.startswith("/a2a/") and not path.startswith("/a2a/v1/")
    given = {**given, **NEW_A2A} if is_new else given
    address = URL(s.url + path, encoded=bool(parameters))
    async with s.client.request(method or operation.method, address, data=data, headers=given) as answer:
        is_endless = answer.status == 200 and operation.shown_path == "/sessions/{id}/events"
        return answer.status, b"" if is_endless else await answer.read(), answer.headers


def problem_of(body):
    """The problem in an answer; in a JSON-RPC error it is the data, in one of A2A the metadata of the first detail."""
    result = json.loads(body)
    details = result["error"].get("data", result["error"].get("details")) if "error" in result else None
    if isinstance(details, list):
        return details[0]["metadata"]
    return details if "jsonrpc" in result else result


@pytest.mark.req("T05")
def test_every_operation_declares_its_access():
    """A02: a route without it does not import."""
    with pytest.raises(TypeError, match="access"):

        @Routes().get("/new")
        async def new(_request):
            raise AssertionError

    assert len(OPERATIONS) > 20


@pytest.mark.req("ACC-01")
@pytest.mark.req("T04", "T05")
async def test_without_a_credential_nothing_but_public_routes_answers(tmp_path):
    """A01, A09."""
    async with keyed(tmp_path) as (s, _):
        for name, operation in OPERATIONS.items():
            for method in {operation.method, "HEAD" if operation.method == "GET" else operation.method}:
                status, body, headers = await request(s, operation, {}, method)
                if name in GUARDED:
                    assert status == 401, name
                    assert headers["WWW-Authenticate"] == 'Bearer realm="tester"'
                    assert headers["Cache-Control"] == "no-store"
                    assert method == "HEAD" or problem_of(body)["type"].endswith("/unauthorized")
                    if operation.path.startswith("/v1/") and method != "HEAD":
                        assert json.loads(body)["error"]["type"] == "authentication_error"
                elif name == "POST /playground/session":
                    assert status == 401, "for a code that is guessed"
                else:
                    assert status in (200, 404), name  # 404: files and metadata that are not there
        assert s.model.prompts == []


async def test_a_user_whom_a_credential_may_not_name_is_refused_everywhere(tmp_path):
    """A40: also where a route has no use for a user. A name that is ignored would look as if it had worked."""
    async with keyed(tmp_path) as (s, holders):
        headers = holders.headers(*(SCOPES - {ADMIN, ACT_AS}), user="ann")
        await s.server.access.refresh()
        for name, operation in GUARDED.items():
            status, body, answered = await request(s, operation, {**headers, "X-HoloDeck-User": "bob"})
            assert (status, problem_of(body)["reason"]) == (403, "user-mismatch"), name
            assert answered["Cache-Control"] == "no-store"
        async with s.get("/me", **headers, **{"X-HoloDeck-User": "ann"}) as answer:
            assert (await answer.json())["user"] == "ann"
        assert s.model.prompts == []


@pytest.mark.parametrize("path", ["/me/", "/%6de", "//me", "/ME", "/me?x=1", "/me#x", "/awp/capabilities/", "/sessions/a%2Fb", "/runs/a/b/c"])  # fmt: skip
@pytest.mark.req("T04")
async def test_other_spellings_of_a_path_are_no_way_around(tmp_path, path):
    """A01."""
    async with keyed(tmp_path) as (s, _), s.get(path) as answer:
        assert answer.status in (401, 404)


@pytest.mark.parametrize("scope", sorted(SCOPES))
async def test_each_scope_opens_exactly_its_operations(tmp_path, scope):
    """A03."""
    async with keyed(tmp_path, says("hello")) as (s, holders):
        headers = holders.headers(scope, user="ann")
        await s.server.access.refresh()
        for name, operation in GUARDED.items():
            wanted = operation.access.scope
            allowed = wanted in (None, scope) or (scope == ADMIN and wanted in OF_ONE_USER)
            status, body, answered = await request(s, operation, headers)
            if name == "POST /copilotkit" and scope not in (CHAT, ADMIN):
                allowed, wanted = False, CHAT
            if allowed:
                assert status in (200, 204, 404), f"{name}: {body}; has it a body in BODIES?"
            else:
                assert status == 403, (name, body)
                assert problem_of(body)["reason"] == "insufficient-scope"
                assert f'error="insufficient_scope", scope="{wanted}"' in answered["WWW-Authenticate"]
                assert answered["Cache-Control"] == "no-store"


CLIENTS = ("the owner", "another user of the tenant", "another tenant, same name", "admin of another tenant")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.req("T10")
async def test_only_the_owner_gets_at_what_is_there(tmp_path, client):
    """A42 to A49, generated from the route table: a new route with an id is in it by itself."""
    canary = "xyzzy-canary"
    gate = Gate()
    async with keyed(tmp_path, says(f"{canary} b", pause=gate), says("other")) as (s, holders):
        ann = holders.headers(user="ann", tenant="acme")
        headers = {
            "the owner": ann,
            "another user of the tenant": holders.headers(user="eve", tenant="acme"),
            "another tenant, same name": holders.headers(user="ann", tenant="other"),
            "admin of another tenant": holders.headers(ADMIN, CHAT, user="root", tenant="other"),
        }[client]
        await s.server.access.refresh()
        held = await s.post(ask(canary, thread=SESSION, run=RUN), **ann)
        await read_to(held, "TEXT_MESSAGE_CONTENT")
        found = {}
        for name, operation in GUARDED.items():
            if name in SHARED:
                continue
            if operation.path_parameters and operation.method == "GET" and "{version}" not in operation.path:
                follows = operation.path.endswith(("/events", "/stream", ":subscribe"))
                if follows and client == "the owner":
                    continue  # follows the run, which has not ended
                status, body, _ = await request(s, operation, headers)
                found[name] = (
                    404 if follows and status == 204 else status
                )  # 204: nothing to follow, on the AI SDK's wire
                shows = "sessions" in name or name.endswith(("/messages", "/input_items", "/items", "/tasks/{task_id}"))
                assert (canary.encode() in body) is (client == "the owner" and shows), name
        assert set(found.values()) == ({200} if client == "the owner" else {404}), found
        for operation in GUARDED.values():
            if operation.path_parameters and operation.method != "GET" and client != "the owner":
                _, body, _ = await request(s, operation, headers)
                assert canary.encode() not in body
        gate.open.set()
        assert b"RUN_FINISHED" in await held.read()  # neither stopped nor deleted
        async with s.get(f"/sessions/{SESSION}", **ann) as answer:
            assert (await answer.json())["message_count"] == 2


@pytest.mark.parametrize("odd", ["a\r\nX-Odd: b", "\r", "\n", "a\0b", "\0"])
@pytest.mark.req("T06", "T10")
async def test_an_id_with_control_characters_finds_nothing_on_any_route(tmp_path, odd):
    async with keyed(tmp_path, says("hello")) as (s, holders):
        ann = holders.headers(*SCOPES, user="ann")
        await s.server.access.refresh()
        async with s.post(ask(thread=SESSION, run=RUN), **ann) as answer:
            assert b"RUN_FINISHED" in await answer.read()
        for name, operation in GUARDED.items():
            ids = [each for each in operation.path_parameters if each not in ("agent_id", "version")]
            if ids:
                status, body, headers = await request(s, operation, ann, **dict.fromkeys(ids, quote(odd, safe="")))
                assert status in (204, 400, 404, 422), (name, status, body)
                assert "X-Odd" not in headers
        async with s.get(f"/sessions/{SESSION}", **ann) as answer:
            assert (await answer.json())["message_count"] == 2


async def test_openapi_and_the_gate_say_the_same(tmp_path):
    """A01: the table is the router's own."""
    async with keyed(tmp_path, public=frozenset({"openapi"})) as (s, _):
        async with s.get("/openapi.json") as answer:
            document = await answer.json()
        assert set(document["components"]["securitySchemes"]) == {"bearer", "apiKey"}
        for path, methods in document["paths"].items():
            for method, received in methods.items():
                access = OPERATIONS[f"{method.upper()} {path}"].access
                roles = [access.scope] if access.scope else []
                open_to_all = access.kind in ("static", "open")
                assert received["security"] == ([] if open_to_all else [{"bearer": roles}, {"apiKey": roles}]), path
    async with served(settings=settings()) as s, s.get("/openapi.json") as answer:
        assert "securitySchemes" not in (await answer.json())["components"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sessions/{}"),
        ("DELETE", "/sessions/{}"),
        ("GET", "/runs/{}"),
        ("GET", "/runs/{}/events"),
        ("POST", "/runs/{}/stop"),
        ("POST", "/runs/{}/ticket"),
    ],
)
async def test_anothers_object_costs_the_same_steps_as_one_that_does_not_exist(tmp_path, method, path):
    """A48: the same answer after the same questions to the stores, so the time shows nothing. Counted, not measured."""
    async with keyed(tmp_path, says("hello")) as (s, holders):
        ann, bob = holders.headers(user="ann"), holders.headers(user="bob")
        await s.server.access.refresh()
        async with s.post(ask(thread="anns", run="anns"), **ann) as answer:
            await answer.read()
        asked = []
        for name in ("get", "read", "open", "delete", "rewind"):
            plain = getattr(s.server.store, name)

            def counted(*given, name=name, plain=plain, **more):
                asked.append(name)
                return plain(*given, **more)

            setattr(s.server.store, name, counted)
        seen = []
        for each in ("anns", "none"):
            asked.clear()
            async with s.client.request(method, s.url + path.format(each), headers=bob) as answer:
                body = (await answer.text()).replace(each, "it").replace(answer.headers["X-Request-ID"], "")
                seen.append((answer.status, body, list(asked)))
        assert seen[0] == seen[1]
