"""A client of each protocol that `holodeck serve --protocol all` speaks, and the agent that they talk to.

Official SDKs where Python has them (OpenAI, MCP); the others as HTTP, in the bodies that their own clients send.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import aiohttp
from mcp import Client
from openai import AsyncOpenAI
from yarl import URL

from tests.models.endpoint import DONE, ModelEndpoint, Wire, chunk, frame, status, text_frames, tool_call_frames
from tests.wires.ai_sdk.ui_client import UiClient
from tests.wires.sse_parsers import whatwg

Json = dict[str, Any]
SECONDS = 60.0  # a guard against hanging
A2A = {"A2A-Version": "1.0"}

TOOLS = '''\
from pathlib import Path


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def wipe(name: str) -> str:
    """Deletes a list."""
    with (Path(__file__).parent / "wiped.txt").open("a") as file:
        file.write(f"{name}\\n")
    return f"{name} is gone"
'''


def agent_file(endpoint: str) -> str:
    model = {"provider": "openai_compatible", "name": "m", "api_key": "none", "endpoint": endpoint}
    tools = [
        {"name": "add", "type": "function", "file": "tools.py"},
        {"name": "wipe", "type": "function", "file": "tools.py", "approval": "always"},
    ]
    return json.dumps({"name": "tester", "model": model, "tools": tools, "server": {"shutdown_timeout": 0.2}})


class ModelScript:
    """A model whose answer follows from the last message.

    "call add {…}" makes a tool call; "hold KEY" waits for the gate KEY in the middle of the answer; the result of a tool
    and everything else is repeated.
    """

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._calls = 0

    async def __call__(self, wire: Wire) -> None:
        if wire.request.method == "GET":  # `holodeck chat` asks for the list of models
            await status(404)(wire)
            return
        last = wire.request.json["messages"][-1]
        text = text_of(last["content"])
        word, _, rest = text.partition(" ")
        await wire.head()
        if last["role"] == "user" and word == "call":
            name, _, arguments = rest.partition(" ")
            self._calls += 1
            await wire.send(*tool_call_frames((f"call-{self._calls}", name, arguments)))
        elif last["role"] == "user" and word == "hold":
            await self._hold(wire, rest)
        else:
            await wire.send(*text_frames("You said ", text))
        await wire.end()

    async def _hold(self, wire: Wire, key: str) -> None:
        await wire.send(frame(chunk({"role": "assistant", "content": "Once "})))
        waits = [asyncio.create_task(each.wait()) for each in (self.gates[key], wire.gone)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        await wire.send(frame(chunk({"content": "upon a time"})), frame(chunk(finish="stop")), DONE)


def text_of(content: Any) -> str:
    """The text of a message, whether it is plain or in parts."""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


class Question(NamedTuple):
    """A call that waits for a person, as `GET /sessions/{id}` shows it."""

    session: str
    run: str
    interrupt: str
    call: Json


@dataclass
class Clients:
    """The server, and the ways into it."""

    url: str
    folder: Path
    http: aiohttp.ClientSession
    openai: AsyncOpenAI
    endpoint: ModelEndpoint
    model: ModelScript

    # HTTP

    def address(self, path: str) -> URL:
        return URL(self.url + path, encoded=True)

    async def post(self, path: str, body: Json, **headers: str) -> bytes:
        async with self.http.post(self.address(path), json=body, headers=headers) as answer:
            given = await answer.read()
            assert answer.status == 200, (path, answer.status, given)
            return given

    async def get(self, path: str) -> bytes:
        async with self.http.get(self.address(path)) as answer:
            given = await answer.read()
            assert answer.status == 200, (path, answer.status, given)
            return given

    async def session(self, session: str) -> Json:
        found: Json = json.loads(await self.get(f"/sessions/{quote(session, safe='')}"))
        return found

    async def question(self, session: str) -> Question:
        pending = (await self.session(session))["pending"]
        (asked,) = pending["questions"]
        (call,) = [each for each in pending["message"]["tool_calls"] if each["id"] == asked["call_id"]]
        return Question(session, pending["message"]["run_id"], asked["interrupt_id"], call)

    @asynccontextmanager
    async def mcp(self, mode: Any = "auto") -> AsyncIterator[Client]:
        async with Client(f"{self.url}/mcp", mode=mode, read_timeout_seconds=SECONDS) as client:
            yield client

    def wiped(self) -> list[str]:
        """What the tool that needs approval has deleted."""
        file = self.folder / "wiped.txt"
        return file.read_text().splitlines() if file.exists() else []


@asynccontextmanager
async def clients_of(url: str, folder: Path, endpoint: ModelEndpoint, model: ModelScript) -> AsyncIterator[Clients]:
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(SECONDS)) as http,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as openai,
    ):
        yield Clients(url, folder, http, openai, endpoint, model)


# to ask: a message of the user on one wire, and the text of the answer

Ask = Callable[[Clients, str, str], Awaitable[str]]


def agui_body(session: str, text: str | None, **fields: Any) -> Json:
    messages = [] if text is None else [{"id": str(uuid4()), "role": "user", "content": text}]
    return {"threadId": session, "runId": str(uuid4()), "messages": messages, **fields}


def agui_events(body: bytes) -> list[Json]:
    return [json.loads(each.data) for each in whatwg(body)]


def agui_text(body: bytes) -> str:
    return "".join(each["delta"] for each in agui_events(body) if each["type"] == "TEXT_MESSAGE_CONTENT")


async def ask_agui(d: Clients, session: str, text: str) -> str:
    return agui_text(await d.post("/awp", agui_body(session, text)))


async def ask_rest(d: Clients, session: str, text: str, *files: Json) -> str:
    body = {"message": text, "session_id": session, "files": list(files)}
    result = json.loads(await d.post("/agent/tester/chat", body))
    assert result["session_id"] == session
    return str(result["content"])


async def ask_chat_stream(d: Clients, session: str, text: str) -> str:
    body = await d.post("/chat/stream", {"input": text, "conversation_id": session})
    return str(json.loads(whatwg(body)[-1].data)["final_output"])


async def ask_completions(d: Clients, session: str, text: str, *before: Any) -> str:
    answer = await d.openai.chat.completions.with_raw_response.create(
        model="tester",
        messages=[*before, {"role": "user", "content": text}],
        extra_headers={"X-Session-Id": session},
    )
    assert answer.headers["X-Session-Id"] == session
    return answer.parse().choices[0].message.content or ""


async def ask_responses(d: Clients, session: str, text: str) -> str:
    answer = await d.openai.responses.create(model="tester", input=text, conversation=session)
    assert answer.conversation is not None
    assert answer.conversation.id == session
    return answer.output_text


def ui_message(body: bytes, parts: list[Json] | None = None) -> UiClient:
    message = UiClient(parts)
    for each in whatwg(body):
        if each.data != "[DONE]":
            message.read(json.loads(each.data))
    return message


async def ask_ai_sdk(d: Clients, session: str, text: str) -> str:
    sent = {"id": str(uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}
    return ui_message(await d.post("/ai-sdk/chat", {"id": session, "messages": [sent]})).texts()


async def ask_mcp(d: Clients, session: str, text: str) -> str:
    async with d.mcp() as client:
        result = (await client.call_tool("ask", {"message": text, "session": session})).structured_content
    assert result["session"] == session
    return str(result.get("answer", ""))


async def a2a(d: Clients, method: str, **params: Any) -> Json:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reported: Json = json.loads(await d.post("/a2a", body, **A2A))
    assert "error" not in reported, reported
    result: Json = reported["result"]
    return result


async def ask_a2a(d: Clients, session: str, text: str) -> str:
    message = {"messageId": str(uuid4()), "contextId": session, "role": "ROLE_USER", "parts": [{"text": text}]}
    task = (await a2a(d, "SendMessage", message=message))["task"]
    assert task["contextId"] == session
    return "".join(part["text"] for each in task.get("artifacts", ()) for part in each["parts"])


ASK: Mapping[str, Ask] = {
    "ag-ui": ask_agui,
    "rest": ask_rest,
    "openai": ask_completions,
    "responses": ask_responses,
    "ai-sdk": ask_ai_sdk,
    "mcp": ask_mcp,
    "a2a": ask_a2a,
}


# to approve a call that waits: the text of the answer that follows

Approve = Callable[[Clients, Question], Awaitable[str]]


async def approve_agui(d: Clients, q: Question) -> str:
    resume = [{"interruptId": q.interrupt, "status": "resolved", "payload": {"approved": True}}]
    return agui_text(await d.post("/awp", agui_body(q.session, None, resume=resume)))


async def approve_rest(d: Clients, q: Question) -> str:
    resume = [{"interrupt_id": q.interrupt, "approved": True}]
    result = json.loads(await d.post("/agent/tester/chat", {"session_id": q.session, "resume": resume}))
    return str(result["content"])


async def approve_responses(d: Clients, q: Question) -> str:
    decision: Any = {"type": "mcp_approval_response", "approval_request_id": q.interrupt, "approve": True}
    answer = await d.openai.responses.create(model="tester", input=[decision], conversation=q.session)
    return answer.output_text


async def approve_ai_sdk(d: Clients, q: Question) -> str:
    """As `useChat` does after a page was loaded: the messages that the server gives, with the answer in them."""
    messages = json.loads(await d.get(f"/ai-sdk/chat/{quote(q.session, safe='')}/messages"))
    part = next(part for part in messages[-1]["parts"] if part.get("toolCallId") == q.call["id"])
    part |= {"state": "approval-responded", "approval": {"id": q.interrupt, "approved": True}}
    body = await d.post("/ai-sdk/chat", {"id": q.session, "messages": messages, "messageId": messages[-1]["id"]})
    ui_message(body, [{**part, "type": "tool"}])  # the client attaches the result to the call that it shows
    deltas = [json.loads(each.data) for each in whatwg(body) if each.data != "[DONE]"]
    return "".join(each["delta"] for each in deltas if each["type"] == "text-delta")


async def approve_mcp(d: Clients, q: Question) -> str:
    decision = {"id": q.interrupt, "approved": True}
    async with d.mcp() as client:
        result = await client.call_tool("continue", {"session": q.session, "decisions": [decision]})
    return str(result.structured_content["answer"])


async def approve_a2a(d: Clients, q: Question) -> str:
    decision = {"data": {"interruptId": q.interrupt, "approved": True}}
    message = {"messageId": str(uuid4()), "taskId": q.run, "role": "ROLE_USER", "parts": [decision]}
    task = (await a2a(d, "SendMessage", message=message))["task"]
    assert (task["contextId"], task["status"]["state"]) == (q.session, "TASK_STATE_COMPLETED")
    return "".join(part["text"] for each in task["artifacts"] for part in each["parts"])


APPROVE: Mapping[str, Approve] = {
    "ag-ui": approve_agui,
    "rest": approve_rest,
    "responses": approve_responses,
    "ai-sdk": approve_ai_sdk,
    "mcp": approve_mcp,
    "a2a": approve_a2a,
}


# to follow a run that another client started: the text that it shows, to its end

Follow = Callable[[Clients, str, str], Awaitable[str]]


async def follow_run(d: Clients, _session: str, run: str) -> str:
    """In the form of the run's own wire, whichever it is: the words of the answer are in it."""
    return (await d.get(f"/runs/{quote(run, safe='')}/events")).decode()


