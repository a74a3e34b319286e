"""`holodeck serve` in a process of its own, seen from outside: its answers, its log, and what /proc knows of it.

Deadlines are short here, so that a fault of a minute takes a second. Nothing looks inside the process.
"""

import asyncio
import copy
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import aiohttp
import psutil
import yaml

from tests.ports import free_port

AGENT = "tester"
ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
PATIENCE = 20.0  # seconds for what comes at once: a guard against hanging, on any machine
Config = dict[str, Any]

CONFIG: Config = {
    "name": AGENT,
    "model": {"provider": "openai_compatible", "name": "m", "api_key": "none", "timeout": 2.0},
    "instructions": "Be brief.",
    "loop": {"max_iterations": 5, "iteration_timeout": 120},
    "sessions": {"store": "memory", "max_mb": 64},
    "server": {
        "keepalive": 1,
        "shutdown_timeout": 0.3,
        "runs": {"detach_grace": 0.6, "replay_window": 30, "stall_timeout": 1, "max_concurrent": 5000},
    },
    "circuit_breakers": {"model": {"failure_threshold": 1000}, "mcp": {"failure_threshold": 1000}},
}


def config(endpoint: str, **changes: Any) -> Config:
    """The agent file with another endpoint; a change that is a block changes only the keys that it names."""
    made = copy.deepcopy(CONFIG)
    made["model"]["endpoint"] = endpoint
    _merge(made, changes)
    return made


def _merge(into: Config, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


async def until(condition: Callable[[], object], seconds: float = PATIENCE, what: str = "") -> None:
    """For what nothing announces: another process's memory, files and death."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what or condition}")
        await asyncio.sleep(0.01)


class ServerProcess:
    """One server that runs."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, folder: Path) -> None:
        self.process, self.port, self.folder = process, port, folder
        self.system = psutil.Process(process.pid)
        self.idle_fds = 0
        self.children: set[int] = set()
        self._log = folder / "log.jsonl"
        self._read = 0
        self._endings: dict[str, int] = {}  # request id → lines that report the end of a run
        self._blocks: list[tuple[float, str]] = []
        self._starved = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def get(self, path: str) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
            client.get(self.url + path) as answer,
        ):
            return answer.status, await answer.json(content_type=None)

    async def answers(self) -> bool:
        try:
            return (await self.get("/ready"))[0] == 200
        except aiohttp.ClientError:
            return False

    # what /proc knows

    def rss(self) -> float:
        """MiB of the server alone."""
        return float(self.system.memory_info().rss) / 2**20

    def fds(self) -> int:
        return int(self.system.num_fds())

    def descendants(self) -> set[int]:
        return {child.pid for child in self.system.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE}

    def starved(self) -> float:
        """Seconds, since this was last asked, in which the server could have worked and other programs had the cores."""
        delay = int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        before, self._starved = self._starved, delay
        return delay - before

    def connections_to(self, *ports: int) -> int:
        found = self.system.net_connections("tcp4")
        return sum(1 for each in found if each.raddr and each.raddr.port in ports)

    def remember_idle(self) -> None:
        self.idle_fds, self.children = self.fds(), self.descendants()

    # what it wrote

    def endings(self, request_id: str) -> int:
        """How many log lines report the end of a run of this request."""
        self._catch_up()
        return self._endings.get(request_id, 0)

    def blocks(self) -> list[tuple[float, str]]:
        """What held up the event loop since this was last asked: seconds and line, by what its watchdog wrote."""
        self._catch_up()
        blocks, self._blocks = self._blocks, []
        return blocks

    def _catch_up(self) -> None:
        with self._log.open("rb") as file:
            file.seek(self._read)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in map(json.loads, whole.splitlines()):
            details = line.get("details") or {}
            if line["event"] == "run_completed" or (
                line["event"] == "error_occurred" and details.get("recoverable") is False
            ):
                self._endings[line["request_id"]] = self._endings.get(line["request_id"], 0) + 1
            elif line["event"] == "event_loop_blocked":
                self._blocks.append((line["duration_ms"] / 1000, details["stack"][-1]))

    def complaints(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    async def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 15.0) -> int:
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), seconds)


def environment(folder: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the machine that runs the matrix: no keys, no home."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "PYTHONPATH") if name in os.environ}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    return {**kept, "HOME": str(folder), "PYTHONPATH": path, **extra}


@asynccontextmanager
async def launched(
    folder: Path,
    agent: Config,
    *,
    before: Sequence[str] = (),
    entry: Sequence[str] = ("-m", "holodeck"),
    stdout: IO[bytes] | int | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[ServerProcess]:
    """Starts the process and waits for nothing. `before` are words in front of the command, such as prlimit's."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  a few bytes, and no client waits
    (folder / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False))
    port = free_port()
    with (folder / "log.jsonl").open("ab") as log, (folder / "stderr").open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *before, sys.executable, *entry, "serve", "--protocol", "all", "--port", str(port),
            cwd=folder, stdout=log if stdout is None else stdout, stderr=stderr,
            stdin=asyncio.subprocess.DEVNULL, env=environment(folder, env or {}),
        )  # fmt: skip
    try:
        yield ServerProcess(process, port, folder)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def serving(folder: Path, agent: Config, **options: Any) -> AsyncIterator[ServerProcess]:
    """A server that answers."""
    async with launched(folder, agent, **options) as server:
        deadline = time.monotonic() + START_SECONDS
        while not await server.answers():
            assert server.process.returncode is None, server.complaints()
            assert time.monotonic() < deadline, server.complaints()
            await asyncio.sleep(0.02)
        await until(lambda: _steady(server), what="a steady number of files")
        yield server


def _steady(server: ServerProcess) -> bool:
    """The connection of the last question may still be closing."""
    before = (server.idle_fds, server.children)
    server.remember_idle()
    return before == (server.idle_fds, server.children)
