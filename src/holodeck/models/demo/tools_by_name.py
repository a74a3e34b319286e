"""Calls any offered tool that a sentence names: "convert 5 miles", `convert value=5 to=kilometres`.

The sentence begins with the tool's name ("call convert with …" is the same). Arguments are given by name, or by value: a
value that stands alone becomes the first parameter without one that it fits. JSON Schema types say what fits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from holodeck.core.tools import ToolSchema
from holodeck.models.demo.dates import NUMBERS

_CALL = re.compile(r"(?:call|use|run|execute)\s+(?:the\s+)?(?:tool\s+)?", re.IGNORECASE)
_TOKEN = re.compile(r"""(?:(?P<name>\w[\w-]*)(?:\s*=\s*|:\s+))?(?P<value>"[^"]*"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|\S+)""")
_TYPES = {"number": (int, float), "integer": (int,), "boolean": (bool,), "array": (list,), "object": (dict,)}
_VALUES = {**NUMBERS, "yes": True, "on": True, "no": False, "off": False}  # words for values, besides JSON
_LINKS = frozenset({"with", "and", "to", "in", "into", "for", "from", "of", "by", "as", "the", "is", "at", "on"})
_NOTHING: Any = object()  # no value of that type


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool. `unfit` are arguments by name that the tool does not take, as they were written."""

    action: ClassVar[str] = "use"
    tool: ToolSchema
    arguments: dict[str, Any]
    unfit: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Which arguments are wrong or missing; empty when the call is complete."""
        if self.unfit:
            takes = signature(self.tool) or "no arguments"
            return f"{self.tool.name} cannot take {', '.join(self.unfit)}: it takes {takes}."
        required = self.tool.parameters.get("required", [])
        missing = signature(self.tool, [name for name in required if name not in self.arguments])
        return f"{self.tool.name} needs {missing}." if missing else ""


def signature(tool: ToolSchema, names: Sequence[str] | None = None) -> str:
    """Parameters in words: "value (number) and to (miles or kilometres)"; only the named ones if names are given."""
    kinds = {
        name: " or ".join(str(value) for value in schema.get("enum", ())) or schema.get("type", "any value")
        for name, schema in _parameters(tool).items()
    }
    described = [f"{name} ({kind})" for name, kind in kinds.items() if names is None or name in names]
    return " and ".join([", ".join(described[:-1]), described[-1]] if len(described) > 1 else described)


def read_tool_use(request: str, tools: Sequence[ToolSchema]) -> ToolUse | None:
    """The tool with the longest name that the sentence begins with, and the arguments behind it."""
    explicit = _CALL.match(request)
    for text in (request, request[explicit.end() :] if explicit else ""):
        for tool in sorted(tools, key=lambda tool: -len(tool.name)):
            name = "[ _.-]".join(re.escape(word) for word in re.split(r"[_.-]+", tool.name))
            if match := re.match(rf"{name}(?:\s*\(|[\s:,]+|$)", text, re.IGNORECASE):
                return with_arguments(ToolUse(tool, {}), text[match.end() :].removesuffix(")"))
    return None


def with_arguments(use: ToolUse, text: str) -> ToolUse:
    """The same call with the arguments that the text adds."""
    parameters, arguments = _parameters(use.tool), dict(use.arguments)
    unfit: list[str] = []
    alone: list[str] = []  # values without a name
    tokens = [(match["name"], match["value"]) for match in _TOKEN.finditer(text)]
    while tokens:
        name, value = tokens.pop(0)
        parameter = next((known for known in parameters if known.casefold() == (name or value).casefold()), "")
        schema = parameters.get(parameter, {})
        if name is not None:
            arguments[parameter] = fit = _fit(value, schema) if parameter else _NOTHING
            unfit += [f"{name}={value}"] if fit is _NOTHING else []
        elif parameter and tokens and tokens[0][0] is None and _fit(tokens[0][1], schema) is not _NOTHING:  # "miles 5"
            arguments[parameter] = _fit(tokens.pop(0)[1], schema)
        elif parameter and alone and _fit(alone[-1], schema) is not _NOTHING:  # "5 miles"
            arguments[parameter] = _fit(alone.pop(), schema)
        else:
            alone.append(value)
    open_parameters = {name: schema for name, schema in parameters.items() if name not in arguments}
    arguments |= _by_type(open_parameters, alone, use.tool.parameters.get("required", []))
    fitting = {name: arguments[name] for name in parameters if arguments.get(name, _NOTHING) is not _NOTHING}
    return replace(use, arguments=fitting, unfit=tuple(unfit))


def _by_type(parameters: dict[str, Any], values: list[str], required: Sequence[str]) -> dict[str, Any]:
    """Gives values without a name to the parameters that they fit.

    Texts choose last, so that they do not take the number of another; the last text takes all the words that are left.
    """
    arguments: dict[str, Any] = {}
    texts = [name for name in parameters if _is_text(parameters[name]) and name in required]
    for name in sorted(parameters, key=lambda name: (_is_text(parameters[name]), name not in required)):
        schema = parameters[name]
        while _is_text(schema) and len(values) > 1 and values[0].casefold() in _LINKS:
            values = values[1:]
        taken = [index for index, value in enumerate(values) if _fit(value, schema) is not _NOTHING]
        if schema.get("type") != "array" and (not _is_text(schema) or name in texts[:-1]):
            taken = taken[:1]
        if taken:
            arguments[name] = _fit(" ".join(values[index] for index in taken), schema)
            values = [value for index, value in enumerate(values) if index not in taken]
    return arguments


def _parameters(tool: ToolSchema) -> dict[str, dict[str, Any]]:
    """The schemas of the parameters, without references and without the null of an optional one."""
    definitions = tool.parameters.get("$defs", {})
    return {name: _plain(schema, definitions) for name, schema in tool.parameters.get("properties", {}).items()}


def _plain(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    schema = next((option for option in schema.get("anyOf", []) if option.get("type") != "null"), schema)
    if isinstance(kinds := schema.get("type"), list):
        schema = {**schema, "type": next((kind for kind in kinds if kind != "null"), "null")}
    found: dict[str, Any] = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return found


def _is_text(schema: dict[str, Any]) -> bool:
    return "enum" not in schema and schema.get("type", "string") not in _TYPES


def _fit(written: str, schema: dict[str, Any]) -> Any:
    """The written value as the schema's type, or _NOTHING."""
    text, kind = written.rstrip(",;"), schema.get("type", "string")
    if "enum" in schema:
        return next((value for value in schema["enum"] if str(value).casefold() == text.casefold()), _NOTHING)
    if _is_text(schema):
        return text[1:-1] if re.fullmatch(r"\"[^\"]*\"|'[^']*'", text) else text
    if kind == "array" and not text.startswith("["):
        items = [_fit(item, schema.get("items", {})) for item in re.split(r"[\s,]+", text) if item]
        return _NOTHING if any(item is _NOTHING for item in items) else items
    try:
        value = _VALUES[text.casefold()] if text.casefold() in _VALUES else msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _NOTHING
    return value if type(value) in _TYPES[kind] else _NOTHING
