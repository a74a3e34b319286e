"""Rows D01 to D13: signals, kills, clocks, disks, memory, a log that is not read. Each with a server of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path

import aiohttp

from tests.faults.client_faults import WORD, talking
from tests.faults.matrix import SharedServers
from tests.faults.own_servers import limited, own
from tests.faults.scenario import FaultScenario
from tests.faults.server_process import AGENT, ServerProcess, config, environment, launched, serving, until
from tests.models.endpoint import text_stream, tool_call_stream

STREAMS = 50
MIB = 2**20
CLOCK = Path(__file__).with_name("clock.c")
PROMPT = "\x1b[?2004h"  # bracketed paste on: the line editor is ready
BLOCKING = '''\
import time


async def freeze() -> str:
    """Holds up everything."""
    time.sleep(0.4)
    return "thawed"
'''


async def terminated(scenario: FaultScenario) -> None:
    """D01: fifty live streams, each with its proper ending; exit code 0.

    We play all fifty models ourselves, and may be slow at it: that is not what is shown here.
    """
    await _waits_for_its_runs(scenario)
    async with own(scenario, model={"timeout": 20}) as server:
        turns = [scenario.turn(talking()) for _ in range(STREAMS)]

        async def one(number: int) -> str | None:
            session = f"01K9ZQ4W3V8N2R5T7Y9A1C3E{number:02d}"
            body = scenario.wire.body(turns[number].words, session, turns[number].run_id)
            async with scenario.client.post(
                server.url + scenario.wire.path, json=body, headers=scenario.wire.headers
            ) as answer:
                received = scenario.wire.read(answer.status, await answer.read())
            assert received.wrong is None, received.wrong
            return received.code

        asking = [asyncio.create_task(one(number)) for number in range(STREAMS)]
        await asyncio.gather(*(turn.plan.asked() for turn in turns))
        await asyncio.sleep(scenario.random.uniform(0, 0.1))  # any moment will do
        code = await server.end()
        endings = await asyncio.gather(*asking)
        assert code == 0, code
        assert set(endings) == {"shutting-down"}, endings


async def _waits_for_its_runs(scenario: FaultScenario) -> None:
    """A run that ends within `shutdown_timeout` is not cut off."""
    async with own(scenario, model={"timeout": 20}, server={"shutdown_timeout": 15}) as server:
        turn = scenario.turn(talking(0.02, 25))
        asking = asyncio.create_task(scenario.finish(turn))
        await turn.plan.asked()
        code = await server.end(seconds=20)
        answer = await asking
        assert (code, answer.ending, answer.text) == (0, "finished", WORD * 25), f"exit code {code}, {answer}"


async def interrupted_chat(scenario: FaultScenario) -> None:
    """D02: Ctrl+C ends the answer and not the conversation; twice at the prompt leaves."""
    folder = scenario.folder / scenario.name
    folder.mkdir(parents=True)
    await asyncio.to_thread(_interrupt, folder)


def _interrupt(folder: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "holodeck", "chat", "--demo"]
    variables = environment(folder, {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"})
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=variables)
    os.close(theirs)
    screen = Screen(ours)
    try:
        screen.shows(PROMPT)
        screen.types(b"hello\r")
        screen.shows("not a")  # in the middle of a long reply
        process.send_signal(signal.SIGINT)
        screen.shows("stopped")
        screen.shows(PROMPT)
        screen.types(b"\x03")
        screen.shows(PROMPT)
        screen.types(b"\x03")
        assert process.wait(10) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class Screen:
    """What a terminal shows, read up to what was waited for."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._unread = terminal, ""
        os.set_blocking(terminal, False)

    def types(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def shows(self, text: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while text not in self._unread:
            assert time.monotonic() < deadline, f"{text!r} did not come; the screen shows {self._unread!r}"
            with suppress(BlockingIOError):
                self._unread += os.read(self._terminal, 65_536).decode(errors="replace")
            time.sleep(0.01)
        self._unread = self._unread.partition(text)[2]


async def store_is_missing(scenario: FaultScenario) -> None:
    """D04: a store that is not there is never replaced by the memory of the process."""
    agent = config(
        scenario.endpoint.url, sessions={"store": scenario.random.choice(["redis", "postgres", "sqlite:/x/y"])}
    )
    async with launched(scenario.folder / scenario.name, agent) as server:
        code = await asyncio.wait_for(server.process.wait(), 20)
        assert code in (1, 2), f"exit code {code}: {server.complaints()}"
        assert "store" in server.complaints(), server.complaints()


async def paused(scenario: FaultScenario) -> None:
    """D08: the process stands still in mid-run and wakes up late. Its run ends once, whatever its deadlines say.

    In every second scenario the session expires and starts again in the meantime: the late run writes nothing into it.
    """
    server, forgotten = scenario.server, scenario.seed % 2 == 1
    turn = scenario.turn(talking(0.02, 60))
    asking = asyncio.create_task(scenario.finish(turn))
    await turn.plan.asked()
    await asyncio.sleep(scenario.random.uniform(0, 0.2))  # any moment will do
    server.process.send_signal(signal.SIGSTOP)
    forgetting = asyncio.create_task(_forget(scenario)) if forgotten else None
    await asyncio.sleep(
        scenario.random.uniform(0.2, 1.6)
    )  # the pause itself, shorter and longer than deadlines are here
    server.process.send_signal(signal.SIGCONT)
    answer = await asking
    assert answer.ending in ("finished", "failed", "cancelled"), answer
    if forgetting is not None:
        await forgetting
        scenario.turns.clear()  # nothing of it may be left in the session
    await scenario.continues()
    await asyncio.wait_for(turn.plan.left_alone(), 3)


async def _forget(scenario: FaultScenario) -> None:
    async with scenario.client.delete(f"{scenario.server.url}/sessions/{scenario.session}") as answer:
        assert answer.status == 204, answer.status


@asynccontextmanager
async def with_a_clock(shared: SharedServers, folder: Path) -> AsyncIterator[ServerProcess]:
    """A server whose wall clock is moved by what the file `offset` says."""
    folder.mkdir(parents=True)  # noqa: ASYNC240  a few bytes, and no client waits
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "there is no C compiler for the clock"
    library, offset = folder / "clock.so", folder / "offset"
    build = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK), "-ldl"]
    await asyncio.to_thread(subprocess.run, build, check=True)
    offset.write_text("0")
    env = {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(offset)}
    async with serving(folder, config(shared.endpoint.url), env=env) as server:
        yield server


