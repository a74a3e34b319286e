"""Function → schema → keywords: what a model is shown, and what the function is called with."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from holodeck.errors import ConfigError
from holodeck.tools.port import ToolContext
from holodeck.tools.signature import ArgumentsMismatch, name_of, read_signature

CONTEXT = ToolContext(user_id="alice")


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


@dataclass
class Point:
    x: float
    y: float = 0.0


class Person(BaseModel):
    name: str
    born: date | None = None


def shown(annotation: Any, default: Any = ...) -> dict[str, Any]:
    def function(value):
        """Doc."""

    function.__annotations__["value"] = annotation
    if default is not ...:
        function.__defaults__ = (default,)
    return read_signature(function).parameters


TYPES = [
    (str, {"type": "string"}, "x", "x"),
    (int, {"type": "integer"}, 3, 3),
    (float, {"type": "number"}, 3, 3.0),
    (bool, {"type": "boolean"}, True, True),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ["a"], {"a"}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a"),
    (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}, None, None),
    (Unit, {"$ref": "#/$defs/Unit"}, "ft", Unit.FOOT),
    (Point, {"$ref": "#/$defs/Point"}, {"x": 1}, Point(1.0)),
    (Person, {"$ref": "#/$defs/Person"}, {"name": "A", "born": "2000-01-02"}, Person(name="A", born=date(2000, 1, 2))),
    (list[Point], {"type": "array", "items": {"$ref": "#/$defs/Point"}}, [{"x": 1, "y": 2}], [Point(1.0, 2.0)]),
    (datetime, {"type": "string", "format": "date-time"}, "2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001  as the model wrote it
    (UUID, {"type": "string", "format": "uuid"}, str(UUID(int=1)), UUID(int=1)),
    (Any, {}, [1, "x"], [1, "x"]),
    (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9),
]


@pytest.mark.parametrize(("annotation", "schema", "sent", "received"), TYPES, ids=[str(each[0]) for each in TYPES])
def test_types_are_shown_and_converted(annotation, schema, sent, received):
    def function(value):
        """Doc."""

    function.__annotations__["value"] = annotation
    signature = read_signature(function)
    Draft202012Validator.check_schema(signature.parameters)
    assert signature.parameters["properties"]["value"] == schema
    assert signature.parameters["required"] == ["value"]
    keywords = signature.keywords({"value": sent}, CONTEXT)
    assert keywords == {"value": received}
    assert type(keywords["value"]) is type(received)


def convert(
    value: float,
    unit: Unit = Unit.METRE,
    *,
    digits: int = 2,
    schema: str = "",
    _hidden: str | None = None,
    context: ToolContext,
) -> str:
    """Converts a length
    into metres.

    Long explanations are for people.

    Args:
        value: The figure.
        unit (Unit): What it is in,
            as people write it: m or ft
        digits: How many
            to keep.
        context: Is not shown.

    Returns:
        value: this is not a parameter.
    """
    return f"{value}{unit}{digits}{schema}{_hidden}{context.user_id}"


def test_the_docstring_describes_tool_and_parameters():
    signature = read_signature(convert)
    assert signature.description == "Converts a length into metres."
    properties = signature.parameters["properties"]
    assert {name: each.get("description") for name, each in properties.items()} == {
        "value": "The figure.",
        "unit": "What it is in, as people write it: m or ft",
        "digits": "How many to keep.",
        "schema": None,
        "_hidden": None,
    }


def test_defaults_are_shown_and_left_to_the_function():
    signature = read_signature(convert)
    properties = signature.parameters["properties"]
    assert (properties["unit"]["default"], properties["digits"]["default"]) == ("m", 2)
    assert signature.parameters["required"] == ["value"]
    assert signature.keywords({"value": 1, "digits": 3}, CONTEXT) == {"value": 1.0, "digits": 3, "context": CONTEXT}


def test_names_that_pydantic_would_not_take_are_parameters_like_others():
    assert read_signature(convert).keywords({"value": 1, "schema": "s", "_hidden": "h"}, CONTEXT) == {
        "value": 1.0,
        "schema": "s",
        "_hidden": "h",
        "context": CONTEXT,
    }


def test_a_default_that_is_not_json_is_not_shown():
    assert "default" not in shown(Any, object())["properties"]["value"]


def test_nothing_but_the_parameters_is_shown():
    assert shown(str) == {
        "type": "object",
        "properties": {"value": {"type": "string"}},
        "required": ["value"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters():
    assert read_signature(lambda: None).parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_a_description_in_the_annotation():
    assert shown(Annotated[str, Field(description="Who")])["properties"]["value"]["description"] == "Who"


class Service:
    def find(self, word: str) -> str:
        """Finds."""
        return word

    def __call__(self, word: str) -> str:
        return word


@pytest.mark.parametrize(
    ("function", "name", "parameters"),
    [
        (Service().find, "find", {"word"}),
        (Service(), "Service", {"word"}),
        (partial(partial(convert, digits=1), schema="s"), "convert", {"value", "unit", "digits", "schema", "_hidden"}),
    ],
)
def test_methods_objects_and_partials_are_functions_too(function, name, parameters):
    assert name_of(function) == name
    assert set(read_signature(function).parameters["properties"]) == parameters


def test_a_partial_is_described_by_its_function():
    assert read_signature(partial(convert, digits=1)).description == "Converts a length into metres."


def positional(a: int, /): ...
def starred(*numbers: int): ...
def keywords(**options: int): ...
def untyped(a): ...
def callback(a: Callable[[], int]): ...
def foreign(a: int, b: Service): ...
def undefined(a: "Nowhere"): ...  # noqa: F821  that it is undefined is the point
def complexity(a: complex): ...


REFUSED = [
    (positional, "positional: the parameter 'a: int' has no fixed name"),
    (starred, r"starred: the parameter '\*numbers: int' has no fixed name"),
    (keywords, r"keywords: the parameter '\*\*options: int' has no fixed name"),
    (untyped, "untyped: the parameter 'a' has no type; write 'a: str'"),
    (
        callback,
        "callback: a model cannot be offered the parameter 'a', because its type .*Callable.* has no JSON Schema; use str",
    ),
    (
        foreign,
        r"foreign: a model cannot be offered the parameter 'b', because its type .*\bService has no JSON Schema; use str",
    ),
    (undefined, "undefined: its signature cannot be read: name 'Nowhere' is not defined"),
]


@pytest.mark.parametrize(("function", "sentence"), REFUSED, ids=[each[0].__name__ for each in REFUSED])
def test_a_function_that_cannot_be_a_tool_is_refused_with_a_sentence(function, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_signature(function)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "value: Field required"),
        ({"value": "x"}, "value: Input should be a valid number"),
        ({"value": 1, "unit": "mile"}, "unit: Input should be 'm' or 'ft'"),
        ({"value": 1, "context": {"user_id": "bob"}}, "context: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_do_not_convert_are_named(arguments, problem):
    with pytest.raises(ArgumentsMismatch, match=problem):
        read_signature(convert).keywords(arguments, CONTEXT)


def test_decimals_convert_exactly():
    def pay(amount: Decimal) -> None: ...

    assert read_signature(pay).keywords({"amount": "1.10"}, CONTEXT) == {"amount": Decimal("1.10")}
