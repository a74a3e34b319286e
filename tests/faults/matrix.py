"""Runs kinds of faults and counts. One server for most of them, many runs at a time; some bring a server of their own.

After each batch the server must be as it was before: descriptors, child processes, connections to the model (I6). While
a batch runs, the stream of another client must go on as if nothing were wrong (I7, I8).
"""

import asyncio
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import aiohttp

from tests.faults.planned_endpoint import PlannedEndpoint
from tests.faults.scenario import FaultScenario
from tests.faults.server_process import CONFIG, ServerProcess, config, serving, until
from tests.faults.tool_servers import ToolServers, tool_servers
from tests.faults.wires import SSE, WIRES, Wire
from tests.models.endpoint import Wire as ModelWire
from tests.models.endpoint import chunk, frame, text_frames

AT_A_TIME = 16
HOUSES_AT_A_TIME = 3
BEAT = 0.04  # seconds between two words of the control stream
LONGEST_GAP = 0.25  # seconds: the delays of a busy machine with two cores
WORST = 5  # failures shown of one kind


class Spread(Enum):
    """How seeds and wires are combined."""

    EVERY = "every seed on every wire, many at a time"
    TURNS = "one wire for each seed, one after the other"
    OWN = "a few at a time, each with a server of its own"


Play = Callable[[FaultScenario], Awaitable[None]]
Setting = Callable[["SharedServers", Path], AbstractAsyncContextManager[ServerProcess]]


@dataclass(frozen=True)
class Kind:
    """One row of the catalogue. `fault` and `seen` are what the page "What happens when" says."""

    id: str
    fault: str
    seen: str
    play: Play
    spread: Spread = Spread.EVERY
    wires: tuple[Wire, ...] = WIRES
    most: int | None = None  # seeds, where one more shows nothing new or costs much
    settles: bool = True  # whether the scenario's own conversation is to be checked
    setting: Setting | None = None  # opens the server that all runs of this kind share, instead of everybody's


@dataclass
class Result:
    kind: Kind
    runs: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    starved: float = 0.0  # seconds in which other programs had the cores that the server wanted


@dataclass
class SharedServers:
    """What all batches share."""

    endpoint: PlannedEndpoint
    client: aiohttp.ClientSession
    folder: Path
    server: ServerProcess
    tools: ToolServers
    longest_gap: float  # seconds that another client's stream, or the server's event loop, may stand still

    def scenario(self, kind: str, seed: int, wire: Wire) -> FaultScenario:
        return FaultScenario(kind, seed, wire, self.server, self.endpoint, self.client, self.folder, self.tools)


@asynccontextmanager
async def shared_servers(longest_gap: float) -> AsyncIterator[SharedServers]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        endpoint = await stack.enter_async_context(PlannedEndpoint())
        tools = await stack.enter_async_context(tool_servers(folder))
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, read_bufsize=2**20))
        server = await stack.enter_async_context(serving(folder / "main", config(endpoint.url, tools=tools.blocks())))
        yield SharedServers(endpoint, client, folder, server, tools, longest_gap)


async def run(
    kinds: Sequence[Kind], seeds: int, report: Callable[[Result], None], *, longest_gap: float = LONGEST_GAP
) -> list[Result]:
    results = []
    async with shared_servers(longest_gap) as shared:
        for kind in kinds:
            result = await _batch(shared, kind, range(min(seeds, kind.most or seeds)))
            report(result)
            results.append(result)
    return results


async def _batch(shared: SharedServers, kind: Kind, seeds: range) -> Result:
    result, begun = Result(kind), time.monotonic()
    if kind.setting is not None:
        async with kind.setting(shared, shared.folder / kind.id) as server:
            await _scenes(replace(shared, server=server), result, seeds)
    elif kind.spread is Spread.OWN:
        await _scenes(shared, result, seeds)
    else:
        shared.server.starved()
        async with _control(shared, result):
            await _scenes(shared, result, seeds)
        await _as_before(shared, result)
    shared.endpoint.plans.clear()
    result.seconds = time.monotonic() - begun
    return result


async def _scenes(shared: SharedServers, result: Result, seeds: range) -> None:
    kind = result.kind
    places = {Spread.EVERY: AT_A_TIME, Spread.TURNS: 1, Spread.OWN: HOUSES_AT_A_TIME}[kind.spread]
    free = asyncio.Semaphore(places)
    async with asyncio.TaskGroup() as group:
        for seed in seeds:
            wires = kind.wires if kind.spread is Spread.EVERY else (kind.wires[seed % len(kind.wires)],)
            for wire in wires:
                group.create_task(_one(result, shared.scenario(kind.id, seed, wire), free))


