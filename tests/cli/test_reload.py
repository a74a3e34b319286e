"""`holodeck serve --reload`: edits take effect, mistakes do not end the server, signals end both processes."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import psutil
import pytest

from holodeck.cli.reload import stamps
from tests.cli.process import environment
from tests.ports import free_port

PATIENCE = 100.0
AGENT = "name: {name}\nmodel: {{provider: demo}}\n"

pytestmark = pytest.mark.timeout(400)


@asynccontextmanager
async def reloading(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holodeck", "serve", "--reload", "--protocol", "rest", "--port", str(port)),
        cwd=folder,
        env=environment(folder),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        with suppress(psutil.NoSuchProcess):
            for each in [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]:
                each.kill()
        await process.wait()


async def _agent_at(url: str) -> str:
    """The name of the agent that answers; "" while none does."""
    with suppress(aiohttp.ClientError, asyncio.TimeoutError):
        async with aiohttp.ClientSession() as client, client.get(f"{url}/health") as answer:
            return str((await answer.json()).get("agent_name", ""))
    return ""


async def _until(url: str, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await _agent_at(url) != name:
            await asyncio.sleep(0.1)


async def test_an_edit_takes_effect_and_a_mistake_does_not_end_the_server(tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text(AGENT.format(name="first"))
    async with reloading(tmp_path) as (process, url):
        await _until(url, "first")
        file.write_text("name: [broken\n")
        async with asyncio.timeout(PATIENCE):
            while b"keeps running with the old file" not in await process.stderr.readline():
                pass
        assert await _agent_at(url) == "first"
        file.write_text(AGENT.format(name="second"))
        await _until(url, "second")
        children = psutil.Process(process.pid).children()
        assert children[0].environ()["HOLODECK_BANNER"] == "false", "the banner is for the first start"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
        gone, alive = psutil.wait_procs(children, timeout=PATIENCE)
        assert (len(gone), alive) == (1, [])


def test_files_of_an_agent_are_watched_and_nothing_else(tmp_path):
    for name in ("agent.yaml", "tools.py", ".env", "notes.sqlite3", ".git/config.yaml", "__pycache__/x.py", "sub/a.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert set(stamps(tmp_path)) == {"agent.yaml", "tools.py", ".env", "sub/a.md"}
