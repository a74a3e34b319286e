"""`holodeck serve` as a process: start, signals, exit codes, logs."""

import asyncio
import fcntl
import json
import os
import re
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager, closing, suppress

import aiohttp
import pytest

from holodeck.access.api_key import new_key
from tests.models.endpoint import ModelEndpoint, chunk, frame
from tests.ports import free_port
from tests.server.forked import Forked
from tests.server.serving import PATIENCE, ask, frames, read_to, until

AGENT = """\
name: talker
model: {provider: demo}
server: {shutdown_timeout: 0.2}
"""


async def never_ends(wire) -> None:
    await wire.head()
    await wire.send(frame(chunk({"content": "Once"})))
    await wire.hang()


def talks_for_ever(endpoint: ModelEndpoint, shutdown_timeout: float) -> str:
    model = f"{{provider: openai_compatible, name: m, api_key: none, endpoint: '{endpoint.url}'}}"
    return f"name: talker\nmodel: {model}\nserver: {{shutdown_timeout: {shutdown_timeout}}}\n"


class Process:
    def __init__(self, process, port):
        self.process, self.port, self.banner = process, port, b""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def until_ready(self):
        while b"Ctrl+C" not in self.banner:
            line = await asyncio.wait_for(self.process.stderr.readline(), PATIENCE)
            assert line, self.banner
            self.banner += line

    async def exit_code(self):
        return await asyncio.wait_for(self.process.wait(), PATIENCE)


@asynccontextmanager
async def holodeck(tmp_path, *arguments, agent=AGENT, stdout=DEVNULL, stderr=PIPE, cold=False, **environment):
    """`cold` starts Python, as users do."""
    (tmp_path / "agent.yaml").write_text(agent)
    port = free_port()
    words, environment = ("serve", "--port", str(port), *arguments), {**os.environ, **environment}
    if cold:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holodeck", *words, cwd=tmp_path, stdout=stdout, stderr=stderr, env=environment
        )
    else:
        process = await Forked.start(*words, folder=tmp_path, environment=environment, stdout=stdout, stderr=stderr)
    try:
        yield Process(process, port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await process.communicate()  # closes the pipes


async def status_of(client: aiohttp.ClientSession, url: str) -> int:
    async with client.get(url) as answer:
        return answer.status


@pytest.mark.req("SRV-04", "SRV-01")
async def test_the_banner_says_where_and_how_to_talk(tmp_path):
    async with holodeck(tmp_path, cold=True) as server:
        await server.until_ready()
        text = server.banner.decode()
        for part in ("talker", "demo", "ag-ui", f"{server.url}/awp", f"{server.url}/docs", "curl -N"):
            assert part in text
        assert "\x1b" not in text
        assert "warning" not in text
        command = re.search(r"curl .*", text)[0]
        curl = await asyncio.create_subprocess_exec("bash", "-c", command, stdout=PIPE, stderr=PIPE)
        received, _ = await curl.communicate()
        assert frames(received)[-1][1]["type"] == "RUN_FINISHED"
        server.process.send_signal(signal.SIGINT)
        assert await server.exit_code() == 0


async def test_a_container_sets_the_options_in_the_environment(tmp_path):
    log = tmp_path / "log"
    wanted = {"HOLODECK_LOG_FORMAT": "text", "HOLODECK_PROTOCOL": "rest ag-ui", "HOLODECK_HOST": "localhost"}
    with log.open("wb") as out:
        async with holodeck(tmp_path, "--port", "0", stdout=out, **wanted) as server:
            await server.until_ready()
            port = re.search(r"http://localhost:(\d+)/health", server.banner.decode())[1]
            assert int(port) not in (0, 8000)
            async with aiohttp.ClientSession() as client:
                assert await status_of(client, f"http://localhost:{port}/health") == 200
            server.process.send_signal(signal.SIGTERM)
            assert await server.exit_code() == 0
    first = log.read_text().splitlines()[0]
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} INFO    server_started ", first)
    assert f'address="127.0.0.1:{port}"' in first
    assert 'protocols=["rest","ag-ui"]' in first


