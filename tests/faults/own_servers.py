"""Rows that need a server of their own: its start, its end, its limits, its breakers (A01, A30, B01, B02, …, C14)."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.faults.client_faults import talking
from tests.faults.matrix import Setting, SharedServers
from tests.faults.model_faults import saying
from tests.faults.planned_endpoint import tool_results
from tests.faults.scenario import FaultScenario
from tests.faults.server_process import START_SECONDS, ServerProcess, config, launched, serving, until
from tests.faults.tool_faults import call
from tests.faults.tool_servers import rogue_block
from tests.models.endpoint import Wire, text_frames, text_stream, tool_call_stream
from tests.ports import free_port

MISSING = {"name": "gone", "type": "mcp", "command": "no-such-program-anywhere"}


def setting(*, journal: Sequence[str] | None = None, launch: dict[str, Any] | None = None, **changes: Any) -> Setting:
    """A server that differs from everybody's in these blocks; with the rogue in these modes, if `journal` names any."""

    def opened(shared: SharedServers, folder: Path) -> AbstractAsyncContextManager[ServerProcess]:
        tools = {} if journal is None else {"tools": [rogue_block(folder / "journal", *journal)]}
        return serving(folder, config(shared.endpoint.url, **tools, **changes), **(launch or {}))

    return opened


def deserted(_shared: SharedServers, folder: Path) -> AbstractAsyncContextManager[ServerProcess]:
    """Its model's port is closed."""
    return serving(folder, config(f"http://127.0.0.1:{free_port()}/v1"))


@asynccontextmanager
async def own(scenario: FaultScenario, **changes: Any) -> AsyncIterator[ServerProcess]:
    """A server for this scenario alone; from here on the scenario uses it."""
    folder = scenario.folder / scenario.name
    async with serving(folder, config(scenario.endpoint.url, **changes)) as server:
        scenario.server = server
        yield server


# models


async def closed_port(scenario: FaultScenario) -> None:
    """A01."""
    view = await scenario.ask()
    assert (view.ending, view.code) == ("failed", "model-error"), view
    assert view.reason in ("upstream_unavailable", None), view.reason
    assert view.seconds < 12, f"{view.seconds:.1f} s"


BREAKER = {"model": {"failure_threshold": 3, "recovery_timeout": 0.5, "half_open_max_calls": 3}}


BROKEN = saying(*text_frames("half", " an answer")[:2], end=Wire.reset, pause=0.05)  # counts, and is not tried again


async def breaker_opens(scenario: FaultScenario) -> None:
    """A30: three runs fail, the next ones are refused without a question; after a while trials close it again."""
    server = scenario.server
    for _ in range(3):
        view = await scenario.ask(BROKEN)
        assert view.ending == "failed", view
    turn = scenario.turn(text_stream("never"))
    view = await scenario.finish(turn)
    assert (view.ending, view.code) == ("failed", "model-unavailable"), view
    assert not turn.plan.requests, "an open breaker asks"
    code, health = await server.get("/health/agent")
    assert (code, health["breakers"][0]["state"]) == (503, "open"), health
    await until_trials(server)
    for _ in range(3):
        await scenario.continues()
    assert (await server.get("/health/agent"))[1]["breakers"][0]["state"] == "closed"


async def until_trials(server: ServerProcess) -> None:
    deadline = time.monotonic() + 5
    while (await server.get("/health/agent"))[1]["breakers"][0]["retry_after"]:
        assert time.monotonic() < deadline, "the breaker stays open"
        await asyncio.sleep(0.02)


async def breaker_trial_fails(scenario: FaultScenario) -> None:
    """A31: a trial that fails opens it again, and three that succeed are needed."""
    server = scenario.server
    for _ in range(3):
        await scenario.ask(BROKEN)
    await until_trials(server)
    await scenario.continues()
    assert (await server.get("/health/agent"))[1]["breakers"][0]["state"] == "half_open"
    await scenario.ask(BROKEN)
    assert (await server.get("/health/agent"))[1]["breakers"][0]["state"] == "open"
    await until_trials(server)
    for _ in range(3):
        await scenario.continues()
    assert (await server.get("/health/agent"))[1]["breakers"][0]["state"] == "closed"


