"""A run that is forgotten is gone at once. The collector comes seldom in a server, and events are not even counted by it."""

import gc
import weakref

import pytest

from holodeck.models.scripted import says
from holodeck.server.options import ProtocolType, ServerSettings
from tests.scenarios.wire_clients import CLIENTS
from tests.server.serving import served, until

ALL = ServerSettings(protocols=tuple(ProtocolType))
SESSION = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"


@pytest.mark.req("D11")
@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
async def test_no_run_waits_for_the_collector(client):
    async with served(says("hello there"), settings=ALL, replay_window=0.01) as s:
        runs = []
        start = s.server.runs.start

        async def starts(request):
            run = await start(request)
            runs.append(weakref.ref(run))
            return run

        s.server.runs.start = starts
        gc.disable()
        try:
            for _ in range(5):
                heard = await client(s, "hi", SESSION)
                assert heard.error is None
            await until(lambda: not any(run() for run in runs), 2, "the runs to be gone")
        finally:
            gc.enable()
        assert len(runs) == 5
