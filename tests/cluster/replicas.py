"""Real servers that share one PostgreSQL, and clients that write down every event that they get."""

import asyncio
import json
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.models.endpoint import ModelEndpoint, Wire, chunk, frame, text_frames, tool_call_frames
from tests.ports import free_port
from tests.server.forked import Forked

PATIENCE = 55.0
WORDS = "".join(f"{number} " for number in range(20)) + "end"
UNKNOWN = "whether it took effect is not known"
ALIVE = 60  # seconds: no test without a kill takes a slow server for dead
AGENT = """\
name: tester
model: {{provider: openai_compatible, name: m, api_key: none, endpoint: '{endpoint}'}}
tools: [{{name: act, type: function, file: tools.py, approval: {approval}}}]
sessions: {{store: postgres, url: '{database}', busy: {busy}}}
cluster: {{take_over_seconds: {seconds}{cluster}}}
server: {{shutdown_timeout: {drain}, runs: {{detach_grace: 60}}}}
"""
TOOLS = """\
import os, time
from holodeck.tools.port import ToolContext

def act(what: str, context: ToolContext) -> str:
    '''Acts.'''
    with open("acts", "a") as file:
        file.write(f"{context.call_id}\\n")
        file.flush()
        os.fsync(file.fileno())
    while what == "slowly" and not os.path.exists("go"):
        time.sleep(0.01)
    return "acted"
"""