# tool servers


async def tool_server_cannot_start(scenario: FaultScenario) -> None:
    """B01: without it if it is not needed; not at all if it is."""
    exits = rogue_block(scenario.folder / scenario.name / "journal", "exit=3", name="gone")
    block = exits if scenario.seed % 2 else MISSING
    async with launched(
        scenario.folder / f"{scenario.name}-needed", config(scenario.endpoint.url, tools=[block])
    ) as server:
        assert await asyncio.wait_for(server.process.wait(), 20) == 2
        assert "gone" in server.complaints(), server.complaints()
    async with own(scenario, tools=[{**block, "required": False}]) as server:
        _, health = await server.get("/health/agent")
        assert [(each["name"], each["ready"]) for each in health["tool_servers"]] == [("gone", False)], health
        await scenario.continues()
        await scenario.settle()


async def tool_server_is_slow(scenario: FaultScenario) -> None:
    """B02: the server answers meanwhile, and says that it is not ready."""
    mute = rogue_block(scenario.folder / scenario.name / "journal", "mute", start_timeout=1.0, required=False)
    begun = time.monotonic()
    async with launched(scenario.folder / scenario.name, config(scenario.endpoint.url, tools=[mute])) as server:
        seen: set[int] = set()
        while 200 not in seen:
            assert time.monotonic() - begun < START_SECONDS, f"{seen} {server.complaints()}"
            try:
                seen.add((await server.get("/ready"))[0])
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
        assert 503 in seen, "it did not answer while it started"
        scenario.server = server
        await scenario.continues()
        await scenario.settle()


async def tool_server_is_noisy(scenario: FaultScenario) -> None:
    """B03."""
    _, results = await call(scenario, "echo", {"n": 1})
    assert results == '{"n": 1}', results


async def tool_server_is_stubborn(scenario: FaultScenario) -> None:
    """B07: closing insists, and leaves no process behind."""
    block = rogue_block(scenario.folder / scenario.name / "journal", "stubborn")
    async with own(scenario, tools=[block]) as server:
        _, grandchild = await call(scenario, "grandchild", {})
        family = [*server.system.children(recursive=True), psutil.Process(int(grandchild))]
        begun = time.monotonic()
        assert await server.end() == 0
        scenario.figures["seconds to close"] = time.monotonic() - begun
        assert time.monotonic() - begun < 8, "it waited too long"
        await until(lambda: not any(map(alive, family)), 3, "the processes of the tool server to be gone")


def alive(process: psutil.Process) -> bool:
    try:
        return bool(
            process.status() != psutil.STATUS_ZOMBIE
        )  # there may be no process to reap an orphan in a container
    except psutil.NoSuchProcess:
        return False


async def killed(scenario: FaultScenario) -> None:
    """B08 and D03: no child survives, the model is left alone, the port is free, a new server serves."""
    block = rogue_block(scenario.folder / scenario.name / "journal", "stubborn")
    async with own(scenario, tools=[block]) as server:
        turn = scenario.turn(talking())
        asking = asyncio.create_task(scenario.finish(turn))
        await turn.plan.asked()
        await asyncio.sleep(scenario.random.uniform(0, 0.2))  # any moment will do
        family = server.system.children(recursive=True)
        assert family
        await server.end(signal.SIGKILL)
        with suppress(aiohttp.ClientError):
            assert not (await asking).whole, "the answer came to a proper end"
        await until(lambda: not any(map(alive, family)), 3, "the children to die")
        await asyncio.wait_for(turn.plan.left_alone(), 3)
    scenario.turns.clear()
    async with own(scenario):
        await scenario.continues()
        await scenario.settle()


async def endless_line(scenario: FaultScenario) -> None:
    """B10: a server that writes a line without end is killed or meets its timeout, costs no memory, and comes back."""
    before = scenario.server.rss()
    _, results = await call(scenario, "endless", {})
    assert any(words in results for words in ("did not answer", "too_large", "stopped during")), results
    deadline = time.monotonic() + 10
    while "here" not in (await call(scenario, "echo", {"still": "here"}))[1]:
        assert time.monotonic() < deadline, "the tool server does not come back"
    grown = scenario.server.rss() - before
    scenario.figures["RSS growth MiB"] = grown
    assert grown < 24, f"{grown:.0f} MiB more"


