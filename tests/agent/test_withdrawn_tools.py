"""Tools behind an open circuit breaker: the client, the model and a call of one all learn that they are withdrawn."""

import pytest

from holodeck.core import events as e
from holodeck.core.messages import ToolMessage
from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.models.scripted import calls, says
from holodeck.resilience.breaker import CircuitBreakerConfig
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.wires.chat_stream.stream import ChatStreamEventMapper
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo

UNNAMED = "Some tools are not available at the moment, because they keep failing."
NOTICE = "Not available at the moment, because they keep failing: slow, fine."


async def slow(_arguments, _context):
    return ToolResult.failure("slow did not answer in 1 s", retryable=True)


@pytest.fixture
def fixture():
    fixture = AgentFixture(calls(("slow", "{}")), says("never mind"), tools=PlainTools(slow=slow, fine=echo))
    breaker = CircuitBreakerConfig(failure_threshold=1, recovery_timeout=3600)
    object.__setattr__(
        fixture.agent, "tools", Catalogue([Source(toolset=fixture.tools, name="server", breaker=breaker)])
    )
    return fixture


@pytest.mark.req("ORC-10")
async def test_a_run_whose_tools_are_withdrawn_says_so(fixture):
    first = await fixture.play("go")
    assert fixture.emitted(e.WarningRaised) == []
    assert first.warning is None
    assert [schema.name for schema in fixture.model.prompts[0].tools] == ["slow", "fine"]

    second = await fixture.play("again")
    assert fixture.emitted(e.WarningRaised) == [e.WarningRaised("tools-unavailable", NOTICE, ("slow", "fine"))]
    assert second.warning == fixture.ending.warning == UNNAMED
    assert fixture.model.prompts[-1].tools == []
    assert "The tools slow, fine are not available at the moment." in fixture.model.prompts[-1].system


@pytest.mark.req("ORC-10")
async def test_a_call_of_a_withdrawn_tool_is_answered_with_the_reason(fixture):
    await fixture.play("go")
    fixture.model.turns = [says("x")] * len(fixture.model.prompts) + [calls(("fine", "not json")), says("never mind")]
    response = await fixture.play("again")
    (result,) = [message for message in fixture.conversation.messages[-2:] if isinstance(message, ToolMessage)]
    assert result.failed
    assert "fine is not available at the moment" in result.content
    assert "It is tried again in 3600 s." in result.content
    assert len(fixture.tools.called) == 1
    assert response.status == "completed"


@pytest.mark.req("ORC-10", "ORC-02")
async def test_chat_stream_clients_get_a_recoverable_error(fixture):
    await fixture.play("go")
    await fixture.play("again")
    mapper = ChatStreamEventMapper("r1")
    frames = [frame.decode() for event in fixture.events for frame in mapper.read(event)]
    (error,) = [frame for frame in frames if frame.startswith("event: error")]
    assert '"error_type":"tools-unavailable"' in error
    assert NOTICE in error
    assert '"recoverable":true' in error


@pytest.mark.req("ORC-10")
async def test_a_clients_tool_cannot_take_the_name_of_a_withdrawn_tool(fixture):
    await fixture.play("go")
    fixture.model.turns = [says("x")] * len(fixture.model.prompts) + [calls(("fine", "{}")), says("never mind")]
    response = await fixture.play("again", client_tools=[ToolSchema(name="fine", on_client=True)])
    assert fixture.model.prompts[-1].tools == []
    assert "fine is not available at the moment" in fixture.conversation.messages[-2].content
    assert response.status == "completed"
