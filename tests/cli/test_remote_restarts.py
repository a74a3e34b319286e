"""`holodeck chat --url` through crashes and restarts of a real server, and lost connections: nothing is asked twice."""

import asyncio
import json
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from holodeck.cli.conversation.remote_run import LOST, ReconnectLimits, RemoteRun
from holodeck.cli.conversation.remote_server import RemoteServer
from holodeck.core.events import Event, RunFailed, WarningRaised
from holodeck.models.scripted import says
from holodeck.server.options import ServerSettings
from tests.cli.chatting import TOOLS, TOOLS_FILE, chat
from tests.cli.fake_model import FakeModel
from tests.cli.process import Result, environment, holodeck
from tests.cli.vt import Terminal
from tests.ports import free_port
from tests.server.forked import Forked
from tests.server.serving import Gate, served, until

PATIENCE = 60.0
SERVER = "server: {shutdown_timeout: 0}\n"


class Restarts:
    """A server that a test ends and starts again, on one port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: Forked | None = None

    async def start(self) -> None:
        words = ("serve", "--port", str(self.port))
        known = environment(self.folder)
        self.process = await Forked.start(*words, folder=self.folder, environment=known, stdout=DEVNULL, stderr=PIPE)
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            banner = b""
            while b"Ctrl+C" not in banner:
                line = await self.process.stderr.readline()
                assert line, banner
                banner += line

    async def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self.process.communicate()
        self.process = None

    async def messages(self, session: str) -> list[dict]:
        async with aiohttp.ClientSession() as client, client.get(f"{self.url}/sessions/{session}") as answer:
            return (await answer.json())["messages"]


@asynccontextmanager
async def restarting(folder: Path, more: str = "") -> AsyncIterator[tuple[FakeModel, Restarts]]:
    async with FakeModel() as model:
        (folder / "tools.py").write_text(TOOLS_FILE)
        model.agent(folder, TOOLS + SERVER + more)
        server = Restarts(folder)
        await server.start()
        try:
            yield model, server
        finally:
            if server.process is not None:
                await server.end(signal.SIGKILL)


@asynccontextmanager
async def half_answered(model: FakeModel, server: Restarts, folder: Path) -> AsyncIterator[Terminal]:
    """A chat that shows the beginning of an answer."""
    async with chat(folder, "--session", "t", "--url", server.url) as terminal:
        await terminal.prompt()
        terminal.enter("tell me")
        model.say("Once upon")
        await terminal.wait_for("Once upon")
        yield terminal


async def asked(folder: Path, server: Restarts, *arguments: str) -> Result:
    return await asyncio.to_thread(holodeck, "chat", "--url", server.url, "--session", "t", *arguments, folder=folder)


async def test_an_answer_continues_after_a_crash_of_the_server(tmp_path: Path) -> None:
    async with restarting(tmp_path) as (model, server), half_answered(model, server, tmp_path) as terminal:
        await server.end(signal.SIGKILL)
        await terminal.wait_for(f"! The connection to {server.url} was lost; reconnecting.")
        await model.left.wait()
        await server.start()
        model.say("The whole tale.")
        model.end()
        await terminal.wait_for("The server was restarted in the middle of this run; it continues.")
        await terminal.wait_for("The whole tale.")
        await terminal.prompt()
        assert terminal.text.count("reconnecting") == 1
        assert [[each["role"] for each in prompt].count("user") for prompt in model.prompts] == [1, 1]


async def test_an_answer_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    async with restarting(tmp_path) as (model, server):
        model.say("Once upon")
        answer = asyncio.create_task(asked(tmp_path, server, "--json", "tell me"))
        async with asyncio.timeout(PATIENCE):
            while not model.prompts:
                await asyncio.sleep(0.01)
        await server.end(signal.SIGTERM)
        await server.start()
        model.say("The whole tale.")
        model.end()
        result = await answer
        kinds = [json.loads(line)["type"] for line in result.out.splitlines()]
        assert (result.code, kinds[-1], kinds.count("RunFailed")) == (0, "RunFinished", 0), result
        assert [kind for kind in kinds if kind in ("RunStarted", "WarningRaised")] == [
            "RunStarted",
            "WarningRaised",
            "RunStarted",
        ]
        stored = await server.messages("t")
        assert [each["role"] for each in stored].count("user") == 1
        assert stored[-1]["content"] == "The whole tale."


async def test_a_stopped_tool_is_not_continued_without_the_user(tmp_path: Path) -> None:
    async with restarting(tmp_path) as (model, server):
        model.call("slow", {"what": "it"})
        model.end("tool_calls")
        answer = asyncio.create_task(asked(tmp_path, server, "use it"))
        async with asyncio.timeout(PATIENCE):
            while not (tmp_path / "begun").exists():
                await asyncio.sleep(0.01)
        await server.end(signal.SIGTERM)
        result = await answer
        await server.start()
        for again in (("--session", "t", "--url", server.url), ("--resume", "t")):
            async with chat(tmp_path, *again) as terminal:
                await terminal.prompt()
                assert "(slow: no result was stored, and whether it took effect is not known;" in terminal.text
    assert (result.code, len(model.prompts)) == (4, 1)
    assert "whether the call took effect is not known. Send a message to continue." in result.err
    assert "reconnecting" not in result.err


async def test_after_a_crash_in_a_tool_no_retry_is_offered(tmp_path: Path) -> None:
    """`/retry` may make the call a second time."""
    async with restarting(tmp_path) as (model, server):
        model.call("slow", {"what": "it"})
        model.end("tool_calls")
        async with chat(tmp_path, "--session", "t", "--url", server.url, columns=200) as terminal:
            await terminal.prompt()
            terminal.enter("use it")
            async with asyncio.timeout(PATIENCE):
                while not (tmp_path / "begun").exists():
                    await asyncio.sleep(0.01)
            await server.end(signal.SIGKILL)
            await terminal.wait_for("reconnecting")
            await server.start()
            await terminal.wait_for("whether the call took effect is not known. Send a message to continue.")
            await terminal.prompt()
            assert "/retry" not in terminal.text


async def test_a_server_without_a_memory_of_the_run_is_named(tmp_path: Path) -> None:
    kept = "sessions: {store: memory}\n"
    async with restarting(tmp_path, kept) as (model, server), half_answered(model, server, tmp_path) as terminal:
        await server.end(signal.SIGKILL)
        await terminal.wait_for("reconnecting")
        await server.start()
        await terminal.wait_for("The server was restarted and no longer has this conversation")
        await terminal.prompt()
        assert len(model.prompts) == 1
        await model.left.wait()
        model.say("A new tale.")
        model.end()
        terminal.enter("tell me again")
        await terminal.wait_for("A new tale.")
        await terminal.prompt()
        assert terminal.text.count("no longer has this conversation") == 1


async def test_ctrl_c_ends_the_attempts_and_retry_asks_again(tmp_path: Path) -> None:
    async with restarting(tmp_path) as (model, server), half_answered(model, server, tmp_path) as terminal:
        await server.end(signal.SIGKILL)
        await terminal.wait_for("reconnecting")
        terminal.interrupt()
        await terminal.wait_for("(stopped)")
        await terminal.prompt()
        await model.left.wait()
        await server.start()
        model.say("Another tale.")
        model.end()
        terminal.enter("/retry")
        await terminal.wait_for("Another tale.")
        await terminal.prompt()
        stored = await server.messages("t")
    assert [each["content"] for each in stored] == ["tell me", "Another tale."]


async def test_a_lost_connection_continues_after_the_last_event(tmp_path: Path) -> None:
    gate = Gate()
    async with served(says("one two three", pause=gate), settings=ServerSettings(protocols=("ag-ui",))) as s:
        waiting = asyncio.create_task(asyncio.to_thread(holodeck, "chat", "--url", s.url, "hi", folder=tmp_path))
        await until(lambda: any(len(run.log) > 3 for run in s.server.runs.active))
        (run,) = s.server.runs.active
        assert (run.readers, run.returning) == (1, 1)  # so that a server that stops leaves the run to another one
        for connection in list(s.http.connections):
            connection.transport.abort()
        gate.open.set()
        result = await waiting
        assert len(s.model.prompts) == 1
    assert (result.code, result.out.split()) == (0, ["one", "two", "three"])
    assert result.err == f"! The connection to {s.url} was lost; reconnecting. Ctrl+C stops.\n"


async def test_a_client_that_gives_up_says_how_to_continue() -> None:
    url, shown, waits = f"http://127.0.0.1:{free_port()}", list[Event](), list[str]()
    server = RemoteServer(url, None)
    run = RemoteRun(
        server,
        "t",
        content="hi",
        emit=shown.append,
        wait_for=waits.append,
        reconnect=ReconnectLimits(delays=(0.0, 0.01), seconds=0.05),
    )
    ending = await run.ending()
    await server.close()
    assert isinstance(ending, RunFailed)
    assert (shown[-1], ending.code, set(waits)) == (ending, LOST, {"reconnecting"})
    assert [event for event in shown if isinstance(event, WarningRaised)] == shown[:1]
    assert f"`holodeck chat --url {url} --session t` continues the conversation." in ending.message
