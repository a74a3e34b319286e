"""`kill -9` while the tools of a run are called, on several wires: the same request says afterwards that the run was cut."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from tests.cluster.replicas import UNKNOWN
from tests.faults.test_kill_and_restart import PATIENCE, results_of, served_from

AGUI = {
    "threadId": "ck",
    "runId": "run-ck",
    "messages": [{"id": "m", "role": "user", "content": "act slowly d"}],
    "state": {},
    "tools": [],
    "context": [],
    "forwardedProps": {},
}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "REST": ("/agent/tester/chat", {"message": "act slowly a"}),
    "REST stream": ("/agent/tester/chat/stream", {"message": "act slowly b"}),
    "chat-stream": ("/chat/stream", {"input": "act slowly c", "conversation_id": "cs"}),
    "CopilotKit": ("/copilotkit/agent/default/run", AGUI),
}


@pytest.mark.req("D03", "C08")
async def test_the_same_request_after_a_kill_says_that_its_run_was_cut(tmp_path):
    async with (
        served_from(tmp_path, more="sessions: {store: sqlite}\n") as server,
        aiohttp.ClientSession() as client,
    ):

        async def posted(name: str) -> tuple[int, str]:
            """The status and the body; of an answer that is cut, none."""
            path, body = REQUESTS[name]
            headers = {"Idempotency-Key": f"key of {name}"}
            with suppress(aiohttp.ClientError):
                async with client.post(server.url + path, json=body, headers=headers) as answer:
                    return answer.status, await answer.text()
            return 0, ""

        asking = [asyncio.create_task(posted(name)) for name in REQUESTS]
        await server.acted(2 * len(REQUESTS))
        await server.restart()
        await asyncio.gather(*asking)
        asked = len(server.endpoint.requests)
        again = {name: await asyncio.wait_for(posted(name), PATIENCE) for name in REQUESTS}

        assert {name: status for name, (status, _) in again.items()} == {**dict.fromkeys(REQUESTS, 200), "REST": 503}
        cut = json.loads(again["REST"][1])
        assert cut["type"].endswith("/interrupted")
        last = {name: _frames(text)[-2:] for name, (_, text) in again.items() if name != "REST"}
        assert last["REST stream"][-1][0] == "error"
        assert last["REST stream"][-1][1]["type"].endswith("/interrupted")
        (failure, done) = last["chat-stream"]
        assert (failure[0], failure[1]["error_type"], failure[1]["recoverable"]) == ("error", "interrupted", False)
        assert (done[0], done[1]["success"]) == ("done", False)
        shown, ending = (event for _, event in last["CopilotKit"])
        assert (shown["type"], ending["type"], ending["code"]) == ("MESSAGES_SNAPSHOT", "RUN_ERROR", "interrupted")
        assert [UNKNOWN in text for text in results_of(shown["messages"])] == [True, True]

        stored = await server.get("/sessions")
        assert len(stored["sessions"]) == len(REQUESTS)
        for session in stored["sessions"]:
            texts = results_of(await server.session(session["session_id"]))
            assert [UNKNOWN in text for text in texts] == [True, True]
        assert len(server.endpoint.requests) == asked, "no run was carried out again"
        assert len(server.acts) == len(set(server.acts)) == 2 * len(REQUESTS)


def _frames(text: str) -> list[tuple[str, Any]]:
    """(name, data) of each event."""
    found = []
    for frame in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found
