"""A run that is forgotten is gone at once. The collector runs rarely in a server, and events are not even counted by it."""

import gc
import weakref

import pytest

from holodeck.models.scripted import says
from holodeck.runs import runs as runs_module
from holodeck.runs.run import Run
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.scenarios.wire_clients import CLIENTS
from tests.server.serving import served, until

ALL = ServerSettings(protocols=tuple(WIRES))
REQUESTS = 10
SESSION = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"


@pytest.mark.req("D11")
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
async def test_nothing_of_a_request_waits_for_the_collector(client, monkeypatch):
    monkeypatch.setattr(runs_module, "DETACHED_SECONDS", 0.01)  # tasks of A2A can be read longer than other runs
    async with served(says("hello there"), settings=ALL, replay_window=0.01) as s:
        runs: list[weakref.ref[Run]] = []
        start = s.server.runs.start

        async def starts(request, **more):
            run = await start(request, **more)
            runs.append(weakref.ref(run))
            return run

        s.server.runs.start = starts
        await client.ask(s, "hi", SESSION)  # what is made once, is made now
        gc.collect()
        gc.disable()
        try:
            for _ in range(REQUESTS):
                assert (await client.ask(s, "hi", SESSION)).error is None
            await until(lambda: not any(run() for run in runs), 2, "the runs to be gone")
            found = gc.collect()
        finally:
            gc.enable()
        assert len(runs) == 1 + REQUESTS
        assert found < REQUESTS, f"{found} objects in cycles after {REQUESTS} requests"