async def _one(result: Result, scenario: FaultScenario, free: asyncio.Semaphore) -> None:
    async with free:
        result.runs += 1
        try:
            await result.kind.play(scenario)
            if result.kind.settles:
                await scenario.settle()
        except Exception as error:  # noqa: BLE001  whatever goes wrong in a play is a failure of its row
            result.failures.append(f"seed {scenario.seed} on {scenario.wire.name}: {type(error).__name__}: {error}")
    for name, figure in scenario.figures.items():
        result.figures[name] = max(figure, result.figures.get(name, -math.inf))


async def _as_before(shared: SharedServers, result: Result) -> None:
    """I6. What the model client keeps open for its next request is no leak."""
    server, endpoint = shared.server, shared.endpoint
    try:
        await until(
            lambda: not any(plan.answering for plan in endpoint.plans.values()), what="I6: the model to be left"
        )
        await until(
            lambda: server.fds() <= server.idle_fds + server.connections_to(endpoint.port, shared.tools.web.port),
            what="I6: descriptors to be closed",
        )
        await until(lambda: len(server.descendants()) <= len(server.children), what="I6: child processes to be gone")
        blocked = [each for each in server.blocks() if each[0] > shared.longest_gap + result.starved]
        assert not blocked, f"I7: the event loop stood still: {blocked}"
    except AssertionError as error:
        kept = server.connections_to(endpoint.port, shared.tools.web.port)
        more = f"{server.fds()} descriptors, {server.idle_fds} when idle, {kept} kept for the next request"
        result.failures.append(f"after the batch: {error}; {more}")


@asynccontextmanager
async def _control(shared: SharedServers, result: Result) -> AsyncIterator[None]:
    """The stream of another client while all this happens."""
    over, gaps, lags = asyncio.Event(), [], []

    async def beat(wire: ModelWire) -> None:
        await wire.head()
        words = 0
        while not over.is_set() and not wire.gone.is_set():
            begun = time.monotonic()
            await wire.send(frame(chunk({"content": f"{words} "})))
            words += 1
            await asyncio.sleep(BEAT)
            lags.append(time.monotonic() - begun - BEAT)
        await wire.send(*text_frames("end")[1:])
        await wire.end()

    scenario = shared.scenario("control", time.monotonic_ns(), SSE)
    turn = scenario.turn(beat)

    async def listen() -> None:
        last = time.monotonic()
        pieces = []
        async with scenario.begin(turn) as answer:
            async for piece in answer.content.iter_any():
                now = time.monotonic()
                gaps.append(now - last)
                last = now
                pieces.append(piece)
        turn.view = SSE.read(answer.status, b"".join(pieces))

    listening = asyncio.create_task(listen())
    await turn.plan.asked()
    try:
        yield
    finally:
        over.set()
        await listening
        result.starved = shared.server.starved()
        _judge_control(result, scenario, gaps, max(lags, default=0.0) + result.starved, shared.longest_gap)


def _judge_control(result: Result, scenario: FaultScenario, gaps: list[float], lag: float, longest_gap: float) -> None:
    """Our own lag is not the server's, since this process plays the model and all clients; nor is the cores' other work."""
    answer = scenario.turns[0].view
    ordered = sorted(gaps)
    p99 = ordered[math.ceil(len(ordered) * 0.99) - 1]
    result.figures["control gap p99 ms"] = p99 * 1000
    if answer is not None and answer.code == "timeout" and lag > CONFIG["model"]["timeout"]:
        result.figures["we were silent ourselves, s"] = lag  # so the server was right to give that stream up
    elif answer is None or answer.ending != "finished":
        result.failures.append(f"I8: another client's stream did not finish: {answer}")
    elif p99 > longest_gap + lag:
        result.failures.append(
            f"I8: a gap of {p99 * 1000:.0f} ms in another client's stream (ours: {lag * 1000:.0f} ms)"
        )


def table(results: Sequence[Result]) -> str:
    lines = [f"{'kind':5} {'runs':>5} {'failures':>8} {'seconds':>8}  fault"]
    lines += [line(result) for result in results]
    runs, failures = sum(each.runs for each in results), sum(len(each.failures) for each in results)
    return "\n".join([*lines, f"{'all':5} {runs:5} {failures:8} {sum(each.seconds for each in results):8.1f}"])


def line(result: Result) -> str:
    figures = "  ".join(f"{name} {value:.4g}" for name, value in result.figures.items() if "control" not in name)
    row = f"{result.kind.id:5} {result.runs:5} {len(result.failures):8} {result.seconds:8.1f}  {result.kind.fault}"
    shown = [f"        {failure[:600]}" for failure in result.failures[:WORST]]
    return "\n".join([row, *([f"        {figures}"] if figures else []), *shown])


def say(result: Result) -> None:
    sys.stdout.write(line(result) + "\n")
    sys.stdout.flush()
