"""Turns the model's text into arguments that fit the tool, and fills in the bound arguments (AGT-07).

Models write broken JSON, cut it off, wrap it, repeat keys. Nothing is repaired by guessing. A value that can only mean
one thing is converted ("5" if a number is expected). Every other fault is reported to the model: what is wrong and what
was expected, all faults together, so that it can send the call again. The loop decides how often it may.

A bound argument is removed from the schema, dropped from the model's arguments and filled from the ToolContext. This is
what keeps users apart. It must hold for every schema that a server may send and for everything that a model may write,
so it trusts neither. A value goes to the tool exactly as the context has it.

`holodeck.tools.schema_check` checks values against schemas; it is loaded when the first toolset starts.
"""

import copy
import json
import logging
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holodeck.core.text import clean, one_line
from holodeck.core.tools import ToolSchema
from holodeck.errors import ConfigError
from holodeck.tools.port import ToolContext

if TYPE_CHECKING:
    from holodeck.tools.schema_check import SchemaCheck

logger = logging.getLogger(__name__)

MAX_PROBLEMS = 20  # problems listed per value; further ones are only counted

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SAME_OBJECT = ("allOf", "anyOf", "oneOf")  # their subschemas describe the object itself, not a part of it
_SAME_OBJECT_ONE = ("if", "then", "else", "not")

MAX_ARGUMENT_CHARS = 1_000_000
MAX_DEPTH = 64  # T18
_TOO_DEEP = f"nest deeper than {MAX_DEPTH} levels"
_EXCERPT = 20
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)  # no leading zero: 007 is a code, not a number
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_LITERALS = {"true": True, "false": False}


class Problem(NamedTuple):
    """One fault of a value. If its type is wrong, `wanted` names the JSON types that fit at `path`."""

    text: str
    path: tuple[str | int, ...] = ()
    wanted: tuple[str, ...] = ()


def problems_of(subject: str, schema: Mapping[str, Any], value: Mapping[str, Any]) -> list[Problem]:
    """Returns all faults of a value. `subject` names the value in log lines, in the plural."""
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        logger.warning("%s are not checked: their schema is not JSON: %s", subject, error)
        return []
    return _check_of(subject, encoded).problems(value)


@lru_cache(maxsize=512)
def _check_of(subject: str, encoded_schema: bytes) -> "SchemaCheck":
    from holodeck.tools.schema_check import SchemaCheck  # noqa: PLC0415  jsonschema: an agent without tools does not need it; a catalogue loads it when it starts

    return SchemaCheck(subject, msgspec.json.decode(encoded_schema, type=dict[str, Any]))


def check_templates(bind: Mapping[str, Any]) -> None:
    """Raises ConfigError for a placeholder that does not exist."""
    known = _placeholders(ToolContext(user_id=""))
    for argument, template in bind.items():
        if isinstance(template, dict) and len(template) == 1 and [*template.values()] == [None]:
            name = next(iter(template))
            raise ConfigError(f'bind.{argument}: without quotes YAML reads a block; write "{{{name}}}"')
        for name in _PLACEHOLDER.findall(template) if isinstance(template, str) else ():
            if name not in known:
                there_are = ", ".join(f"{{{each}}}" for each in known)
                raise ConfigError(f"bind.{argument}: there is no value {{{name}}}; there are {there_are}")


