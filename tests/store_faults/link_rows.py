"""Links between servers and stores are cut, silent or slow: S08, S17, S19; and Valkey forgets or is full."""

import asyncio
import time

from redis import Redis

from tests.store_faults.evidence_checker import ENDED
from tests.store_faults.fault_rig import PATIENCE, TAKE_OVER, FaultRig, Node
from tests.store_faults.replica_rows import END, LONG, begun_at, only, others

DEFAULT_TAKE_OVER = 10.0  # of cluster.take_over_seconds
CONTINUES_SECONDS = 5.0
SLOW_SECONDS = 5.0  # for a statement, there and back


async def cut_off_from_the_database(rig: FaultRig) -> None:
    """S08: one server loses PostgreSQL, Valkey stays. It ends its runs before the other takes them over."""
    await _cut_off(rig, rig.rounds, TAKE_OVER)
    if rig.full:  # a refused heartbeat takes 2 s, which is longer than the time between two only here
        await _cut_off(rig, 1, DEFAULT_TAKE_OVER)


async def _cut_off(rig: FaultRig, rounds: int, take_over: float) -> None:
    own_end = 0.8 * take_over + 1  # seconds by which a server that lost the database has ended its runs
    async with rig.serving(2, server=END, cluster={"take_over_seconds": take_over}) as nodes:
        for number in range(rounds):
            owner = nodes[number % 2]
            (other,) = others(rig, owner)
            client, reading = await begun_at(rig, owner, rig.script(say=2000, ms=20), thread=f"t{number}")
            (owner.database.cut if number % 2 == 0 else owner.database.black_hole)()
            moment = time.monotonic()
            async with asyncio.timeout(PATIENCE):
                while rig.model.open:  # the owner has closed its connection to the model: its run does nothing more
                    await asyncio.sleep(0.02)
            ended = time.monotonic() - moment
            stored = await other.in_state(client.run_id, *ENDED)
            taken = time.monotonic() - moment
            rig.require(ended < taken, f"taken over after {taken:.1f} s, its own server ended it after {ended:.1f} s")
            rig.require(ended <= own_end * rig.slack, f"its own server ended the run after {ended:.1f} s")
            rig.in_time(taken, 2 * take_over, "the take-over")
            rig.require(stored["state"] == "interrupted", f"the run is {stored['state']}")
            owner.database.heal()
            await asyncio.wait_for(reading, PATIENCE)
            rig.require(client.types[-1] == "RUN_ERROR", f"its client saw {client.types[-2:]}")
            again = rig.witness(rig.script(), thread=client.thread)
            await again.see_through(only(owner))
            rig.require(again.types[-1] == "RUN_FINISHED", "the server does not serve after the link is back")
            # It was shown a tail that nothing but its own server had, and no snapshot: its text is not compared.
            client.events = [event for event in client.events if event["type"] != "TEXT_MESSAGE_CONTENT"]
            rig.figures.rounds += 1
        await rig.settle(nodes[0])


