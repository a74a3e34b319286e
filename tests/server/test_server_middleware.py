"""Event middleware is the same on every wire, in replays and in stored histories (SRV-21)."""

import json

import msgspec
import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core.events import (
    ActivityPatched,
    ActivityShown,
    MessagesReplaced,
    TextAdded,
    ToolArgumentsAdded,
    ToolCallEnded,
    ToolCallStarted,
    ToolFinished,
    WarningRaised,
)
from holodeck.core.tools import ToolResult
from holodeck.models.scripted import ScriptedModel, calls, says
from holodeck.resilience.breaker import CircuitBreakerConfig
from holodeck.resilience.breakers import Breakers
from holodeck.runs.middleware import EventMiddleware, annotate, hide, hide_tools, log, own
from holodeck.server.options import ServerSettings
from holodeck.server.wires import WIRES
from holodeck.tools.catalogue import Catalogue, Source
from tests.agent.agent_fixture import PlainTools, echo
from tests.scenarios.wire_clients import CLIENTS
from tests.server.every_wire import QUESTIONS, SESSION
from tests.server.keyed import keyed
from tests.server.serving import ask, served

ALL = ServerSettings(protocols=tuple(WIRES), remember_conversations=True)
HIDDEN, SHOWN = "lookup_salary", "lookup_weather"
ON_CLIENTS = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


def serving(stage, *, approval=frozenset()):
    tools = PlainTools(approval, **{HIDDEN: echo, SHOWN: echo})
    turns = calls((HIDDEN, '{"of": "the boss"}'), (SHOWN, "{}")), says("It rains.")
    return served(*turns, tools=tools, settings=ALL, middleware=lambda: EventMiddleware([stage()]))


@ON_CLIENTS
@pytest.mark.req("SRV-21")
async def test_a_hidden_tool_is_hidden_on_every_wire_in_replays_and_in_the_session(client):
    async with serving(lambda: hide_tools([HIDDEN])) as s:
        seen = await client.ask(s, "how is the weather?", SESSION)
        assert [call.name for call in seen.calls] == ([] if "calls" in client.never else [SHOWN])
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
        tools = s.server.agent.tools.rows()[HIDDEN].toolset
        assert [name for name, _, _ in tools.called] == [HIDDEN, SHOWN]  # it was called all the same


async def working(_arguments, context):
    """Reports its progress, as the tools of MCP servers do."""
    content = {"tool": context.tool, "progress": 1}
    context.emit(ActivityShown(f"p {context.tool}", "tool_progress", content, call=(context.call_id, context.tool)))
    context.emit(ActivityPatched(f"p {context.tool}", "tool_progress", [{"op": "add", "path": "/of", "value": 2}]))
    return ToolResult(content="ok")


def without_salary(event):
    return None if isinstance(event, ToolCallStarted) and event.name == HIDDEN else event


HIDING = {
    "tools": lambda: hide_tools([HIDDEN]),
    "only": lambda: hide_tools(only=[SHOWN]),
    "a function": lambda: own(without_salary, print),
}
EACH_QUESTION = pytest.mark.parametrize("asked", QUESTIONS)
EACH_HIDING = pytest.mark.parametrize("how", [*HIDING, "a family"])


def showing(how, *turns, approval=frozenset(), work=working):
    stage = HIDING.get(how, lambda: hide(["tools"]))
    tools = PlainTools(approval, **{HIDDEN: work, SHOWN: work})
    return served(*turns, tools=tools, settings=ALL, middleware=lambda: EventMiddleware([stage()]))


@EACH_QUESTION
@EACH_HIDING
async def test_the_progress_of_a_hidden_tool_is_hidden(asked, how):
    async with showing(how, calls((HIDDEN, "{}"), (SHOWN, "{}")), says("It rains.")) as s:
        path, body, headers = QUESTIONS[asked]("hi", SESSION)
        async with s.post(body, path, **headers) as answer:
            assert f"p {HIDDEN}" not in await answer.text(errors="replace")
        (run,) = s.server.runs._runs.values()
        activities = {each.message_id for each in s.server.shown_events(run) if isinstance(each, ActivityPatched)}
        assert activities == (set() if how == "a family" else {f"p {SHOWN}"})