async def tools_change(scenario: FaultScenario) -> None:
    """B15: what is taken away fails, what is described anew is withdrawn, what is added is offered."""
    block = rogue_block(scenario.folder / scenario.name / "journal")
    async with own(scenario, tools=[block]):
        await call(scenario, "change", {"remove": "image", "describe": "echo", "add": "fresh"})
        await until_offered(scenario, "fresh")
        turn = scenario.turn(tool_call_stream(("a", "image", "{}"), ("b", "echo", "{}")), text_stream("over"))
        view = await scenario.finish(turn)
        assert view.ending == "finished", view
        offered = {tool["function"]["name"] for tool in turn.plan.requests[-1].json["tools"]}
        assert offered & {"image", "echo", "fresh"} == {"fresh"}, offered & {"image", "echo", "fresh"}
        assert len(tool_results(turn.plan.requests[-1])) == 3, "of the change, and of the two calls"
        assert set(view.results.values()) == {True}, view.results
        await scenario.settle()


async def until_offered(scenario: FaultScenario, tool: str) -> None:
    """The list is asked for again when the server says that it changed, which takes as long as it takes."""
    deadline = time.monotonic() + 5
    offered: set[str] = set()
    while tool not in offered:
        assert time.monotonic() < deadline, f"{tool} is never offered, but {offered}"
        turn = scenario.turn(text_stream("not yet"))
        await scenario.finish(turn)
        offered = {each["function"]["name"] for each in turn.plan.requests[-1].json["tools"]}


# crowds and limits of the process


async def too_many_runs(scenario: FaultScenario) -> None:
    """C13: up to the cap, then 503 with Retry-After; and as before when the connection_limit has gone."""
    turns = [scenario.turn(talking(0.05, 40)) for _ in range(60)]
    sessions = [f"01K9ZQ4W3V8N2R5T7Y9A1C3E{n:02d}" for n in range(60)]

    async def one(number: int) -> tuple[int, str | None]:
        body = scenario.wire.body(turns[number].words, sessions[number], turns[number].run_id)
        async with scenario.client.post(
            scenario.server.url + scenario.wire.path, json=body, headers=scenario.wire.headers
        ) as answer:
            await answer.read()
            return answer.status, answer.headers.get("Retry-After")

    view = await asyncio.gather(*map(one, range(60)))
    statuses = sorted(each for each, _ in view)
    assert statuses == [200] * 20 + [503] * 40, statuses
    assert all(wait for code, wait in view if code == 503), "no Retry-After"
    scenario.turns.clear()
    await scenario.continues()


def limited(limit: str, value: int) -> tuple[str, ...]:
    """Words in front of a command that give it a limit of the system, such as RLIMIT_AS."""
    program = f"import os, resource, sys; resource.setrlimit(resource.{limit}, ({value}, {value}))"
    return sys.executable, "-c", f"{program}; os.execv(sys.argv[1], sys.argv[1:])"


async def no_descriptors_left(scenario: FaultScenario) -> None:
    """C14: 64 descriptors. Streams that run go on, new ones wait or are refused, and it recovers at once."""
    server = scenario.server
    turn = scenario.turn(talking(0.02, 60))
    running = asyncio.create_task(scenario.finish(turn))
    await turn.plan.asked()
    connection_limit = [await server.connect() for _ in range(100)]
    view = await running
    assert (view.ending, len(view.text)) == ("finished", 300), view
    burnt = sum(server.system.cpu_times()[:2])
    await asyncio.sleep(0.5)  # over which the CPU is measured
    burnt = sum(server.system.cpu_times()[:2]) - burnt
    scenario.figures["CPU while full, %"] = burnt / 0.5 * 100
    for _, writer in connection_limit:
        writer.transport.abort()
    assert burnt < 0.4, f"it spins: {burnt / 0.5:.0%} CPU"
    await until_served(scenario)


async def until_served(scenario: FaultScenario) -> None:
    deadline = time.monotonic() + 5
    while not await scenario.server.answers():
        assert time.monotonic() < deadline, "it does not recover"
        await asyncio.sleep(0.02)
    await scenario.continues()
