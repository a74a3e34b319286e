"""Tools behind breakers: what counts, what is withdrawn, and that one ill tool does not take its server with it."""

import asyncio

import pytest

from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.resilience.breaker import CircuitBreakerConfig, Phase
from holodeck.resilience.breakers import Breakers, Dependency
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.tools.mcp_toolset import McpToolset
from holodeck.tools.port import ToolContext
from tests.tools.mcp.rogue_client import rogue_settings
from tests.tools.recording import RecordingToolset

CONTEXT = ToolContext(user_id="ada")
OK = ToolResult(content="fine")
DOWN = ToolResult.failure("no connection", retryable=True)
WRONG = ToolResult.failure("no such todo")
CONFIG = CircuitBreakerConfig(failure_threshold=3, recovery_timeout=30, half_open_max_calls=2)


class MoodyToolset(RecordingToolset):
    """Answers each tool's calls with what a test set; hangs where it set None."""

    def __init__(self, *names):
        super().__init__(*(ToolSchema(name=name) for name in names), name="moody")
        self.moods = dict.fromkeys(names, OK)

    async def call(self, name, arguments, context):
        await super().call(name, arguments, context)
        if self.moods[name] is None:
            await asyncio.Event().wait()
        return self.moods[name]


class BreakerFixture:
    def __init__(self, *names):
        self.now = 0.0
        self.inner = MoodyToolset(*(names or ("a", "b")))
        self.breakers = Breakers(clock=lambda: self.now)
        self.tools = Catalogue([Source(toolset=self.inner, name="moody", breaker=CONFIG)], self.breakers)

    async def call(self, name, times=1):
        for _ in range(times):
            result = await self.tools.call(name, {}, CONTEXT)
        return result

    def offered(self):
        return [schema.name for schema in self.tools.schemas()]

    def phases(self):
        return {state.service: state.state for state in self.breakers.states()}


@pytest.fixture
def fixture():
    return BreakerFixture()


@pytest.mark.req("ORC-10")
@pytest.mark.parametrize(("mood", "counts"), [(DOWN, True), (WRONG, False), (OK, False)])
async def test_only_a_tool_that_cannot_be_reached_counts(fixture, mood, counts):
    fixture.inner.moods["a"] = mood
    await fixture.call("a", 3)
    expected = Phase.OPEN if counts else Phase.CLOSED
    assert fixture.phases() == {"mcp:moody": expected, "tool:moody.a": expected}
    result = await fixture.call("a")
    assert len(fixture.inner.calls) == (3 if counts else 4), "an open breaker makes no request"
    if counts:
        assert result.failed
        assert not result.retryable, "to repeat it at once would not help"
        assert "a is not available at the moment" in result.text


@pytest.mark.req("ORC-10")
async def test_tools_of_an_open_server_are_withdrawn_and_come_back(fixture):
    fixture.inner.moods["a"] = DOWN
    await fixture.call("a", 3)
    assert fixture.offered() == []
    (health,) = fixture.tools.health()
    assert (health.ready, health.withdrawn) == (False, ("a", "b"))
    assert "tried again in 30 s" in health.detail

    fixture.now = 30
    assert fixture.offered() == ["a", "b"]
    assert fixture.tools.health() == fixture.inner.health()
    fixture.inner.moods["a"] = OK
    await fixture.call("a", 2)
    assert fixture.phases() == {"mcp:moody": Phase.CLOSED, "tool:moody.a": Phase.CLOSED}


@pytest.mark.req("ORC-10")
async def test_one_ill_tool_among_well_ones_is_withdrawn_alone(fixture):
    fixture.inner.moods["a"] = DOWN
    for _ in range(3):
        await fixture.call("a")
        await fixture.call("b")
    assert fixture.offered() == ["b"]
    (health,) = fixture.tools.health()
    assert (health.ready, health.withdrawn) == (True, ("a",))
    assert fixture.phases()["mcp:moody"] is Phase.CLOSED
    assert (await fixture.call("b")).text == "fine"


