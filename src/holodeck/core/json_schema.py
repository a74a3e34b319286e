"""Helpers to write JSON Schemas in code, for OpenAPI and for tools. Arguments have the names of the keywords (`maxLength`)."""

from collections.abc import Sequence
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]


def string(description: str = "", **keywords: Any) -> Schema:
    return _schema("string", description, keywords)


def array(items: Schema, description: str = "", **keywords: Any) -> Schema:
    return _schema("array", description, {"items": items, **keywords})


def object_of(properties: Schema, required: Sequence[str] = ()) -> Schema:
    return _schema("object", "", {"properties": properties, **({"required": list(required)} if required else {})})


def nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _schema(kind: str, description: str, keywords: Schema) -> Schema:
    return {"type": kind, **({"description": description} if description else {}), **keywords}
