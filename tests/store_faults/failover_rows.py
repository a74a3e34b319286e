"""Stores fail over while clients stream: S16 (Valkey by Sentinel) and S18 (PostgreSQL to a synchronous standby)."""

import asyncio
import time

from tests.cli.process import holodeck
from tests.store_faults.failover_backends import postgres_pair, valkey_trio
from tests.store_faults.fault_rig import PATIENCE, FaultRig, Load, Witness
from tests.store_faults.numbered_model import Script
from tests.store_faults.replica_rows import only

STREAMS, FULL_STREAMS = 8, 200
GAP_SECONDS = 0.1  # between two tokens of a stream at the server that has the run
RESUME_SECONDS = 5.0
SILENT_SECONDS = 2.0  # of a primary that is cut off before it is killed


async def valkey_fails_over(rig: FaultRig) -> None:
    """S16: the primary is killed, or silent and then killed, while runs are read at both servers; a third reads the copies."""
    for number in range(rig.rounds):
        trio_open = valkey_trio()
        trio = await asyncio.to_thread(trio_open.__enter__)
        try:
            rig.valkey_url = trio.url
            async with rig.serving(3) as (one, other, third):
                scripts = [rig.script(say=400, ms=20) for _ in range(FULL_STREAMS if rig.full else STREAMS)]
                local = [rig.witness(script, thread=f"t{number}-{script.run}") for script in scripts]
                remote = [rig.witness(each.script, thread=each.thread) for each in local]
                reading = [asyncio.create_task(each.post(one)) for each in local]
                await asyncio.gather(*(each.until_tokens(2) for each in local))
                reading += [asyncio.create_task(each.see_through(only(other))) for each in remote]
                await asyncio.gather(*(each.until_tokens(2) for each in remote))
                silent = SILENT_SECONDS * (number % 2)
                seconds = await asyncio.to_thread(trio.fail_over, silent)
                rig.figures.notes["silent, then killed" if silent else "killed"] = f"{seconds:.1f} s"
                await asyncio.gather(*(each.until_tokens(380) for each in local))
                late = [rig.witness(each.script, thread=each.thread) for each in local]
                reading += [asyncio.create_task(each.see_through(only(third))) for each in late]
                await asyncio.gather(*reading)
                for each in (*local, *remote, *late):
                    rig.require(each.text == each.script.answer, f"a reader got {len(each.text)} characters")
                for its_own, copied in zip(local, late, strict=True):
                    rig.require(copied.events == its_own.events, "the copy of a log differs from the log")
                gap = max(map(_longest_gap, local))
                rig.timed(gap, GAP_SECONDS, "the longest gap of a stream at the run's own server")
                rig.require(
                    gap <= GAP_SECONDS * rig.slack, f"a stream at the run's own server stood still for {gap:.2f} s"
                )
                for each in remote:
                    rig.in_time(_longest_gap(each), RESUME_SECONDS, "the pause of a reader elsewhere")
                await rig.settle(one)
            rig.figures.rounds += 1
        finally:
            await asyncio.to_thread(trio_open.__exit__, None, None, None)


def _longest_gap(client: Witness) -> float:
    return max(after - before for before, after in zip(client.times, client.times[1:], strict=False))


async def postgres_fails_over(rig: FaultRig) -> None:
    """S18: the primary is killed under load and the synchronous standby promoted. No server takes over from another."""

    def script() -> Script:
        return rig.script(say=rig.random.randint(1, 20), act=rig.random.choice((0, 0, 1)), ms=2)

    for _ in range(rig.rounds):
        pair_open = postgres_pair()
        pair = await asyncio.to_thread(pair_open.__enter__)
        try:
            rig.direct_url = pair.url("one")
            async with (
                rig.serving(2, cluster={"take_over_seconds": 10}) as nodes,
                Load(rig, 3, script) as load,
            ):
                checked = await asyncio.to_thread(holodeck, "check", folder=rig.folder, **nodes[0].variables)
                rig.require("synchronous standby" in checked.out, f"holodeck check says: {checked.out}{checked.err}")
                await load.more(3)
                await asyncio.to_thread(pair.kill_primary)
                moment = time.monotonic()
                await asyncio.to_thread(pair.promote)
                rig.direct_url = pair.url("two")
                for node in nodes:
                    node.database.lead_to(pair.socket("two"))
                await load.more(3)
                rig.in_time(time.monotonic() - moment, RESUME_SECONDS, "the time until a run was accepted again")
                await load.end()
                taken = await rig.rows("SELECT count(*) FROM holodeck.runs WHERE recovered > 0")
                rig.require(taken == [(0,)], f"{taken} runs were taken over")
                async with asyncio.timeout(PATIENCE):
                    while (await nodes[0].get("/ready"))["status"] != "healthy":
                        await asyncio.sleep(0.1)
                await rig.settle(nodes[0])
            rig.figures.rounds += 1
        finally:
            await asyncio.to_thread(pair_open.__exit__, None, None, None)
