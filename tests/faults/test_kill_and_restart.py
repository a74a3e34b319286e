"""`kill -9` of a real server, at chosen and at random moments: what was acknowledged is there, no tool acts twice."""

import asyncio
import json
import os
import random
import signal
import sqlite3
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import aiohttp
import pytest

from tests.cluster.replicas import TOOLS, UNKNOWN
from tests.models.endpoint import ModelEndpoint, chunk, frame, text_frames, tool_call_frames
from tests.ports import free_port
from tests.server.forked import Forked

PATIENCE = 60.0
AGENT = """\
name: tester
model: {{provider: openai_compatible, name: m, api_key: none, endpoint: '{endpoint}'}}
tools: [{{name: act, type: function, file: tools.py, approval: {approval}}}]
server: {{shutdown_timeout: 0.1, runs: {{detach_grace: {grace}}}}}
"""


class ServerProcess:
    """A folder with an agent in it, and the server that is killed there again and again."""

    def __init__(self, folder: Path, endpoint: ModelEndpoint) -> None:
        self.folder, self.endpoint, self.port = folder, endpoint, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: Forked | None = None

    async def start(self) -> None:
        words = ("serve", "--protocol", "all", "--port", str(self.port))
        self.process = await Forked.start(
            *words, folder=self.folder, environment=os.environ, stdout=DEVNULL, stderr=PIPE
        )
        async with asyncio.timeout(PATIENCE):
            banner = b""
            while b"Ctrl+C" not in banner:
                line = await self.process.stderr.readline()
                assert line, banner
                banner += line

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self.process.communicate()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def stop_and_start(self) -> None:
        """As a deployment does: with a signal that lets the server end by itself."""
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self.process.wait(), PATIENCE) == 0
        await self.process.communicate()
        await self.start()

    async def in_background(self, text: str) -> str:
        """The id of a response that no client waits for."""
        asked = {"model": "tester", "input": text, "background": True}
        async with aiohttp.ClientSession() as client, client.post(self.url + "/v1/responses", json=asked) as answer:
            return (await answer.json())["id"]

    async def response(self, name: str, *until: str) -> dict:
        async with asyncio.timeout(PATIENCE):
            while (found := await self.get(f"/v1/responses/{name}"))["status"] not in until:
                await asyncio.sleep(0.02)
        return found

    @property
    def acts(self) -> list[str]:
        file = self.folder / "acts"
        return file.read_text().split() if file.exists() else []

    async def acted(self, times: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.acts) < times:
                await asyncio.sleep(0.01)

    async def stored(self, statement: str) -> None:
        """Waits until the server's file has a row for this."""
        async with asyncio.timeout(PATIENCE):
            with closing(sqlite3.connect(self.folder / ".holodeck" / "sessions.db", timeout=PATIENCE)) as file:
                while file.execute(statement).fetchone() is None:
                    await asyncio.sleep(0.02)

    async def get(self, path: str) -> dict:
        async with aiohttp.ClientSession() as client, client.get(self.url + path) as answer:
            return {"status": answer.status, **await answer.json(content_type=None)}

    async def session(self, name: str = "t") -> list[dict]:
        return (await self.get(f"/sessions/{name}")).get("messages", [])


