"""From what the model wrote to arguments that fit the tool.

Models write broken JSON, cut it off, wrap it, repeat keys. Nothing is repaired by guessing: a value that can only mean
one thing is converted ("5" where a number is wanted), every other fault goes back as a text that says what is wrong and
what was expected, all faults at once, so that the model can send the call again. How often it may is the loop's business.
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from holodeck.core.text import clean, one_line
from holodeck.core.tools import ToolSchema
from holodeck.tools.bound import BoundArguments
from holodeck.tools.schema_problems import MAX_PROBLEMS, Problem, problems_of

MAX_ARGUMENT_CHARS = 1_000_000
MAX_DEPTH = 64  # T18
_EXCERPT = 20
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)  # no leading zero: 007 is a code, not a number
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)
_LITERALS = {"true": True, "false": False}


@dataclass(frozen=True)
class BadArguments:
    """Arguments that cannot be used. `text` is for the model."""

    text: str


class _Unreadable(ValueError):
    """What is wrong with the text, as half a sentence that follows "the arguments"."""


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
    """Models fill what they leave out with null; where a schema has no null, absent is what they mean."""
    required = schema.parameters.get("required") or ()
    return {name: value for name, value in arguments.items() if value is not None or name in required}


def _coerced(arguments: dict[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """A copy in which a value of the wrong type that can only mean one of the right type is that: 5 for "5"."""
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
        return _nested(text, value)
    return value


def _nested(text: str, value: str) -> Any:
    """A list or an object that the model wrote as text inside its JSON."""
    try:
        return _bounded(_parsed(text), depth=1)
    except _Unreadable:
        return value


def _object_of(raw: str) -> dict[str, Any]:
    if len(raw) > MAX_ARGUMENT_CHARS:
        raise _Unreadable(f"are too long: {len(raw):,} characters, {MAX_ARGUMENT_CHARS:,} are allowed")
    value = _bounded(_parsed(raw), depth=0) if raw.strip() else None
    if value is None:  # models write "" or null where a tool takes nothing
        return {}
    if not isinstance(value, dict):
        raise _Unreadable(f"are {_KINDS[type(value)]}, not a JSON object")
    return value


_KINDS = {str: "a text", list: "a list", bool: "a boolean", int: "a number", float: "a number"}


def _parsed(raw: str) -> Any:
    try:
        return json.loads(raw, object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float)
    except json.JSONDecodeError as error:
        near = one_line(raw[max(0, error.pos - _EXCERPT) : error.pos + _EXCERPT], 2 * _EXCERPT)
        what = error.msg.removesuffix(" at")
        raise _Unreadable(f"are not valid JSON: {what} at character {error.pos + 1}, near {near!r}") from None
    except RecursionError:
        raise _too_deep() from None
    except _Unreadable:
        raise
    except ValueError:  # int() refuses what would take it quadratic time
        raise _Unreadable("hold a number with too many digits") from None


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


def _bounded(value: Any, depth: int) -> Any:
    """The same value with storable text, or _Unreadable where it nests too deep."""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, dict | list):
        return value
    if depth == MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, list):
        return [_bounded(item, depth + 1) for item in value]
    return {clean(key): _bounded(item, depth + 1) for key, item in value.items()}


def _too_deep() -> _Unreadable:
    return _Unreadable(f"nest deeper than {MAX_DEPTH} levels")


def _expectation(schema: ToolSchema) -> str:
    """What the tool takes, in a line: the model may have lost sight of the schema."""
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