async def follow_session(d: Clients, session: str, _run: str) -> str:
    read = b""
    async with d.http.get(d.address(f"/sessions/{quote(session, safe='')}/events")) as answer:
        while b'"RUN_FINISHED"' not in read:
            read += await answer.content.readany()
    return agui_text(read)


async def follow_response(d: Clients, _session: str, run: str) -> str:
    stream = await d.openai.responses.retrieve(f"resp_{run}", stream=True)
    events = [event async for event in stream]
    return str(events[-1].response.output_text)  # type: ignore[union-attr]


async def follow_ai_sdk(d: Clients, session: str, _run: str) -> str:
    return ui_message(await d.get(f"/ai-sdk/chat/{quote(session, safe='')}/stream")).texts()


async def follow_mcp(d: Clients, _session: str, run: str) -> str:
    async with d.mcp() as client:
        return str((await client.call_tool("wait", {"run": run})).structured_content["answer"])


async def follow_a2a(d: Clients, _session: str, run: str) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": run}}
    updates = [json.loads(each.data)["result"] for each in whatwg(await d.post("/a2a", body, **A2A))]
    whole = [each["artifactUpdate"]["artifact"] for each in updates if each.get("artifactUpdate", {}).get("lastChunk")]
    return "".join(part["text"] for each in whole for part in each["parts"])


