"""The first tool call of a server loads no module: an import would hold up every stream (77 to 270 ms, once)."""

import json

import aiohttp
import pytest

from tests.clients.every_client import TOOLS, ModelScript
from tests.models.endpoint import ModelEndpoint
from tests.server.serving import ask, frames, until
from tests.server.test_server_process import holodeck

IMPORT = b"import time:"


@pytest.mark.parametrize("wire", ["/awp", "/agent/tester/chat"])
async def test_what_the_first_tool_call_imports_is_loaded_before_the_server_is_ready(tmp_path, wire):
    (tmp_path / "tools.py").write_text(TOOLS)
    words = 'call add {"a": 2, "b": 3}'
    async with ModelEndpoint(ModelScript()) as endpoint:
        model = {"provider": "openai_compatible", "name": "m", "api_key": "none", "endpoint": endpoint.url}
        agent = {"name": "tester", "model": model, "tools": [{"name": "add", "type": "function", "file": "tools.py"}]}
        listed = tmp_path / "imports"
        with listed.open("wb") as out:
            serving = holodeck(
                tmp_path,
                agent=json.dumps(agent),
                cold=True,
                stderr=out,
                PYTHONPROFILEIMPORTTIME="1",
                PYTHONUNBUFFERED="1",
            )
            async with serving as server, aiohttp.ClientSession() as client:
                await until(lambda: b"Ctrl+C" in listed.read_bytes())
                loaded = listed.read_bytes().count(IMPORT)
                assert loaded > 100, "Python lists what it imports"
                body = ask(words) if wire == "/awp" else {"message": words}
                async with client.post(server.url + wire, json=body) as answer:
                    received = await answer.read()
                assert answer.status == 200
                assert (
                    b"You said 5" in received if wire != "/awp" else frames(received)[-1][1]["type"] == "RUN_FINISHED"
                )
                late = [line for line in listed.read_bytes().splitlines() if IMPORT in line][loaded:]
    assert late == []
