"""Real clients with a key, as docs/access.md shows them: @ag-ui/client and CopilotKit's core."""

import asyncio

import pytest

from holodeck.models.scripted import says
from tests.clients.driving import node
from tests.server.keyed import keyed


@pytest.mark.parametrize("client", ["ag-ui", "copilotkit"])
async def test_a_client_with_a_key_is_served_and_one_without_is_not(tmp_path, client):
    async with keyed(tmp_path, says("hello"), says("hello")) as (s, holders):
        good = holders.headers(user="ann")
        await s.server.access.refresh()
        scenarios = [
            {"name": "with a key", "client": client, "url": s.url, "headers": good},
            {"name": "without", "client": client, "url": s.url, "headers": {}},
        ]
        with_key, without = await asyncio.to_thread(node, "keyed_driver.mjs", scenarios=scenarios)
    assert with_key["error"] is None
    assert with_key["events"][0] == "RUN_STARTED"
    assert with_key["events"][-1] == "RUN_FINISHED"
    assert "RUN_FINISHED" not in without["events"]
    assert without["error"]
    assert len(s.model.prompts) == 1
