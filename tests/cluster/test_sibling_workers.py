"""Workers of one server on one SQLite file: any of them serves any request, and the runs of one that dies go on."""

import asyncio

import pytest

from tests.cluster.replicas import PATIENCE, Client, Pace
from tests.cluster.siblings import siblings

UNKNOWN = "whether it took effect is not known"
WORDS = "".join(f"{number} " for number in range(20)) + "end"


@pytest.mark.req("C07", "C08", "C09b", "SRV-11")
async def test_any_worker_serves_any_request(tmp_path):
    pace = Pace()
    async with siblings(tmp_path, pace, approval="always") as (one, other):
        await reads_on_at_the_other(one, other, pace)
        await sends_one_request_to_both(one, other)
        await takes_turns(one, other, pace)
        await stops_approves_and_deletes(one, other, pace, tmp_path)


async def reads_on_at_the_other(one, other, pace):
    client = Client("slow", run="r1", thread="read")
    reading = asyncio.create_task(client.post(one))
    for server in (other, one, other):
        pace.permit(5)
        await client.until("TEXT_MESSAGE_CONTENT", client.types.count("TEXT_MESSAGE_CONTENT") + 1)
        reading.cancel()
        await asyncio.wait({reading})
        reading = asyncio.create_task(client.resume(server))
    pace.permit(5)
    await asyncio.wait_for(reading, PATIENCE)
    assert (client.types[-1], client.text) == ("RUN_FINISHED", WORDS)
    assert client.ids == sorted(set(client.ids))
    again = Client("slow", run="r1", thread="read")
    await asyncio.wait_for(again.post(other), PATIENCE)
    assert (again.text, pace.asked) == (WORDS, 1), "the same request is the same run"


async def sends_one_request_to_both(one, other):
    asked = [server.post("/agent/tester/chat", {"message": "hi"}, Idempotency_Key="k") for server in (one, other)]
    first, second = await asyncio.wait_for(asyncio.gather(*asked), PATIENCE)
    assert first["content"] == "all is well"
    assert (first["content"], first["message_id"]) == (second["content"], second["message_id"])
    different = await other.post("/agent/tester/chat", {"message": "ho"}, Idempotency_Key="k")
    assert different["status"] == 422


async def takes_turns(one, other, pace):
    first, second = Client("slow", run="r2", thread="turns"), Client("hello", run="r3", thread="turns")
    reading = asyncio.create_task(first.post(one))
    pace.permit(1)
    await first.until("TEXT_MESSAGE_CONTENT")
    waiting = asyncio.create_task(second.post(other))
    await other.in_state("r3", "queued")
    assert (await one.get("/sessions/turns"))["active_runs"] == ["r2", "r3"]
    assert (await other.delete("/sessions/turns?from=m-r2")) == 409
    pace.permit(19)
    await asyncio.wait_for(asyncio.gather(reading, waiting), PATIENCE)
    assert (first.types[-1], second.types[-1]) == ("RUN_FINISHED", "RUN_FINISHED")
    said = [message["content"] for message in await other.messages("turns")]
    assert said == ["slow", WORDS, "hello", "all is well"]


async def stops_approves_and_deletes(one, other, pace, folder):
    slow = Client("slow", run="r4", thread="stop")
    reading = asyncio.create_task(slow.post(one))
    pace.permit(1)
    await slow.until("TEXT_MESSAGE_CONTENT")
    assert (await other.post("/runs/r4/stop"))["stopped"]
    await asyncio.wait_for(reading, PATIENCE)
    await other.in_state("r4", "cancelled")

    asking = Client("act quickly", run="r5", thread="approve")
    await asyncio.wait_for(asking.post(one), PATIENCE)
    interrupts = asking.events[-1]["outcome"]["interrupts"]
    yes = [{"interruptId": each["id"], "status": "resolved", "payload": {"approved": True}} for each in interrupts]
    answering = Client("", run="r6", thread="approve", resume=yes)
    await asyncio.wait_for(answering.post(other), PATIENCE)
    assert answering.types[-1] == "RUN_FINISHED", answering.events[-1]
    assert len((folder / "acts").read_text().split()) == 1

    doomed = Client("slow", run="r7", thread="delete")
    reading = asyncio.create_task(doomed.post(one))
    pace.permit(1)
    await doomed.until("TEXT_MESSAGE_CONTENT")
    assert await other.delete("/sessions/delete") == 204
    await asyncio.wait_for(reading, PATIENCE)
    for server in (one, other):
        assert (await server.get("/sessions/delete"))["status"] == 404