@pytest.mark.req("A31")
async def test_a_trial_of_an_ill_tool_does_not_close_the_server_again(fixture):
    fixture.inner.moods["a"] = DOWN
    await fixture.call("a", 3)
    fixture.now = 30
    await fixture.call("a")  # still ill: its own breaker opens, its server is still being tried
    assert fixture.phases() == {"mcp:moody": Phase.HALF_OPEN, "tool:moody.a": Phase.OPEN}
    assert fixture.offered() == ["b"]
    await fixture.call("b", 2)
    assert fixture.phases()["mcp:moody"] is Phase.CLOSED


async def test_another_tools_failure_during_the_trials_opens_the_server_again(fixture):
    fixture.inner.moods.update(a=DOWN, b=DOWN)
    await fixture.call("a", 3)
    fixture.now = 30
    await fixture.call("b")
    assert fixture.phases()["mcp:moody"] is Phase.OPEN


@pytest.mark.req("A30")
async def test_a_call_that_is_stopped_gives_both_its_trials_back(fixture):
    fixture.inner.moods["a"] = DOWN
    await fixture.call("a", 3)
    fixture.now = 30
    fixture.inner.moods["a"] = None
    hanging = [asyncio.create_task(fixture.call("a")) for _ in range(2)]
    await asyncio.sleep(0)
    assert "not available" in (await fixture.call("a")).text, "two trials, no more"
    assert "not available" in (await fixture.call("b")).text, "of the server either"
    for task in hanging:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    fixture.inner.moods["a"] = OK
    await fixture.call("a", 2)
    assert set(fixture.phases().values()) == {Phase.CLOSED}, "b's breaker too, though its call was refused"


@pytest.mark.req("A30")
async def test_a_call_that_the_server_s_breaker_refuses_uses_up_no_trial_of_its_tool(fixture):
    await fixture.call("b")
    tool = fixture.breakers.of(Dependency.TOOL, "moody.b", CONFIG)
    server = fixture.breakers.of(Dependency.MCP, "moody", CONFIG)
    for _ in range(3):
        tool.admit().failed("down")
        server.admit().failed("down")
    fixture.now = 30
    trials = [server.admit(), server.admit()]
    for _ in range(3):
        assert "not available" in (await fixture.call("b")).text
    trials[0].withdrawn()
    assert (await fixture.call("b")).text == "fine"


async def test_breakers_of_tools_that_are_gone_are_forgotten(fixture):
    for number in range(50):
        fixture.inner.offer(ToolSchema(name=f"t{number}"))
        fixture.inner.moods[f"t{number}"] = OK
        await fixture.call(f"t{number}")
    assert set(fixture.phases()) == {"mcp:moody", "tool:moody.t49"}


async def test_tools_of_other_servers_stay(fixture):
    moody = Source(toolset=fixture.inner, name="moody", breaker=CONFIG)
    tools = Catalogue([moody, Source(toolset=RecordingToolset(ToolSchema(name="other")))], fixture.breakers)
    await tools.start()
    fixture.inner.moods["a"] = DOWN
    for _ in range(3):
        await tools.call("a", {}, CONTEXT)
    assert [schema.name for schema in tools.schemas()] == ["other"]
    assert [state.withdrawn for state in tools.health()] == [("a", "b"), ()]
    assert "not available at the moment" in (await tools.call("a", {}, CONTEXT)).text
    await tools.close()
    assert fixture.inner.log == ["start", "close"]


@pytest.mark.req("ORC-10", "ORC-07")
async def test_a_real_server_whose_tool_hangs(tmp_path):
    now = [0.0]
    breakers = Breakers(clock=lambda: now[0])
    settings = rogue_settings(tmp_path / "journal", timeout=1)
    config = CircuitBreakerConfig(failure_threshold=2, recovery_timeout=30, half_open_max_calls=1)
    tools = Catalogue([Source(toolset=McpToolset(settings), name="rogue", breaker=config)], breakers)
    await tools.start()
    try:
        for _ in range(2):
            assert "did not answer in 1 s" in (await tools.call("hang", {}, CONTEXT)).text
        assert list(tools.schemas()) == []
        assert "not available at the moment" in (await tools.call("pid", {}, CONTEXT)).text
        server = breakers.of(Dependency.MCP, "rogue", config)
        now[0] = 30
        assert (await tools.call("pid", {}, CONTEXT)).text.isdigit()
        assert server.phase is Phase.CLOSED
        assert len(tools.schemas()) > 1
    finally:
        await tools.close()