@EACH_HIDING
async def test_the_progress_of_a_hidden_tool_is_hidden_after_its_approval(how):
    """The run that makes the call does not have its start."""
    async with showing(how, calls((HIDDEN, "{}")), says("It rains."), approval=frozenset({HIDDEN})) as s:
        async with s.post({"message": "hi", "session_id": SESSION}, "/agent/tester/chat") as answer:
            (asked,) = (await answer.json())["interrupts"]
        resume = [{"interrupt_id": asked["id"], "approved": True}]
        async with s.post({"session_id": SESSION, "resume": resume}, "/agent/tester/chat") as answer:
            assert (await answer.json())["content"] == "It rains."
        _, run = s.server.runs._runs.values()
        assert [
            event for event in s.server.shown_events(run) if isinstance(event, ActivityShown | ActivityPatched)
        ] == []


@EACH_QUESTION
@EACH_HIDING
async def test_a_warning_does_not_name_a_hidden_tool(asked, how):
    async with showing(how, says("It rains.")) as s:
        s.server.agent.tools.withdrawn = s.server.agent.tools.rows
        path, body, headers = QUESTIONS[asked]("hi", SESSION)
        async with s.post(body, path, **headers) as answer:
            assert HIDDEN not in await answer.text(errors="replace")
        (run,) = s.server.runs._runs.values()
        warnings = [event.message for event in s.server.shown_events(run) if isinstance(event, WarningRaised)]
        sentence = f"Not available at the moment, because they keep failing: {SHOWN}."
        assert warnings == ([] if how == "a family" else [sentence])


@ON_CLIENTS
async def test_a_hidden_family_is_hidden_on_every_wire_and_in_the_session(client):
    async with serving(lambda: hide(["tools"])) as s:
        seen = await client.ask(s, "how is the weather?", SESSION)
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
        assert (await client.ask(s, "how is the weather?", SESSION)).answer == "IT RAINS."


def discreet(event):
    """Hides which tool was called, and with which arguments and result."""
    match event:
        case ToolCallStarted(name=name) if name == HIDDEN:
            return msgspec.structs.replace(event, name="lookup")
        case ToolArgumentsAdded() | MessagesReplaced():
            return None
        case ToolCallEnded(name=name) if name == HIDDEN:
            return msgspec.structs.replace(event, name="lookup", arguments='{"of": "***"}')
        case ToolFinished(name=name) if name == HIDDEN:
            return msgspec.structs.replace(event, name="lookup", content="***")
    return event


@pytest.mark.req("SRV-21")
@EACH_QUESTION
async def test_a_function_changes_the_name_and_the_arguments_of_a_call_on_every_wire(asked):
    async with serving(lambda: own(discreet, print)) as s:
        path, body, headers = QUESTIONS[asked]("hi", SESSION)
        async with s.post(body, path, **headers) as answer:
            shown = await answer.text(errors="replace")
        assert "rains" in shown
        assert HIDDEN not in shown
        assert "the boss" not in shown


@pytest.mark.req("SRV-21")
async def test_a_function_changes_the_arguments_of_an_approved_call():
    """Its arguments are in the log of the run before."""
    reported = []
    stages = lambda: EventMiddleware([log(lambda _, event: reported.append(event)), own(discreet, print)])  # noqa: E731
    tools = PlainTools(frozenset({HIDDEN}), **{HIDDEN: echo})
    turns = calls((HIDDEN, '{"of": "the boss"}')), says("It rains.")
    async with served(*turns, tools=tools, settings=ALL, middleware=stages) as s:
        async with s.post({"message": "hi", "session_id": SESSION}, "/agent/tester/chat") as answer:
            (asked,) = (await answer.json())["interrupts"]
        reported.clear()
        resume = [{"interrupt_id": asked["id"], "approved": True}]
        async with s.post({"session_id": SESSION, "resume": resume}, "/agent/tester/chat") as answer:
            (call,) = (await answer.json())["tool_calls"]
    assert (call["name"], call["arguments"]) == ("lookup", {"of": "***"})
    assert [event for event in reported if isinstance(event, ToolCallStarted | ToolCallEnded)] == []


@ON_CLIENTS
async def test_metadata_breaks_no_wire(client):
    async with serving(lambda: annotate({"team": "blue"})) as s:
        seen = await client.ask(s, "how is the weather?", SESSION)
        assert {call.name for call in seen.calls} == (set() if "calls" in client.never else {HIDDEN, SHOWN})
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


LISTS = {  # the addresses that list tools
    "/awp/capabilities": {},
    "/copilotkit/info": {},
    "/a2a/extendedAgentCard": {"A2A-Version": "1.0"},
    "/a2a/v1/card": {},
    "/openapi.json": {},
    "/": {},
    "/.well-known/agent-card.json": {},
    "/v1/models": {},
}
NAMES_TOOLS = {"/awp/capabilities", "/copilotkit/info", "/a2a/extendedAgentCard", "/a2a/v1/card"}


