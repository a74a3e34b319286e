"""An agent with scripted answers, served over a real socket for a real browser."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from holodeck.access.authenticator import Authenticator
from holodeck.agent.definition import AgentDefinition
from holodeck.agent.settings import StateSettings
from holodeck.core.tools import Approval, ToolSchema
from holodeck.models.scripted import ScriptedModel, Turn, says
from holodeck.runs.port import RunStore
from holodeck.runs.run_settings import RunSettings
from holodeck.server.agent_server import AgentServer
from holodeck.server.listen import bind
from holodeck.server.options import ServerSettings
from holodeck.server.process import http_server
from holodeck.server.protocol import HttpServer
from holodeck.sessions.memory import MemorySessionStore
from holodeck.sessions.port import SessionStore
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.functions import FunctionTool, FunctionToolset
from holodeck.tools.port import ToolsetHealth
from tests.ports import free_port


async def get_weather(city: str) -> dict[str, Any]:
    """The weather of a city, as it is now."""
    return {"city": city, "celsius": 4 if city == "Oslo" else 22}


async def broken() -> str:
    """Never works."""
    raise OSError("the disk is full")


async def delete_file(name: str) -> str:
    """Deletes a file. Asks before it does."""
    return f"{name} is deleted"


class PlaygroundTools(FunctionToolset):
    """Three functions. Deleting needs a person's approval; `down` is a tool server that is not available."""

    down: tuple[ToolsetHealth, ...] = ()

    def __init__(self) -> None:
        super().__init__([FunctionTool.of(function) for function in (get_weather, broken, delete_file)])

    def schemas(self) -> Sequence[ToolSchema]:
        return [_asking(each) if each.name == "delete_file" else each for each in super().schemas()]

    def health(self) -> Sequence[ToolsetHealth]:
        return self.down


def _asking(schema: ToolSchema) -> ToolSchema:
    return ToolSchema(
        name=schema.name, description=schema.description, parameters=schema.parameters, approval=Approval.ALWAYS
    )


class Tap:
    """A model's pause that lets a given number of pieces through, then waits for more to be granted."""

    def __init__(self, granted: int = 0) -> None:
        self._granted, self._more = granted, asyncio.Event()

    def grant(self, pieces: int) -> None:
        self._granted += pieces
        self._more.set()

    async def __call__(self) -> None:
        while self._granted <= 0:
            self._more.clear()
            await self._more.wait()
        self._granted -= 1
        await asyncio.sleep(0)


@dataclass
class PlaygroundServer:
    server: AgentServer
    port: int
    model: ScriptedModel
    tools: PlaygroundTools
    http: HttpServer
    _end: Callable[[], Any] = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def cut(self) -> None:
        """The network fails for a moment: every connection breaks, the runs continue."""
        for connection in list(self.http.connections):
            connection.transport.abort()

    async def end(self) -> None:
        """Stops the server, as in a restart."""
        await self._end()


def counting(first: int, last: int, **fields: Any) -> Turn:
    """A reply of numbers: a lost or doubled piece shows."""
    return Turn(text=[f"{number} " for number in range(first, last)], **fields)


def counted(first: int, last: int) -> str:
    return " ".join(str(number) for number in range(first, last))


@cache
def one_port() -> int:
    """The same for all tests: a browser that has loaded the page once need not load it again."""
    return free_port()


@asynccontextmanager
async def serving_page(
    *turns: Turn,
    state: Any = None,
    port: int | None = None,
    ready: bool = True,
    store: SessionStore | None = None,
    records: RunStore | None = None,
    access: Authenticator | None = None,
    settings: ServerSettings | None = None,
    **runs: Any,
) -> AsyncIterator[PlaygroundServer]:
    model, tools = ScriptedModel(turns or [says("Hello there.")]), PlaygroundTools()
    agent = AgentDefinition(
        name="stage",
        description="Plays what a test wrote down.",
        model=model,
        tools=Catalogue.of(tools),
        state=None if state is None else StateSettings(initial=state),
    )
    server = AgentServer(
        agent,
        store or MemorySessionStore(),
        records=records,
        settings=settings or ServerSettings(),
        run_settings=RunSettings(**runs),
        access=access,
    )
    listener = bind("127.0.0.1", one_port() if port is None else port)
    http = http_server(server)
    await http.listen([listener])
    ended = False

    async def end() -> None:
        nonlocal ended
        if not ended:
            ended = True
            await server.drain(0)
            await http.stop(0)  # connections of a browser are not waited for
            await server.close()
            listener.close()

    if ready:
        await server.start()
        server.serve()
    try:
        yield PlaygroundServer(server, listener.getsockname()[1], model, tools, http, end)
    finally:
        await end()


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """For what nothing announces. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {condition}"
        await asyncio.sleep(0.005)