FOLLOW: Mapping[str, Follow] = {
    "run": follow_run,
    "session": follow_session,
    "responses": follow_response,
    "ai-sdk": follow_ai_sdk,
    "mcp": follow_mcp,
    "a2a": follow_a2a,
}


# to stop a run that another client started

Stop = Callable[[Clients, str, str], Awaitable[None]]


async def stop_run(d: Clients, _session: str, run: str) -> None:
    stopped = {"stopped": True, "state": "cancelled"}
    assert json.loads(await d.post(f"/runs/{quote(run, safe='')}/stop", {})) == stopped


async def stop_copilotkit(d: Clients, session: str, _run: str) -> None:
    path = f"/copilotkit/agent/default/stop/{quote(session, safe='')}"
    assert json.loads(await d.post(path, {})) == {"stopped": True}


async def stop_response(d: Clients, _session: str, run: str) -> None:
    assert (await d.openai.responses.cancel(f"resp_{run}")).status == "cancelled"


async def stop_ai_sdk(d: Clients, session: str, _run: str) -> None:
    assert json.loads(await d.post(f"/ai-sdk/chat/{quote(session, safe='')}/stop", {})) == {"stopped": True}


async def stop_mcp(d: Clients, _session: str, run: str) -> None:
    of_mcp = "io.modelcontextprotocol/"
    about = {
        f"{of_mcp}protocolVersion": "2026-07-28",
        f"{of_mcp}clientCapabilities": {"extensions": {f"{of_mcp}tasks": {}}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/cancel", "params": {"taskId": run, "_meta": about}}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tasks/cancel", "Mcp-Name": run}
    assert "result" in json.loads(await d.post("/mcp", body, **headers))


async def stop_a2a(d: Clients, _session: str, run: str) -> None:
    assert (await a2a(d, "CancelTask", id=run))["status"]["state"] == "TASK_STATE_CANCELED"


STOP: Mapping[str, Stop] = {
    "run": stop_run,
    "copilotkit": stop_copilotkit,
    "responses": stop_response,
    "ai-sdk": stop_ai_sdk,
    "mcp": stop_mcp,
    "a2a": stop_a2a,
}