@pytest.mark.parametrize("how", HIDING)
@pytest.mark.parametrize("path", LISTS)
async def test_a_hidden_tool_is_in_no_list(path, how):
    async with serving(HIDING[how]) as s, s.get(path, **LISTS[path]) as answer:
        assert answer.status == 200
        body = await answer.text()
    assert HIDDEN not in body
    assert (SHOWN in body) is (path in NAMES_TOOLS)


async def test_the_lists_of_mcp_and_of_json_rpc_hide_it_too():
    bodies = {
        "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
        "/a2a": {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}},
        "/copilotkit": {"method": "info"},
    }
    async with serving(HIDING["tools"]) as s:
        for path, body in bodies.items():
            async with s.post(body, path, **{"A2A-Version": "1.0"}) as answer:
                text = await answer.text()
                assert answer.status == 200
                assert HIDDEN not in text
                assert (SHOWN in text) is (path != "/mcp"), "MCP clients see the agent as one tool"


async def test_a_hidden_family_lists_no_tool():
    async with serving(lambda: hide(["tools"])) as s, s.get("/awp/capabilities") as answer:
        assert "lookup" not in await answer.text()


async def test_a_list_has_the_names_that_a_function_gives_and_logs_no_calls():
    def renamed(event):
        return msgspec.structs.replace(event, name="look") if isinstance(event, ToolCallStarted) else event

    logged = []
    stages = [lambda: log(lambda n, event: logged.append(event)), lambda: own(renamed, print)]
    async with (
        served(
            settings=ALL,
            tools=PlainTools(**{HIDDEN: echo}),
            middleware=lambda: EventMiddleware(each() for each in stages),
        ) as s,
        s.get("/awp/capabilities") as answer,
    ):
        body = await answer.text()
    assert HIDDEN not in body
    assert '"name":"look"' in body
    assert logged == []


class ListingTools(PlainTools):
    """Returns the same listing until a test replaces it, as a tool server does."""

    listing = ()

    def schemas(self):
        return self.listing


async def test_a_function_is_asked_about_each_tool_once_until_the_listing_changes():
    asked = []

    def note(event):
        asked.append(event.name)
        return event

    toolset = ListingTools()
    toolset.listing = PlainTools(**{SHOWN: echo}).schemas()
    agent = AgentDefinition(name="tester", model=ScriptedModel([]), tools=Catalogue([Source(toolset=toolset)]))
    async with served(agent=agent, middleware=lambda: EventMiddleware([own(note, print)])) as s:
        for _ in range(2):
            async with s.get("/awp/capabilities") as answer:
                assert SHOWN in await answer.text()
        assert asked == [SHOWN]
        toolset.listing = PlainTools(**{SHOWN: echo, HIDDEN: echo}).schemas()
        async with s.get("/awp/capabilities") as answer:
            assert HIDDEN in await answer.text()
        assert asked == [SHOWN, SHOWN, HIDDEN]


async def test_only_an_operator_sees_the_breaker_of_a_hidden_tool(tmp_path):
    def parts():
        source = Source(
            toolset=PlainTools(**{HIDDEN: echo, SHOWN: echo}),
            name="office",
            breaker=CircuitBreakerConfig(failure_threshold=3),
        )
        breakers = Breakers()
        model = ScriptedModel([calls((HIDDEN, "{}"), (SHOWN, "{}")), says("It rains.")])
        agent = AgentDefinition(name="tester", model=model, tools=Catalogue([source], breakers), breakers=breakers)
        return {"agent": agent, "middleware": lambda: EventMiddleware([hide_tools([HIDDEN])])}

    async with served(settings=ALL, **parts()) as s:
        async with s.post({"message": "hi"}, "/agent/tester/chat") as answer:
            assert answer.status == 200
        shown = await _breakers(s)
    assert f"tool:office.{SHOWN}" in shown
    assert f"tool:office.{HIDDEN}" not in shown
    async with keyed(tmp_path, public=frozenset({"metrics"}), **parts()) as (s, holders):
        operator, user = holders.headers("metrics"), holders.headers()
        await s.server.access.refresh()
        async with s.post({"message": "hi"}, "/agent/tester/chat", **user) as answer:
            assert answer.status == 200
        assert f"tool:office.{HIDDEN}" not in await _breakers(s)
        assert f"tool:office.{HIDDEN}" in await _breakers(s, **operator)


async def _breakers(s, **headers):
    async with s.get("/health/agent", **headers) as answer:
        return [each["service"] for each in (await answer.json())["breakers"]]
