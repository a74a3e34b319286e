"""The application under a server that is not ours, and mounted inside another application."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from yarl import URL

from holodeck import Agent, create_app
from holodeck.agent.definition import AgentDefinition
from holodeck.config.limit_schema import RequestLimits, ServerLimits
from holodeck.core.owner import ANONYMOUS_OWNER
from holodeck.errors import InvalidRequest, StartError
from holodeck.models.scripted import ScriptedModel, says
from holodeck.server.agent_server import AgentServer
from holodeck.server.app import Application
from holodeck.server.listen import bind
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.server.serving import Gate, ask, frames, read_to, server_block, until


def agent_server(*turns, **values) -> AgentServer:
    model = ScriptedModel(turns or [says("hello there")])
    agent = AgentDefinition(name="tester", model=model, tools=Catalogue.of(PlainTools()))
    settings = ServerSettings(protocols=tuple(WIRES), block=server_block(**values))
    return AgentServer(agent, MemorySessionStore(), settings=settings)


@asynccontextmanager
async def stock_uvicorn(app, **config):
    """uvicorn as anyone starts it, with its own protocol class and with `lifespan`."""
    listener = bind("127.0.0.1", 0)
    http = uvicorn.Server(uvicorn.Config(app, log_config=None, **{"lifespan": "on", **config}))
    http.install_signal_handlers = lambda: None
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    await until(lambda: http.started or serving.done())
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            yield client
    finally:
        http.should_exit = True
        await serving
        listener.close()


async def post(client, path, body):
    async with client.post(path, json=body) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("http", ["httptools", "h11"])
async def test_stock_uvicorn_starts_serves_and_stops_the_agent(http):
    server = agent_server()
    async with stock_uvicorn(Application(server), http=http) as client:
        assert server.state == "running"
        status, body = await post(client, "/awp", ask())
        assert (status, b"RUN_FINISHED" in body) == (200, True)
        status, body = await post(client, "/agent/tester/chat", {"message": "hi"})
        assert json.loads(body)["content"] == "hello there"
        status, body = await post(client, "/chat/stream", {"input": "hi"})
        assert body.rstrip().rpartition(b"event: ")[2].startswith(b"done")
        async with client.get("/nowhere") as answer:
            assert (answer.status, answer.content_type) == (404, "application/problem+json")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect("/v1/responses")
        assert refused.value.status == 403
    assert server.state == "stopped"


async def test_a_client_that_leaves_is_noticed():
    gate = Gate()
    server = agent_server(says("a b", pause=gate))
    async with stock_uvicorn(Application(server)) as client:
        answer = await client.post("/awp", json=ask(run="r"))
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        (run,) = server.runs.active
        answer.close()
        await until(lambda: run.readers == 0)
        gate.open.set()


async def status_of(app, method, path, *pieces):
    """Calls the application as a server does that passes on a body at any time."""
    left = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    left[-1]["more_body"] = False
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers.append((b"content-length", b"%d" % sum(map(len, pieces))))
    scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": b""}
    statuses = []

    async def receive():
        return left.pop(0) if left else await asyncio.Event().wait()

    async def send(message):
        statuses.append(message.get("status"))

    await app({**scope, "headers": headers}, receive, send)
    return statuses[0]


async def test_a_body_that_arrives_during_the_answer_is_not_counted():
    """A stream reads it to notice a disconnect. It was counted for ever: in the end all large bodies got 503."""
    server = agent_server(says("a"), says("b"), limits=ServerLimits(request=RequestLimits(max_bodies_mb=2)))
    app, request = Application(server), json.dumps(ask(run="r")).encode()
    async with server.running():
        assert await status_of(app, "POST", "/awp", request) == 200
        assert await status_of(app, "GET", "/runs/r/events", *[b" " * 260_000] * 4) == 200
        assert await status_of(app, "POST", "/awp", b" " * 1_040_000, json.dumps(ask()).encode()) == 200


async def test_mounted_in_another_application():
    server = agent_server()

    @asynccontextmanager
    async def lifespan(_app):
        async with server.running():
            yield

    async def own(_request):
        return PlainTextResponse("mine")

    outer = Starlette(routes=[Route("/", own), Mount("/agents/one", Application(server))], lifespan=lifespan)
    async with stock_uvicorn(outer) as client:
        async with client.get("/") as answer:
            assert await answer.text() == "mine"
        status, body = await post(client, "/agents/one/awp", ask(thread="a/b", run="r"))
        assert (status, b"RUN_FINISHED" in body) == (200, True)
        for path in ("/agents/one/runs/r", "/agents/one/sessions/a%2Fb", "/agents/one/health"):
            async with client.get(path) as answer:
                assert answer.status == 200, path
        async with client.get("/agents/one/nowhere") as answer:
            assert answer.status == 404
    assert server.state == "stopped"


async def test_a_mount_with_a_parameter_writes_nothing_of_the_client_into_a_page():
    inner = create_app(Agent("demo", name="one"), protocols="all")
    outer = Starlette(routes=[Mount("/agents/{name}", inner)], lifespan=inner.lifespan)
    async with stock_uvicorn(outer) as client:
        async with client.get(URL("/agents/%22%3E%3Cb%3Ehi/docs", encoded=True)) as answer:
            page = await answer.text()
        async with client.get("/agents/one/docs") as answer:
            assert 'src="/agents/one/docs/docs.js"' in await answer.text()
    assert "<b>" not in page
    assert 'data-root="/agents/%22%3E%3Cb%3Ehi' in page


async def test_a_start_that_fails_is_reported_to_the_server(caplog):
    class Broken(PlainTools):
        async def start(self):
            raise StartError("The tool server cannot be reached.")

    server = AgentServer(
        AgentDefinition(name="tester", model=ScriptedModel([]), tools=Catalogue.of(Broken())), MemorySessionStore()
    )
    sent = []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(message):
        sent.append(message)

    with pytest.raises(StartError):
        await Application(server)({"type": "lifespan"}, receive, send)
    assert sent == [{"type": "lifespan.startup.failed", "message": "The tool server cannot be reached."}]


async def test_an_agent_is_mounted_in_fastapi():
    """Its own routes, its own documentation and the agent's stand side by side; `lifespan` starts and stops the agent."""
    fastapi = pytest.importorskip("fastapi")
    inner = create_app(Agent(ScriptedModel([says("Hello there")]), name="one"), protocols=["rest", "ag-ui"])
    outer = fastapi.FastAPI(lifespan=inner.lifespan)
    outer.mount("/agents", inner)

    @outer.get("/mine")
    async def mine() -> dict[str, str]:
        return {"is": "mine"}

    async with stock_uvicorn(outer) as client:
        status, body = await post(client, "/agents/agent/one/chat", {"message": "hi"})
        assert (status, json.loads(body)["content"]) == (200, "Hello there")
        async with client.post("/agents/awp", json=ask("hi")) as answer:
            assert frames(await answer.read())[-1][1]["type"] == "RUN_FINISHED"
        async with client.get("/mine") as answer:
            assert await answer.json() == {"is": "mine"}
        for path, own in (("/openapi.json", "/mine"), ("/agents/openapi.json", "/awp")):
            async with client.get(path) as answer:
                assert own in (await answer.json())["paths"]


