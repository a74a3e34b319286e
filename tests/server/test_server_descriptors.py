"""A process that has no file descriptor left."""

import asyncio
import resource
import signal
import time

import aiohttp
import psutil
import pytest

from tests.server.serving import PATIENCE, ask, read_to
from tests.server.test_server_process import holodeck, status_of

SLOW = "Tell me what you can do, please"  # the demo model takes a second for its answer


@pytest.mark.req("C14")
async def test_without_descriptors_streams_continue_new_ones_are_refused_and_it_recovers_at_once(tmp_path):
    async with holodeck(tmp_path) as server, aiohttp.ClientSession() as client:
        await server.until_ready()
        process = psutil.Process(server.process.pid)
        answer = await client.post(server.url + "/awp", json=ask(SLOW))
        begun = await read_to(answer, "TEXT_MESSAGE_CONTENT")
        process.rlimit(resource.RLIMIT_NOFILE, (64, 64))
        hoard = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(80)]
        assert process.num_fds() <= 64
        before, began = process.cpu_times(), time.monotonic()
        received = begun + await answer.read()
        after, seconds = process.cpu_times(), time.monotonic() - began
        assert b"RUN_FINISHED" in received
        assert after.user + after.system - before.user - before.system < 0.8 * seconds, (
            "it does not spin on what it cannot accept"
        )
        for _, writer in hoard:
            writer.close()
        assert await asyncio.wait_for(status_of(client, server.url + "/health"), PATIENCE) == 200
        async with aiohttp.ClientSession() as newcomer:
            assert await asyncio.wait_for(status_of(newcomer, server.url + "/health"), PATIENCE) == 200
        server.process.send_signal(signal.SIGTERM)
        assert await server.exit_code() == 0
