"""Event middleware is the same on every wire, in replays and in stored histories (SRV-21)."""

import json

import msgspec
import pytest

from holodeck.core.events import TextAdded
from holodeck.models.scripted import calls, says
from holodeck.runs.middleware import Chain, annotate, hide, hide_tools, own
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from tests.agent.parts import PlainTools, echo
from tests.scenarios.wire_clients import CLIENTS
from tests.server.serving import ask, served

ALL = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
SESSION = "01K9ZQ4W3V8N2R5T7Y9A1C3E5G"
HIDDEN, SHOWN = "lookup_salary", "lookup_weather"
ON_CLIENTS = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
WITHOUT_CALLS = {CLIENTS[name] for name in ("openai", "openai stream", "a2a", "a2a 0.3 stream")}  # lines for people


def serving(stage, *, approval=frozenset()):
    tools = PlainTools(approval, **{HIDDEN: echo, SHOWN: echo})
    turns = calls((HIDDEN, '{"of": "the boss"}'), (SHOWN, "{}")), says("It rains.")
    return served(*turns, tools=tools, settings=ALL, chain=lambda: Chain([stage()]))


@ON_CLIENTS
@pytest.mark.req("SRV-21")
async def test_a_hidden_tool_is_hidden_on_every_wire_in_replays_and_in_the_session(client):
    async with serving(lambda: hide_tools([HIDDEN])) as s:
        seen = await client(s, "how is the weather?", SESSION)
        assert [call.name for call in seen.calls] == ([] if client in WITHOUT_CALLS else [SHOWN])
        assert seen.answer == "It rains."
        (run,) = s.server.runs._runs.values()
        for path in (f"/runs/{run.run_id}/events", f"/runs/{run.run_id}/events?after=3", f"/sessions/{SESSION}"):
            async with s.get(path) as answer:
                body = await answer.text()
            assert HIDDEN not in body, path
            assert "the boss" not in body, path
        async with s.post(ask(thread=SESSION), "/copilotkit/agent/default/connect") as answer:
            body = await answer.text()
        assert HIDDEN not in body
        assert SHOWN in body
        assert [name for name, _, _ in s.server.agent.tools.called] == [HIDDEN, SHOWN]  # it was called all the same


@ON_CLIENTS
async def test_a_hidden_family_is_hidden_on_every_wire_and_in_the_session(client):
    async with serving(lambda: hide(["tools"])) as s:
        seen = await client(s, "how is the weather?", SESSION)
        assert seen.calls == ()
        assert seen.answer == "It rains."
        async with s.get(f"/sessions/{SESSION}") as answer:
            messages = (await answer.json())["messages"]
        assert [(each["role"], each["content"]) for each in messages] == [
            ("user", "how is the weather?"),
            ("assistant", "It rains."),
        ]


@ON_CLIENTS
async def test_a_function_changes_the_text_on_every_wire(client):
    def louder(event):
        if isinstance(event, TextAdded):
            return msgspec.structs.replace(event, delta=event.delta.upper())
        return event

    async with serving(lambda: own(louder, print)) as s:
        assert (await client(s, "how is the weather?", SESSION)).answer == "IT RAINS."


@ON_CLIENTS
async def test_metadata_breaks_no_wire(client):
    async with serving(lambda: annotate({"team": "blue"})) as s:
        seen = await client(s, "how is the weather?", SESSION)
        assert {call.name for call in seen.calls} == (set() if client in WITHOUT_CALLS else {HIDDEN, SHOWN})
        assert seen.answer == "It rains."


async def test_the_approval_of_a_hidden_tool_is_still_asked_for():
    async with serving(lambda: hide_tools([HIDDEN]), approval=frozenset({HIDDEN})) as s:
        async with s.post({"message": "hi", "session_id": SESSION}, "/agent/tester/chat") as answer:
            (asked,) = (await answer.json())["interrupts"]
            assert asked["tool"] == HIDDEN
        async with s.get(f"/sessions/{SESSION}") as answer:
            pending = json.loads(await answer.text())["pending"]
        assert [question["tool"] for question in pending["questions"]] == [HIDDEN]
        assert [call["name"] for call in pending["message"]["tool_calls"]] == [SHOWN]