@pytest.mark.parametrize("kind", ["file", "agent"])
async def test_an_agent_is_mounted_in_three_lines(kind, tmp_path):
    (tmp_path / "agent.yaml").write_text("name: one\nmodel: {provider: demo}\nsessions: {store: memory}\n")
    store = MemorySessionStore()
    agent = tmp_path if kind == "file" else Agent(ScriptedModel([says("Hello there")]), name="one", store=store)
    inner = create_app(agent, protocols=["rest"])
    outer = Starlette(routes=[Mount("/agents", inner)], lifespan=inner.lifespan)
    async with stock_uvicorn(outer) as client:
        status, body = await post(client, "/agents/agent/one/chat", {"message": "hi"})
        assert (status, "Hello" in json.loads(body)["content"]) == (200, True)
        if kind == "agent":
            assert await store.get(json.loads(body)["session_id"], owner=ANONYMOUS_OWNER)
        async with client.get("/agents/awp") as answer:
            assert answer.status == 404
    with pytest.raises(InvalidRequest, match=r"protocols must name all, or at least one of ag-ui, .*, not soap"):
        create_app(agent, protocols=["soap"])


async def test_an_agent_whose_lifespan_is_not_passed_on_says_so():
    outer = Starlette(routes=[Mount("/agents", create_app(Agent("demo", name="one"), protocols="all"))])
    async with stock_uvicorn(outer) as client:
        status, body = await post(client, "/agents/chat/stream", {"input": "hi"})
        assert status == 503
        assert json.loads(body)["detail"].startswith("The agent was not started: the application that mounts it has to")


async def test_the_keys_of_the_file_hold_in_a_mounted_application(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: one\nmodel: {provider: demo}\nserver: {auth: {mode: api_key}}\n")
    (tmp_path / ".env").write_text(f"HOLODECK_API_KEY={'k' * 40}\n")
    inner = create_app(tmp_path, protocols=["rest"])
    outer = Starlette(routes=[Mount("/agents", inner)], lifespan=inner.lifespan)
    async with stock_uvicorn(outer) as client:
        for headers, expected in (({}, 401), ({"Authorization": f"Bearer {'k' * 40}"}, 200)):
            async with client.post("/agents/agent/one/chat", json={"message": "hi"}, headers=headers) as answer:
                assert answer.status == expected
