"""What the interface describes is bounded: a client that generates requests from it sends none that has no end."""

from collections.abc import Iterator
from typing import Any

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.models.scripted import ScriptedModel
from holodeck.server.agent_server import AgentServer
from holodeck.server.app import Application
from holodeck.sessions.memory import MemorySessionStore
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import PlainTools
from tests.server.keyed import settings

BOUNDS = {  # objects are bounded with their body: 50,000 values, 4 MB besides files (`wires.body`)
    "string": {"maxLength"},
    "array": {"maxItems"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
}
ANY_NUMBER = {
    ("max_output_tokens", "integer"),  # a higher number than the agent's limit means that limit
    ("id", "integer"),  # of a JSON-RPC request: it is sent back as it came
}


def document() -> dict[str, Any]:
    agent = AgentDefinition(name="tester", model=ScriptedModel([]), tools=Catalogue.of(PlainTools()))
    return Application(AgentServer(agent, MemorySessionStore(), settings=settings())).openapi()


def schemas_in(node: Any, path: str, references: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, list):
        for number, each in enumerate(node):
            yield from schemas_in(each, f"{path}[{number}]", references)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield from schemas_in(references[node["$ref"].rpartition("/")[2]], path, references)
        elif "type" in node and isinstance(node["type"], str | list):
            yield path, node
        for key, value in node.items():
            if key not in ("example", "examples", "default", "enum", "const"):
                yield from schemas_in(value, f"{path}.{key}", references)


def missing_bounds(path: str, schema: dict[str, Any]) -> list[str]:
    if "enum" in schema or "const" in schema or schema.get("format") in ("binary", "date-time"):
        return []
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    name = path.rpartition(".")[2]
    return [
        f"{path}: {kind} needs {sorted(BOUNDS[kind])}"
        for kind in kinds
        if kind in BOUNDS and not BOUNDS[kind] <= schema.keys() and (name, kind) not in ANY_NUMBER
    ]


@pytest.mark.req("T18")
def test_every_text_list_and_number_of_a_request_is_bounded() -> None:
    described = document()
    components, asked = described["components"]["schemas"], 0
    unbounded: list[str] = []
    for address, methods in described["paths"].items():
        for method, operation in methods.items():
            parts = {part: operation[part] for part in ("parameters", "requestBody") if part in operation}
            for path, schema in schemas_in(parts, f"{method} {address}", components):
                asked += 1
                unbounded += missing_bounds(path, schema)
    assert (unbounded, asked > 200) == ([], True)
