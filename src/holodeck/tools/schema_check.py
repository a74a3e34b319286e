"""Validates a value (usually a tool call's arguments) against a JSON Schema and explains what a model should change.

Schemas are untrusted, so the check is bounded: it fetches nothing, runs no regular expression from the schema (Python's
can hang; the tool server checks the pattern itself), and counts its work. A schema that cannot be used is reported once
and then accepts everything: the check saves the model a failed call, it is not a security boundary. It knows nothing of
tools. Import it through `holodeck.tools.arguments`, which loads the library late.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend, validator_for
from referencing import Registry

from holodeck.core.text import one_line
from holodeck.tools.arguments import MAX_PROBLEMS, Problem
from holodeck.tools.names import suggestion

logger = logging.getLogger(__name__)

MAX_WORK = 10_000  # keywords looked at in one check, which blocks the event loop; ordinary arguments need a few dozen
# Keywords that run the schema's own regular expressions, or depend on those.
_UNCHECKED = ("pattern", "patternProperties", "unevaluatedProperties")

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _TooMuchWork(Exception):
    """The check takes too many steps: `$ref`s that double at every level, or a huge array."""


class SchemaCheck:
    """One schema, prepared once. `problems` is empty when the value fits."""

    def __init__(self, subject: str, schema: Mapping[str, Any]) -> None:
        self._subject = subject
        self._work = 0
        self._warned = False
        self._validator = self._prepare(schema)

    def problems(self, value: Mapping[str, Any]) -> list[Problem]:
        if self._validator is None:
            return []
        self._work = 0
        try:
            errors = islice(self._validator.iter_errors(value), 4 * MAX_PROBLEMS)
            return list(dict.fromkeys(problem for error in errors for problem in _problems(error)))
        except Exception as error:  # noqa: BLE001  an untrusted schema makes the library raise undocumented exceptions
            self._warn(error)
            return []

    def _prepare(self, schema: Mapping[str, Any]) -> Any:
        try:
            dialect: Any = validator_for({"$schema": schema.get("$schema")}, default=Draft202012Validator)
            bare = _without_dialects(schema)
            dialect.check_schema(bare, format_checker=None)
            keywords = {name: self._counted(name, dialect) for name in dialect.VALIDATORS}
            bounded = extend(dialect, keywords)  # type: ignore[no-untyped-call]  # so in the library's stubs
            return bounded(bare, registry=Registry())
        except SchemaError as error:
            self._warn(error.message)
        except Exception as error:  # noqa: BLE001  see `problems`
            self._warn(error)
        return None

    def _warn(self, reason: object) -> None:
        if not self._warned:
            self._warned = True
            why = one_line(str(reason), 200)
            logger.warning("%s are not checked: their schema does not work: %s", self._subject, why)

    def _counted(self, name: str, dialect: Any) -> Keyword:
        check = _OWN_KEYWORDS.get(name) or dialect.VALIDATORS[name]

        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
            self._work += 1
            if self._work > MAX_WORK:
                raise _TooMuchWork(f"more than {MAX_WORK} steps")
            if name == "additionalProperties" and "patternProperties" in schema:
                return None
            return check(validator, value, instance, schema)

        return counted


def _unchecked(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> None:
    return None


def unique_items(_validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """`uniqueItems` in linear time. The library compares every pair of unsortable items: hours for a megabyte of `{}`."""
    if not wanted or not isinstance(instance, list):
        return
    texts = {json.dumps(_comparable(item), sort_keys=True) for item in instance}  # takes half a surrogate pair too
    if len(texts) != len(instance):
        yield ValidationError("has an item twice")


def _comparable(value: Any) -> Any:
    """The value with whole numbers as integers: to JSON Schema 1.0 and 1 are one number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items()}
    return [_comparable(item) for item in value] if isinstance(value, list) else value


_OWN_KEYWORDS: Mapping[str, Keyword] = {"uniqueItems": unique_items, **dict.fromkeys(_UNCHECKED, _unchecked)}


def _without_dialects(schema: Any) -> Any:
    """A copy without `$schema`: one in a subschema would bring back the library's own, unbounded keywords."""
    if isinstance(schema, Mapping):
        return {
            key: _without_dialects(value)
            for key, value in schema.items()
            if key != "$schema" or not isinstance(value, str)
        }
    return [_without_dialects(item) for item in schema] if isinstance(schema, list) else schema


def _problems(error: ValidationError) -> Iterator[Problem]:
    deepest = error if _simple_alternatives(error) else best_match([error]) or error
    label, path, wanted = _path(deepest), tuple(deepest.absolute_path), _wanted(deepest)
    describe = _WORDS.get(str(deepest.validator))
    if describe is None:
        yield Problem(f"{label or 'arguments'}: {one_line(deepest.message, 200)}", path, wanted)
        return
    for name, words in describe(deepest):
        where = f"{label}.{name}" if label and name else label or name or "arguments"
        yield Problem(f"{where}: {words}", path, wanted)


def _wanted(error: ValidationError) -> tuple[str, ...]:
    """The JSON types that would match, if the type is the problem."""
    alternatives = error.context if _simple_alternatives(error) else [error]
    types: list[Any] = [each.validator_value for each in alternatives or () if each.validator == "type"]
    return tuple(name for each in types for name in ([each] if isinstance(each, str) else each))


def _path(error: ValidationError) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return one_line("".join(steps).removeprefix("."))


Words = Iterator[tuple[str, str]]


def _choices(error: Any) -> str:
    return ", ".join(one_line(str(choice), 40) for choice in islice(error.validator_value, 30))


def _types(error: Any) -> str:
    return error.validator_value if isinstance(error.validator_value, str) else " or ".join(error.validator_value)


def _simple_alternatives(error: Any) -> bool:
    """Whether all alternatives are plain types or enums, as in `int | None`: one sentence can list those."""
    return bool(error.context) and all(each.validator in {"type", "enum"} and not each.path for each in error.context)


def _no_alternative(error: Any) -> Words:
    if not _simple_alternatives(error):
        yield "", one_line(error.message, 200)
        return
    wanted = (_types(each) if each.validator == "type" else f"one of {_choices(each)}" for each in error.context)
    yield "", f"expected {' or '.join(dict.fromkeys(wanted))}, got {_shown(error.instance)}"


def _not_one_of(error: Any) -> Words:
    yield "", f"{_shown(error.instance)} is not one of {_choices(error)}"


def _wrong_type(error: Any) -> Words:
    yield "", f"expected {_types(error)}, got {_shown(error.instance)}"


def _missing(error: Any) -> Words:
    for name in error.validator_value:
        if name not in error.instance:
            yield name, "is required and missing"


def _superfluous(error: Any) -> Words:
    known = list(error.schema.get("properties", {}))
    for name in error.instance:
        if name not in known:
            yield one_line(name), f"there is no such argument{suggestion(name, known)}"


def _shown(value: Any) -> str:
    return one_line(repr(value), 60)


_WORDS: Mapping[str, Callable[[Any], Words]] = {
    "anyOf": _no_alternative,
    "enum": _not_one_of,
    "type": _wrong_type,
    "required": _missing,
    "additionalProperties": _superfluous,
}