class Server:
    """One of the servers. `variables` are added to its environment."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder, self.port, self.variables = folder, free_port(), variables
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: Forked | None = None

    @property
    def process(self) -> Forked:
        assert self._process is not None
        return self._process

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        words = ("serve", "--protocol", "all", "--port", str(self.port))
        self._process = await Forked.start(
            *words, folder=self.folder, environment={**os.environ, **self.variables}, stdout=DEVNULL, stderr=PIPE
        )
        async with asyncio.timeout(PATIENCE):
            await self.is_announced()

    async def is_announced(self) -> None:
        """Waits for the banner."""
        banner = b""
        assert self.process.stderr is not None
        while b"Ctrl+C" not in banner:
            line = await self.process.stderr.readline()
            assert line, banner
            banner += line

    async def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self.process.communicate()

    async def get(self, path: str) -> dict[str, Any]:
        async with aiohttp.ClientSession() as client, client.get(self.url + path) as answer:
            return {"status": answer.status, **await answer.json(content_type=None)}

    async def post(self, path: str, body: object = None, **headers: str) -> dict[str, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession() as client,
            client.post(self.url + path, json=body, headers=named) as answer,
        ):
            return {"status": answer.status, **await answer.json(content_type=None)}

    async def delete(self, path: str) -> int:
        async with aiohttp.ClientSession() as client, client.delete(self.url + path) as answer:
            return answer.status

    async def messages(self, session: str = "t") -> list[dict[str, Any]]:
        return (await self.get(f"/sessions/{session}")).get("messages", [])

    async def in_state(self, run: str, *states: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while (found := await self.get(f"/runs/{run}")).get("state") not in states:
                await asyncio.sleep(0.05)
        return found


class Client:
    """One AG-UI client that writes down every event that it gets, from whichever server."""

    def __init__(self, text: str, *, run: str, thread: str = "t", **more: Any) -> None:
        self.run_id = run
        self.events: list[dict[str, Any]] = []
        self.ids: list[int] = []
        self.times: list[float] = []  # when each event came, by the monotonic clock
        self.last_id = ""
        message = [{"id": f"m-{run}", "role": "user", "content": text}] if text else []
        self.body: dict[str, Any] = {
            "threadId": thread,
            "runId": run,
            "messages": message,
            "state": {},
            "tools": [],
            "context": [],
        }
        self.body |= {"forwardedProps": {}, **more}
        self.changed = asyncio.Event()
        self.status = 0

    async def post(self, server: Server) -> None:
        with suppress(aiohttp.ClientError, ConnectionError):
            async with (
                aiohttp.ClientSession() as client,
                client.post(server.url + "/awp", json=self.body) as answer,
            ):
                await self._read(answer)

    async def resume(self, server: Server, *, until: str = "") -> None:
        """Reads on at this server; to the end, or until this event has come."""
        headers: dict[str, str] = {"Last-Event-ID": self.last_id} if self.last_id else {}
        address = f"{server.url}/runs/{self.run_id}/events"
        async with (
            asyncio.timeout(PATIENCE),
            aiohttp.ClientSession() as client,
            client.get(address, headers=headers) as answer,
        ):
            await self._read(answer, until)

    async def _read(self, answer: aiohttp.ClientResponse, until: str = "") -> None:
        self.status = answer.status
        async for line in answer.content:
            if line.startswith(b"id: "):
                self.last_id = line[4:].strip().decode()
                self.ids.append(int(self.last_id.rpartition(":")[2]))
            if line.startswith(b"data: "):
                self.events.append(json.loads(line[6:]))
                self.times.append(time.monotonic())
                self.changed.set()
                if until and self.types[-1] == until:
                    return

    async def until(self, kind: str, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.types.count(kind) < times:
                self.changed.clear()
                await self.changed.wait()

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "TEXT_MESSAGE_CONTENT")


class Feed:
    """A reader of `GET /sessions/{id}/events`."""

    def __init__(self, server: Server, session: str, last_id: str = "") -> None:
        self.events: list[tuple[str, str]] = []  # id, if it has one, and type
        self._address = f"{server.url}/sessions/{session}/events"
        self._headers = {"Last-Event-ID": last_id} if last_id else {}
        self._changed, self._begun = asyncio.Event(), asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        await asyncio.wait_for(self._begun.wait(), PATIENCE)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        async with aiohttp.ClientSession() as client, client.get(self._address, headers=self._headers) as answer:
            assert answer.status == 200
            last_id = ""
            async for line in answer.content:
                self._begun.set()  # the first line is a comment
                if line.startswith(b"id: "):
                    last_id = line[4:].strip().decode()
                if line.startswith(b"data: "):
                    self.events.append((last_id, json.loads(line[6:])["type"]))
                    last_id = ""
                    self._changed.set()
        self.events.append(("", "END"))
        self._changed.set()

    async def until(self, kind: str, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while [each for _, each in self.events].count(kind) < times:
                self._changed.clear()
                await self._changed.wait()

    def of(self, run: str) -> list[str]:
        """The types of events of one run, in their order; no id may come twice."""
        own = [each for each in self.events if each[0].startswith(f"{run}:")]
        assert len({name for name, _ in own}) == len(own), own
        return [kind for _, kind in own]


class Pace:
    """A model that sends a word for each permission, and calls the tool if the last message asks for it."""

    def __init__(self, words: int = 20) -> None:
        self.words, self._permitted = words, asyncio.Semaphore(0)
        self.asked = 0

    def permit(self, words: int) -> None:
        for _ in range(words):
            self._permitted.release()

    async def _next(self, wire: Wire) -> bool:
        """Waits for a permission; False if the client has left, so that it takes none from the next."""
        waits = [asyncio.create_task(each) for each in (self._permitted.acquire(), wire.gone.wait())]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        return waits[0] in done and not wire.gone.is_set()

    async def __call__(self, wire: Wire) -> None:
        self.asked += 1
        messages = wire.request.json["messages"]
        await wire.head()
        last = messages[-1]
        if last["role"] == "user" and "act" in last["content"]:
            how = "slowly" if "slowly" in last["content"] else "quickly"
            await wire.send(*tool_call_frames((f"call_{len(messages)}", "act", json.dumps({"what": how}))))
        elif "slow" in str(last["content"]):
            for number in range(self.words):
                if not await self._next(wire):
                    return
                await wire.send(frame(chunk({"content": f"{number} "})))
            await wire.send(*text_frames("end"))
        else:
            await wire.send(*text_frames("all ", "is ", "well"))
        await wire.end()


@asynccontextmanager
async def replicas(
    folder: Path,
    database: str,
    respond: Any = None,
    *,
    count: int = 2,
    seconds: float = ALIVE,
    approval: str = "never",
    busy: str = "queue",
    cluster: str = "",
    drain: float = 5,
) -> AsyncIterator[list[Server]]:
    """So many servers of one agent. `cluster` are more lines of that block."""
    (folder / "tools.py").write_text(TOOLS)
    async with ModelEndpoint(respond or Pace()) as endpoint:
        text = AGENT.format(
            endpoint=endpoint.url,
            approval=approval,
            database=database,
            seconds=seconds,
            busy=busy,
            cluster=cluster,
            drain=drain,
        )
        (folder / "agent.yaml").write_text(text)
        servers = [Server(folder) for _ in range(count)]
        try:
            await asyncio.gather(*(server.start() for server in servers))
            yield servers
        finally:
            for server in servers:
                if server.runs:
                    await server.end()


async def reads_on_at_the_other(one: Server, other: Server, pace: Pace, thread: str = "t") -> None:
    """A client that changes servers in the middle gets every word once; the same request again is the same run."""
    client = Client("slow", run="r1", thread=thread)
    reading = asyncio.create_task(client.post(one))
    for server in (other, one, other):
        pace.permit(5)
        await client.until("TEXT_MESSAGE_CONTENT", client.types.count("TEXT_MESSAGE_CONTENT") + 1)
        reading.cancel()
        await asyncio.wait({reading})
        reading = asyncio.create_task(client.resume(server))
    pace.permit(5)
    await asyncio.wait_for(reading, PATIENCE)
    assert (client.types[-1], client.text) == ("RUN_FINISHED", WORDS)
    assert client.ids == sorted(set(client.ids))
    for read in (Client.resume, Client.post):
        again = Client("slow", run="r1", thread=thread)
        await asyncio.wait_for(read(again, other), PATIENCE)
        assert (again.text, pace.asked) == (WORDS, 1)


async def stops_approves_and_deletes(one: Server, other: Server, pace: Pace, folder: Path) -> None:
    """Stops a run, answers an interrupt and deletes a session, each at the server that does not have the run."""
    slow = Client("slow", run="r4", thread="stop")
    reading = asyncio.create_task(slow.post(one))
    pace.permit(1)
    await slow.until("TEXT_MESSAGE_CONTENT")
    answer = await other.post("/runs/r4/stop")
    answers = [(True, "cancelled"), (False, "running")]  # the second if it takes longer than a stop waits
    assert (answer["stopped"], answer["state"]) in answers
    await asyncio.wait_for(reading, PATIENCE)
    assert (await other.in_state("r4", "cancelled"))["status"] == 200
    again = await other.post("/runs/r4/stop")
    assert (again["stopped"], again["state"]) == (False, "cancelled")

    asking = Client("act quickly", run="r5", thread="approve")
    await asyncio.wait_for(asking.post(one), PATIENCE)
    interrupts = asking.events[-1]["outcome"]["interrupts"]
    yes = [{"interruptId": each["id"], "status": "resolved", "payload": {"approved": True}} for each in interrupts]
    answering = Client("", run="r6", thread="approve", resume=yes)
    await asyncio.wait_for(answering.post(other), PATIENCE)
    assert answering.types[-1] == "RUN_FINISHED", answering.events[-1]
    assert len((folder / "acts").read_text().split()) == 1

    doomed = Client("slow", run="r7", thread="delete")
    reading = asyncio.create_task(doomed.post(one))
    pace.permit(1)
    await doomed.until("TEXT_MESSAGE_CONTENT")
    assert await other.delete("/sessions/delete") == 204
    await asyncio.wait_for(reading, PATIENCE)
    for server in (one, other):
        assert (await server.get("/sessions/delete"))["status"] == 404

    ended = Client("hello", run="r8", thread="delete")
    await asyncio.wait_for(ended.post(one), PATIENCE)
    assert await other.delete("/sessions/delete") == 204
    for server in (one, other):
        for path in ("/sessions/delete", "/runs/r8", "/runs/r8/events"):
            assert (await server.get(path))["status"] == 404, path
