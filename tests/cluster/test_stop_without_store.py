"""A server that has to stop while its database does not answer: its clients get their endings, and it exits."""

import asyncio
import signal

import pytest

from tests.cluster.replicas import Client, Pace, replicas
from tests.postgres_server import socket_of
from tests.store_faults.fault_proxy import FaultProxy

DRAIN = 1.0
BOUND = 40.0  # drain 1 s, endings 5 s, last bytes 2 s, store 9 s: 14 s; it was more than 55 s
STREAMS = 12  # more than the server has connections to its database


@pytest.mark.req("SRV-20", "D07")
@pytest.mark.parametrize("fault", ["black_hole", "cut"])
async def test_every_stream_gets_its_ending_and_the_process_ends(tmp_path, postgres_database, fault):
    pace = Pace(1000)
    async with FaultProxy(socket_of(postgres_database)) as link:
        url = f"postgresql://postgres@127.0.0.1:{link.port}/postgres"
        async with replicas(tmp_path, url, pace, count=1, drain=DRAIN) as (server,):
            clients = [Client("slow", run=f"r{number}", thread=f"t{number}") for number in range(STREAMS)]
            reading = [asyncio.create_task(client.post(server)) for client in clients]
            for client in clients:
                while "TEXT_MESSAGE_CONTENT" not in client.types:
                    pace.permit(1)  # for any of them
                    await asyncio.sleep(0.05)
            background = {"model": "tester", "input": "slow", "background": True}
            assert (await server.post("/v1/responses", background))["status"] in ("queued", "in_progress")
            getattr(link, fault)()
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(BOUND):
                await asyncio.gather(*reading, server.process.wait())
            assert {client.types[-1] for client in clients} == {"RUN_ERROR"}
            assert {client.events[-1]["code"] for client in clients} == {"shutting-down"}