async def test_listening_everywhere_is_warned_about(tmp_path):
    async with holodeck(tmp_path, "--host", "0.0.0.0", "--insecure-no-auth") as server:
        await server.until_ready()
        rest = await asyncio.wait_for(server.process.stderr.readline(), PATIENCE)
        assert b"warning" in server.banner + rest


@pytest.mark.req("SRV-20", "D01")
async def test_a_signal_ends_fifty_live_streams_properly(tmp_path):
    async with (
        ModelEndpoint(never_ends) as endpoint,
        holodeck(tmp_path, agent=talks_for_ever(endpoint, 0.2)) as server,
    ):
        await server.until_ready()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as client:

            async def stream(number):
                body = ask("Hello", thread=f"t{number}", run=f"r{number}")
                async with client.post(server.url + "/awp", json=body) as answer:
                    begun = await read_to(answer, "TEXT_MESSAGE_CONTENT")
                    ready.release()
                    return frames(begun + await answer.read())

            ready = asyncio.Semaphore(0)
            streams = [asyncio.create_task(stream(n)) for n in range(50)]
            for _ in streams:
                await ready.acquire()
            server.process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*streams)  # fails if one is cut off in the middle
        endings = [events[-1][1] for events in answers]
        assert {(ending["type"], ending.get("code")) for ending in endings} == {("RUN_ERROR", "shutting-down")}
        assert await server.exit_code() == 0


@pytest.mark.req("SRV-20")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_the_second_signal_ends_it_at_once(tmp_path, number, code):
    log = tmp_path / "log"
    with log.open("wb") as out:
        async with (
            ModelEndpoint(never_ends) as endpoint,
            holodeck(tmp_path, agent=talks_for_ever(endpoint, 60), cold=number == signal.SIGTERM, stdout=out) as server,
        ):
            await stop_twice(server, number, code)
            assert b"Stopping: 1 run has up to 60 s to end. Ctrl+C again" in await server.process.stderr.read()
    events = [json.loads(line)["event"] for line in log.read_bytes().splitlines()]
    assert events == [
        "server_started", "request_received", "model_called", "server_stopping", "request_received", "request_completed",
    ]  # fmt: skip


async def stop_twice(server, number, code):
    await server.until_ready()
    async with aiohttp.ClientSession() as client:
        body = {"runId": "r", "threadId": "t", "messages": [{"id": "m", "role": "user", "content": "Hello"}]}
        answer = await client.post(server.url + "/awp", json=body)
        await read_to(answer, "TEXT_MESSAGE_CONTENT")
        server.process.send_signal(number)
        while await status_of(client, server.url + "/ready") != 503:
            await asyncio.sleep(0.01)
        begun = time.monotonic()
        assert await status_of(client, server.url + "/runs/none") == 404
        server.process.send_signal(number)
        assert await server.exit_code() == code
        assert time.monotonic() - begun < PATIENCE, "it waits for the run, which is given 60 s"
        answer.close()


@pytest.mark.req("SRV-20", "D13")
async def test_a_server_whose_errors_no_one_reads_can_be_stopped(tmp_path):
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    try:
        async with holodeck(tmp_path, stderr=write) as server, aiohttp.ClientSession() as client:
            banner = b""
            while b"Ctrl+C" not in banner:
                banner += await asyncio.to_thread(os.read, read, 4096)
            fill(write)
            async with client.post(server.url + "/awp", json=ask(run="r")) as answer:
                await read_to(answer, "TEXT_MESSAGE_CONTENT")
                server.process.send_signal(signal.SIGTERM)
                await answer.read()
                assert await server.exit_code() == 0
    finally:
        os.close(read)
        os.close(write)


def fill(pipe: int) -> None:
    """Until it takes no more, without making it non-blocking for others."""
    own = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(own, b"x" * 64)
    os.close(own)


