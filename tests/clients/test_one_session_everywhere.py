"""One session on every wire: the same id, one history, and runs that any client can follow, stop and approve.

The server is `holodeck serve --protocol all` in a process of its own, with its SQLite file.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holodeck.core.ids import new_ulid
from tests.cli.process import holodeck
from tests.cli.vt import Terminal
from tests.clients import every_client as ways
from tests.clients.every_client import APPROVE, ASK, FOLLOW, STOP, Clients, Json, ModelScript
from tests.models.endpoint import ModelEndpoint
from tests.server.test_server_process import holodeck as serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("SRV-28")]

SESSION = "Ann's trip, day 1/2"  # taken as it is, on every wire
FILE = {"content": base64.b64encode(b"The word is xyzzy.").decode(), "mime_type": "text/plain", "filename": "word.txt"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def d(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clients]:
    folder, model = tmp_path_factory.mktemp("everywhere"), ModelScript()
    (folder / "tools.py").write_text(ways.TOOLS)
    async with ModelEndpoint(model) as endpoint:
        agent = ways.agent_file(endpoint.url)
        async with serving(folder, "--protocol", "all", "--log-level", "warning", agent=agent) as server:
            await server.until_ready()
            async with ways.clients_of(server.url, folder, endpoint, model) as found:
                yield found


@pytest.mark.req("FAC-06")
async def test_a_conversation_goes_from_wire_to_wire(d: Clients) -> None:
    """AG-UI, REST, Chat Completions, Responses, AI SDK, MCP, A2A, the terminal beside the server and as its client, the first client again."""
    first = ways.agui_body(SESSION, 'call add {"a": 2, "b": 3}')
    shown = await d.post("/awp", first)
    assert ways.agui_text(shown) == "You said 5"
    assert "xyzzy" in await ways.ask_rest(d, SESSION, "What is in the file?", FILE)
    assert await ways.ask_completions(d, SESSION, "from completions") == "You said from completions"
    before: Any = [
        {"role": "user", "content": "from completions"},
        {"role": "assistant", "content": "You said from completions"},
    ]
    assert await ways.ask_completions(d, SESSION, "and again", *before) == "You said and again"
    response = await d.openai.responses.create(
        model="tester", input='call wipe {"name": "old list"}', conversation=SESSION
    )
    (asked,) = response.output
    assert (asked.type, d.wiped()) == ("mcp_approval_request", [])
    assert await ways.approve_mcp(d, await d.question(SESSION)) == "You said old list is gone"
    assert d.wiped() == ["old list"]
    assert await ways.ask_ai_sdk(d, SESSION, "from the page") == "You said from the page"
    assert await ways.ask_mcp(d, SESSION, "from MCP") == "You said from MCP"
    assert await ways.ask_a2a(d, SESSION, "from A2A") == "You said from A2A"
    done = await asyncio.to_thread(holodeck, "chat", "--session", SESSION, "-q", "-p", "from here", folder=d.folder)
    assert (done.code, done.out.strip()) == (0, "You said from here"), done.err
    remote = ("--url", d.url, "--session", SESSION, "-q", "-p", "from afar")
    done = await asyncio.to_thread(holodeck, "chat", *remote, folder=d.folder)
    assert (done.code, done.out.strip()) == (0, "You said from afar"), done.err
    last = ways.agui_body(SESSION, "back again")
    last["messages"] = [*first["messages"], *_messages_shown(shown), *last["messages"]]
    shown = await d.post("/awp", last)
    assert ways.agui_text(shown) == "You said back again"
    snapshots = [each for each in ways.agui_events(shown) if each["type"] == "MESSAGES_SNAPSHOT"]
    assert "You said from here" in str(snapshots[0]), "the client learns what was said on the other wires"

    result = await d.session(SESSION)
    assert (result["session_id"], result["pending"], result["active_runs"]) == (SESSION, None, [])
    assert [_line(each) for each in result["messages"]] == [
        'user: call add {"a": 2, "b": 3}',
        'assistant: add({"a": 2, "b": 3})',
        "tool: 5",
        "assistant: You said 5",
        "user: What is in the file?",
        "assistant: You said What is in the file?",
        "user: from completions",
        "assistant: You said from completions",
        "user: and again",
        "assistant: You said and again",
        'user: call wipe {"name": "old list"}',
        'assistant: wipe({"name": "old list"})',
        "tool: old list is gone",
        "assistant: You said old list is gone",
        "user: from the page",
        "assistant: You said from the page",
        "user: from MCP",
        "assistant: You said from MCP",
        "user: from A2A",
        "assistant: You said from A2A",
        "user: from here",
        "assistant: You said from here",
        "user: from afar",
        "assistant: You said from afar",
        "user: back again",
        "assistant: You said back again",
    ]
    assert len({each["id"] for each in result["messages"]}) == result["message_count"] == 26
    seen = d.endpoint.requests[-1].json["messages"]
    assert [each["role"] for each in seen if each["role"] != "system"] == [each["role"] for each in result["messages"]][
        :-1
    ]
    assert "xyzzy" in str(seen), "the file stays in the conversation"


def _messages_shown(body: bytes) -> list[Json]:
    """The messages of a run, as an AG-UI client keeps them."""
    messages: dict[str, Json] = {}
    for event in ways.agui_events(body):
        match event["type"]:
            case "TEXT_MESSAGE_START":
                messages.setdefault(event["messageId"], {"id": event["messageId"], "role": "assistant", "content": ""})
            case "TEXT_MESSAGE_CONTENT":
                messages[event["messageId"]]["content"] += event["delta"]
            case "TOOL_CALL_START":
                parent = event["parentMessageId"]
                message = messages.setdefault(parent, {"id": parent, "role": "assistant"})
                call = {"id": event["toolCallId"], "type": "function"}
                message["toolCalls"] = [{**call, "function": {"name": event["toolCallName"], "arguments": ""}}]
            case "TOOL_CALL_ARGS":
                call = next(c for m in messages.values() for c in m["toolCalls"] if c["id"] == event["toolCallId"])
                call["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                result = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
                messages[event["messageId"]] = {**result, "content": event["content"]}
    return list(messages.values())


def _line(message: Json) -> str:
    calls = [f"{call['name']}({call['arguments']})" for call in message.get("tool_calls", ())]
    return f"{message['role']}: {' '.join(calls) or ways.text_of(message['content']).partition(chr(10))[0]}"


@pytest.mark.req("FAC-06")
@pytest.mark.parametrize("wire", ASK)
async def test_a_call_that_waits_is_approved_on_any_wire(d: Clients, wire: str) -> None:
    async def approved(by: str) -> None:
        session, name = new_ulid(), f"{wire} by {by}"
        await ASK[wire](d, session, f'call wipe {{"name": "{name}"}}')
        assert name not in d.wiped()
        assert await APPROVE[by](d, await d.question(session)) == f"You said {name} is gone"
        result = await d.session(session)
        assert [each["role"] for each in result["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert (result["pending"], d.wiped().count(name)) == (None, 1)

    await asyncio.gather(*map(approved, APPROVE))


async def test_a_call_that_waits_is_approved_in_the_terminal(d: Clients) -> None:
    session = "call of REST/1"
    await ways.ask_agui(d, session, "hello")
    await ways.ask_rest(d, session, 'call wipe {"name": "by hand"}')
    async with Terminal("chat", "--session", session, folder=d.folder) as terminal:
        await terminal.wait_for('? wipe(name="by hand")')
        await terminal.wait_for("allow?")
        terminal.enter("y")
        await terminal.wait_for("You said by hand is gone")
        await terminal.wait_for("6/50 messages")  # the run has ended, and is stored
    result = await d.session(session)
    assert [each["role"] for each in result["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (result["pending"], d.wiped().count("by hand")) == (None, 1)


@pytest.mark.req("FAC-06")
@pytest.mark.parametrize("wire", ASK)
async def test_a_run_is_followed_on_any_wire(d: Clients, wire: str) -> None:
    session = new_ulid()
    asked, run = await held(d, wire, session)
    followed = [asyncio.create_task(each(d, session, run)) for each in FOLLOW.values()]
    await attached(d, run, 1 + len(followed))  # the first is the client that asked
    d.model.gates[session].set()
    answers = dict(zip(FOLLOW, await asyncio.gather(*followed), strict=True))
    of_run = answers.pop("run")
    assert "upon a time" in of_run
    assert answers == dict.fromkeys(answers, "Once upon a time")
    assert await asked == "Once upon a time"


@pytest.mark.req("FAC-06")
@pytest.mark.parametrize("wire", ASK)
async def test_a_run_is_stopped_on_any_wire(d: Clients, wire: str) -> None:
    async def stopped(by: str) -> None:
        session = new_ulid()
        asked, run = await held(d, wire, session)
        await STOP[by](d, session, run)
        await asyncio.gather(asked, return_exceptions=True)  # ends, in the words of its own wire
        state = json.loads(await d.get(f"/runs/{run}"))["state"]
        assert (state, (await d.session(session))["active_runs"]) == ("cancelled", [])

    await asyncio.gather(*map(stopped, STOP))


async def held(d: Clients, wire: str, session: str) -> tuple[asyncio.Task[str], str]:
    """A request whose answer has begun and waits for the session's gate, and the id of its run."""
    asked = asyncio.ensure_future(ASK[wire](d, session, f"hold {session}"))
    while True:
        async with d.http.get(f"{d.url}/sessions/{session}") as answer:
            runs = (await answer.json())["active_runs"] if answer.status == 200 else []
        if runs:
            return asked, runs[0]
        assert not asked.done(), asked
        await asyncio.sleep(0.01)


async def attached(d: Clients, run: str, readers: int) -> None:
    """Waits until so many clients follow the run: it must not end before the last of them has found it."""
    async with asyncio.timeout(ways.SECONDS):
        while json.loads(await d.get(f"/runs/{run}"))["readers"] < readers:
            await asyncio.sleep(0.01)
