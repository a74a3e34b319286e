"""Servers that share PostgreSQL and Valkey are killed, paused and asked at the same time: S02, S03, S07, S09 to S15."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from statistics import median

from redis import Redis

from benchmarks.processes import cores, cpu_seconds
from tests.store_faults.evidence_checker import ENDED
from tests.store_faults.fault_rig import PATIENCE, TAKE_OVER, FaultRig, Load, Node, Witness
from tests.store_faults.numbered_model import Script

ELSEWHERE_SECONDS = 2 * TAKE_OVER  # the limit for a take-over: the design has 15 s for a lease of 10 s
FIRST_BYTE_SECONDS = 0.05
FOLLOWED_SHARE = 0.1  # of its CPU, that followers elsewhere may cost the server that has the run
STOP_SECONDS = {"valkey": 0.1, "beat": 3.0, "dead": ELSEWHERE_SECONDS}
END, CONTINUE = {"runs": {"on_crash": "end"}}, {"runs": {"on_crash": "continue"}}
LONG = {"say": 150, "ms": 20}
POLL_SECONDS = 0.01


def others(rig: FaultRig, node: Node) -> list[Node]:
    return [each for each in rig.nodes if each is not node and each.runs]


def only(node: Node) -> Callable[[], Node]:
    """For a client that goes to no other server."""
    return lambda: node


async def begun_at(rig: FaultRig, node: Node, script: Script, *, thread: str) -> tuple[Witness, asyncio.Task[None]]:
    """A client whose run is in its first tokens at this server."""
    client = rig.witness(script, thread=thread)
    reading = asyncio.create_task(client.post(node))
    await client.until_tokens(2)
    return client, reading


async def killed_under_load(rig: FaultRig) -> None:
    """S02: one of four is killed while all are busy; its runs end at another, and its clients see it there."""

    def script() -> Script:
        return rig.script(say=rig.random.randint(1, 30), act=rig.random.choice((0, 0, 1, 2)), ms=2)

    async with rig.serving(4, server=END) as nodes, Load(rig, 3, script) as load:
        for number in range(rig.rounds):
            victim = rig.random.choice(nodes)
            probe, reading = await begun_at(rig, victim, rig.script(**LONG), thread=f"probe{number}")
            await load.more(1)
            await victim.kill()
            moment = time.monotonic()
            await reading
            await probe.see_through(rig.any_node)
            rig.require(probe.types[-1:] == ["RUN_ERROR"], f"the probe ended with {probe.types[-2:]}")
            rig.require("MESSAGES_SNAPSHOT" in probe.types, "the client that came back got no snapshot")
            rig.in_time(probe.first_after(moment) or 0, ELSEWHERE_SECONDS, "the take-over")
            await victim.start()
            rig.figures.rounds += 1
        await load.end()
        await rig.settle(rig.any_node())


async def continues_elsewhere(rig: FaultRig) -> None:
    """S03: with on_crash: continue the answer completes elsewhere, once; only a repeatable tool is called again."""
    async with rig.serving(3, server=CONTINUE) as nodes:
        for number in range(rig.rounds):
            for name in ("looked", "go"):
                (rig.folder / name).unlink(missing_ok=True)
            victim = rig.random.choice(nodes)
            talking, reading = await begun_at(rig, victim, rig.script(**LONG), thread=f"talks{number}")
            looking = rig.witness(rig.script(act=1, tool="look", how="die-after"), thread=f"looks{number}")
            acting = rig.witness(rig.script(act=1, how="slowly"), thread=f"acts{number}")
            before = len(rig.acts)
            also = [asyncio.create_task(acting.post(victim))]
            await rig.acted(before + 1)
            also.append(asyncio.create_task(looking.post(victim)))  # its tool kills the server
            await victim.dies()
            moment = time.monotonic()
            await asyncio.gather(reading, *also)
            await asyncio.gather(*(each.see_through(rig.any_node) for each in (talking, looking, acting)))
            for client in (talking, looking):
                rig.require(client.types[-1] == "RUN_FINISHED", f"{client.script} ended with {client.events[-1]}")
            rig.require(acting.types[-1] == "RUN_ERROR", "a run went on although a call may have taken effect")
            rig.in_time(talking.first_after(moment) or 0, ELSEWHERE_SECONDS, "the take-over")
            (rig.folder / "go").touch()
            await victim.start()
            rig.figures.rounds += 1
        most = await rig.rows("SELECT max(recovered) FROM holodeck.runs")
        rig.require(most[0][0] <= 1, f"a run was taken over {most[0][0]} times")
        await rig.settle(nodes[0])


async def paused(rig: FaultRig) -> None:
    """S07: the owner stands still in its text, in a tool call or anywhere, is taken over, and wakes up."""
    async with rig.serving(2, server=END) as nodes:
        for number in range(rig.rounds):
            (rig.folder / "go").unlink(missing_ok=True)
            owner = nodes[number % 2]
            (other,) = others(rig, owner)
            script = rig.script(act=1, how="slowly") if number % 3 == 1 else rig.script(**LONG)
            client = rig.witness(script, thread=f"t{number}")
            before = len(rig.acts)
            reading = asyncio.create_task(client.post(owner))
            await (rig.acted(before + 1) if script.act else client.until_tokens(2))
            owner.process.send_signal(signal.SIGSTOP)
            moment = time.monotonic()
            try:
                stored = await other.in_state(client.run_id, *ENDED)
                rig.in_time(time.monotonic() - moment, ELSEWHERE_SECONDS, "the take-over")
                messages = await other.messages(client.thread)
                (rig.folder / "go").touch()
            finally:
                owner.process.send_signal(signal.SIGCONT)
            await asyncio.wait_for(reading, PATIENCE)
            rig.require(client.types[-1] == "RUN_ERROR", f"its own client was shown {client.types[-1]}")
            rig.require(await other.messages(client.thread) == messages, "the late process has stored something")
            rig.require(await other.get(f"/runs/{client.run_id}") == stored, "the late process has changed the run")
            if rig.valkey_socket is not None:
                await asyncio.to_thread(_is_sealed, rig)
            again = rig.witness(rig.script(), thread=client.thread)
            await again.see_through(only(owner))
            rig.require(again.types[-1] == "RUN_FINISHED", "the process that woke up does not serve")
            rig.figures.rounds += 1
        await rig.settle(nodes[0])


def _is_sealed(rig: FaultRig) -> None:
    """Every log of a run that was taken over ends with the seal: nothing was added behind it."""
    with Redis(unix_socket_path=str(rig.valkey_socket)) as client:
        logs = list(client.scan_iter("hd:1:*:log:0"))
        last = [client.xrevrange(key, count=1)[0][1] for key in logs]
        rig.require(not logs or any(b"sealed" in fields for fields in last), "the log of the paused run is not sealed")


async def two_at_once(rig: FaultRig) -> None:
    """S09: two pairs of requests on one session at two servers; a queue; then pairs where a busy session is refused."""
    async with rig.serving(2) as nodes:
        for number in range(rig.rounds):
            asked = [rig.witness(rig.script(say=2), thread=f"t{number % 3}") for _ in range(4)]
            await asyncio.gather(*(each.post(node) for each, node in zip(asked, [*nodes, *nodes], strict=True)))
            _require_finished(rig, asked)
            rig.figures.rounds += 1
        for number in range(min(3, rig.rounds)):
            await _wait_in_order(rig, nodes, thread=f"q{number}")
        await rig.settle(nodes[0])
    async with rig.serving(2, sessions={"busy": "reject"}) as nodes:
        for number in range(rig.rounds):
            pair = [rig.witness(rig.script(say=5, ms=100), thread=f"b{number}") for _ in nodes]
            await asyncio.gather(*(each.post(node) for each, node in zip(pair, nodes, strict=True)))
            statuses = sorted(each.status for each in pair)
            rig.require(statuses == [200, 409], f"a busy session answered {statuses}")
        await rig.settle(nodes[0])


def _require_finished(rig: FaultRig, clients: list[Witness]) -> None:
    for each in clients:
        rig.require(each.types[-1:] == ["RUN_FINISHED"], f"status {each.status}, {each.events[-2:]}")


async def _wait_in_order(rig: FaultRig, nodes: list[Node], *, thread: str) -> None:
    """Runs that are accepted one after the other at both servers, while another runs, follow it in that order.

    Requests that arrive at the same moment have no order.
    """
    first, reading = await begun_at(rig, nodes[0], rig.script(say=60, ms=20), thread=thread)
    clients, posts = [first], [reading]
    for node in [nodes[1], nodes[0], nodes[1], nodes[0]]:
        clients.append(rig.witness(rig.script(say=2), thread=thread))
        posts.append(asyncio.create_task(clients[-1].post(node)))
        while len(await rig.rows("SELECT id FROM holodeck.runs WHERE session = ?", (thread,))) < len(clients):
            await asyncio.sleep(POLL_SECONDS)
    await asyncio.gather(*posts)
    _require_finished(rig, clients)
    accepted = [each.script.run for each in clients]
    run_ids = [each["run_id"] for each in await nodes[0].messages(thread) if each["role"] == "user"]
    rig.require(run_ids == accepted, f"accepted {accepted}, carried out {run_ids}")


async def one_key_everywhere(rig: FaultRig) -> None:
    """S10: one request at four servers at once is one run; again after its owner was killed, and if it comes late."""
    async with rig.serving(4, start=False, server=CONTINUE) as nodes:
        by_id = {await _started(rig, node): node for node in nodes}
        for number in range(rig.rounds):
            script, thread = rig.script(say=60, ms=20), f"t{number}"
            clients = [rig.witness(script, thread=thread) for _ in nodes]
            reading = [asyncio.create_task(each.post(node)) for each, node in zip(clients, nodes, strict=True)]
            await asyncio.gather(*(each.until_tokens(2) for each in clients))
            kill = number % 2 == 1
            if kill:
                ((owner,),) = await rig.rows("SELECT replica FROM holodeck.runs WHERE id = ?", (script.run,))
                await by_id[owner].kill()
            await asyncio.gather(*reading)
            await asyncio.gather(*(each.see_through(rig.any_node) for each in clients))
            texts = [[event for event in each.events if event["type"] != "MESSAGES_SNAPSHOT"] for each in clients]
            if not kill:
                rig.require(all(each == texts[0] for each in texts), "the four streams differ")
                rig.require(rig.model.asked.count(script.run) == 1, "the model was asked more than once")
            other = Witness(script, thread=thread)
            other.body["messages"][0]["id"] += "-other"
            alive = rig.any_node()
            await other.post(alive)
            rig.require(other.status == 422, f"another body under the same name got {other.status}")
            for node in nodes:
                if not node.runs:
                    by_id[await _started(rig, node)] = node
            rig.figures.rounds += 1
        await rig.settle(nodes[0])
    async with rig.serving(2) as pair:
        await _comes_late(rig, *pair)
        await rig.settle(pair[0])


async def _comes_late(rig: FaultRig, one: Node, other: Node) -> None:
    """The other server has looked for the request, and enters it when its run has ended at the first.

    The other is new: the text of a statement that a connection has prepared does not pass the link again.
    """
    script = rig.script(say=3)
    first, late = rig.witness(script, thread="late"), rig.witness(script, thread="late")
    other.database.hold_at(b"INSERT INTO holodeck.runs (")
    waiting = asyncio.create_task(late.post(other))
    await asyncio.wait_for(other.database.is_held.wait(), PATIENCE)
    await first.post(one)
    other.database.let_go()
    await waiting
    rig.require(rig.model.asked.count(script.run) == 1, "the model was asked again by a request that came late")
    rig.require(late.text == first.text, f"the late request was shown {late.text!r} instead of {first.text!r}")


async def _started(rig: FaultRig, node: Node) -> str:
    """Starts a server; returns its id among those that share the database."""
    before = (
        {name for (name,) in await rig.rows("SELECT id FROM holodeck.replicas")}
        if any(each.runs for each in rig.nodes)
        else set()
    )
    await node.start()
    return next(name for (name,) in await rig.rows("SELECT id FROM holodeck.replicas") if name not in before)


async def read_here_and_there(rig: FaultRig) -> None:
    """S11: a client in a burst is cut at every seventh event and reads on at the next server."""
    waits: list[float] = []
    async with rig.serving(3) as nodes:
        for number in range(rig.rounds):
            client = rig.witness(rig.script(say=120, ms=1), thread=f"t{number}")
            reading, place = asyncio.create_task(client.post(nodes[0])), 0
            while True:
                target = len(client.events) + 7
                async with asyncio.timeout(PATIENCE):
                    while len(client.events) < target and not reading.done():
                        await _news(client, reading)
                reading.cancel()
                await asyncio.wait({reading})
                if client.has_ended:
                    break
                place, seen, moment = place + 1, len(client.events), time.monotonic()
                reading = asyncio.create_task(client.resume(nodes[place % 3]))
                await _news(client, reading)
                if len(client.answered) > place:
                    waits.append(client.answered[place] - moment)
                if len(client.events) > seen:
                    rig.figures.seconds.append(client.times[seen] - moment)
            rig.require(client.text == client.script.answer, f"the client read {client.text!r}")
            rig.figures.rounds += 1
        first = median(waits)
        for wait in waits:
            rig.timed(wait, FIRST_BYTE_SECONDS, "the first byte at the next server")
        rig.require(first <= FIRST_BYTE_SECONDS * rig.slack, f"the first byte came after {first * 1000:.0f} ms")
        await rig.settle(nodes[0])


async def _news(client: Witness, reading: asyncio.Task[None]) -> None:
    """Waits for the next event, or for the end of the stream."""
    client.changed.clear()
    waiting = asyncio.create_task(client.changed.wait())
    await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def killed_while_resuming(rig: FaultRig) -> None:
    """S12: a client changes to another server in the moment in which its own is killed."""
    async with rig.serving(2, server=END) as nodes:
        for number in range(rig.rounds):
            owner = nodes[number % 2]
            (other,) = others(rig, owner)
            client, reading = await begun_at(rig, owner, rig.script(**LONG), thread=f"t{number}")
            reading.cancel()
            await asyncio.wait({reading})
            resuming = asyncio.create_task(client.see_through(only(other)))
            await asyncio.sleep(rig.random.uniform(0, 0.5))
            await owner.kill()
            moment = time.monotonic()
            await resuming
            rig.require(client.types[-1:] == ["RUN_ERROR"], f"the client saw {client.types[-2:]}")
            rig.in_time(client.first_after(moment) or 0, ELSEWHERE_SECONDS, "the take-over")
            await owner.start()
            rig.figures.rounds += 1
        await rig.settle(nodes[0])


async def many_followers(rig: FaultRig) -> None:
    """S13: many clients read one run at another server; one stands still. The server reads the log once for all.

    A round measures the server of a run twice, in turns: while they read that run, and while they read a run of a third
    server, so that the machine has the same work. The two servers of runs have a core of their own: two hundred
    followers keep the other one busy, and would else stretch the time that a token takes. The first round warms up.
    """
    count = 200 if rig.full else 20
    async with rig.serving(3) as (one, third, other):
        shares: list[float] = []
        with _apart((one, third), other):
            for number in range(-1, rig.rounds):
                cpu = {}
                for owner in (third, one) if number % 2 else (one, third):
                    cpu[owner] = await _cpu_while_followed(rig, (one, third), other, owner, count)
                if number >= 0:
                    shares.append(cpu[one] / cpu[third])
                    rig.figures.rounds += 1
        share = f"{median(shares):.2f} x [{min(shares):.2f}..{max(shares):.2f}]"
        rig.figures.notes |= {"followers": count, "CPU of the owner": share}
        limit = 1 + FOLLOWED_SHARE * rig.slack
        rig.require(median(shares) <= limit, f"followers cost the owner {median(shares):.2f} times its CPU")
        await rig.settle(one)


@contextmanager
def _apart(measured: tuple[Node, Node], other: Node) -> Iterator[None]:
    """Gives the event loops of two servers a core of their own, and the other one to the third server and to this process."""
    before, (for_others, for_measured) = os.sched_getaffinity(0), cores()
    os.sched_setaffinity(0, for_others)
    os.sched_setaffinity(other.process.pid, for_others)
    for node in measured:
        os.sched_setaffinity(node.process.pid, for_measured)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _cpu_while_followed(rig: FaultRig, owners: tuple[Node, Node], other: Node, owner: Node, count: int) -> float:
    """Seconds of CPU that its run takes the first of two owners while so many clients elsewhere follow the run of one."""
    one, third = owners
    scripts = [rig.script(**LONG), rig.script(**LONG)]
    runs = {
        node: await begun_at(rig, node, script, thread=script.run) for node, script in zip(owners, scripts, strict=True)
    }
    client = runs[owner][0]
    followers = [Witness(client.script, thread=client.thread) for _ in range(count)]
    following = [asyncio.create_task(each.resume(other)) for each in followers]
    _, writer = await asyncio.open_connection("127.0.0.1", other.port)
    writer.write(f"GET /runs/{client.run_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())  # never read
    before = cpu_seconds(one.process.pid, alone=True)
    await asyncio.gather(*(each.until_tokens(1) for each in followers))
    with Redis(unix_socket_path=str(rig.valkey_socket)) as valkey:
        listening = sum(each["cmd"] in ("xread", "xread|block") for each in valkey.client_list())
    rig.require(listening <= 3, f"three servers have {listening} connections that wait for events")
    await runs[one][1]
    used = cpu_seconds(one.process.pid, alone=True) - before
    await asyncio.gather(runs[third][1], *following)
    writer.transport.abort()
    for each in followers:
        rig.require(each.text == client.script.answer, f"a follower read {each.text!r}, then {each.events[-1:]}")
    rig.require(all(each.has_ended for each, _ in runs.values()), "a run has no ending")
    return used


async def stopped_from_elsewhere(rig: FaultRig) -> None:
    """S14: the other server is asked to stop a run: before its first token, in text, in a tool, queued, and in need."""
    async with rig.serving(2) as (one, other):
        for where in ("first", "text", "tool", "queued", "no valkey"):
            script = {
                "first": rig.script(say=1, ms=20_000),
                "tool": rig.script(act=1, how="slowly"),
            }.get(where, rig.script(**LONG))
            client = rig.witness(script, thread=where)
            (rig.folder / "go").unlink(missing_ok=True)
            before = len(rig.acts)
            if where == "queued":
                holding, held = await begun_at(rig, one, rig.script(**LONG), thread=where)
            reading = asyncio.create_task(client.post(one))
            await rig.stored("SELECT 1 FROM holodeck.runs WHERE id = ?", (client.run_id,))
            if where in ("text", "no valkey"):
                await client.until_tokens(2)
            if where == "tool":
                await rig.acted(before + 1)
            if where == "no valkey":
                one.valkey.cut()
                other.valkey.cut()
            moment = time.monotonic()
            answer = await other.post(f"/runs/{client.run_id}/stop")
            rig.require(answer.get("stopped"), f"{where}: {answer}")
            stored = await one.in_state(client.run_id, *ENDED)
            limit = STOP_SECONDS["beat" if where == "no valkey" else "valkey"]
            rig.in_time(time.monotonic() - moment, limit, f"the stop ({where})")
            rig.require(stored["state"] == "cancelled", f"{where}: the run is {stored['state']}")
            (rig.folder / "go").touch()
            with suppress(TimeoutError):
                await asyncio.wait_for(reading, PATIENCE)
            if where == "queued":
                await other.post(f"/runs/{holding.run_id}/stop")
                await asyncio.wait_for(held, PATIENCE)
            one.valkey.heal()
            other.valkey.heal()
            rig.figures.rounds += 1
        dead, reading = await begun_at(rig, one, rig.script(**LONG), thread="dead")
        await one.kill()
        moment = time.monotonic()
        await other.post(f"/runs/{dead.run_id}/stop")
        stored = await other.in_state(dead.run_id, *ENDED)
        rig.in_time(time.monotonic() - moment, STOP_SECONDS["dead"], "the stop of a dead server's run")
        rig.require(stored["state"] == "cancelled", f"the run of a dead server is {stored['state']}")
        await reading
        await dead.see_through(only(other))
        async with asyncio.timeout(PATIENCE):
            while rig.model.open:
                await asyncio.sleep(0.02)
        await one.start()
        await rig.settle(other)


async def deleted_elsewhere(rig: FaultRig) -> None:
    """S15: the session is deleted at the other server while its run goes on; its time to live is over in that moment."""
    async with rig.serving(2) as (one, other):
        for number in range(rig.rounds):
            thread = f"t{number}"
            client, reading = await begun_at(rig, one, rig.script(**LONG), thread=thread)
            await rig.change("UPDATE holodeck.sessions SET used = 0 WHERE id = ?", (thread,))
            for node in (one, other):
                found = (await node.get(f"/sessions/{thread}"))["status"]
                rig.require(found == 200, f"a session with an open run has expired: {found}")
            if number % 2 == 1:
                await rig.change("UPDATE holodeck.sessions SET used = 0 WHERE id = ?", (thread,))
            moment = time.monotonic()
            rig.require(await other.delete(f"/sessions/{thread}") == 204, "the deletion was refused")
            await asyncio.wait_for(reading, PATIENCE)
            rig.figures.seconds.append(time.monotonic() - moment)
            rig.require(client.has_ended, "the client of a deleted session got no ending")
            for node in (one, other):
                found = (await node.get(f"/sessions/{thread}"))["status"]
                rig.require(found == 404, f"a deleted session answers {found}")
            again = rig.witness(rig.script(), thread=thread)
            await again.see_through(rig.any_node)
            texts = [each["run_id"] for each in await other.messages(thread)]
            rig.require(set(texts) == {again.run_id}, f"of a deleted session came back: {texts}")
            rig.witnesses.remove(client)
            rig.figures.rounds += 1
        await rig.settle(other)
        await _expires(rig, one, other)


async def _expires(rig: FaultRig, one: Node, other: Node) -> None:
    """A session whose time ends while its run goes on is there until the run has ended, and then as long as any other."""
    client, reading = await begun_at(rig, one, rig.script(**LONG), thread="expires")
    await rig.change("UPDATE holodeck.sessions SET used = 0 WHERE id = ?", ("expires",))
    await asyncio.wait_for(reading, PATIENCE)
    rig.require(client.types[-1] == "RUN_FINISHED", f"the run of an old session ended with {client.events[-1]}")
    rig.require(len(await other.messages("expires")) == 2, "the run of an old session has stored nothing")
    await rig.settle(other)
    await rig.change("UPDATE holodeck.sessions SET used = 0 WHERE id = ?", ("expires",))
    for node in (one, other):
        found = (await node.get("/sessions/expires"))["status"]
        rig.require(found == 404, f"a session that has expired answers {found}")