async def clock_jumps(scenario: FaultScenario) -> None:
    """D09: an hour forth or back changes no deadline and ends no session."""
    await scenario.continues("before ")
    turn = scenario.turn(talking(0.02, 50))
    asking = asyncio.create_task(scenario.finish(turn))
    await turn.plan.asked()
    replacement = scenario.server.folder / "next"
    replacement.write_text(str(scenario.random.choice([3600, -3600, 86_400, 0])))
    replacement.replace(scenario.server.folder / "offset")
    answer = await asking
    assert (answer.ending, len(answer.text)) == ("finished", 250), answer
    assert answer.seconds < 5, f"{answer.seconds:.1f} s"
    await scenario.continues("after ")


@asynccontextmanager
async def with_a_full_disk(shared: SharedServers, folder: Path) -> AsyncIterator[ServerProcess]:
    """Its log takes nothing, and no file may have more than 2 MiB."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    few = limited("RLIMIT_FSIZE", 2 * MIB)
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230  a device: opening it is no work
        agent, env = config(shared.endpoint.url), {"TMPDIR": str(scratch)}
        async with serving(folder, agent, stdout=full, before=few, env=env) as server:
            yield server


async def disk_is_full(scenario: FaultScenario) -> None:
    """D10: a log that cannot be written stops no request; an upload that has no room gets an error, and leaves nothing."""
    for _ in range(3):
        await scenario.continues()
    size = scenario.random.randint(2 * MIB + 100_000, 5 * MIB)
    form = aiohttp.FormData()
    form.add_field("message", "read it")
    form.add_field("files", BytesIO(b"x" * size), filename="a.txt", content_type="text/plain")
    async with scenario.client.post(f"{scenario.server.url}/agent/{AGENT}/chat", data=form) as answer:
        result = await answer.json(content_type=None)
    assert (answer.status, result["type"].rpartition("/")[2]) == (507, "storage-full"), result
    assert not list((scenario.server.folder / "scratch").iterdir()), "something half-written is left"
    await scenario.continues()


async def memory_is_limited(scenario: FaultScenario) -> None:
    """D11: 1 GiB of addresses. A body of 200 MB is refused, and the server lives."""
    server, size = scenario.server, 200 * MIB
    before = server.rss()
    reader, writer = await server.connect()
    head = f"POST /awp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    writer.write(head.encode() + b"x" * MIB)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
    writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 413"), answer
    scenario.figures["RSS growth MiB"] = server.rss() - before
    assert server.rss() - before < 5, f"{server.rss() - before:.1f} MiB"
    await scenario.continues()


@asynccontextmanager
async def with_a_bad_function(shared: SharedServers, folder: Path) -> AsyncIterator[ServerProcess]:
    folder.mkdir(parents=True)  # noqa: ASYNC240  a few bytes, and no client waits
    (folder / "bad.py").write_text(BLOCKING)
    tool = {"name": "freeze", "type": "function", "file": "bad.py"}
    async with serving(folder, config(shared.endpoint.url, tools=[tool])) as server:
        yield server


async def loop_is_blocked(scenario: FaultScenario) -> None:
    """D12: a tool that blocks the event loop is named in the log, with its line."""
    scenario.server.blocks()
    answer = await scenario.ask(tool_call_stream(("c", "freeze", "{}")), text_stream("over"))
    assert (answer.ending, answer.text) == ("finished", "over"), answer
    found: list[tuple[float, str]] = []

    def is_reported() -> bool:
        found.extend(scenario.server.blocks())
        return bool(found)

    await until(is_reported, 3, "a line about the block")
    assert "bad.py" in found[0][1], f"the line does not say who is to blame: {found}"
    await scenario.continues()


@asynccontextmanager
async def with_a_stuck_log(shared: SharedServers, folder: Path) -> AsyncIterator[ServerProcess]:
    """Its output goes into a pipe that holds 64 kB and that is never read."""
    read, write = os.pipe()
    try:
        async with serving(folder, config(shared.endpoint.url), stdout=write) as server:
            yield server
            assert await server.end() == 0
    finally:
        os.close(read)
        os.close(write)


async def log_is_not_read(scenario: FaultScenario) -> None:
    """D13: requests go on, and what could not be written does not pile up."""
    before = scenario.server.rss()
    for number in range(60):  # some kB of lines each
        answer = await scenario.ask(text_stream("fine"), words="x" * 300)
        assert answer.ending == "finished", f"{number}: {answer}"
    grown = scenario.server.rss() - before
    scenario.figures["RSS growth MiB"] = grown
    assert grown < 32, f"{grown:.0f} MiB"
