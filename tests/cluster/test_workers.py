"""`holodeck serve --workers 2`: two processes on one port; one that dies is replaced, a signal ends them all."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
from asyncio.subprocess import PIPE
from contextlib import closing, suppress

import aiohttp
import psutil
import psycopg
import pytest

from tests.cli.process import holodeck
from tests.cluster.replicas import PATIENCE, TOOLS, WORDS, Client, Pace, Server
from tests.cluster.siblings import AGENT as FILE_AGENT
from tests.models.endpoint import ModelEndpoint
from tests.ports import free_port

AGENT = """\
name: tester
model: {{provider: demo}}
sessions: {{store: postgres, url: '{url}'}}
cluster: {{take_over_seconds: 300}}
"""


async def answers(server):
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(aiohttp.ClientError):
                if (await server.get("/ready"))["status"] == "healthy":
                    return
            await asyncio.sleep(0.05)


async def children(process, count, *, without=()):
    parent = psutil.Process(process.pid)
    async with asyncio.timeout(PATIENCE):
        while len(found := {each.pid for each in parent.children()} - set(without)) < count:
            await asyncio.sleep(0.05)
    return found


def restarts_in(log):
    """What the parent's lines say; the workers write to the same file."""
    lines = map(json.loads, log.read_text().splitlines())
    return [line["details"] for line in lines if line["event"] == "worker_restarted"]


def replicas_in(database):
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        return [name for (name,) in connection.execute("SELECT id FROM holodeck.replicas").fetchall()]


@pytest.mark.timeout(300)  # three processes start, one after the other on a busy machine
async def test_workers_share_a_port_and_one_that_dies_is_replaced(tmp_path, postgres_database):
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=postgres_database))
    server = Server(tmp_path)
    words = (
        sys.executable,
        "-m",
        "holodeck",
        "serve",
        "--workers",
        "2",
        "--protocol",
        "rest",
        "--port",
        str(server.port),
    )
    log = tmp_path / "log"
    with log.open("wb") as stdout:
        process = await asyncio.create_subprocess_exec(*words, cwd=tmp_path, stdout=stdout, stderr=PIPE)
    try:
        workers = await children(process, 2)
        await answers(server)
        for number in range(6):
            body = {"message": "hello", "session_id": "01M7J98JWHD6RZJRBQGNM3TJ37"}
            assert (await server.post("/agent/tester/chat", body))["status"] == "completed", number
        assert len(await server.messages("01M7J98JWHD6RZJRBQGNM3TJ37")) == 12
        async with asyncio.timeout(PATIENCE):
            while len(replicas_in(postgres_database)) < 2:  # the one that lives on may still be starting
                await asyncio.sleep(0.05)
        victim = min(workers)
        replica = json.loads(psutil.Process(victim).environ()["HOLODECK_WORKER"])["replica"]
        os.kill(victim, signal.SIGKILL)
        assert len(await children(process, 2, without=[victim])) == 2
        names = replicas_in(postgres_database)
        assert names, "the other one is there"
        assert replica not in names, "its parent knows that it has ended"
        await answers(server)
        assert len(await server.messages("01M7J98JWHD6RZJRBQGNM3TJ37")) == 12
        process.terminate()
        _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == 0, err
        assert [each["signal"] for each in restarts_in(log)] == [9]
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def worker_with(run, folder, pids):
    """The worker that has a run, by the name that its parent gave it, when the beginning of the run's log is copied."""
    with closing(sqlite3.connect(folder / "sessions.db")) as connection:
        statement = "SELECT DISTINCT replica FROM runs JOIN pieces ON pieces.run = runs.key WHERE id = ?"
        async with asyncio.timeout(PATIENCE):
            while (found := connection.execute(statement, (run,)).fetchone()) is None:
                await asyncio.sleep(0.02)
    (replica,) = found
    seats = {json.loads(psutil.Process(pid).environ()["HOLODECK_WORKER"])["replica"]: pid for pid in pids}
    return seats[replica]


@pytest.mark.req("D03", "D03b", "DUR-04")
async def test_workers_on_one_file_survive_each_other_and_end_with_their_parent(tmp_path):
    pace = Pace()
    (tmp_path / "tools.py").write_text(TOOLS)
    async with ModelEndpoint(pace) as endpoint:
        (tmp_path / "agent.yaml").write_text(FILE_AGENT.format(endpoint=endpoint.url, approval="never"))
        server = Server(tmp_path)
        words = ("serve", "--workers", "2", "--protocol", "all", "--port", str(server.port))
        log = tmp_path / "log"
        with log.open("wb") as stdout:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holodeck", *words), cwd=tmp_path, stdout=stdout, stderr=PIPE
            )
        try:
            workers = await children(process, 2)
            await answers(server)
            refused = await asyncio.to_thread(holodeck, "serve", "--port", str(free_port()), folder=tmp_path)
            assert (refused.code, "in use by another server" in refused.err) == (2, True)

            client = Client("slow", run="r1")
            reading = asyncio.create_task(client.post(server))
            pace.permit(5)
            await client.until("TEXT_MESSAGE_CONTENT", 3)
            victim = await worker_with("r1", tmp_path, workers)
            os.kill(victim, signal.SIGKILL)
            await reading
            pace.permit(50)
            await client.resume(server)
            assert client.types[-1] == "RUN_FINISHED"
            assert client.types.count("RUN_STARTED") == 1
            assert client.ids == sorted(set(client.ids))
            assert (await server.messages())[-1]["content"] == WORDS
            left = [*map(psutil.Process, await children(process, 2, without=[victim]))]

            process.kill()
            await asyncio.wait_for(process.communicate(), PATIENCE)
            assert [each["signal"] for each in restarts_in(log)] == [9]
            _, alive = await asyncio.to_thread(psutil.wait_procs, left, PATIENCE)
            assert not alive
            assert log.read_text().count("the parent process of this worker has ended") == 2, "why both stopped"
            with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            if process.returncode is None:
                process.terminate()
                await process.communicate()


def test_a_port_that_is_taken_may_still_be_that_of_workers_whose_parent_was_killed(tmp_path):
    """A supervisor starts the parent again while they end their runs."""
    (tmp_path / "agent.yaml").write_text("name: tester\nmodel: {provider: demo}\nserver: {shutdown_timeout: 7}\n")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = holodeck("serve", "--workers", "2", "--port", str(port), folder=tmp_path)
    assert done.code == 3
    assert f"Port {port} is taken by another program" in done.err
    assert "If the parent process of workers was killed here, they keep the port" in done.err
    assert "about 7 seconds at most" in done.err


def test_workers_need_a_store_that_they_share(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: tester\nmodel: {provider: demo}\nsessions: {store: memory}\n")
    done = holodeck("serve", "--workers", "2", "--port", str(free_port()), folder=tmp_path)
    assert done.code == 2
    assert "--workers needs sessions.store: sqlite or postgres" in done.err


def test_a_worker_that_cannot_start_ends_all(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=f"postgresql://me@127.0.0.1:{free_port()}/db"))
    done = holodeck("serve", "--workers", "2", "--port", str(free_port()), folder=tmp_path)
    assert done.code == 2