class Client:
    """One AG-UI client that writes down every event that it gets."""

    def __init__(self, server: ServerProcess, text: str, *, run: str, thread: str = "t", **more) -> None:
        self.server, self.run_id, self.events, self.last_id = server, run, [], None
        message = [{"id": f"m-{run}", "role": "user", "content": text}] if text else []
        self.body = {"threadId": thread, "runId": run, "messages": message, "state": {}, "tools": [], "context": []}
        self.body |= {"forwardedProps": {}, **more}
        self.changed = asyncio.Event()

    async def post(self, path: str = "/awp") -> None:
        with suppress(aiohttp.ClientError, ConnectionError):
            async with aiohttp.ClientSession() as client, client.post(self.server.url + path, json=self.body) as answer:
                await self._read(answer)

    async def feed(self) -> None:
        address = f"{self.server.url}/sessions/{self.body['threadId']}/events"
        async with aiohttp.ClientSession() as client, client.get(address) as answer:
            await self._read(answer)

    async def resume(self) -> None:
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        address = f"{self.server.url}/runs/{self.run_id}/events"
        async with aiohttp.ClientSession() as client, client.get(address, headers=headers) as answer:
            await self._read(answer)

    async def _read(self, answer) -> None:
        async for line in answer.content:
            if line.startswith(b"id: "):
                self.last_id = line[4:].strip().decode()
            if line.startswith(b"data: "):
                self.events.append(json.loads(line[6:]))
                self.changed.set()

    async def until(self, kind: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while kind not in self.types:
                self.changed.clear()
                await self.changed.wait()

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


async def hangs(wire) -> None:
    await wire.head()
    await wire.send(frame(chunk({"content": "half an"})), frame(chunk({"content": " answer"})))
    await wire.hang()


async def by_the_prompt(wire) -> None:
    """Calls the tool if the last message asks for it, else answers; refuses a history with an unanswered call."""
    messages = wire.request.json["messages"]
    calls = {call["id"] for message in messages for call in message.get("tool_calls") or ()}
    results = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
    if calls - results:
        await wire.head(400, Content_Type="application/json", chunked=False, Content_Length="2")
        await wire.raw(b"{}")
        return
    await wire.head()
    last = messages[-1]
    if last["role"] == "user" and "act" in last["content"]:
        how = "slowly" if "slowly" in last["content"] else "quickly"
        number = sum(len(message.get("tool_calls") or ()) for message in messages)
        pair = [(f"call_{last['content'].split()[-1]}_{number + n}", "act", json.dumps({"what": how})) for n in (0, 1)]
        await wire.send(*tool_call_frames(*pair))
    else:
        await wire.send(*text_frames("all ", "is ", "well"))
    await wire.end()


@asynccontextmanager
async def served_from(
    folder: Path, respond=by_the_prompt, *, approval: str = "never", grace: float = 30, more: str = ""
):
    """`more`: further lines of the agent file."""
    (folder / "tools.py").write_text(TOOLS)
    async with ModelEndpoint(respond) as endpoint:
        (folder / "agent.yaml").write_text(AGENT.format(endpoint=endpoint.url, approval=approval, grace=grace) + more)
        built = ServerProcess(folder, endpoint)
        await built.start()
        try:
            yield built
        finally:
            if built.process.returncode is None:
                await built.kill()


def results_of(messages: list[dict]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


async def killed_in_mid_answer(server: ServerProcess, client: Client) -> None:
    """The model has sent "half an answer", which is copied. After the restart it answers completely."""
    reading = asyncio.create_task(client.post())
    await client.until("TEXT_MESSAGE_CONTENT")
    await server.stored("SELECT 1 FROM pieces WHERE instr(body, ' answer')")
    server.endpoint.responses = [by_the_prompt]
    await server.restart()
    await reading


@pytest.mark.req("D03", "D03b")
async def test_killed_while_the_model_talks_the_answer_completes_for_a_client_that_comes_back(tmp_path):
    async with served_from(tmp_path, hangs) as server:
        client = Client(server, "hello", run="r1")
        await killed_in_mid_answer(server, client)
        seen = len(client.events)
        await asyncio.wait_for(client.resume(), PATIENCE)
        assert "RUN_STARTED" not in client.types[seen:]
        assert client.types[-1] == "RUN_FINISHED"
        texts = [message["content"] for message in await server.session()]
        assert texts == ["hello", "half an answer", "all is well"]
        assert (await server.get("/runs/r1"))["state"] == "finished"


@pytest.mark.req("D03", "SRV-11")
@pytest.mark.parametrize("reads", ["connect", "feed"])
async def test_a_reader_that_comes_first_after_a_crash_gets_the_run_from_its_start(tmp_path, reads):
    """A stream without RUN_STARTED is refused by clients that check the order of events."""
    async with served_from(tmp_path, hangs) as server:
        client, page = Client(server, "hello", run="r1"), Client(server, "", run="r2")
        await killed_in_mid_answer(server, client)
        following = asyncio.create_task(
            page.post("/copilotkit/agent/default/connect") if reads == "connect" else page.feed()
        )
        await page.until("RUN_FINISHED")
        following.cancel()
        assert (page.types[0], page.types.count("RUN_STARTED")) == ("RUN_STARTED", 1)
        texts = {event["messageId"]: "" for event in page.events if event["type"] == "TEXT_MESSAGE_START"}
        for event in page.events:
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                texts[event["messageId"]] += event["delta"]
        assert list(texts.values()) == ["half an answer", "all is well"]


@pytest.mark.req("D03", "D03b", "DUR-02")
async def test_killed_while_a_tool_runs_its_outcome_is_unknown_and_it_is_not_called_again(tmp_path):
    async with served_from(tmp_path) as server:
        client = Client(server, "act slowly a", run="r1")
        reading = asyncio.create_task(client.post())
        await server.acted(2)
        await server.restart()
        await reading
        await asyncio.wait_for(client.resume(), PATIENCE)
        assert (client.types[-1], client.events[-1]["code"]) == ("RUN_ERROR", "interrupted")
        assert "MESSAGES_SNAPSHOT" in client.types
        messages = await server.session()
        assert [text for text in results_of(messages) if UNKNOWN in text] == results_of(messages)
        assert len(results_of(messages)) == 2
        assert (await server.get("/runs/r1"))["state"] == "interrupted"
        (tmp_path / "go").touch()
        again = Client(server, "and now?", run="r2")
        await asyncio.wait_for(again.post(), PATIENCE)
        assert again.types[-1] == "RUN_FINISHED", "the endpoint takes the history"
        assert len(server.acts) == len(set(server.acts)) == 2


@pytest.mark.req("D03")
async def test_killed_after_an_approval_it_is_never_reported_as_not_approved(tmp_path):
    async with served_from(tmp_path, approval="always") as server:
        asking = Client(server, "act slowly a", run="r1")
        await asyncio.wait_for(asking.post(), PATIENCE)
        interrupts = asking.events[-1]["outcome"]["interrupts"]
        await server.restart()
        yes = [{"interruptId": each["id"], "status": "resolved", "payload": {"approved": True}} for each in interrupts]
        answering = Client(server, "", run="r2", resume=yes)
        reading = asyncio.create_task(answering.post())
        await server.acted(len(interrupts))
        await server.restart()
        await reading
        texts = results_of(await server.session())
        assert len(texts) == len(interrupts)
        assert all(UNKNOWN in text for text in texts)
        second = Client(server, "", run="r3", resume=yes)
        await asyncio.wait_for(second.post(), PATIENCE)
        assert "RUN_FINISHED" not in second.types, "an approval counts once"
        assert len(server.acts) == len(set(server.acts)) == len(interrupts)


@pytest.mark.req("D03")
async def test_killed_while_a_request_waits_its_message_is_not_lost(tmp_path):
    async with served_from(tmp_path, hangs) as server:
        first, second = Client(server, "one", run="r1"), Client(server, "two", run="r2")
        reading = asyncio.create_task(first.post())
        await first.until("TEXT_MESSAGE_CONTENT")
        waiting = asyncio.create_task(second.post())
        await server.stored("SELECT 1 FROM runs WHERE id = 'r2'")
        server.endpoint.responses = [by_the_prompt]
        await server.restart()
        await asyncio.gather(reading, waiting)
        await asyncio.wait_for(second.resume(), PATIENCE)
        assert second.types[-1] == "RUN_FINISHED"
        texts = [message["content"] for message in await server.session() if message["role"] == "user"]
        assert texts == ["one", "two"]


@pytest.mark.req("C08")
async def test_the_same_post_after_a_restart_gets_the_same_run(tmp_path):
    async with served_from(tmp_path) as server:
        client = Client(server, "hello", run="r1")
        await asyncio.wait_for(client.post(), PATIENCE)
        asked = len(server.endpoint.requests)
        await server.kill()
        with closing(sqlite3.connect(server.folder / ".holodeck" / "sessions.db")) as file, file:
            file.execute("DELETE FROM pieces")  # as if the process had been killed before it copied the log
        await server.start()
        cut, seen = Client(server, "hello", run="r1"), 4
        cut.last_id = f"r1:{seen}"
        await asyncio.wait_for(cut.resume(), PATIENCE)
        assert cut.types == ["MESSAGES_SNAPSHOT", "RUN_FINISHED"], "no text that the client may have seen comes again"
        again = Client(server, "hello", run="r1")
        await asyncio.wait_for(again.post(), PATIENCE)
        assert again.types[-1] == "RUN_FINISHED"
        assert len(server.endpoint.requests) == asked
        assert len(await server.session()) == 2


@pytest.mark.req("D03", "D03b", "DUR-02")
async def test_killed_at_random_nothing_acknowledged_is_lost_and_no_tool_acts_twice(tmp_path):
    """Eight kills under load. `python -m tests.faults` has more."""
    seed = random.Random(15)
    async with served_from(tmp_path, grace=0) as server:
        clients: list[Client] = []

        async def talk(thread: str) -> None:
            while True:
                number = len(clients)
                client = Client(server, f"{seed.choice(['act', 'hello'])} {number}", run=f"r{number}", thread=thread)
                clients.append(client)
                await client.post()
                await asyncio.sleep(0.01)

        talking = [asyncio.create_task(talk(f"t{n}")) for n in range(4)]
        for kills in range(8):
            async with asyncio.timeout(PATIENCE):
                while sum("RUN_STARTED" in client.types for client in clients) <= kills:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(seed.uniform(0, 0.5))
            await server.restart()
        for task in talking:
            task.cancel()
        await asyncio.wait(talking)
        await server.restart()

        assert len(server.acts) == len(set(server.acts)), "a tool acted twice"
        acknowledged = unknown = finished = 0
        for thread in range(4):
            messages = await server.session(f"t{thread}")
            stored = [message["id"] for message in messages if message["role"] == "user"]
            assert len(stored) == len(set(stored))
            calls = {call["id"] for message in messages for call in message.get("tool_calls", ())}
            results = {message["call_id"]: message for message in messages if message["role"] == "tool"}
            assert calls == set(results)
            unknown += sum(UNKNOWN in message["content"] for message in results.values())
            for client in (each for each in clients if each.body["threadId"] == f"t{thread}"):
                if "RUN_STARTED" in client.types:
                    acknowledged += 1
                    assert f"m-{client.run_id}" in stored, "an acknowledged message is lost"
                if "RUN_FINISHED" in client.types:
                    finished += 1
                    assert (await server.get(f"/runs/{client.run_id}"))["state"] == "finished"
        traced = {call for thread in range(4) for call in await self_calls(server, thread)}
        assert set(server.acts) <= traced, "an act without a trace"
        assert acknowledged >= 8


async def self_calls(server: ServerProcess, thread: int) -> set[str]:
    messages = await server.session(f"t{thread}")
    return {call["id"] for message in messages for call in message.get("tool_calls", ())}


@pytest.mark.req("C08", "SRV-12")
async def test_a_rest_answer_is_the_same_after_a_restart(tmp_path):
    async with served_from(tmp_path) as server:
        address, body = server.url + "/agent/tester/chat", {"message": "act 1"}

        async def asked() -> dict:
            headers = {"Idempotency-Key": "k1"}
            async with aiohttp.ClientSession() as client, client.post(address, json=body, headers=headers) as answer:
                assert answer.status == 200
                return await answer.json()

        first = await asked()
        await server.restart()
        again = await asyncio.wait_for(asked(), PATIENCE)
        for received in (first, again):
            del received["execution_time_ms"]
        assert again == first
        assert first["content"] == "all is well"
        assert [each["name"] for each in first["tool_calls"]] == ["act", "act"]
        assert len(server.acts) == 2
        events = f"{server.url}/runs/{first['message_id']}/events"
        async with aiohttp.ClientSession() as client, client.get(events) as answer:
            assert b"event: stream_end" in await answer.read(), "in the events of its own wire"


@pytest.mark.req("SRV-20", "D03b")
async def test_a_background_response_survives_servers_that_stop_one_after_the_other(tmp_path):
    async with served_from(tmp_path, hangs) as server:
        name = await server.in_background("hello")
        for answers in (1, 2):
            await server.endpoint.asked(answers)
            await server.stored("SELECT 1 FROM pieces WHERE instr(body, ' answer')")
            server.endpoint.responses = [by_the_prompt if answers == 2 else hangs]
            await server.stop_and_start()
        done = await server.response(name, "completed", "failed")
        assert done["status"] == "completed"
        assert done["output"][-1]["content"][0]["text"].endswith("all is well")


@pytest.mark.req("SRV-20", "D03")
async def test_a_tool_of_a_background_response_is_not_called_again_after_a_server_that_stops(tmp_path):
    async with served_from(tmp_path) as server:
        name = await server.in_background("act slowly x")
        await server.acted(2)
        await server.stop_and_start()
        ended = await server.response(name, "completed", "failed")
        assert (ended["status"], len(server.acts)) == ("failed", 2)
        assert "interrupted" in json.dumps(ended["error"])
        assert all(UNKNOWN in text for text in results_of(await server.session(ended["conversation"]["id"])))


@pytest.mark.req("SRV-20")
async def test_a_stream_of_a_server_that_stops_has_its_ending_and_does_not_continue(tmp_path):
    async with served_from(tmp_path, hangs) as server:
        client = Client(server, "hello", run="r1")
        reading = asyncio.create_task(client.post())
        await client.until("TEXT_MESSAGE_CONTENT")
        await server.stop_and_start()
        await reading
        assert (client.types[-1], client.events[-1]["code"]) == ("RUN_ERROR", "shutting-down")
        assert (await server.get("/runs/r1"))["state"] == "failed"


async def called(server: ServerProcess, method: str, params: dict) -> dict:
    """The result of a call over A2A."""
    headers, body = {"A2A-Version": "1.0"}, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.url + "/a2a", json=body, headers=headers) as answer,
    ):
        return (await answer.json())["result"]


@pytest.mark.req("SRV-20", "D03b")
async def test_a_client_that_waits_for_a_task_gets_it_as_it_is_when_the_server_stops(tmp_path):
    async with served_from(tmp_path, hangs) as server:
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        waiting = asyncio.create_task(called(server, "SendMessage", {"message": message}))
        await server.endpoint.asked(1)
        await server.stored("SELECT 1 FROM pieces WHERE instr(body, ' answer')")
        server.endpoint.responses = [by_the_prompt]
        await server.stop_and_start()
        task = (await waiting)["task"]
        assert task["status"]["state"] == "TASK_STATE_WORKING"
        async with asyncio.timeout(PATIENCE):
            while task["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"):
                task = await called(server, "GetTask", {"id": task["id"]})
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
