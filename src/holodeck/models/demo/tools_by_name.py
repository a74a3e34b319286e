"""Calls any offered tool that a sentence names: "convert 5 miles", `convert value=5 to=kilometres`.

The sentence begins with the tool's name ("call convert with …" is the same). Arguments are given by name, or by value: a
value that stands alone becomes the first parameter without one that it fits. JSON Schema types say what fits.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holodeck.core.tools import ToolSchema
from holodeck.models.demo.dates import NUMBERS

_CALL = re.compile(r"(?:call|use|run|execute)\s+(?:the\s+)?(?:tool\s+)?", re.IGNORECASE)
_TOKEN = re.compile(r"""(?:(?P<name>\w[\w-]*)(?:\s*=\s*|:\s+))?(?P<value>"[^"]*"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|\S+)""")
_NUMBER = re.compile(r"[-+]?\d{1,15}(?:\.\d{1,15})?")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LINKS = frozenset({"with", "and", "to", "in", "into", "for", "from", "of", "by", "as", "the", "is", "at", "on"})
_NOTHING: Any = object()  # no value of that type


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UseTool:
    """A call of a tool. `unfit` are arguments by name that the tool does not take, as they were written."""

    tool: ToolSchema
    arguments: dict[str, Any]
    unfit: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Required parameters without a value. One that the schema does not describe is left to the runtime's check."""
        described, required = self.tool.parameters.get("properties", {}), self.tool.parameters.get("required", [])
        return [name for name in required if name in described and name not in self.arguments]


def read_tool_use(request: str, tools: Sequence[ToolSchema]) -> UseTool | None:
    """The tool with the longest name that the sentence begins with, and the arguments behind it."""
    explicit = _CALL.match(request)
    for text in (request, request[explicit.end() :] if explicit else ""):
        for tool in sorted(tools, key=lambda tool: -len(tool.name)):
            name = "[ _.-]".join(re.escape(word) for word in re.split(r"[_.-]+", tool.name))
            if match := re.match(rf"{name}(?:\s*\(|[\s:,]+|$)", text, re.IGNORECASE):
                return with_arguments(UseTool(tool, {}), text[match.end() :].removesuffix(")"))
    return None


def with_arguments(use: UseTool, text: str) -> UseTool:
    """The same call with the arguments that the text adds."""
    parameters = dict(_parameters(use.tool))
    arguments = dict(use.arguments)
    unfit: list[str] = []
    alone: list[str] = []  # values without a name
    tokens = [(match["name"], match["value"]) for match in _TOKEN.finditer(text)]
    while tokens:
        name, value = tokens.pop(0)
        parameter = _known(name or value, parameters)
        schema = parameters.get(parameter or "", {})
        if name is not None:
            if parameter is None or (fit := _fit(value, schema)) is _NOTHING:
                unfit.append(f"{name}={value}")
            else:
                arguments[parameter] = fit
        elif parameter and tokens and tokens[0][0] is None and _fit(tokens[0][1], schema) is not _NOTHING:  # "miles 5"
            arguments[parameter] = _fit(tokens.pop(0)[1], schema)
        elif parameter and alone and _fit(alone[-1], schema) is not _NOTHING:  # "5 miles"
            arguments[parameter] = _fit(alone.pop(), schema)
        else:
            alone.append(value)
    open_parameters = {name: schema for name, schema in parameters.items() if name not in arguments}
    arguments |= _by_type(open_parameters, alone, use.tool.parameters.get("required", []))
    in_order = {name: arguments[name] for name in parameters if name in arguments}
    return replace(use, arguments=in_order, unfit=tuple(unfit))


def signature(tool: ToolSchema, names: Sequence[str] | None = None) -> str:
    """Parameters in words: "value (number) and to (miles or kilometres)"; only the named ones if names are given."""
    described = [f"{name} ({_kind(schema)})" for name, schema in _parameters(tool) if names is None or name in names]
    return " and ".join([", ".join(described[:-1]), described[-1]] if len(described) > 1 else described)


def _parameters(tool: ToolSchema) -> Iterator[tuple[str, dict[str, Any]]]:
    definitions = tool.parameters.get("$defs", {})
    for name, schema in tool.parameters.get("properties", {}).items():
        yield name, _plain(schema if isinstance(schema, dict) else {}, definitions)


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its reference, and without the null of an optional one."""
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    schema = options[0] if options else schema
    kind = schema.get("type")
    if isinstance(kind, list):
        schema = {**schema, "type": next((each for each in kind if each != "null"), "null")}
    referred: dict[str, Any] = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return referred


def _kind(schema: dict[str, Any]) -> str:
    return " or ".join(str(value) for value in schema.get("enum", ())) or str(schema.get("type", "any value"))


def _known(name: str, parameters: dict[str, Any]) -> str | None:
    wanted = name.casefold().replace("-", "_")
    return next((known for known in parameters if known.casefold() == wanted), None)


def _by_type(parameters: dict[str, Any], values: list[str], required: Sequence[str]) -> dict[str, Any]:
    """Gives values without a name to the parameters that they fit; the last text takes all the words that are left."""
    arguments: dict[str, Any] = {}
    left = list(enumerate(values))
    ranked = sorted(parameters, key=lambda name: _rank(parameters[name], required=name in required))
    texts = [name for name in ranked if name in required and _is_text(parameters[name])]
    for name in ranked:
        schema = parameters[name]
        while _is_text(schema) and len(left) > 1 and left[0][1].casefold() in _LINKS:
            left.pop(0)
        taken = [each for each in left if _fit(each[1], schema) is not _NOTHING]
        if schema.get("type") != "array" and (not _is_text(schema) or name in texts[:-1]):
            taken = taken[:1]
        if taken:
            arguments[name] = _fit(" ".join(value for _, value in taken), schema)
            left = [each for each in left if each not in taken]
    return arguments


def _rank(schema: dict[str, Any], *, required: bool) -> int:
    """Which parameters choose first: the choosy ones, so that a text does not take the number of another."""
    if required:
        return 2 if _is_text(schema) else 0
    return 1 if "enum" in schema else 3


def _is_text(schema: dict[str, Any]) -> bool:
    return "enum" not in schema and schema.get("type", "string") == "string"


def _fit(written: str, schema: dict[str, Any]) -> Any:
    """The written value as the schema's type, or _NOTHING."""
    written = written.rstrip(",;")
    text = written[1:-1] if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'" else written
    if "enum" in schema:
        return next((value for value in schema["enum"] if str(value).casefold() == text.casefold()), _NOTHING)
    match schema.get("type", "string"):
        case "number" | "integer" as kind:
            return _fit_number(str(NUMBERS.get(text.casefold(), text)), whole=kind == "integer")
        case "boolean":
            return _FLAGS.get(text.casefold(), _NOTHING)
        case "array":
            return _fit_items(text, schema)
        case kind:
            return _json(text, dict) if kind == "object" else text


def _fit_number(text: str, *, whole: bool) -> Any:
    if not _NUMBER.fullmatch(text) or (whole and "." in text):
        return _NOTHING
    return float(text) if "." in text else int(text)


def _fit_items(text: str, schema: dict[str, Any]) -> Any:
    if text.startswith("["):
        return _json(text, list)
    items = [_fit(each, schema.get("items", {})) for each in re.split(r"[\s,]+", text) if each]
    return _NOTHING if any(item is _NOTHING for item in items) else items


def _json(text: str, kind: type) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return _NOTHING
    return value if isinstance(value, kind) else _NOTHING
