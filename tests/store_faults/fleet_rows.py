"""Many requests, clocks that jump, restarts and foreign users over several servers: S20, S24, S25, S28, S29."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
from redis import Redis

from tests.faults.process_faults import CLOCK
from tests.store_faults.numbered_model import Script
from tests.store_faults.replica_rows import CONTINUE, begun_at
from tests.store_faults.rig import PATIENCE, TAKE_OVER, Load, Node, Rig

WAIT_SECONDS = 2.0  # for a free connection of the pool
JUMPS = (3600, -3600, 86_400, -86_400)
AUTH = """\
from holodeck.access.principal import Principal

async def who(headers, address):
    name = headers.get("x-name")
    return Principal(tenant="t", user=name, scopes=frozenset({"admin"}), via="hook") if name else None
"""
REQUEST_ID = re.compile(rb"req_[0-9a-f]+")
ODD = "{}*:a\\r\\n"


async def many_at_once(rig: Rig) -> None:
    """S20: more runs than connections. Each is answered, or refused with 503 before its first byte."""
    count = 150 if rig.rounds == 1 else 1000
    async with rig.serving(server={"runs": {"max_concurrent": 5000}}) as (node,):
        clients = [rig.witness(rig.script(say=3), thread=f"t{number}") for number in range(count)]
        begun = time.monotonic()
        async with asyncio.timeout(PATIENCE * 2):
            await asyncio.gather(*(each.post(node) for each in clients))
        rig.figures.seconds.append(time.monotonic() - begun)
        statuses = {
            status: sum(each.status == status for each in clients) for status in {each.status for each in clients}
        }
        rig.figures.notes["statuses"] = statuses
        rig.require(set(statuses) <= {200, 503}, f"statuses {statuses}")
        for each in clients:
            if each.status == 200:
                rig.require(each.has_ended, f"run {each.run_id} has no ending")
                rig.require(
                    each.types[-1] == "RUN_FINISHED", f"run {each.run_id} was accepted and ended with {each.events[-1]}"
                )
        await asyncio.gather(*(each.see_through(rig.any_node) for each in clients if each.status == 503))
        rig.figures.rounds += 1
        await rig.settle(node)


class ClockedNode(Node):
    """A server whose wall clock is moved by what a file says. It has to be executed: a fork keeps the old clock."""

    async def start(self) -> None:
        words = ("-m", "holodeck", "serve", "--protocol", "all", "--port", str(self.port))
        environment = {**os.environ, **self.variables}
        self.executed = await asyncio.create_subprocess_exec(
            sys.executable, *words, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert self.executed.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while b"Ctrl+C" not in (line := await self.executed.stderr.readline()):
                assert line, "the server with the moved clock does not start"

    @property
    def runs(self) -> bool:
        return hasattr(self, "executed") and self.executed.returncode is None

    async def kill(self) -> None:
        if self.runs:
            self.executed.kill()
            await self.executed.wait()


async def clocks_jump(rig: Rig) -> None:
    """S24: the clock of one server, then of both, jumps in mid-run."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    rig.require(compiler, "there is no C compiler for the clock")
    async with rig.serving(2, start=False) as nodes:
        library = rig.folder / "clock.so"
        build = [str(compiler), "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK), "-ldl"]
        await asyncio.to_thread(subprocess.run, build, check=True)
        for number, node in enumerate(nodes):
            node.__class__ = ClockedNode
            (rig.folder / f"offset{number}").write_text("0")
            node.variables |= {"LD_PRELOAD": str(library), "FAULTS_CLOCK": str(rig.folder / f"offset{number}")}
            await node.start()
        before = await rig.rows("SELECT id FROM holodeck.replicas ORDER BY id")
        for number, jump in enumerate(JUMPS[: max(2, rig.rounds)]):
            client, reading = await begun_at(rig, nodes[0], rig.script(say=200, ms=20), thread=f"t{number}")
            for each in range(1 + number % 2):
                _set(rig.folder / f"offset{each}", jump)
            await asyncio.wait_for(reading, PATIENCE)
            rig.require(client.types[-1] == "RUN_FINISHED", f"a jump of {jump} s: {client.events[-1]}")
            rig.figures.rounds += 1
        await asyncio.sleep(2 * TAKE_OVER)
        after = await rig.rows("SELECT id FROM holodeck.replicas ORDER BY id")
        rig.require(before == after, "a server was taken for dead")
        taken = await rig.rows("SELECT count(*) FROM holodeck.runs WHERE recovered > 0")
        rig.require(taken == [(0,)], f"{taken[0][0]} runs were taken over")
        await rig.settle(nodes[1])


def _set(path: Path, seconds: int) -> None:
    new = path.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(path)


async def rolling_restart(rig: Rig) -> None:
    """S25: three servers are stopped with SIGTERM and started again, one after the other, under load."""

    def script() -> Script:
        return rig.script(say=rig.random.randint(1, 20), act=rig.random.choice((0, 1)), ms=5)

    settings: dict[str, Any] = {**CONTINUE, "shutdown_timeout": 10}
    async with rig.serving(3, server=settings) as nodes, Load(rig, 4, script) as load:
        for _ in range(rig.rounds):
            for node in nodes:
                await load.more(2)
                begun = time.monotonic()
                await node.end(signal.SIGTERM)
                await node.start()
                rig.figures.seconds.append(time.monotonic() - begun)
                rig.figures.rounds += 1
        await load.end()
        failed = [each for each in load.clients if each.types[-1:] != ["RUN_FINISHED"]]
        rig.require(not failed, f"{len(failed)} requests failed: {[each.events[-1:] for each in failed[:3]]}")
        asked = rig.model.asked
        most = max((sum(name == run for name in asked), run) for run in set(asked))
        rig.figures.notes["requests"] = len(load.clients)
        rig.require(most[0] <= 2, f"run {most[1]} asked the model {most[0]} times")
        await rig.settle(nodes[0])


async def limits_of_all(rig: Rig) -> None:
    """S28: three servers count together; one is killed meanwhile."""
    limit = 30 if rig.rounds == 1 else 100
    limits = {"limits": {"store": "${VALKEY_URL}", "requests_per_minute": limit}}
    async with rig.serving(3, server=limits) as nodes:

        async def ask(number: int) -> int:
            async with aiohttp.ClientSession() as client:
                try:
                    body = {"message": f"q{number} say=1"}
                    async with client.post(rig.any_node().url + "/agent/tester/chat", json=body) as answer:
                        return answer.status
                except aiohttp.ClientError:
                    return 0

        first = await asyncio.gather(*(ask(number) for number in range(limit // 2)))
        await nodes[0].kill()
        then = await asyncio.gather(*(ask(number) for number in range(limit, 4 * limit)))
        statuses = [*first, *then]
        accepted, refused = statuses.count(200), statuses.count(429)
        rig.figures.notes |= {"limit": limit, "accepted": accepted, "refused": refused}
        rig.require(accepted == limit, f"the limit is {limit}, {accepted} were accepted, {refused} refused")
        nodes[1].valkey.cut()
        nodes[2].valkey.cut()
        without = await asyncio.gather(*(ask(number) for number in range(10 * limit, 13 * limit)))
        rig.figures.notes["without Valkey"] = without.count(200)
        rig.require(without.count(200) <= 2 * limit, f"without Valkey {without.count(200)} were accepted")
        rig.figures.rounds += 1


async def foreign_ids(rig: Rig) -> None:
    """S29: every route that takes an id is asked at another server by another user, with ids that exist and that do not."""
    async with rig.serving(
        2, server={"auth": {"mode": "hook", "hook": {"file": "auth.py", "function": "who"}}}, start=False
    ) as (one, other):
        (rig.folder / "auth.py").write_text(AUTH)
        await asyncio.gather(one.start(), other.start())
        async with aiohttp.ClientSession() as client:
            bodies = []
            for name in ("known", ODD):
                made: dict[str, Any] = {
                    "threadId": name,
                    "runId": name,
                    "messages": [{"id": "m", "role": "user", "content": "r1 say=3"}],
                }
                made |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
                async with client.post(one.url + "/awp", json=made, headers={"X-Name": "ann"}) as answer:
                    bodies.append(await answer.read())
            rig.require(b"RUN_FINISHED" in bodies[0], f"the owner's run: {bodies[0][-200:]!r}")
            probes = [
                ("GET", "/sessions/{}"), ("DELETE", "/sessions/{}"), ("GET", "/sessions/{}/events"), ("GET", "/runs/{}"),
                ("GET", "/runs/{}/events"), ("POST", "/runs/{}/stop"), ("POST", "/runs/{}/continue"),
                ("POST", "/runs/{}/ticket"), ("GET", "/v1/responses/resp_{}"), ("DELETE", "/v1/responses/resp_{}"),
            ]  # fmt: skip
            for method, path in probes:
                answers = []
                for name in ("known", "noone"):
                    address = other.url + path.format(name)
                    async with client.request(method, address, headers={"X-Name": "eve"}) as answer:
                        text = REQUEST_ID.sub(b"", (await answer.read()).replace(name.encode(), b"?"))
                        answers.append((answer.status, text))
                rig.require(
                    answers[0] == answers[1], f"{method} {path} tells a foreign id from an unknown one: {answers}"
                )
                rig.require(answers[0][0] in (404, 204, 401, 403), f"{method} {path}: {answers[0]}")
                rig.figures.rounds += 1
            async with client.get(other.url + "/sessions/known", headers={"X-Name": "ann"}) as answer:
                rig.require(answer.status == 200, f"the owner's session is {answer.status} after the probes")
            with Redis(unix_socket_path=str(rig.valkey_socket)) as valkey:
                async with asyncio.timeout(PATIENCE):
                    while not (keys := [key.decode(errors="replace") for key in valkey.scan_iter("*log*")]):
                        await asyncio.sleep(0.05)
            odd = [key for key in keys if "known" in key or "*" in key or "\r" in key]
            rig.require(not odd, f"keys with a client's text: {odd}")
