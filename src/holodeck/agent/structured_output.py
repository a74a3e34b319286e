"""An agent's final answer as a value: the schema that the model is shown, and the check of the model's answer.

The schema comes from JSON Schema (agent.yaml) or from a Python type. pydantic handles models, dataclasses and plain
types; msgspec handles its structs and TypedDicts. `holodeck.models.structured` makes a model follow the schema.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self, is_typeddict
from urllib.parse import unquote

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import extend
from pydantic import TypeAdapter, ValidationError
from referencing import Registry

from holodeck.core.json_values import every_value
from holodeck.core.messages import AssistantMessage, Message, UserMessage
from holodeck.core.text import one_line
from holodeck.errors import ConfigError
from holodeck.models.port import OutputSchema
from holodeck.tools.schema_check import unique_items

WRAPPED = "value"  # the member that holds a value that is not an object
_LONGEST_PROBLEM = 300
_MOST_PROBLEMS = 100  # compared to find the one to report; a long list of wrong items would block the event loop


_Validator = extend(Draft202012Validator, {"uniqueItems": unique_items})  # type: ignore[no-untyped-call]  # so in the stubs


class BadOutputError(Exception):
    """The problem with an answer, in words for the model."""


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class OutputType:
    """The required type of the final answer. Make it with `of` or `of_schema`."""

    schema: OutputSchema
    convert: Callable[[Any], Any] = _as_it_is
    is_wrapped: bool = False
    validator: Draft202012Validator = field(repr=False, default_factory=lambda: Draft202012Validator({}))

    @classmethod
    def of_schema(cls, schema: dict[str, Any], convert: Callable[[Any], Any] = _as_it_is) -> Self:
        """From a JSON Schema. Raises ConfigError if it is not one."""
        schema = _unpacked(schema)
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            where = "/".join(map(str, error.absolute_path))
            raise ConfigError(
                f"is not a JSON Schema: {one_line(error.message, 200)}{f' (at {where})' if where else ''}"
            ) from error
        _check_references(schema)
        name = schema.get("title")
        wrapped = schema.get("type") != "object" and "properties" not in schema and "$ref" not in schema
        root = _wrapped(schema) if wrapped else schema
        return cls(
            schema=OutputSchema(schema=root, name=_safe_name(name)),
            convert=convert,
            is_wrapped=wrapped,
            validator=_Validator(root, registry=Registry()),
        )

    @classmethod
    def of(cls, kind: Any) -> Self:
        """From a Python type, or a JSON Schema as a dict."""
        if isinstance(kind, OutputType):
            return kind  # type: ignore[return-value]  # there are no subclasses
        if isinstance(kind, dict):
            return cls.of_schema(kind)
        is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if is_struct or is_typeddict(kind):  # pydantic takes a TypedDict of the standard library from Python 3.12 on
            return cls.of_schema(_inlined(msgspec.json.schema(kind)), lambda value: msgspec.convert(value, kind))
        adapter = TypeAdapter(kind)
        return cls.of_schema(adapter.json_schema(), adapter.validate_python)

    def read(self, text: str) -> tuple[Any, Any]:
        """Returns the answer as a JSON value and as a value of the type. Raises BadOutputError."""
        document = _parsed(text)
        try:
            problem = best_match(islice(self.validator.iter_errors(document), _MOST_PROBLEMS))
        except RecursionError:
            raise BadOutputError("it is nested too deeply") from None
        if problem is not None:
            where = "/".join(map(str, problem.absolute_path))
            raise BadOutputError(
                one_line(f"{where}: {problem.message}" if where else problem.message, _LONGEST_PROBLEM)
            )
        value = document[WRAPPED] if self.is_wrapped else document
        try:
            return value, self.convert(value)
        except (ValidationError, msgspec.ValidationError, ValueError) as error:
            raise BadOutputError(one_line(str(error), _LONGEST_PROBLEM)) from error


def repair_request(answer: AssistantMessage, problem: str) -> list[Message]:
    """The message that the model gets after an invalid answer. It is not part of the conversation."""
    reply = [answer] if answer.content else []
    words = f"Your answer does not have the required form: {problem}. Write the whole answer again, as JSON only."
    return [*reply, UserMessage(content=words)]


def _parsed(text: str) -> Any:
    """Finds the JSON value in a text: models put it into a code fence, or write a sentence in front of it."""
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.partition("\n")[2].rpartition("```")[0].strip()
    try:
        return json.loads(bare)
    except RecursionError:
        raise BadOutputError("it is nested too deeply") from None
    except ValueError as error:
        problem = str(error)
    start = bare.find("{")
    try:
        value, end = json.JSONDecoder().raw_decode(bare[start:]) if start >= 0 else (None, -1)
    except (ValueError, RecursionError):
        end = -1
    if end < 0 or bare[start + end :].strip().strip("`").strip():
        raise BadOutputError(f"it is not JSON ({problem})" if bare else "it is empty")
    return value


def _unpacked(schema: dict[str, Any]) -> dict[str, Any]:
    """Unwraps OpenAI's own form, which has the schema inside."""
    inside = schema.get("json_schema")
    if schema.get("type") == "json_schema" and isinstance(inside, dict):
        return {"title": inside.get("name"), **inside["schema"]} if isinstance(inside.get("schema"), dict) else inside
    return schema


def _check_references(schema: dict[str, Any]) -> None:
    """Refuses references to anything outside the schema: neither providers nor the check of an answer fetch it."""
    for node in every_value(schema):
        target = node.get("$ref") if isinstance(node, dict) else None
        if isinstance(target, str) and not _is_inside(schema, target):
            raise ConfigError(f"refers to {one_line(target, 100)}, which is not in it; put that schema under $defs")


def _is_inside(schema: Any, target: str) -> bool:
    document, mark, pointer = target.partition("#")
    if document or not mark:
        return False
    if not pointer.startswith("/"):
        return True  # the root, or an anchor
    for part in pointer[1:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        elif isinstance(schema, dict) and name in schema:
            schema = schema[name]
        else:
            return False
    return True


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        "additionalProperties": False,
        **shared,
    }


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Moves the root struct out of $defs, where msgspec puts it: providers require an object at the root."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    root = schema.get("$defs", {}).get(name)
    return {**root, "$defs": schema["$defs"]} if isinstance(root, dict) else schema


def _safe_name(title: Any) -> str:
    kept = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in str(title or "")
    )
    return kept[:64] or "answer"
