"""One server is killed with -9, at random and at chosen moments: S01, S04, S05, S06."""

import asyncio

from tests.store_faults.evidence_checker import ENDED, UNKNOWN
from tests.store_faults.fault_rig import PATIENCE, SQLITE, FaultRig, Load, Node, Witness
from tests.store_faults.numbered_model import Script

THREADS = 4
WRITES = (
    '"id":"call_{run}_0"',  # before the call is stored, so before it is made
    '"call_id":"call_{run}_0"',  # between the result and its commit
    '"content":"{answer}"',  # between that commit and the one of the answer with the run's ending
)
RESTART_SECONDS = 2.0


async def killed_at_random(rig: FaultRig) -> None:
    """S01. Runs have 0 to 3 tool calls; in every third round a tool itself kills its server, before or after it acted.

    With PostgreSQL the server is also killed before single writes, which the link to the database holds back.
    """
    deadly: list[str] = []

    def script() -> Script:
        how = deadly.pop() if deadly else "quickly"
        calls = 1 if how != "quickly" else rig.random.choice((0, 0, 1, 2, 3))
        return rig.script(say=rig.random.randint(1, 40), act=calls, how=how, ms=rig.random.choice((0, 1, 3)))

    async with rig.serving() as (node,), Load(rig, THREADS, script) as load:
        for number in range(rig.rounds):
            await load.more(1)
            if number % 3 == 2:
                deadly.append(rig.random.choice(("die-before", "die-after")))
                await node.dies()
            else:
                await asyncio.sleep(rig.random.uniform(0, 0.3))
            rig.in_time(await node.restart(), RESTART_SECONDS, "the restart")
            rig.figures.rounds += 1
        ending = asyncio.create_task(load.end())
        while not ending.done():
            await asyncio.wait({ending}, timeout=0.1)
            if not node.runs:  # a deadly call was made in the last round
                await node.restart()
        await ending
        if rig.store != SQLITE:
            for number in range(max(len(WRITES), rig.rounds // 3)):
                await _killed_before_a_write(rig, node, WRITES[number % len(WRITES)], thread=f"written{number}")
        await rig.settle(node)


async def _killed_before_a_write(rig: FaultRig, node: Node, write: str, *, thread: str) -> None:
    """Killed when the database has been sent, and has not got, what this script's run writes at this moment."""
    script = rig.script(act=1, say=5)
    client = rig.witness(script, thread=thread)
    node.database.hold_at(write.format(run=script.run, answer=script.answer).encode())
    reading = asyncio.create_task(client.post(node))
    await asyncio.wait_for(node.database.is_held.wait(), PATIENCE)
    await node.kill()
    node.database.cut()  # what is held never arrives
    await reading
    rig.require(
        (f"call_{script.run}_0" in rig.acts) == (write != WRITES[0]),
        f"killed before the write of {write}, the tool had acted: {rig.acts[-1:]}",
    )
    node.database.heal()
    node.database.let_go()
    rig.in_time(await node.restart(), RESTART_SECONDS, "the restart")
    await client.see_through(rig.any_node)
    rig.figures.rounds += 1


async def killed_after_the_ending(rig: FaultRig) -> None:
    """S04: whatever the client was shown as the end is stored."""
    async with rig.serving() as (node,):
        for _ in range(rig.rounds):
            client = rig.witness(rig.script(say=2))
            reading = asyncio.create_task(client.post(node))
            await client.until("RUN_FINISHED")
            await node.kill()
            await reading
            await node.start()
            state = (await node.get(f"/runs/{client.run_id}"))["state"]
            rig.require(state == "finished", f"the client saw RUN_FINISHED and the run is {state}")
            rig.figures.rounds += 1
        await rig.settle(node)


async def killed_while_one_waits(rig: FaultRig) -> None:
    """S05: the message of a queued run is neither lost nor stored twice."""
    async with rig.serving() as (node,):
        for number in range(rig.rounds):
            thread = f"t{number}"
            first = rig.witness(rig.script(say=200, ms=20), thread=thread)
            second = rig.witness(rig.script(say=2), thread=thread)
            reading = asyncio.create_task(first.post(node))
            await first.until_tokens(1)
            waiting = asyncio.create_task(second.post(node))
            await rig.stored("SELECT 1 FROM holodeck.runs WHERE id = ?", (second.run_id,))
            rig.in_time(await node.restart(), RESTART_SECONDS, "the restart")
            await asyncio.gather(reading, waiting)
            # What is stored is acknowledged for these two, though no byte of the second answer may have left.
            await asyncio.gather(*(each.see_through(rig.any_node) for each in (first, second)))
            rig.require(second.is_acknowledged, "the run that waited is unknown after the restart")
            rig.figures.rounds += 1
        await rig.settle(node)


async def killed_after_an_approval(rig: FaultRig) -> None:
    """S06: the approval was taken and the tool was not, half or fully done. Its outcome is unknown, never "not approved"."""
    async with rig.serving() as (node,):
        for number in range(rig.rounds):
            thread, how = f"t{number}", ("die-before", "die-after", "slowly")[number % 3]
            asking = rig.witness(rig.script(act=1, tool="pay", how=how), thread=thread)
            await asyncio.wait_for(asking.post(node), PATIENCE)
            yes = _approvals(asking)
            answering = rig.witness(rig.script(), thread=thread, resume=yes)
            answering.body["messages"] = []
            before = len(rig.acts)
            reading = asyncio.create_task(answering.post(node))
            if how == "slowly":
                await rig.acted(before + 1)
            else:
                await node.dies()
            rig.in_time(await node.restart(), RESTART_SECONDS, "the restart")
            await reading
            if answering.is_acknowledged:  # its client comes back
                await answering.see_through(rig.any_node)
            await node.in_state(answering.run_id, *ENDED)
            texts = [each["content"] for each in await node.messages(thread) if each["role"] == "tool"]
            rig.require(
                len(texts) == 1 and UNKNOWN in texts[0], f"killed while the tool was {how}, the history says {texts}"
            )
            again = Witness(rig.script(), thread=thread, resume=yes)
            again.body["messages"] = []
            await asyncio.wait_for(again.post(node), PATIENCE)
            rig.require("RUN_FINISHED" not in again.types, "an approval was accepted twice")
            rig.figures.rounds += 1
            rig.figures.unknown += 1
            rig.witnesses.clear()
        acts = rig.acts
        rig.require(len(acts) == len(set(acts)), f"a tool acted twice: {acts}")


def _approvals(asking: Witness) -> list[dict[str, object]]:
    interrupts = asking.events[-1]["outcome"]["interrupts"]
    return [{"interruptId": each["id"], "status": "resolved", "payload": {"approved": True}} for each in interrupts]