class BoundArguments:
    """The bound arguments of one tool. `bind` maps names to templates such as "{user_id}", or to constants."""

    def __init__(self, bind: Mapping[str, Any], declared: Collection[str]) -> None:
        self._declared = frozenset(declared) - bind.keys()
        self._spellings = frozenset(map(_spelling, bind))
        self._filled = {name: template for name, template in bind.items() if name in declared}

    def drop(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Drops bound names, and undeclared spellings of them (`userId`, `USER-ID`), from the model's arguments."""
        return {
            name: value
            for name, value in arguments.items()
            if name in self._declared or _spelling(name) not in self._spellings
        }

    def fill(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        filled = self.drop(arguments)
        values = _placeholders(context)
        for name, template in self._filled.items():
            filled[name] = _value(template, values)
        return filled


def _placeholders(context: ToolContext) -> dict[str, str]:
    return {
        "user_id": context.user_id,
        "tenant": context.tenant,
        "session_id": context.session_id,
        "run_id": context.run_id,
        "timezone": context.timezone,
    }


def _value(template: Any, values: Mapping[str, str]) -> Any:
    """Fills in a template in one pass: a user whose id is "{session_id}" keeps it."""
    if not isinstance(template, str):
        return copy.deepcopy(template)
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def hide(parameters: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A copy of an object's JSON Schema that does not mention these properties."""
    hidden: dict[str, Any] = copy.deepcopy(dict(parameters))
    for schema in _schemas_of_the_object(hidden):
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, dict):
            for name in names:
                properties.pop(name, None)
        if isinstance(required, list):
            schema["required"] = [name for name in required if name not in names]
            if not schema["required"]:
                del schema["required"]
    return hidden


def declared_arguments(parameters: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for schema in _schemas_of_the_object(parameters):
        for keyword in ("properties", "required"):
            named = schema.get(keyword)
            found.update(name for name in named if isinstance(name, str)) if isinstance(named, dict | list) else None
    return found


def _spelling(name: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


def _schemas_of_the_object(root: Mapping[str, Any]) -> Iterator[Any]:
    """The schema and every subschema that describes the same object, including those behind local references."""
    waiting: list[Any] = [root]
    visited: set[int] = set()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in visited:
            continue
        visited.add(id(schema))
        yield schema
        waiting += [schema.get(keyword) for keyword in _SAME_OBJECT_ONE]
        for keyword in _SAME_OBJECT:
            alternatives = schema.get(keyword)
            waiting += alternatives if isinstance(alternatives, list) else ()
        dependent = schema.get("dependentSchemas")
        waiting += dependent.values() if isinstance(dependent, Mapping) else ()
        waiting.append(_referred(root, schema.get("$ref")))


def _referred(root: Mapping[str, Any], reference: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
    return target


@dataclass(frozen=True)
class BadArguments:
    """Arguments that cannot be used. `text` is for the model."""

    text: str


class _Unreadable(ValueError):
    """The problem with the text, worded to follow "The arguments of NAME"."""


def read_arguments(raw: str, schema: ToolSchema, bound: BoundArguments | None = None) -> dict[str, Any] | BadArguments:
    """The arguments of a call, without the bound ones, checked against the schema that the model was shown."""
    try:
        arguments = _object_of(raw)
    except _Unreadable as error:
        return BadArguments(f"The arguments of {schema.name} {error}. {_expectation(schema)}")
    if bound is not None:
        arguments = bound.drop(arguments)
    subject = f"arguments of {schema.name}"
    problems = problems_of(subject, schema.parameters, arguments)
    if not problems:
        return arguments
    mended = _without_optional_nulls(_coerced(arguments, problems), schema)
    if mended != arguments:
        problems = problems_of(subject, schema.parameters, mended)
        if not problems:
            return mended
    shown = [problem.text for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        shown.append(f"and {len(problems) - MAX_PROBLEMS} more")
    return BadArguments("\n- ".join([f"The arguments do not fit {schema.name}:", *shown]))


def _without_optional_nulls(arguments: dict[str, Any], schema: ToolSchema) -> dict[str, Any]:
    """Drops nulls of optional arguments: models write null for arguments that they leave out."""
    required = schema.parameters.get("required") or ()
    return {name: value for name, value in arguments.items() if value is not None or name in required}


def _coerced(arguments: dict[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """A copy in which unambiguous values have the right type: 5 for "5"."""
    changed: dict[str, Any] = copy.deepcopy(arguments)
    for problem in problems:
        if not problem.wanted or not problem.path:
            continue
        *way, last = problem.path
        parent: Any = changed
        for step in way:
            parent = parent[step]
        parent[last] = _converted(parent[last], problem.wanted)
    return changed


def _converted(value: Any, wanted: Sequence[str]) -> Any:
    if not isinstance(value, str):
        whole = isinstance(value, int) and not isinstance(value, bool)  # 1.50 would lose its digits
        return str(value) if whole and "string" in wanted else value
    text = value.strip()
    if _INTEGER.fullmatch(text) and not {"integer", "number"}.isdisjoint(wanted):
        return int(text)
    if _NUMBER.fullmatch(text) and "number" in wanted:
        return float(text)
    if text.lower() in _LITERALS and "boolean" in wanted:
        return _LITERALS[text.lower()]
    if ("array" in wanted and text.startswith("[")) or ("object" in wanted and text.startswith("{")):
        with suppress(_Unreadable):
            return _parsed(text, depth=1)  # JSON that the model wrote as text inside its JSON
    return value


def _object_of(raw: str) -> dict[str, Any]:
    if len(raw) > MAX_ARGUMENT_CHARS:
        raise _Unreadable(f"are too long: {len(raw):,} characters, {MAX_ARGUMENT_CHARS:,} are allowed")
    value = _parsed(raw) if raw.strip() else None
    if value is None:  # models write "" or null if a tool takes no arguments
        return {}
    if not isinstance(value, dict):
        raise _Unreadable(f"are {_KINDS[type(value)]}, not a JSON object")
    return value


_KINDS = {str: "a text", list: "a list", bool: "a boolean", int: "a number", float: "a number"}


def _parsed(raw: str, depth: int = 0) -> Any:
    """The value with cleaned texts. Raises _Unreadable."""
    try:
        value = _decode(raw)
    except json.JSONDecodeError as error:
        near = one_line(raw[max(0, error.pos - _EXCERPT) : error.pos + _EXCERPT], 2 * _EXCERPT)
        what = error.msg.removesuffix(" at")
        raise _Unreadable(f"are not valid JSON: {what} at character {error.pos + 1}, near {near!r}") from None
    except RecursionError:
        raise _Unreadable(_TOO_DEEP) from None
    except _Unreadable:
        raise
    except ValueError:  # int() refuses long digit strings, whose conversion takes quadratic time
        raise _Unreadable("hold a number with too many digits") from None
    return _bounded(value, depth)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Unreadable(f"name {one_line(twice)!r} twice")
    return made


def _constant(name: str) -> Any:
    raise _Unreadable(f"hold {name}, which is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise _Unreadable(f"hold {one_line(text)}, which is too large a number")
    return value


_decode = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float).decode


def _bounded(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, dict | list):
        return value
    if depth == MAX_DEPTH:
        raise _Unreadable(_TOO_DEEP)
    if isinstance(value, list):
        return [_bounded(item, depth + 1) for item in value]
    return {clean(key): _bounded(item, depth + 1) for key, item in value.items()}


def _expectation(schema: ToolSchema) -> str:
    """A line that repeats the tool's arguments: the model may have lost track of the schema."""
    properties = schema.parameters.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return "Send one JSON object: {}."
    required = schema.parameters.get("required")
    needed = required if isinstance(required, list) else []
    shown = ", ".join(one_line(_described(name, shape, name in needed)) for name, shape in properties.items())
    return one_line(f"Send one JSON object with: {shown}.", 500)


def _described(name: str, shape: Any, needed: bool) -> str:  # noqa: FBT001  a column of the list above
    details = []
    if isinstance(shape, Mapping):
        choices = shape.get("enum")
        kind = "one of " + ", ".join(map(str, choices)) if isinstance(choices, list) else shape.get("type")
        details += [kind] if isinstance(kind, str) else []
    details += ["required"] if needed else []
    return f"{name} ({'; '.join(details)})" if details else str(name)
