"""Workers of one server on one SQLite file: any of them serves any request, and the runs of one that dies go on."""

import asyncio

import aiohttp
import pytest

from tests.cluster.replicas import (
    PATIENCE,
    WORDS,
    Client,
    Feed,
    Pace,
    reads_on_at_the_other,
    stops_approves_and_deletes,
)
from tests.cluster.siblings import siblings


@pytest.mark.req("C07", "C08", "C09b", "SRV-11", "DUR-04")
async def test_any_worker_serves_any_request(tmp_path):
    pace = Pace()
    async with siblings(tmp_path, pace, approval="always") as (one, other):
        await reads_on_at_the_other(one, other, pace, "read")
        await sends_one_request_to_both(one, other)
        await takes_turns(one, other, pace)
        await shows_runs_of_the_other(one, other)
        await counts_together(one, other)
        await stops_approves_and_deletes(one, other, pace, tmp_path)
        await follows_a_task_that_the_other_continues(one, other)


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
    texts = [message["content"] for message in await other.messages("turns")]
    assert texts == ["slow", WORDS, "hello", "all is well"]


async def shows_runs_of_the_other(one, other):
    async with Feed(one, "turns") as feed:
        for number, server in enumerate((other, one, other), 1):
            await asyncio.wait_for(Client("hello", run=f"f{number}", thread="turns").post(server), PATIENCE)
            await feed.until("RUN_FINISHED", number)
    for run in ("f1", "f2", "f3"):
        assert (feed.of(run)[0], feed.of(run)[-1]) == ("RUN_STARTED", "RUN_FINISHED")
    last_id = next(name for name, kind in feed.events if name.startswith("f1:") and kind == "TEXT_MESSAGE_END")
    async with Feed(one, "turns", last_id) as again:
        await again.until("RUN_FINISHED", 3)
    missed = feed.events[feed.events.index((last_id, "TEXT_MESSAGE_END")) + 1 :]
    assert again.events == missed, "a reader that comes back gets exactly what it has missed"


async def counts_together(one, other):
    shown = []
    for server in (one, other, one):
        async with aiohttp.ClientSession() as client, client.get(f"{server.url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        shown.append({name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")})
    runs = 'holodeck_runs_total{outcome="completed",code="none"}'
    assert [each["holodeck_workers"] for each in shown] == [2, 2, 2]
    assert shown[0][runs] == shown[1][runs] == shown[2][runs] == 7, "those of both"
    requests = 'holodeck_http_requests_total{method="GET",route="/metrics",status="200"}'
    counted = [each.get(requests, 0) for each in shown]
    assert counted == sorted(counted), "no sum falls"
    assert counted[-1] >= 1, "the one that was answered by the other"


async def follows_a_task_that_the_other_continues(one, other):
    """A2A: the subscription is at one worker, the answer to the task comes to the other."""
    version = {"A2A-Version": "1.0"}

    def message(text, **more):
        return {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], **more}}

    async with aiohttp.ClientSession(headers=version, timeout=aiohttp.ClientTimeout(PATIENCE)) as client:
        async with client.post(f"{one.url}/a2a/message:send", json=message("act quickly")) as answer:
            task = (await answer.json(content_type=None))["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        async with client.get(f"{one.url}/a2a/tasks/{task['id']}:subscribe") as updates:
            await updates.content.readuntil(b"\n\n")
            body = message("never mind", taskId=task["id"])
            async with client.post(f"{other.url}/a2a/message:send", json=body) as answer:
                assert (await answer.json(content_type=None))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert b"TASK_STATE_COMPLETED" in await updates.read(), "and the stream ends"


@pytest.mark.req("SRV-11")
async def test_a_run_whose_session_the_other_worker_deletes_writes_into_no_session_that_begins_then(tmp_path):
    """The next one begins at once, mostly before the worker of the run has learned of the deletion."""
    pace = Pace()
    async with siblings(tmp_path, pace) as (one, other):
        for number in range(3):
            late = Client("slow", run=f"a{number}", thread=f"ann{number}")
            reading = asyncio.create_task(late.post(one))
            pace.permit(1)
            await late.until("TEXT_MESSAGE_CONTENT")
            assert await other.delete(f"/sessions/ann{number}") == 204
            new = Client("slow", run=f"b{number}", thread=f"bob{number}")
            answering = asyncio.create_task(new.post(one))
            await asyncio.wait_for(reading, PATIENCE)
            pace.permit(pace.words)
            await asyncio.wait_for(answering, PATIENCE)
            assert (new.types[-1], new.text) == ("RUN_FINISHED", WORDS)
            assert [message["content"] for message in await other.messages(f"bob{number}")] == ["slow", WORDS]
            assert (await other.in_state(f"b{number}", "finished"))["status"] == 200
            for server in (one, other):
                assert (await server.get(f"/sessions/ann{number}"))["status"] == 404


@pytest.mark.req("C08", "D03")
async def test_a_request_that_an_sdk_repeats_after_a_crash_joins_its_run_and_no_tool_acts_twice(tmp_path):
    """OpenAI's SDKs repeat a request by themselves when its connection ends, without a key."""
    pace = Pace()

    def create(server, text, attempt):
        body = {"input": text, "model": "tester"}
        return asyncio.create_task(server.post("/v1/responses", body, X_Stainless_Retry_Count=str(attempt)))

    async with siblings(tmp_path, pace) as (one, other):
        cut = [create(one, text, 0) for text in ("act slowly", "slow")]
        pace.permit(1)
        async with asyncio.timeout(PATIENCE):
            while pace.asked < 2 or not (tmp_path / "acts").exists():
                await asyncio.sleep(0.02)
        await one.end()
        await asyncio.wait(cut)
        assert all(isinstance(each.exception(), aiohttp.ClientError) for each in cut)
        (tmp_path / "go").touch()
        async with asyncio.timeout(PATIENCE):
            while sum(len(each["active_runs"]) for each in (await other.get("/sessions"))["sessions"]) > 1:
                await asyncio.sleep(0.02)
        acted, spoke = [create(other, text, 1) for text in ("act slowly", "slow")]
        pace.permit(pace.words)
        assert "interrupted" in str(await asyncio.wait_for(acted, PATIENCE)), "what the tool did is not known"
        (message,) = (await asyncio.wait_for(spoke, PATIENCE))["output"][-1:]
        assert message["content"][0]["text"] == WORDS
        assert len((tmp_path / "acts").read_text().split()) == 1
        assert len((await other.get("/sessions"))["sessions"]) == 2
