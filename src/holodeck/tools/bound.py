"""Arguments that the runtime fills in, whatever the model says (AGT-07).

A bound argument is hidden from the schema, dropped from what the model sent and filled from the ToolContext. This is
what keeps users apart: it must hold for every schema a server may send and for everything a model may write, so it
trusts neither. A value goes to the tool exactly as the context has it.
"""

import copy
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holodeck.errors import ConfigError
from holodeck.tools.port import ToolContext

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SAME_OBJECT = ("allOf", "anyOf", "oneOf")  # their subschemas describe the object itself, not a part of it
_SAME_OBJECT_ONE = ("if", "then", "else", "not")


def check_templates(bind: Mapping[str, Any]) -> None:
    """Raises ConfigError for a placeholder that does not exist."""
    known = ToolContext(user_id="").values()
    for argument, template in bind.items():
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
        """What the model may decide: not a bound name, nor an undeclared spelling of one (`userId`, `USER-ID`)."""
        return {
            name: value
            for name, value in arguments.items()
            if name in self._declared or _spelling(name) not in self._spellings
        }

    def fill(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        filled = self.drop(arguments)
        values = context.values()
        for name, template in self._filled.items():
            filled[name] = _value(template, values)
        return filled


def _value(template: Any, values: Mapping[str, str]) -> Any:
    """One pass over the template: a user whose id is "{session_id}" stays that."""
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
    """The schema and every subschema that speaks about the same object, also behind local references."""
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