async def valkey_in_need(rig: FaultRig) -> None:
    """S17: Valkey is gone, is emptied, is full, evicts; runs and their own readers do not notice."""
    async with rig.serving(3) as (one, other, third):
        with Redis(unix_socket_path=str(rig.valkey_socket)) as valkey:
            for what in ("gone", "emptied", "full", "evicting"):
                away = {"say": 3200, "ms": 20} if rig.full and what == "gone" else LONG  # a minute, or three seconds
                client, reading = await begun_at(rig, one, rig.script(**away), thread=what)
                follower = rig.witness(client.script, thread=what)
                following = asyncio.create_task(follower.see_through(only(other)))
                await follower.until_tokens(1)
                if what == "gone":
                    for node in rig.nodes:
                        node.valkey.cut()
                if what == "emptied":
                    valkey.flushall()
                if what in ("full", "evicting"):
                    valkey.config_set("maxmemory-policy", "noeviction" if what == "full" else "allkeys-lru")
                    valkey.config_set("maxmemory", 1)
                late = rig.witness(client.script, thread=what)  # at a server that knows nothing of the run
                coming = asyncio.create_task(late.see_through(only(third)))
                if what == "gone":
                    await _is(one, "degraded")
                ready = (await one.get("/ready"))["status"]
                rig.require(ready != "unhealthy", f"{what}: the server is {ready}")
                await asyncio.wait_for(reading, 3 * PATIENCE)
                rig.require(client.text == client.script.answer, f"{what}: its own reader got {client.text!r}")
                if what == "emptied":
                    rig.require(late.text, "emptied: a reader that came late had to wait for the end of the run")
                gaps = [after - before for before, after in zip(client.times, client.times[1:], strict=False)]
                rig.figures.seconds.append(max(gaps))
                await asyncio.gather(following, coming)
                rig.require(follower.has_ended, f"{what}: the reader at the other server has no ending")
                rig.require(late.has_ended, f"{what}: a reader that came late has no ending")
                whole = late.text == client.script.answer or "MESSAGES_SNAPSHOT" in late.types
                rig.require(whole, f"{what}: a reader that came late got {late.text!r}")
                if what == "emptied":
                    rig.require(
                        late.text == client.script.answer, f"emptied: a reader that came late got {late.text!r}"
                    )
                for node in rig.nodes:
                    node.valkey.heal()
                valkey.config_set("maxmemory", 0)
                rig.figures.rounds += 1
            await asyncio.sleep(CONTINUES_SECONDS + 1)  # the servers look for Valkey again
            after, reading = await begun_at(rig, one, rig.script(say=60, ms=20), thread="after")
            follower = rig.witness(after.script, thread="after")
            await follower.see_through(only(other))
            await reading
            rig.require(follower.text == after.script.answer, f"afterwards a reader elsewhere got {follower.text!r}")
            rig.require(valkey.dbsize() > 0, "afterwards no log is in Valkey")
            await _is(one, "healthy")
        await rig.settle(one)


async def _is(node: Node, health: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await node.get("/ready"))["status"] != health:
            await asyncio.sleep(0.1)


async def database_in_need(rig: FaultRig) -> None:
    """S19: PostgreSQL is silent for a while, too long, or slow, in mid-run."""
    async with rig.serving(1, cluster={"take_over_seconds": 30}) as (node,):
        for what, seconds in (("short", 5.0), ("slow", SLOW_SECONDS / 2), ("long", 0.0)):
            client, reading = await begun_at(rig, node, rig.script(say=60, ms=20), thread=what)
            if what == "slow":
                node.database.delay = seconds
            else:
                node.database.black_hole()
            moment = time.monotonic()
            if what == "short":
                await asyncio.sleep(seconds)
                node.database.heal()
            await asyncio.wait_for(reading, PATIENCE)
            rig.figures.seconds.append(time.monotonic() - moment)
            if what == "long":
                rig.require(client.types[-1] == "RUN_ERROR", f"the run ended with {client.types[-1]}")
                rig.require(
                    client.events[-1].get("code") == "store-unavailable", f"the run ended with {client.events[-1]}"
                )
                refused = rig.witness(rig.script(), thread="refused")
                await asyncio.wait_for(refused.post(node), PATIENCE)
                rig.require(refused.status == 503, f"a new run got {refused.status}")
                rig.require((await node.get("/ready"))["status"] == "unhealthy", "/ready is 200")
                rig.witnesses.remove(refused)
                rig.witnesses.remove(client)  # whether its last commit was stored is not known: its answer was lost
            else:
                rig.require(client.types[-1] == "RUN_FINISHED", f"{what}: {client.events[-1]}")
            node.database.heal()
            rig.figures.rounds += 1
        await _is(node, "healthy")
        again = rig.witness(rig.script(), thread="long")
        await again.see_through(only(node))
        asked = [each["id"] for each in await node.messages("long") if each["role"] == "user"]
        rig.require(len(asked) == len(set(asked)) == 2, f"the session that lost its database has {asked}")
        await node.restart()
        await rig.settle(node)
