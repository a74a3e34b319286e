"""What a request cannot choose: a program to run here, the model that is asked, its key, and where the client's own key is sent."""

import json
from uuid import uuid4

import pytest

from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.models.endpoint import ModelEndpoint, text_stream, tool_call_stream
from tests.processes import NewChildren
from tests.server.serving import ask, served
from tests.tools.mcp.rogue_http import rogue_http

EVERY_WIRE = ServerSettings(protocols=tuple(WIRES))


def ui_body(**fields):
    message = {"id": uuid4().hex, "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    return {"id": uuid4().hex, "messages": [message], **fields}


def a2a_message(**fields):
    return {"messageId": uuid4().hex, "role": "user", "parts": [{"kind": "text", "text": "hi"}], **fields}


def a2a_call(params):
    return {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}


def mcp_call(params):
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", **params}}


PLACES = {  # where a request could hide something: address, and the body around it
    "AG-UI": ("/awp", lambda hidden: ask(**hidden)),
    "AG-UI, properties": ("/awp", lambda hidden: ask(forwardedProps=hidden)),
    "AG-UI, a frontend tool": ("/awp", lambda hidden: ask(tools=[{"name": "evil", "description": "", **hidden}])),
    "AG-UI, a message": ("/awp", lambda hidden: ask(messages=[{"id": "m", "role": "user", "content": "hi", **hidden}])),
    "CopilotKit": ("/copilotkit/agent/tester/run", lambda hidden: ask(**hidden)),
    "REST": ("/agent/tester/chat", lambda hidden: {"message": "hi", **hidden}),
    "REST stream": ("/agent/tester/chat/stream", lambda hidden: {"message": "hi", **hidden}),
    "chat-stream": ("/chat/stream", lambda hidden: {"input": "hi", **hidden}),
    "AI SDK": ("/ai-sdk/chat", lambda hidden: ui_body(**hidden)),
    "AI SDK, a message": ("/ai-sdk/chat", lambda hidden: ui_body(messages=[{**ui_body()["messages"][0], **hidden}])),
    "A2A": ("/a2a", lambda hidden: a2a_call({"message": a2a_message(**hidden)})),
    "A2A, beside the message": ("/a2a", lambda hidden: a2a_call({"message": a2a_message(), **hidden})),
    "MCP": ("/mcp", lambda hidden: mcp_call({"arguments": {"message": "hi", **hidden}})),
    "MCP, beside the arguments": ("/mcp", lambda hidden: mcp_call({"arguments": {"message": "hi"}, **hidden})),
    "OpenAI Responses": ("/v1/responses", lambda hidden: {"input": "hi", **hidden}),
    "OpenAI Responses, an item": (
        "/v1/responses",
        lambda hidden: {"input": [{"type": "message", "role": "user", "content": "hi", **hidden}]},
    ),
    "OpenAI": ("/v1/chat/completions", lambda hidden: {"messages": [{"role": "user", "content": "hi"}], **hidden}),
}
SERVER_WORDS = {
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "transport",
    "mcpServers",
    "mcp_servers",
    "tool_servers",
}
MODEL_WORDS = (
    "api_base", "apiBase", "base_url", "baseUrl", "baseURL", "endpoint", "url", "host", "proxy", "proxies", "azure_endpoint",
    "api_key", "apiKey", "key", "token", "authorization", "Authorization", "openai_api_key", "organization", "project",
    "model", "modelName", "model_name", "models", "provider", "model_provider", "fallback", "fallbacks", "litellm_params",
    "extra_headers", "extraHeaders", "headers", "default_headers", "extra_body", "extraBody", "extra_query", "client",
    "config", "configuration", "llm", "llm_config", "provider_options", "openai",
)  # fmt: skip


def agent_of(folder, endpoint, **more):
    model = {"provider": "openai_compatible", "name": "m", "endpoint": endpoint.url, "api_key": "ours"}
    (folder / "agent.yaml").write_text(json.dumps({"name": "tester", "model": model, **more}))
    return build_agent(load_config(folder / "agent.yaml"))


async def posted(s, place, hidden, **headers):
    path, around = PLACES[place]
    async with s.post(around(hidden), path, **headers) as answer:
        received = await answer.read()
        assert answer.status in {200, 400, 404, 422}, (place, hidden, received)
        return received


def named(schema, known):
    """All names that an object may have, references followed."""
    if isinstance(schema, list):
        return set().union(*(named(each, known) for each in schema))
    if not isinstance(schema, dict):
        return set()
    if "$ref" in schema:
        return named(known[schema["$ref"].rpartition("/")[2]], known)
    inner = [named(value, known) for key, value in schema.items() if key not in {"example", "examples", "default"}]
    return set(schema.get("properties", ())).union(*inner)


@pytest.mark.req("T01")
async def test_no_request_describes_a_server_to_start():
    async with served(settings=EVERY_WIRE) as s, s.get("/openapi.json") as answer:
        document = await answer.json()
    known = document["components"]["schemas"]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    taken = set().union(*(named(operation.get("requestBody", {}), known) for operation in operations))
    taken |= {parameter["name"] for operation in operations for parameter in operation.get("parameters", ())}
    assert {"messages", "message", "input", "interrupt_id", "run_id"} <= taken  # it looked everywhere
    assert taken & SERVER_WORDS == set()


@pytest.mark.req("T01")
@pytest.mark.parametrize("place", PLACES)
async def test_a_command_in_a_request_is_never_run(tmp_path, place):
    marker = tmp_path / "begun"
    server = {"command": "touch", "args": [str(marker)], "env": {"A": "b"}, "cwd": str(tmp_path), "transport": "stdio"}
    wishes = [
        server,
        {"mcpServers": {"evil": server}},
        {"mcp_servers": [{"name": "evil", **server}]},
        {"tools": [server]},
    ]
    async with (
        ModelEndpoint(text_stream("fine")) as endpoint,
        served(agent=agent_of(tmp_path, endpoint), settings=EVERY_WIRE) as s,
    ):
        children = NewChildren()
        for wish in wishes:
            await posted(s, place, wish)
        assert children.now() == []
        assert endpoint.requests
    assert not marker.exists()


@pytest.mark.req("T02")
@pytest.mark.parametrize("place", PLACES)
async def test_no_member_of_a_request_chooses_the_model_or_its_key(tmp_path, place):
    async with (
        ModelEndpoint(text_stream("evil")) as canary,
        ModelEndpoint(text_stream("fine")) as endpoint,
        served(agent=agent_of(tmp_path, endpoint), settings=EVERY_WIRE) as s,
    ):
        for word in MODEL_WORDS:
            for value in (canary.url, {"base_url": canary.url, "api_key": "theirs", "Authorization": "Bearer theirs"}):
                assert b"evil" not in await posted(s, place, {word: value}, Authorization="Bearer theirs")
        assert canary.connections == 0
        assert endpoint.requests
        assert {asked.headers["authorization"] for asked in endpoint.requests} == {"Bearer ours"}
        assert {asked.json["model"] for asked in endpoint.requests} == {"m"}
        assert not any("theirs" in str(asked.headers) for asked in endpoint.requests)


@pytest.mark.req("T13")
@pytest.mark.parametrize("place", PLACES)
async def test_the_clients_own_credentials_reach_neither_model_nor_tool_server(tmp_path, place):
    secret = "CANARY-7f3a"
    own = {"Authorization": f"Bearer {secret}", "Cookie": f"session={secret}", "X-Api-Key": secret}
    called = tool_call_stream(("c1", "echo", "{}"))
    async with rogue_http() as tools, ModelEndpoint(called, text_stream("fine")) as endpoint:
        web = {"name": "web", "type": "mcp", "url": tools.url, "headers": {"X-Ours": "yes"}, "include": ["echo"]}
        async with served(agent=agent_of(tmp_path, endpoint, tools=[web]), settings=EVERY_WIRE) as s:
            assert b"fine" in await posted(s, place, {}, **own)
        assert "POST tools/call echo" in tools.journal
        assert {headers["x-ours"] for headers in tools.headers} == {"yes"}
        seen = [*tools.headers, *tools.bodies, *((asked.headers, asked.body) for asked in endpoint.requests)]
        assert secret not in str(seen)
