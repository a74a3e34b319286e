"""Servers are replaced under load, one after the other and for hours: S25, S30."""

import asyncio
import json
import shutil
import signal
import subprocess
import tarfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from redis import Redis

from tests.cluster.replicas import Client, Server
from tests.cluster.round_robin import round_robin
from tests.faults.mutate import ROOT
from tests.store_faults.fault_rig import ExecutedNode, FaultRig, Load, Node
from tests.store_faults.memory_census import Census, taken_at_rest
from tests.store_faults.numbered_model import Script
from tests.store_faults.replica_rows import CONTINUE, begun_at

DRAIN_SECONDS = 2
SCHEMA = "src/holodeck/stores/postgres_schema.py"
LONGER_THAN_THE_DRAIN = {"say": 250, "ms": 20}
MINUTE, SHORT_MINUTE = 60.0, 10.0
STREAMS, SHORT_STREAMS = 200, 20
REST_SECONDS = 90.0  # for a server to forget its runs: the replay window, and 30 s for those that were taken over
JUDGED_AFTER = 30  # rounds, for Valkey
WARM_RUNS = 20_000  # of all servers in the first half: fewer do not fill the caches of fixed size
# Of the bytes that are in use in a server at rest, after a collection. RSS is printed but not judged: it has the most that a
# round has ever needed, which is what the checker reads (18 MB in one soak), and it has the gaps between what is in use.
GROWTH_MIB_PER_HOUR = 1.0
NOISE_MIB = 0.25  # by which two counts of a server that keeps nothing may differ
STREAMS_OF_A_READER = 4  # streams for each client that reads a run besides the one that asked for it
CENSUSES = 5  # after the first one, at half of the rounds


class BalancerAddress:
    """What a client knows of servers behind a balancer: one address."""

    def __init__(self, url: str) -> None:
        self.url = url


