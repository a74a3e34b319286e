"""The required form of an agent's final answer, as a JSON Schema."""

from typing import Any

import msgspec


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True):
    """`schema` has an object at its root, because providers require one."""

    schema: dict[str, Any]
    name: str = "answer"

    @property
    def is_strict(self) -> bool:
        """Whether OpenAI's strict mode accepts the schema: every object closed, every member required."""
        return _is_strict(self.schema)


def _is_strict(node: Any) -> bool:
    if isinstance(node, list):
        return all(_is_strict(each) for each in node)
    if not isinstance(node, dict):
        return True
    properties = node.get("properties")
    if isinstance(properties, dict):
        closed = node.get("additionalProperties") is False
        if not closed or set(node.get("required") or ()) != set(properties):
            return False
    elif node.get("type") == "object" or "default" in node:
        return False
    return all(_is_strict(each) for each in node.values())
