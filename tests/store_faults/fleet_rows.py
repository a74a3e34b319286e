"""Many requests and foreign users over several servers: S20, S28, S29."""

import asyncio
import json
import re
import time
from typing import Any

import aiohttp
from redis import Redis

from holodeck.server.routing import Operation
from tests.server.test_access_matrix import BODIES, GUARDED, NEW_A2A, PARAMETERS, SHARED
from tests.store_faults.fault_rig import PATIENCE, TAKE_OVER, FaultRig, Node

AUTH = """\
from holodeck.access.principal import Principal

async def who(headers, address):
    name = headers.get("x-name")
    return Principal(tenant="t", user=name, scopes=frozenset({"admin"}), via="hook") if name else None
"""
WITH_IDS = {
    name: each
    for name, each in GUARDED.items()
    if set(each.path_parameters) - {"agent_id", "name", "model"} and "{version}" not in each.shown_path
}
"""All operations that take an id in their path, by the application's own table: a new one is probed by itself."""
REQUEST_ID = re.compile(rb"req_[0-9a-f]+")
ODD = ("{}*:a", "{}*:a\r\n", "a\r\nb: c", "a\0b")


async def many_at_once(rig: FaultRig) -> None:
    """S20: more runs than connections. Each is answered, or refused with 503 before its first byte."""
    count = 1000 if rig.full else 150
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


async def limits_of_all(rig: FaultRig) -> None:
    """S28: three servers count together; one is killed meanwhile."""
    limit = 100 if rig.full else 30
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
        then = await asyncio.gather(*(ask(number) for number in range(limit, 10 * limit)))
        statuses = [*first, *then]
        accepted, refused = statuses.count(200), statuses.count(429)
        rig.figures.notes |= {"limit": limit, "accepted": accepted, "refused": refused}
        rig.require(accepted == limit, f"the limit is {limit}, {accepted} were accepted, {refused} refused")
        await asyncio.sleep(TAKE_OVER / 2)  # two heartbeats: each server knows the others
        nodes[1].valkey.cut()
        nodes[2].valkey.cut()
        without = await asyncio.gather(*(ask(number) for number in range(10 * limit, 13 * limit)))
        rig.figures.notes["without Valkey"] = without.count(200)
        rig.require(0 < without.count(200) <= limit, f"without Valkey {without.count(200)} were accepted")
        rig.figures.rounds += 1


async def _probed(
    client: aiohttp.ClientSession, node: Node, operation: Operation, name: str, user: str
) -> tuple[int, bytes]:
    """The status and the body of one operation for this id, without what differs from request to request."""
    path = operation.shown_path
    for each in operation.path_parameters:
        path = path.replace("{" + each + "}", PARAMETERS[each] if each == "agent_id" else name)
    is_new_a2a = path.startswith("/a2a/") and not path.startswith("/a2a/v1/")
    headers = {"X-Name": user, "Content-Type": "application/json", **(NEW_A2A if is_new_a2a else {})}
    body = json.dumps(BODIES.get(operation.shown_path, {})) if operation.method == "POST" else None
    async with client.request(operation.method, node.url + path, data=body, headers=headers) as answer:
        is_endless = answer.status == 200 and operation.shown_path == "/sessions/{id}/events"
        text = b"" if is_endless else await answer.read()
        return answer.status, REQUEST_ID.sub(b"", text.replace(name.encode(), b"?"))


async def foreign_ids(rig: FaultRig) -> None:
    """S29: every route that takes an id is asked at another server by another user, with ids that exist and that do not."""
    async with rig.serving(
        2, server={"auth": {"mode": "hook", "hook": {"file": "auth.py", "function": "who"}}}, start=False
    ) as (one, other):
        (rig.folder / "auth.py").write_text(AUTH)
        await asyncio.gather(one.start(), other.start())
        async with aiohttp.ClientSession() as client:
            bodies = []
            for name in ("known", *ODD):
                made: dict[str, Any] = {
                    "threadId": name,
                    "runId": name,
                    "messages": [{"id": "m", "role": "user", "content": "r1 say=3"}],
                }
                made |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
                async with client.post(one.url + "/awp", json=made, headers={"X-Name": "ann"}) as answer:
                    bodies.append(await answer.read())
                rig.require(answer.status in (200, 422), f"the id {name!r} got {answer.status}: {bodies[-1][:200]!r}")
            rig.require(b"RUN_FINISHED" in bodies[0], f"the owner's run: {bodies[0][-200:]!r}")
            for name, operation in WITH_IDS.items():
                foreign, unknown = [await _probed(client, other, operation, each, "eve") for each in ("known", "noone")]
                rig.require(foreign == unknown, f"{name} tells a foreign id from an unknown one: {foreign}, {unknown}")
                refused = foreign[0] in (204, 401, 403, 404, 422) or foreign[1] == b'{"stopped":false}'
                rig.require(refused, f"{name}: {foreign}")
                rig.figures.rounds += 1
            for name, operation in WITH_IDS.items():  # else a probe asks for what is not there for its owner either
                if operation.method == "GET" and name not in SHARED:
                    own, unknown = [await _probed(client, other, operation, each, "ann") for each in ("known", "noone")]
                    is_over = own[0] == 204  # of a run that has ended there is nothing to follow
                    rig.require(is_over or own != unknown, f"{name} answers its owner as if it were not there: {own}")
            async with client.get(other.url + "/sessions/known", headers={"X-Name": "ann"}) as answer:
                rig.require(answer.status == 200, f"the owner's session is {answer.status} after the probes")
            with Redis(unix_socket_path=str(rig.valkey_socket)) as valkey:
                async with asyncio.timeout(PATIENCE):
                    while not (keys := [key.decode(errors="replace") for key in valkey.scan_iter("*log*")]):
                        await asyncio.sleep(0.05)
            odd = [key for key in keys if any(part in key for part in ("known", "*", "\r", "\n", "\0"))]
            rig.require(not odd, f"keys with a client's text: {odd}")
