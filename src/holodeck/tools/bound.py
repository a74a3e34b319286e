"""Arguments that the runtime fills in, whatever the model says (AGT-07).

A bound argument is hidden from the schema, dropped from what the model sent and filled from the ToolContext. This is
what keeps users apart: it must hold for every schema a server may send and for everything a model may write, so it
trusts neither.
"""

import copy
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holodeck.core.tools import ToolResult, ToolSchema
from holodeck.errors import ConfigError, StartError
from holodeck.tools.names import label_of, suggestion
from holodeck.tools.port import ToolContext, Toolset, ToolsetHealth

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SAME_OBJECT = ("allOf", "anyOf", "oneOf")  # their subschemas describe the object itself, not a part of it
_SAME_OBJECT_ONE = ("if", "then", "else", "not")


class BoundToolset:
    """`bind` maps argument names to templates such as "{user_id}", or to constants.

    A name that no tool takes is a StartError: a typing mistake would leave the real argument to the model.
    """

    def __init__(self, inner: Toolset, bind: Mapping[str, Any]) -> None:
        self._inner = inner
        self._bind = dict(bind)
        self._seen: dict[str, tuple[ToolSchema, ToolSchema]] = {}  # name → what the server said, what we offer
        known = ToolContext(user_id="").values()
        for argument, template in self._bind.items():
            for name in _PLACEHOLDER.findall(template) if isinstance(template, str) else ():
                if name not in known:
                    there_are = ", ".join(f"{{{each}}}" for each in known)
                    raise ConfigError(f"bind.{argument}: there is no value {{{name}}}; there are {there_are}")

    async def start(self) -> None:
        await self._inner.start()
        taken = {name for schema in self._inner.schemas() for name in declared_arguments(schema.parameters)}
        idle = next((name for name in self._bind if name not in taken), None)
        if idle is not None and all(state.ready for state in self._inner.health()):
            label = label_of(self._inner)
            await self._inner.close()
            raise StartError(f"bind.{idle}: no tool of {label} takes '{idle}'{suggestion(idle, taken)}")

    async def close(self) -> None:
        await self._inner.close()

    def health(self) -> Sequence[ToolsetHealth]:
        return self._inner.health()

    def schemas(self) -> Sequence[ToolSchema]:
        return [self._offered(schema) for schema in self._inner.schemas()]

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        declared = next((schema for schema in self._inner.schemas() if schema.name == name), None)
        names = declared_arguments(declared.parameters) if declared else set()
        from_model = without_bound(arguments, self._bind, names)
        from_runtime = {key: _filled(value, context) for key, value in self._bind.items() if key in names}
        return await self._inner.call(name, {**from_model, **from_runtime}, context)

    def _offered(self, schema: ToolSchema) -> ToolSchema:
        seen = self._seen.get(schema.name)
        if seen is None or seen[0] != schema:
            hidden = msgspec.structs.replace(schema, parameters=hide(schema.parameters, self._bind))
            seen = self._seen[schema.name] = (schema, hidden)
        return seen[1]


def _filled(template: Any, context: ToolContext) -> Any:
    """One pass over the template: a user whose id is "{session_id}" stays that."""
    if not isinstance(template, str):
        return copy.deepcopy(template)
    values = context.values()
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


def without_bound(arguments: Mapping[str, Any], bound: Collection[str], declared: Collection[str]) -> dict[str, Any]:
    """What the model may say: not a bound name, nor an undeclared spelling of one (`userId`, `USER-ID`)."""
    spellings = {_spelling(name) for name in bound}
    return {
        key: value
        for key, value in arguments.items()
        if key not in bound and (key in declared or _spelling(key) not in spellings)
    }


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
