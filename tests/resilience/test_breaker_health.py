"""Breakers as a monitor sees them: /health/agent over a real socket."""

import pytest

from holodeck.resilience.breaker import CircuitBreakerConfig
from holodeck.resilience.breakers import Dependency
from tests.server.serving import served

ONCE = CircuitBreakerConfig(failure_threshold=1, recovery_timeout=60)


@pytest.mark.req("SRV-10", "ORC-10")
async def test_health_shows_every_breaker_and_is_unhealthy_when_no_model_may_be_asked():
    async with served() as s:
        breakers = s.server.agent.breakers
        first, second = (breakers.of(Dependency.MODEL, name, ONCE) for name in ("first", "second"))
        first.admit().failed("No connection to the endpoint.")
        async with s.get("/health/agent") as answer:
            result = await answer.json()
        assert (answer.status, result["status"]) == (200, "healthy"), "a second model may still be asked"
        assert [(each["service"], each["state"]) for each in result["breakers"]] == [
            ("model:first", "open"),
            ("model:second", "closed"),
        ]
        shown = result["breakers"][0]
        assert (shown["failure_count"], shown["last_error"]) == (1, "No connection to the endpoint.")
        assert 59 < shown["retry_after"] <= 60

        second.admit().failed("down")
        for path in ("/health", "/ready", "/health/agent"):
            async with s.get(path) as answer:
                result = await answer.json()
            assert (answer.status, result["status"], result["agent_ready"]) == (503, "unhealthy", False)
            assert "Retry-After" in answer.headers


@pytest.mark.req("SRV-10")
async def test_an_open_breaker_of_a_tool_leaves_the_agent_healthy():
    async with served() as s:
        breaker = s.server.agent.breakers.of(Dependency.TOOL, "todo.create_todo", ONCE)
        breaker.admit().failed("did not answer")
        async with s.get("/health/agent") as answer:
            assert (answer.status, (await answer.json())["breakers"][0]["state"]) == (200, "open")
