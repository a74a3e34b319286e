"""A Python function as a tool: its JSON Schema, and the conversion of JSON arguments to the annotated types.

pydantic does both, so any type that it supports may be a parameter. This module does not call the function.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from holodeck.core.text import one_line
from holodeck.errors import ConfigError
from holodeck.tools.port import ToolContext

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_MAX_PROBLEMS = 5


class ArgumentsMismatch(ValueError):
    """JSON arguments that do not become the annotated types. The message is for the model."""


class _LeanSchema(GenerateJsonSchema):
    """A schema without field titles, which only repeat the names, and without defaults that JSON cannot encode."""

    ignored_warning_kinds = GenerateJsonSchema.ignored_warning_kinds | {"non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  pydantic's signature
        return False


@dataclass(frozen=True)
class Signature:
    description: str
    parameters: dict[str, Any]
    model: type[BaseModel]
    # The parameters behind the fields f0, f1, …: a parameter may be called `schema`, a field may not.
    names: tuple[str, ...]
    context_name: str | None = None

    def keywords(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """The keyword arguments of the call: only the values sent, so that the function's own defaults apply."""
        try:
            made = self.model.model_validate(dict(arguments))
        except ValidationError as error:
            raise ArgumentsMismatch(_problems(error)) from None
        given = {name: getattr(made, f"f{i}") for i, name in enumerate(self.names) if f"f{i}" in made.model_fields_set}
        return {**given, self.context_name: context} if self.context_name else given


def read_signature(function: Callable[..., Any]) -> Signature:
    """Reads a function's signature. Raises ConfigError if the function cannot be offered to a model."""
    name, doc = name_of(function), inspect.getdoc(_origin(function)) or ""
    parameters = _parameters(name, function)
    context_name = next((p.name for p in parameters if p.annotation is ToolContext), None)
    offered = [p for p in parameters if p.annotation is not ToolContext]
    documented = _documented_parameters(doc)
    fields: dict[str, Any] = {f"f{i}": _field(p, documented.get(p.name)) for i, p in enumerate(offered)}
    try:
        model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(schema_generator=_LeanSchema)
    except (PydanticUserError, TypeError):
        raise ConfigError(f"{name}: {_not_offerable(offered)}") from None
    schema.pop("title")
    schema.setdefault("properties", {})
    first_paragraph = " ".join(doc.partition("\n\n")[0].split())
    return Signature(first_paragraph, schema, model, tuple(p.name for p in offered), context_name)


def _not_offerable(parameters: list[inspect.Parameter]) -> str:
    for parameter in parameters:
        try:
            TypeAdapter(parameter.annotation).json_schema(schema_generator=_LeanSchema)
        except (PydanticUserError, TypeError):
            annotation = inspect.formatannotation(parameter.annotation)
            return (
                f"a model cannot be offered the parameter '{parameter.name}', because its type {one_line(annotation, 80)} "
                "has no JSON Schema; use str, int, a dataclass or another type that JSON can express"
            )
    return "its parameters have no JSON Schema"


def name_of(function: Callable[..., Any]) -> str:
    origin = _origin(function)
    return str(getattr(origin, "__name__", type(origin).__name__))


def _origin(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a partial: a partial's own name and docstring are those of `functools.partial`."""
    return _origin(function.func) if isinstance(function, partial) else function


def _parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ConfigError(f"{name}: its signature cannot be read: {_first_line(error)}") from None
    for parameter in parameters:
        if parameter.kind not in _NAMED:
            raise ConfigError(f"{name}: the parameter '{parameter}' has no fixed name; a model gives arguments by name")
        if parameter.annotation is inspect.Parameter.empty:
            raise ConfigError(f"{name}: the parameter '{parameter.name}' has no type; write '{parameter.name}: str'")
    return parameters


def _field(parameter: inspect.Parameter, description: str | None) -> tuple[Any, Any]:
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    details = {"description": description} if description else {}
    return parameter.annotation, Field(default, alias=parameter.name, **details)  # type: ignore[call-overload]


def _problems(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in found[:_MAX_PROBLEMS]]
    return "\n- ".join(["", *lines, *(["and more"] if len(found) > _MAX_PROBLEMS else [])])


def _first_line(error: Exception) -> str:
    return one_line(str(error).partition("\n")[0], 200)


_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)$")


def _documented_parameters(doc: str) -> dict[str, str]:
    """The descriptions in Google's `Args:` section: one entry per parameter, continued by deeper lines."""
    section = _SECTION.search(doc)
    found: dict[str, str] = {}
    indent, current = "", ""
    for line in doc[section.end() :].splitlines()[1:] if section else ():
        if not line.startswith((" ", "\t")):
            break  # the end of the section: a blank line or the next heading
        entry = _ENTRY.match(line)
        if entry and (not indent or entry["indent"] == indent):
            indent, current = entry["indent"], entry["name"]
            found[current] = entry["text"].strip()
        elif current:
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