def previous_version(folder: Path) -> Path | None:
    """The sources before the last change of the database's schema; None without the history of the project."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return None

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout

    try:
        last = git("log", "-1", "--format=%H", "--", SCHEMA).decode().strip()
        archive = git("archive", f"{last}^", "src")
    except subprocess.CalledProcessError:
        return None
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


async def rolling_restart(rig: FaultRig) -> None:
    """S25: three servers of the version before are replaced by this one under load, then restarted again and again."""

    def script() -> Script:
        return rig.script(say=rig.random.randint(1, 20), act=rig.random.choice((0, 1)), ms=5)

    settings: dict[str, Any] = {**CONTINUE, "shutdown_timeout": DRAIN_SECONDS}
    async with rig.serving(3, start=False, server=settings) as nodes:
        old = await asyncio.to_thread(previous_version, rig.folder / "previous")
        rig.figures.notes["from"] = "the version before" if old else "this version: there is no history of the project"
        for node in nodes:
            node.__class__ = ExecutedNode
            await _start(node, old)
        async with round_robin([node.port for node in nodes]) as proxy:
            balancer: Any = BalancerAddress(proxy.url)
            async with Load(rig, 4, script, choose=lambda: balancer) as load:
                for _ in range(rig.rounds):
                    for node in nodes:
                        await load.more(2)
                        await _replaced(rig, node, balancer)
                await load.end()
        failed = [each for each in load.clients if each.types[-1:] != ["RUN_FINISHED"]]
        rig.require(not failed, f"{len(failed)} requests failed: {[each.events[-1:] for each in failed[:3]]}")
        rig.figures.notes["requests"] = len(load.clients)
        await _asked_as_often_as_needed(rig, load)
        await rig.settle(nodes[0])


async def _asked_as_often_as_needed(rig: FaultRig, load: Load) -> None:
    """A run asks the model once, and once more with the results of its calls. Only one that was cut is asked for again."""
    recovered = {name for (name,) in await rig.rows("SELECT id FROM holodeck.runs WHERE recovered > 0")}
    asked = Counter(rig.model.asked)
    for client in load.clients:
        most = 1 + bool(client.script.act) + (client.run_id in recovered)
        times = asked.pop(client.script.run)
        rig.require(times <= most, f"run {client.run_id} asked the model {times} times instead of {most}")
    for run, times in asked.items():  # longer than the drain: cut, and continued once
        rig.require(times <= 2, f"run {run} asked the model {times} times, it was cut once")


async def _start(node: Node, sources: Path | None) -> None:
    node.variables.pop("PYTHONPATH", None)
    if sources is not None:
        node.variables["PYTHONPATH"] = str(sources)
    await node.start()


async def _replaced(rig: FaultRig, node: Node, balancer: Server) -> None:
    """One server ends and one of this version takes its port. A stream that is longer than the drain can go on elsewhere."""
    client, reading = await begun_at(rig, node, rig.script(**LONGER_THAN_THE_DRAIN), thread=f"long{rig.figures.rounds}")
    begun = time.monotonic()
    await node.end(signal.SIGTERM)
    await _start(node, None)
    rig.figures.seconds.append(time.monotonic() - begun)
    await reading
    await client.see_through(lambda: balancer)
    if (
        client.types[-1] != "RUN_FINISHED"
    ):  # a server that cannot store the ending in time leaves the run to another one
        code = client.events[-1].get("code")
        rig.require(code == "shutting-down", f"a stream longer than the drain ended with {client.events[-1]}")
        texts = await _continued(client.run_id, balancer)
        rig.require(texts == client.script.answer, f"a stream that is continued elsewhere has {texts[-40:]!r}")
    rig.figures.rounds += 1


async def _continued(run_id: str, balancer: Server) -> str:
    """The text of a run that goes on from where another was cut, by whichever server the balancer names."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{balancer.url}/runs/{run_id}/continue", json={}, headers={"Accept": "text/event-stream"}
        ) as answer,
    ):
        frames = [line[6:] async for line in answer.content if line.startswith(b"data: ")]
    events = [json.loads(frame) for frame in frames]
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def soak(rig: FaultRig) -> None:
    """S30: four servers under load, one is killed every minute. The first is spared: its memory is what is measured."""
    threads, seconds = (STREAMS, MINUTE) if rig.full else (SHORT_STREAMS, SHORT_MINUTE)
    threads = rig.streams or threads
    memory: list[float] = []
    logs: list[float] = []
    keys: list[int] = []  # in Valkey, while the servers are at rest: logs of runs have expired
    at_rest: list[float] = []
    live: dict[int, Census] = {}  # by round
    places, warm = _census_places(rig.rounds), 0

    def script() -> Script:
        return rig.script(say=rig.random.randint(5, 60), act=rig.random.choice((0, 0, 0, 1)), ms=20)

    settings = {**CONTINUE, "runs": {**CONTINUE["runs"], "replay_window": 20}}
    async with rig.serving(4, has_census=True, server=settings) as nodes:
        for number in range(rig.rounds):
            victim = rig.random.choice(nodes[1:])
            async with Load(rig, threads, script, name=f"m{number}-") as load, _second_readers(rig, load, threads):
                begun = time.monotonic()
                await load.more(threads)
                await victim.kill()
                killed = time.monotonic()
                await victim.start()
                while time.monotonic() - begun < seconds:
                    await load.more(1)
                await load.end()
            probe = max((each.first_after(killed) or 0 for each in load.clients if _was_taken_over(each)), default=0.0)
            if probe:
                rig.figures.seconds.append(probe)
            await rig.settle(nodes[0])
            rig.forget_acts()
            memory.append(psutil.Process(nodes[0].process.pid).memory_info().rss / 2**20)
            with Redis(unix_socket_path=str(rig.valkey_socket)) as valkey:
                logs.append(valkey.info("memory")["used_memory"] / 2**20)
            rig.figures.rounds += 1
            if rig.figures.rounds in places:
                warm = warm or rig.figures.acknowledged
                live[rig.figures.rounds] = found = await taken_at_rest(rig.folder, nodes[0].process.pid, REST_SECONDS)
                rig.require(not found.runs, f"a server at rest has {found.runs} runs and logs in memory")
                with Redis(unix_socket_path=str(rig.valkey_socket)) as valkey:
                    keys.append(valkey.dbsize())
                    left = len(list(valkey.scan_iter("*:log:*")))
                    rig.require(left == 0, f"Valkey has {left} logs of runs at rest")
                    at_rest.append(valkey.info("memory")["used_memory"] / 2**20)
        await _nothing_is_left(rig)
    first, last = live[places[0]], live[places[-1]]
    rig.figures.notes |= {
        "streams": threads,
        "RSS": f"{memory[0]:.1f}, {memory[len(memory) // 2]:.1f}, {memory[-1]:.1f} MiB",
        "in use at rest": ", ".join(f"{each.live:.2f}" for each in live.values()) + " MiB",
        "Valkey": f"{max(logs[: len(logs) // 2 + 1]):.1f} then {max(logs[len(logs) // 2 :]):.1f} MiB",
        "Valkey at rest": ", ".join(
            f"{size:.2f} MiB in {number} keys" for size, number in zip(at_rest, keys, strict=True)
        ),
    }
    if rig.live:
        rig.figures.notes["in the second half"] = last.since(first)
    if warm >= WARM_RUNS:
        hours = (places[-1] - places[0]) * seconds / 3600
        rig.require(
            last.live - first.live <= NOISE_MIB + GROWTH_MIB_PER_HOUR * hours,
            f"a server at rest had {first.live:.2f} MiB in use, and {last.live:.2f} MiB after {60 * hours:.0f} minutes",
        )
    if rig.rounds >= JUDGED_AFTER:
        # at rest: at the end of a round it has the logs of the last seconds, as many as the machine had time for
        rig.require(
            at_rest[-1] <= 1.25 * at_rest[0], f"Valkey had {at_rest[0]:.2f} MiB at rest, then {at_rest[-1]:.2f} MiB"
        )


@asynccontextmanager
async def _second_readers(rig: FaultRig, load: Load, streams: int) -> AsyncIterator[None]:
    """Some more clients that read runs in progress at whichever server, so that servers follow each other's runs."""

    async def read() -> None:
        while True:
            some = [each for each in load.clients[-streams:] if each.is_acknowledged and not each.has_ended]
            if some:
                reader = Client("", run=rig.random.choice(some).run_id)
                with suppress(aiohttp.ClientError, OSError, TimeoutError):
                    await reader.resume(rig.any_node())
            await asyncio.sleep(0.01)

    reading = [asyncio.create_task(read()) for _ in range(streams // STREAMS_OF_A_READER + 1)]
    try:
        yield
    finally:
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


def _census_places(rounds: int) -> list[int]:
    """The rounds after which a census is taken: the one in the middle, the last, and some between them."""
    half = max(1, rounds // 2)
    return sorted({half + round((rounds - half) * number / CENSUSES) for number in range(CENSUSES + 1)})


def _was_taken_over(client: Any) -> bool:
    return any(number >= 1_000_000_000 for number in client.ids)


async def _nothing_is_left(rig: FaultRig) -> None:
    """I12: rows of runs that are open belong to a server that lives."""
    alive = {name for (name,) in await rig.rows("SELECT id FROM holodeck.replicas")}
    owners = {name for (name,) in await rig.rows("SELECT DISTINCT replica FROM holodeck.runs WHERE ended IS NULL")}
    rig.require(owners <= alive, f"open runs belong to servers that are gone: {owners - alive}")
