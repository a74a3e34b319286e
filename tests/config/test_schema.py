"""The schema itself: every bound is there, every key is explained, the defaults are the promised ones."""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from holodeck.agent.settings import AgentLoopConfig
from holodeck.config.agent_schema import AgentFile

SCHEMA = AgentFile.model_json_schema()
FREE = {"bind", "initial", "schema", "values"}  # values of any shape, bounded by the size of the file


def subschemas(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from subschemas(item, f"{path}[{number}]")
    elif isinstance(schema, dict):
        if "type" in schema and isinstance(schema["type"], str):
            yield path, schema
        for key, value in schema.items():
            if key not in ("default", "examples", "enum", "const"):
                yield from subschemas(value, f"{path}.{key}")


def is_bounded(schema: dict[str, Any]) -> bool:
    if "const" in schema or "enum" in schema:
        return True
    low = {"minimum", "exclusiveMinimum"} & schema.keys()
    high = {"maximum", "exclusiveMaximum"} & schema.keys()
    return {
        "string": "maxLength" in schema,
        "array": "maxItems" in schema,
        "integer": bool(low and high),
        "number": bool(low and high),
        "object": "maxProperties" in schema or schema.get("additionalProperties") is False,
    }.get(schema["type"], True)


@pytest.mark.req("T18")
def test_every_number_text_and_list_is_bounded():
    unbounded = [path for path, schema in subschemas(SCHEMA) if not is_bounded(schema)]
    assert unbounded == [], "give each a max_length, or ge and le"


def test_every_key_is_explained():
    blocks = {"agent": SCHEMA, **SCHEMA["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, block in blocks.items()
        for key, field in block.get("properties", {}).items()
        if "description" not in field and "const" not in field
    ]
    assert silent == []


def test_the_schema_is_a_schema_and_takes_a_file():
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate({"name": "a", "model": {"provider": "demo"}, "instructions": "Hi"})
    assert not Draft202012Validator(SCHEMA).is_valid({"name": "a", "model": {"provider": "demo"}, "tool": []})


@pytest.mark.parametrize(
    ("model", "loop", "expected"),
    [
        ({"provider": "ollama"}, {}, (300, 300)),
        ({"provider": "openai_compatible", "endpoint": "http://127.0.0.1:8001/v1"}, {}, (300, 300)),
        ({"provider": "openai_compatible", "endpoint": "http://localhost:8001/v1", "timeout": 60}, {}, (60, 60)),
        ({"provider": "ollama"}, {"iteration_timeout": 40}, (300, 40)),
        ({"provider": "openai_compatible", "endpoint": "https://gateway.example/v1"}, {}, (30, 30)),
    ],
)
def test_a_local_model_has_time_to_read(model, loop, expected):
    agent = AgentFile.model_validate({"name": "a", "model": {"name": "m", **model}, "loop": loop})
    assert (agent.model.idle_seconds, agent.loop_in_time.iteration_timeout) == expected


@pytest.mark.req("AGT-02", "AGT-04")
def test_the_promised_defaults():
    agent = AgentFile.model_validate({"name": "a", "model": {"provider": "gemini", "name": "gemini-2.5-flash"}})
    assert (agent.model.temperature, agent.model.max_tokens, agent.model.idle_seconds) == (1.0, None, 30)
    assert agent.loop == AgentLoopConfig(max_iterations=15, iteration_timeout=30, enable_retry=False, retry_attempts=1)
    assert (agent.sessions.store, agent.sessions.ttl_seconds, agent.sessions.max_messages) == (None, None, 200)
    assert (agent.files.max_files, agent.files.max_file_mb, agent.files.max_request_mb) == (10, 50, 100)
    breakers = agent.circuit_breakers
    assert (breakers.model.failure_threshold, breakers.model.recovery_timeout) == (3, 60)
    assert (breakers.mcp.failure_threshold, breakers.mcp.recovery_timeout) == (5, 30)
