"""`holodeck serve --workers 2`: two processes on one port; one that dies is replaced, a signal ends them all."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress

import aiohttp
import psutil

from tests.cli.process import holodeck
from tests.cluster.replicas import PATIENCE, Server
from tests.ports import free_port

AGENT = "name: tester\nmodel: {{provider: demo}}\nsessions: {{store: postgres, url: '{url}'}}\n"


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
    process = await asyncio.create_subprocess_exec(*words, cwd=tmp_path, stdout=DEVNULL, stderr=PIPE)
    try:
        workers = await children(process, 2)
        await answers(server)
        for number in range(6):
            body = {"message": "hello", "session_id": "01M7J98JWHD6RZJRBQGNM3TJ37"}
            assert (await server.post("/agent/tester/chat", body))["status"] == "completed", number
        assert len(await server.messages("01M7J98JWHD6RZJRBQGNM3TJ37")) == 12
        victim = min(workers)
        os.kill(victim, signal.SIGKILL)
        assert len(await children(process, 2, without=[victim])) == 2
        await answers(server)
        assert len(await server.messages("01M7J98JWHD6RZJRBQGNM3TJ37")) == 12
        process.terminate()
        _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == 0, err
        assert b"another one starts" in err
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


def test_workers_need_a_database_that_they_share(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: tester\nmodel: {provider: demo}\n")
    done = holodeck("serve", "--workers", "2", "--port", str(free_port()), folder=tmp_path)
    assert done.code == 2
    assert "--workers needs sessions.store: postgres" in done.err


def test_a_worker_that_cannot_start_ends_all(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=f"postgresql://me@127.0.0.1:{free_port()}/db"))
    done = holodeck("serve", "--workers", "2", "--port", str(free_port()), folder=tmp_path)
    assert done.code == 2
