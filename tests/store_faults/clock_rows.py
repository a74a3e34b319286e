"""Clocks jump in mid-run, of one server, of the database's host, of all: S24."""

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.faults.process_faults import CLOCK
from tests.store_faults.failover_backends import PostgresPair, postgres_pair
from tests.store_faults.fault_rig import PATIENCE, TAKE_OVER, ExecutedNode, FaultRig, Node
from tests.store_faults.replica_rows import begun_at

JUMPS = (3600, -3600, 86_400, -86_400)
WHOSE = {"one server": ["server0"], "the database": ["database"], "all": ["server0", "server1", "database"]}
TTL_SECONDS = 600  # less than each jump
PER_MINUTE = 60
WINDOW_SECONDS = 1.0  # by which a window may be wrong


class Clocks:
    """A clock for each process, moved by what a file says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = folder / "clock.so"

    def build(self, rig: FaultRig) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        rig.require(compiler, "there is no C compiler for the clock")
        self.folder.chmod(0o755)
        command = [str(compiler), "-shared", "-fPIC", "-O1", "-o", str(self.library), str(CLOCK), "-ldl"]
        subprocess.run(command, check=True)

    def of(self, name: str) -> dict[str, str]:
        """What a process with this clock has in its environment."""
        self.move(name, 0)
        return {"LD_PRELOAD": str(self.library), "FAULTS_CLOCK": str(self.folder / name)}

    def move(self, name: str, seconds: int) -> None:
        new = self.folder / f"{name}.new"
        new.write_text(str(seconds))
        new.chmod(0o644)
        new.replace(self.folder / name)


@contextmanager
def clocked_database(rig: FaultRig) -> Iterator[tuple[Clocks, PostgresPair]]:
    with tempfile.TemporaryDirectory(prefix="clocks") as folder:
        clocks = Clocks(Path(folder))
        clocks.build(rig)
        with postgres_pair(standby=False, **clocks.of("database")) as database:
            yield clocks, database


async def clocks_jump(rig: FaultRig) -> None:
    """S24. No server takes over from another, no session expires, and a limit holds as long as it should."""
    opened = clocked_database(rig)
    clocks, database = await asyncio.to_thread(opened.__enter__)
    try:
        rig.direct_url = database.url("one")
        settings: dict[str, Any] = {"sessions": {"ttl_seconds": TTL_SECONDS}}
        settings["server"] = {"limits": {"requests_per_minute": PER_MINUTE}}
        async with rig.serving(2, start=False, **settings) as nodes:
            for number, node in enumerate(nodes):
                node.__class__ = ExecutedNode
                node.variables |= clocks.of(f"server{number}")
                await node.start()
            await _jumps(rig, clocks, nodes)
            await rig.settle(nodes[1])
            await _limit_holds(rig, clocks, nodes[1])
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


async def _jumps(rig: FaultRig, clocks: Clocks, nodes: list[Node]) -> None:
    before = await rig.rows("SELECT id FROM holodeck.replicas ORDER BY id")
    cases = [(jump, whose) for _ in range(rig.rounds) for jump in JUMPS for whose in WHOSE]
    await rig.witness(rig.script(), thread="idle").see_through(rig.any_node)  # is not used again
    for number, (jump, whose) in enumerate(cases):
        client, reading = await begun_at(rig, nodes[0], rig.script(say=100, ms=20), thread=f"t{number}")
        moved = WHOSE[whose]
        for name in moved:
            clocks.move(name, jump)
        await _database_is(rig, jump if "database" in moved else 0)
        await asyncio.wait_for(reading, PATIENCE)
        rig.require(client.types[-1] == "RUN_FINISHED", f"{whose}, a jump of {jump} s: {client.events[-1]}")
        for node in nodes:
            for thread in ("idle", f"t{number}"):
                found = (await node.get(f"/sessions/{thread}"))["status"]
                rig.require(found == 200, f"{whose}, a jump of {jump} s: session {thread} answers {found}")
        for name in moved:
            clocks.move(name, 0)
        rig.figures.rounds += 1
    await asyncio.sleep(2 * TAKE_OVER)
    after = await rig.rows("SELECT id FROM holodeck.replicas ORDER BY id")
    rig.require(before == after, "a server was taken for dead")
    taken = await rig.rows("SELECT count(*) FROM holodeck.runs WHERE recovered > 0")
    rig.require(taken == [(0,)], f"{taken[0][0]} runs were taken over")


async def _database_is(rig: FaultRig, jump: int) -> None:
    """The clock of the database is the one that was moved: else the row would prove nothing."""
    ((now,),) = await rig.rows("SELECT extract(epoch FROM clock_timestamp())::float")
    shown = now - time.time()
    rig.require(abs(shown - jump) < PATIENCE, f"the clock of the database is {shown:.0f} s ahead instead of {jump} s")


async def _limit_holds(rig: FaultRig, clocks: Clocks, node: Node) -> None:
    """A limit that is used up stays used up for its minute, whichever way the clock jumps."""

    async def ask(client: aiohttp.ClientSession) -> tuple[int, float]:
        async with client.post(node.url + "/agent/tester/chat", json={"message": "q say=1"}) as answer:
            return answer.status, float(answer.headers.get("Retry-After", 0))

    async with aiohttp.ClientSession() as client:
        clocks.move("server1", 0)
        statuses = [(await ask(client))[0] for _ in range(PER_MINUTE + 1)]
        rig.require(statuses[-1] == 429, f"the limit of {PER_MINUTE} was never reached: {statuses.count(200)} accepted")
        _, wait = await ask(client)
        for jump in JUMPS:
            clocks.move("server1", jump)
            begun = asyncio.get_running_loop().time()
            status, left = await ask(client)
            passed = asyncio.get_running_loop().time() - begun
            rig.require(status == 429, f"after a jump of {jump} s a used-up limit answers {status}")
            rig.require(left <= wait, f"after a jump of {jump} s the wait grew from {wait:g} to {left:g} s")
            rig.require(left >= wait - passed - 1 - WINDOW_SECONDS, f"a jump of {jump} s cut the wait to {left:g} s")
            wait = left
        clocks.move("server1", 0)
