"""A real model behind the real server: llama.cpp with 135 million weights, over sockets. Opt-in: `make local-model`.

What it says is not tested, only how it is asked, streamed, cut and counted.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.faults.server_process import AGENT, ServerProcess, config, serving
from tests.ports import free_port

PYTHON = Path(__file__).parents[2] / ".venv" / "local-model" / "bin" / "python"
CONTEXT = 1024
pytestmark = [
    pytest.mark.skipif(os.environ.get("LOCAL_MODEL") != "1", reason="make local-model"),
    pytest.mark.timeout(900),
]


@asynccontextmanager
async def llama() -> AsyncIterator[str]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(str(PYTHON), str(Path(__file__).with_name("serve_llama.py")), str(port), str(CONTEXT)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        while (line := await asyncio.wait_for(process.stdout.readline(), 300)) != b"ready\n":
            assert line, "the model server did not start"
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[ServerProcess]:
    async with llama() as endpoint:
        model = {"name": "smollm2", "timeout": 600, "max_tokens": 16, "temperature": 0}
        file = config(endpoint, model=model, loop={"iteration_timeout": 600}, instructions="Answer.")
        file["server"]["runs"]["detach_grace"] = 0.1
        async with serving(folder, file) as server:
            yield server


async def ask(server: ServerProcess, text: str, session: str | None = None) -> tuple[int, dict[str, Any]]:
    body = {"message": text} | ({"session_id": session} if session else {})
    async with aiohttp.ClientSession() as http, http.post(f"{server.url}/agent/{AGENT}/chat", json=body) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_an_answer_streams_and_its_tokens_are_counted(tmp_path: Path) -> None:
    async with agent(tmp_path) as server, aiohttp.ClientSession() as http:
        url = f"{server.url}/agent/{AGENT}/chat/stream"
        async with http.post(url, json={"message": "Count from one to ten."}) as answer:
            events = (await answer.read()).decode().split("\n\n")
        deltas = [each for each in events if "event: message_delta" in each]
        (last,) = [each for each in events if "event: stream_end" in each]
        end = json.loads(last.partition("data: ")[2])
        assert len(deltas) > 3
        assert 0 < end["tokens_used"]["completion_tokens"] <= 16
        assert end["tokens_used"]["prompt_tokens"] > 10
        assert end["model"] == "openai_compatible/smollm2"


async def test_a_client_that_leaves_frees_the_only_slot_of_the_model(tmp_path: Path) -> None:
    async with agent(tmp_path) as server:
        async with aiohttp.ClientSession() as http:
            url = f"{server.url}/agent/{AGENT}/chat/stream"
            answer = await http.post(url, json={"message": "Tell a long story."})
            await answer.content.readuntil(b"message_delta")
            answer.close()
        status, result = await ask(server, "Hello")
        assert (status, result["status"]) == (200, "completed")


async def test_a_conversation_longer_than_the_window_continues(tmp_path: Path) -> None:
    async with agent(tmp_path) as server:
        status, result = await ask(server, "Remember: " + "apples and pears, " * 60)
        assert status == 200
        for _ in range(4):
            status, result = await ask(server, "And: " + "apples and pears, " * 60, result["session_id"])
            assert status == 200, result


async def test_a_message_longer_than_the_window_is_a_typed_error_and_the_conversation_continues(tmp_path: Path) -> None:
    async with agent(tmp_path) as server:
        status, result = await ask(server, "Hello")
        assert status == 200
        session = result["session_id"]
        status, result = await ask(server, "word " * 1900, session)
        assert (status, result.get("reason")) == (502, "context_overflow"), result
        status, _ = await ask(server, "Hello again", session)
        assert status == 200