@pytest.mark.req("SRV-01")
async def test_open_shows_the_playground_in_the_browser(tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    async with holodeck(tmp_path, "--open", cold=True, BROWSER=str(browser)) as server:
        await server.until_ready()
        await until(opened.exists)
        assert opened.read_text() == f"{server.url}/\n"
        server.process.send_signal(signal.SIGINT)
        assert await server.exit_code() == 0


@pytest.mark.req("SRV-01", "T04")
async def test_open_signs_the_browser_in_where_a_key_is_needed(tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    key = new_key()
    async with holodeck(tmp_path, "--open", cold=True, BROWSER=str(browser), HOLODECK_API_KEY=key) as server:
        await until(opened.exists)
        address, _, code = opened.read_text().strip().partition("#code=")
        assert address == f"{server.url}/"
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{server.url}/playground/session", json={"code": code}) as answer:
                assert answer.status == 200
                token = (await answer.json())["token"]
            async with client.get(f"{server.url}/me", headers={"Authorization": f"Bearer {token}"}) as answer:
                assert (await answer.json())["user"] == "system:playground"
            async with client.post(f"{server.url}/playground/session", json={"code": code}) as answer:
                assert answer.status == 401
        server.process.send_signal(signal.SIGINT)
        assert await server.exit_code() == 0


@pytest.mark.parametrize("closed", ["2>&-", "0<&- 1>&- 2>&-"])
async def test_a_server_whose_streams_were_closed_serves_and_stops(tmp_path, closed):
    (tmp_path / "agent.yaml").write_text(AGENT)
    port = free_port()
    command = f"exec {sys.executable} -m holodeck serve --port {port} {closed}"
    process = await asyncio.create_subprocess_exec("bash", "-c", command, cwd=tmp_path, stdout=DEVNULL, stderr=DEVNULL)
    server = Process(process, port)
    try:
        async with aiohttp.ClientSession() as client:
            while await reachable(client, server.url) != 200:
                assert process.returncode is None
            async with client.post(server.url + "/awp", json=ask(run="r")) as answer:
                assert frames(await answer.read())[-1][1]["type"] == "RUN_FINISHED"
        process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def reachable(client, url) -> int | None:
    try:
        return await status_of(client, url + "/ready")
    except aiohttp.ClientConnectionError:
        await asyncio.sleep(0.05)  # it is starting
        return None


@pytest.mark.req("SRV-02")
async def test_a_busy_port_is_one_line_with_a_free_one(tmp_path):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with holodeck(tmp_path, "--port", str(port), cold=True) as server:
            assert await server.exit_code() == 3
            text = (await server.process.stderr.read()).decode()
    assert text.count("\n") == 1
    assert f"{port} is taken" in text
    assert re.search(r"--port \d+", text)
    assert "is ready" not in text


PATHS = {"ag-ui": "/awp", "rest": "/agent/talker/chat", "chat-stream": "/chat/stream"}


@pytest.mark.req("SRV-01", "SRV-04")
@pytest.mark.parametrize(
    ("protocols", "served"),
    [(["rest"], {"rest"}), (["chat-stream", "rest"], {"rest", "chat-stream"}), (["all"], set(PATHS))],
)
async def test_what_is_asked_for_is_served_and_nothing_else(tmp_path, protocols, served):
    options = [word for protocol in protocols for word in ("--protocol", protocol)]
    async with holodeck(tmp_path, *options) as server, aiohttp.ClientSession() as client:
        await server.until_ready()
        text = server.banner.decode()
        for protocol, path in PATHS.items():
            assert (f"{server.url}{path}" in text) is (protocol in served)
            async with client.post(server.url + path, json={}) as answer:
                assert answer.status == (422 if protocol in served else 404)
        curl = await asyncio.create_subprocess_exec("bash", "-c", re.search(r"curl .*", text)[0], stdout=PIPE)
        received, _ = await curl.communicate()
        assert any(word in received for word in (b"RUN_FINISHED", b'"content":', b"event: done"))


@pytest.mark.parametrize("banner", ["", "0"])
async def test_without_a_terminal_there_are_only_log_lines(tmp_path, banner):
    store = "limits: {store: 'valkey://127.0.0.2:9'}, shut"  # not a name that is known to be this machine's
    async with holodeck(tmp_path, agent=AGENT.replace("shut", store), stdout=PIPE, HOLODECK_BANNER=banner) as server:
        warned = json.loads(await asyncio.wait_for(server.process.stdout.readline(), PATIENCE))
        assert "without TLS" in warned["details"]["message"], "what is logged while the server is built"
        started = json.loads(await asyncio.wait_for(server.process.stdout.readline(), PATIENCE))
        assert started["event"] == "server_started"
        assert started["details"]["address"].endswith(server.url.rpartition(":")[2])
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
        assert await server.process.stderr.read() == b""


async def test_a_required_tool_server_that_cannot_start_is_exit_code_2(tmp_path):
    agent = AGENT + "tools: [{name: gone, type: mcp, command: no-such-program-anywhere, required: true}]\n"
    async with holodeck(tmp_path, agent=agent) as server:
        assert await server.exit_code() == 2
        text = (await server.process.stderr.read()).decode()
    assert "no-such-program-anywhere" in text
    assert "is ready" not in text


@pytest.mark.req("SRV-03")
async def test_a_signal_while_it_starts_ends_it_cleanly(tmp_path):
    waits = f"{{name: slow, type: mcp, command: {sys.executable}, args: ['-c', 'import time; time.sleep(60)']}}"
    async with holodeck(tmp_path, agent=AGENT + f"tools: [{waits}]\n") as server:
        async with aiohttp.ClientSession() as client:
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    async with client.post(server.url + "/awp", json=ask()) as answer:
                        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                        break
                except aiohttp.ClientConnectionError:
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
        assert b"is ready" not in await server.process.stderr.read()


@pytest.mark.req("SRV-18", "ORC-08", "ORC-09", "T28")
async def test_every_line_of_the_log_is_json_and_holds_no_secret(tmp_path):
    async with holodeck(tmp_path, "--debug", stdout=PIPE, SOME_API_KEY="hunter2-hunter2") as server:
        await server.until_ready()
        async with aiohttp.ClientSession() as client:
            headers = {"X-Request-ID": "req_00000000beef"}
            body = ask("Hello hunter2-hunter2 \x1b[31m", thread="conversation", run="r")
            async with client.post(server.url + "/awp", json=body, headers=headers) as answer:
                await answer.read()
            async with client.post(server.url + "/awp", data=b"{", headers={"Content-Type": "application/json"}) as bad:
                assert bad.status == 400
        server.process.send_signal(signal.SIGTERM)
        output = (await server.process.stdout.read()).decode()
        assert await server.exit_code() == 0
    lines = [json.loads(line) for line in output.splitlines()]
    members = ["timestamp", "level", "request_id", "event", "duration_ms", "details", "user_id", "conversation_id"]
    assert all(list(line) == members for line in lines)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"]) for line in lines)
    ours = [line for line in lines if line["request_id"] == "req_00000000beef"]
    logged = [line["event"] for line in ours]
    assert logged[0] == "request_received"
    assert {"model_called", "model_result", "run_completed", "request_completed"} <= {*logged}
    assert {line["conversation_id"] for line in ours if line["event"] == "model_called"} == {"conversation"}
    assert next(line for line in ours if line["event"] == "request_completed")["duration_ms"] > 0
    assert "Hello" in output  # it was asked for with --debug
    assert "hunter2" not in output
    assert "\x1b" not in output


@pytest.mark.req("D13")
async def test_a_log_that_no_one_reads_blocks_no_request(tmp_path):
    read, write = os.pipe()  # 64 kB, and then it is full
    async with holodeck(tmp_path, "--debug", stdout=write) as server:
        os.close(write)
        await server.until_ready()
        async with aiohttp.ClientSession() as client:
            for number in range(40):  # each logs its body of several kB
                body = b'{"padding": "' + b"x" * 8000 + b'"}'
                async with client.post(
                    server.url + "/awp", data=body, headers={"Content-Type": "application/json"}
                ) as answer:
                    assert answer.status == 422, number
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
    os.close(read)
