"""The list of breakers: one for each service, changes logged, nothing kept alive."""

import gc
import json
import logging

import pytest

from holodeck.resilience.breaker import CircuitBreakerConfig, Phase
from holodeck.resilience.breakers import Breakers, Dependency
from holodeck.telemetry import logs

ONCE = CircuitBreakerConfig(failure_threshold=1, recovery_timeout=60, half_open_max_calls=1)


@pytest.mark.req("ORC-10")
def test_who_names_the_same_service_gets_the_same_breaker():
    breakers = Breakers()
    one = breakers.of(Dependency.MODEL, "a", ONCE)
    assert breakers.of(Dependency.MODEL, "a", ONCE) is one
    other = breakers.of(Dependency.TOOL, "a", ONCE)
    assert other is not one
    assert [state.service for state in breakers.states()] == ["model:a", "tool:a"]


@pytest.mark.req("ORC-08", "ORC-10")
def test_every_change_is_one_log_line(caplog):
    now = [0.0]
    breakers = Breakers(clock=lambda: now[0])
    breaker = breakers.of(Dependency.MODEL, "m", ONCE)
    with caplog.at_level(logging.INFO, "holodeck.resilience"):
        breaker.admit().failed("no\nconnection " + "x" * 1000)
        now[0] = 60
        breaker.admit().succeeded()
    assert [record.getMessage() for record in caplog.records] == ["circuit_breaker_state_change"] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    first = caplog.records[0].details
    assert first.pop("last_error").startswith("no connection xxx")
    assert first == {"service": "model:m", "old_state": "closed", "new_state": "open", "failure_count": 1}
    assert [record.details["new_state"] for record in caplog.records] == ["open", "half_open", "closed"]
    assert len(caplog.records[1].details["last_error"]) <= 300


def test_cut_off_means_that_all_of_a_kind_are_open():
    now = [0.0]
    breakers = Breakers(clock=lambda: now[0])
    assert not breakers.cut_off(Dependency.MODEL), "no breaker, nothing cut off"
    first, second = (breakers.of(Dependency.MODEL, name, ONCE) for name in "ab")
    server = breakers.of(Dependency.MCP, "s", ONCE)
    server.admit().failed("x")
    first.admit().failed("x")
    assert not breakers.cut_off(Dependency.MODEL)
    second.admit().failed("x")
    assert breakers.cut_off(Dependency.MODEL)
    now[0] = 60
    assert not breakers.cut_off(Dependency.MODEL), "its time is over: a trial may be made"
    assert first.phase is Phase.HALF_OPEN


def test_a_breaker_that_no_one_uses_is_forgotten():
    breakers = Breakers()
    breaker = breakers.of(Dependency.TOOL, "t", ONCE)
    assert len(breakers.states()) == 1
    del breaker
    gc.collect()
    assert breakers.states() == []


@pytest.mark.req("ORC-08", "ORC-10")
def test_a_change_is_a_json_line_of_its_own_name(tmp_path):
    with (tmp_path / "log").open("w+b") as file:
        output = logs.configure(fd=file.fileno())
        breaker = Breakers().of(Dependency.MCP, "todo", ONCE)
        breaker.admit().failed("it stopped")
        output.close()
        file.seek(0)
        (line,) = map(json.loads, file)
    assert (line["event"], line["level"]) == ("circuit_breaker_state_change", "warning")
    assert line["details"] == {
        "logger": "holodeck.resilience.breakers",
        "service": "mcp:todo",
        "old_state": "closed",
        "new_state": "open",
        "failure_count": 1,
        "last_error": "it stopped",
    }
