"""A real server in a test: ours on a loopback port, a scripted model behind it, a real client in front."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp
from yarl import URL

from holodeck.access.authenticator import Authenticator
from holodeck.agent.definition import AgentDefinition
from holodeck.config.agent_schema import PushBlock, RunsBlock, ServerBlock
from holodeck.config.auth_schema import AuthSettings, PublicRoute
from holodeck.config.limit_schema import RequestLimits, ServerLimits
from holodeck.core.owner import ANONYMOUS_OWNER, Owner
from holodeck.models.scripted import ScriptedModel, says
from holodeck.runs.memory_runs import MemoryRunStore
from holodeck.runs.run import Run
from holodeck.runs.run_settings import RunSettings
from holodeck.server.agent_server import AgentServer
from holodeck.server.listen import bind
from holodeck.server.options import ServerSettings
from holodeck.server.process import FLUSH_SECONDS, http_server
from holodeck.server.protocol import HttpServer
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools

PATIENCE = 45.0  # seconds for what comes at once: a guard against hanging, on any machine
_numbers = count()


@dataclass
class Served:
    """What a test talks to."""

    server: AgentServer
    http: HttpServer
    port: int
    client: aiohttp.ClientSession
    model: ScriptedModel
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, body=None, path="/awp", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body if body is not None else ask()).encode()
        return self.client.post(self.url + path, data=data, headers={"Content-Type": "application/json", **headers})

    def get(self, path, **headers):
        return self.client.get(URL(self.url + path, encoded=True), headers=headers)

    def run(self, run_id: str, owner: Owner = ANONYMOUS_OWNER) -> Run:
        return self.server.runs.get(run_id, owner=owner)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


def server_block(
    *, push_to: Sequence[str] = (), public: Sequence[PublicRoute] = ("health",), **values: Any
) -> ServerBlock:
    """The `server:` block of an agent file, also with values that a file may not have, such as a keep-alive of 20 ms."""
    runs = {name: values.pop(name) for name in RunsBlock.model_fields if name in values}
    return ServerBlock.model_construct(
        runs=RunsBlock.model_construct(**runs),
        push=PushBlock(allow_hosts=list(push_to)),
        auth=AuthSettings.model_construct(public=list(public)),
        **values,
    )


@asynccontextmanager
async def served(
    *turns,
    tools=None,
    settings: ServerSettings | None = None,
    limits: RequestLimits | None = None,
    block: ServerBlock | None = None,
    middleware=None,
    ready=True,
    store=None,
    model=None,
    agent=None,
    access: Authenticator | None = None,
    windows=None,
    leases=None,
    records=None,
    **run_settings,
) -> AsyncIterator[Served]:
    """`model` is asked instead of a scripted one that says `turns`; `agent` is served instead of a plain one."""
    if not isinstance(tools, Catalogue):
        tools = Catalogue.of(tools or PlainTools())
    model = agent.model if agent else model or ScriptedModel(turns or [says("hello there")])
    if store is None:
        records = MemoryRunStore()
        store = MemorySessionStore(on_drop=records.forget_session)
    own = block or server_block(limits=ServerLimits(request=limits or RequestLimits()))
    given = settings or ServerSettings(block=own)
    server = AgentServer(
        agent or AgentDefinition(name="tester", model=model, tools=tools, description="For tests"),
        store,
        records=records,
        settings=given,
        run_settings=RunSettings().model_copy(update=run_settings),  # tests keep less than a file may
        middleware=middleware,
        access=access,
        windows=windows,
        leases=leases,
    )
    listener = bind("127.0.0.1", 0)
    http = http_server(server)
    await http.listen([listener])
    if ready:
        await server.start()
        server.serve()
    try:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:
            yield Served(server, http, listener.getsockname()[1], client, model)
    finally:
        if server.state != "shutting_down":
            await server.drain(0)
        await http.stop(FLUSH_SECONDS)
        await server.close()
        listener.close()


async def until(condition: Callable[[], object], seconds: float = PATIENCE, what: str = "") -> None:
    """For what nothing announces. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what or condition}"
        await asyncio.sleep(0.005)


def ask(text="hi", *, thread="t1", run=None, message=None, **fields):
    number = next(_numbers)
    return {
        "threadId": thread,
        "runId": run or f"run-{number}",
        "protocolVersion": "1.0",
        "messages": [{"id": message or f"m-{number}", "role": "user", "content": text}],
        **fields,
    }


def frames(body: bytes) -> list[tuple[str | None, dict]]:
    """(id, data) of every whole SSE frame; comments left out."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if lines:
            found.append((lines.get("id"), json.loads(lines["data"])))
    return found


def types(body: bytes) -> list[str]:
    return [data["type"] for _, data in frames(body)]


async def read_to(answer: aiohttp.ClientResponse, marker: str) -> bytes:
    """Everything up to and with the frame that holds `marker`."""
    return await answer.content.readuntil(marker.encode()) + await answer.content.readuntil(b"\n\n")


class Gate:
    """A model's pause that the test opens."""

    def __init__(self):
        self.open = asyncio.Event()

    def __call__(self):
        return self.open.wait()
