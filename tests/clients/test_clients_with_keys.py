"""Real clients with a key, as docs/access.md shows them, and without one: the error is the client's own."""

import asyncio

import pytest

from holodeck.models.scripted import says
from tests.clients.driving import node_22
from tests.server.keyed import keyed

CLIENTS = {"ag-ui": "", "copilotkit": "", "openai": "AuthenticationError: 401", "a2a": ""}
"""Each client, and how its error for a wrong key begins."""


@pytest.mark.timeout(300)
async def test_a_client_with_a_key_is_served_and_one_without_is_not(tmp_path):
    async with keyed(tmp_path, *[says("hello")] * len(CLIENTS)) as (s, holders):
        good = holders.headers(user="ann")
        await s.server.access.refresh()
        scenarios = [
            {"name": f"{client} {kind}", "client": client, "url": s.url, "headers": headers}
            for client in CLIENTS
            for kind, headers in (("with a key", good), ("without", {}))
        ]
        received = await asyncio.to_thread(node_22, "keyed_driver.mjs", scenarios=scenarios, package="openai")
        played = {result["name"]: result for result in received}
    for client, refusal in CLIENTS.items():
        with_key, without = played[f"{client} with a key"], played[f"{client} without"]
        assert with_key["error"] is None
        assert with_key["events"]
        assert "RUN_FINISHED" not in without["events"]
        assert without["error"].startswith(refusal)
    assert played["ag-ui with a key"]["events"][-1] == "RUN_FINISHED"
    assert len(s.model.prompts) == len(CLIENTS)
