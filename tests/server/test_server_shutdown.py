"""How the process ends when something in it does not want to, and when its terminal goes away."""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest

from tests.models.endpoint import ModelEndpoint, text_stream, tool_call_stream
from tests.ports import free_port
from tests.server.serving import PATIENCE, ask, frames, read_to
from tests.server.test_server_process import AGENT, Process, holodeck, never_ends, talks_for_ever

STUBBORN = '''
import asyncio

async def stubborn() -> str:
    """Never ends."""
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
'''


@pytest.mark.req("SRV-20")
@pytest.mark.parametrize("when", ["after the call", "within the call"])
async def test_a_tool_that_swallows_its_cancellation_does_not_keep_the_process(tmp_path, when):
    seconds = 0.1 if when == "after the call" else 600
    (tmp_path / "tools.py").write_text(STUBBORN)
    async with ModelEndpoint(tool_call_stream(("c1", "stubborn", "{}")), text_stream("It hangs.")) as endpoint:
        agent = (
            talks_for_ever(endpoint, 0.2)
            + f"tools: [{{name: stubborn, type: function, file: tools.py, timeout: {seconds}}}]\n"
        )
        async with holodeck(tmp_path, agent=agent) as server, aiohttp.ClientSession() as client:
            await server.until_ready()
            async with client.post(server.url + "/awp", json=ask("Hello")) as answer:
                begun = await read_to(answer, "RUN_FINISHED" if when == "after the call" else "TOOL_CALL_END")
                server.process.send_signal(signal.SIGTERM)
                events = frames(begun + await answer.read())
            assert events[-1][1]["type"] == ("RUN_FINISHED" if when == "after the call" else "RUN_ERROR")
            assert await server.exit_code() == 0


@asynccontextmanager
async def in_a_terminal(folder, agent, disposition):
    """A server whose SIGHUP is as its terminal, or `nohup`, left it; the handler of the test process does not matter."""
    (folder / "agent.yaml").write_text(agent)
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holodeck", "serve", "--port", str(port)),
        cwd=folder,
        stdout=DEVNULL,
        stderr=PIPE,
        preexec_fn=partial(signal.signal, signal.SIGHUP, disposition),
    )
    server = Process(process, port)
    try:
        await server.until_ready()
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.req("SRV-20")
async def test_a_terminal_that_is_closed_drains_like_a_stop(tmp_path):
    async with (
        ModelEndpoint(never_ends) as endpoint,
        in_a_terminal(tmp_path, talks_for_ever(endpoint, 0.2), signal.SIG_DFL) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as client,
    ):
        async with client.post(server.url + "/awp", json=ask("Hello")) as answer:
            begun = await read_to(answer, "TEXT_MESSAGE_CONTENT")
            server.process.send_signal(signal.SIGHUP)
            ending = frames(begun + await answer.read())[-1][1]
        assert (ending["type"], ending["code"]) == ("RUN_ERROR", "shutting-down")
        assert await server.exit_code() == 0


@pytest.mark.req("SRV-20")
async def test_under_nohup_a_closed_terminal_changes_nothing(tmp_path):
    async with in_a_terminal(tmp_path, AGENT, signal.SIG_IGN) as server, aiohttp.ClientSession() as client:
        server.process.send_signal(signal.SIGHUP)
        async with client.get(server.url + "/health") as answer:
            assert answer.status == 200
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
