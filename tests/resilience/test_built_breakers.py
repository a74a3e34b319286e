"""From the agent file to breakers, budgets and limits that act."""

import sys

import pytest

from holodeck.agent.definition import AgentContext
from holodeck.agent.loop import run
from holodeck.config.build import build_agent
from holodeck.config.load import load_config
from holodeck.core.messages import UserMessage
from holodeck.resilience.breaker import Phase
from holodeck.tools.port import ToolContext
from tests.models.endpoint import ModelEndpoint, status, text_stream, tool_call_stream
from tests.tools.mcp.rogue_client import ROGUE

SETTINGS = """
circuit_breakers:
  model: {failure_threshold: 1, recovery_timeout: 600}
  mcp: {failure_threshold: 2}
"""


@pytest.fixture
def agent_of(tmp_path):
    def built(text):
        (tmp_path / "agent.yaml").write_text(f"name: t\n{text}")
        return build_agent(load_config(tmp_path / "agent.yaml"))

    return built


async def play(agent, text="hi"):
    events = []
    response = await run(agent, AgentContext(input=[UserMessage(content=text)]), events.append)
    return response, events[-1]


def model_at(url, *more):
    return f"model: {{provider: openai_compatible, name: m, endpoint: '{url}', api_key: k{', '.join(('', *more))}}}\n"


def states(agent):
    return {state.service: state.state for state in agent.breakers.states()}


@pytest.mark.req("ORC-10", "A30")
async def test_the_models_breaker_of_a_file(agent_of):
    async with ModelEndpoint(status(503, b"", Retry_After="9999")) as endpoint:
        agent = agent_of(model_at(endpoint.url) + SETTINGS)
        where = f"model:openai_compatible/m at 127.0.0.1:{endpoint.port}/v1"
        assert states(agent) == {where: Phase.CLOSED}
        async with agent:
            await play(agent)
            assert states(agent) == {where: Phase.OPEN}
            _, ending = await play(agent)
        assert len(endpoint.requests) == 1
        assert (ending.code, ending.retryable) == ("model-unavailable", True)
        assert 0 < ending.retry_after <= 600


@pytest.mark.req("ORC-10")
async def test_a_fallback_of_the_file_answers_while_the_first_is_left_alone(agent_of):
    async with ModelEndpoint(status(503, b"", Retry_After="9999")) as endpoint:
        agent = agent_of(model_at(endpoint.url, "fallback: [{provider: demo}]") + SETTINGS)
        async with agent:
            for _ in range(2):
                response, _ = await play(agent)
                assert response.status == "completed"
        assert len(endpoint.requests) == 1
        assert list(states(agent).values()) == [Phase.OPEN, Phase.CLOSED]


def test_two_entries_that_mean_the_same_share_a_breaker(agent_of):
    same = "{provider: openai_compatible, name: m, endpoint: 'http://127.0.0.1:9/v1/', api_key: other}"
    elsewhere = "{provider: openai_compatible, name: m, endpoint: 'http://127.0.0.1:9/v2?key=secret', api_key: k}"
    agent = agent_of(model_at("http://127.0.0.1:9/v1", f"fallback: [{same}, {elsewhere}]"))
    assert list(states(agent)) == [
        "model:openai_compatible/m at 127.0.0.1:9/v1",
        "model:openai_compatible/m at 127.0.0.1:9/v2",
    ]


@pytest.mark.req("ORC-10", "ORC-07")
async def test_a_tool_that_hangs_is_withdrawn_and_the_model_is_informed(agent_of, tmp_path):
    (tmp_path / "journal").touch()
    tools = f"""
tools:
  - name: rogue
    type: mcp
    command: {sys.executable}
    args: ["-I", "-S", "{ROGUE}", "{tmp_path / "journal"}"]
    timeout: 0.1
    include: [hang, pid]
"""
    asks = tool_call_stream(("c", "hang", "{}"))
    async with ModelEndpoint(asks, asks, text_stream("I give up")) as endpoint:
        agent = agent_of(model_at(endpoint.url) + SETTINGS + tools)
        async with agent:
            response, _ = await play(agent)
            assert response.status == "completed"
            assert states(agent)["mcp:rogue"] is states(agent)["tool:rogue.hang"] is Phase.OPEN
            (server,) = agent.tools.health()
            assert (server.ready, server.required, server.withdrawn) == (False, True, ("pid", "hang"))
            refused = await agent.tools.call("pid", {}, ToolContext(user_id="ada"))
            assert "not available at the moment" in refused.text
        first, second, third = (request.json for request in endpoint.requests)
        assert [tool["function"]["name"] for tool in second["tools"]] == ["pid", "hang"]
        assert "tools" not in third
        note = "The tools pid, hang are not available at the moment."
        assert [note in request["messages"][0]["content"] for request in (first, second, third)] == [False, False, True]


def test_the_defaults_of_each_kind_hold_for_what_is_not_written(agent_of, tmp_path):
    agent_of("model: {provider: demo}\n" + SETTINGS)
    breakers = load_config(tmp_path / "agent.yaml").agent.circuit_breakers
    assert (breakers.model.failure_threshold, breakers.model.half_open_max_calls) == (1, 3)
    assert (breakers.mcp.failure_threshold, breakers.mcp.recovery_timeout) == (2, 30)


@pytest.mark.req("AGT-04")
async def test_budget_time_and_history_of_a_file(agent_of):
    agent = agent_of(
        "model: {provider: demo}\n"
        "loop: {run_timeout: 90, budget: {tokens: 5000, seconds: 60, tool_calls: 7}}\n"
        "sessions: {max_messages: 50, history: {max_tokens: 8000, strategy: trim}}\n"
    )
    assert agent.loop.run_timeout == 90
    assert agent.loop.budget.model_dump() == {"tokens": 5000, "seconds": 60, "tool_calls": 7}
    assert (agent.max_messages, agent.max_tokens) == (50, 8000)
    other = agent_of("model: {provider: demo}\nsessions: {history: {max_messages: 10}}\n")
    assert (other.max_messages, other.max_tokens, other.loop.run_timeout) == (10, None, None)


@pytest.mark.req("AGT-08")
async def test_what_a_server_s_limit_cuts_off_can_be_read_on(agent_of, tmp_path):
    (tmp_path / "journal").touch()
    tools = f"""
tools:
  - name: rogue
    type: mcp
    command: {sys.executable}
    args: ["-I", "-S", "{ROGUE}", "{tmp_path / "journal"}"]
    include: [echo]
    max_result_chars: 100
"""
    asks = tool_call_stream(("c", "echo", '{"text": "' + "x" * 500 + 'the end"}'))
    reads = tool_call_stream(("d", "read_result", '{"call_id": "c", "offset": 505}'))
    async with ModelEndpoint(asks, reads, text_stream("read")) as endpoint:
        agent = agent_of(model_at(endpoint.url) + tools)
        async with agent:
            response, _ = await play(agent)
    short, rest = (each.result for each in response.executions)
    assert 'characters left out; read_result shows them: call_id "c", offset 100]' in short
    assert rest.endswith('the end"}')
