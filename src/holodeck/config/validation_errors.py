"""Formats validation errors, one line each: file:line:column, the field's path, what is wrong, what would be right.

A line repeats the value only if the file spells it out. It never shows a value that came from a variable or belongs to
a secret.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from holodeck.config.agent_schema import AgentFile
from holodeck.config.environment import Keys, YamlDocument, dotted
from holodeck.config.upstream_format import GATEWAYS, OPTIONS_OF_SERVE, OTHER_PROVIDERS, SLIPS, SLIPS_OF_MODEL, nearest
from holodeck.config.yaml_source import located
from holodeck.core.text import one_line
from holodeck.models.providers import ProviderName

MAX_PROBLEMS = 10
SECRET_PLACES = frozenset({"api_key", "auth_token", "headers", "env", "extra", "provider_tools", "secret"})
_WITH_UNIT = re.compile(r"'\d[\d.]* ?[a-zA-Z]+'")  # as it is shown: '30s', '5 min'

_BARE = {
    "missing": "is required",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list (lines that start with -)",
    "tuple_type": "must be a list (lines that start with -)",
    "dict_type": "must be a block of keys",
    "model_type": "must be a block of keys",
    "model_attributes_type": "must be a block of keys",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}
_BOUNDED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than": lambda ctx: f"must be more than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"must be at least {ctx['ge']:g}",
    "less_than": lambda ctx: f"must be less than {ctx['lt']:g}",
    "less_than_equal": lambda ctx: f"must be at most {ctx['le']:g}",
    "string_too_long": lambda ctx: f"is too long (at most {ctx['max_length']} characters)",
    "too_long": lambda ctx: f"has too many entries (at most {ctx['max_length']})",
    "value_error": lambda ctx: str(ctx["error"]),
}
_EXAMPLES = {
    "name": ", e.g. name: my-agent",
    "model": ", e.g. model: {provider: demo}",
    "model.provider": ", e.g. provider: openai",
    "server.auth.jwt.keys": ", e.g. keys: {discover: true}",
}
_PATTERNS = {
    "the agent's name": (
        "may hold letters, digits, spaces and . _ - and starts with a letter or digit, e.g. todo-assistant"
    ),
    "name": "may hold letters, digits, - and _ only, e.g. get_weather",
    "endpoint": "must be a URL that starts with http:// or https://",
    "url": "must be a URL that starts with http:// or https://",
    "otlp_endpoint": "must be a URL that starts with http:// or https://",
}


def explain(error: ValidationError, document: YamlDocument) -> str:
    """Formats all problems in the order of the file, at most ten."""
    problems = error.errors(include_url=False)
    slips = {(*each["loc"][:-1], _meant(each["loc"])) for each in problems if each["type"] == "extra_forbidden"}
    found = sorted(
        {_problem(each, document) for each in problems if each["type"] != "missing" or each["loc"] not in slips}
    )
    lines = [located(document.file, mark, text).message for mark, text in found[:MAX_PROBLEMS]]
    if len(found) > MAX_PROBLEMS:
        lines.append(located(document.file, None, f"and {len(found) - MAX_PROBLEMS} more").message)
    return "\n".join(lines)


def _problem(details: ErrorDetails, document: YamlDocument) -> tuple[Any, str]:
    kind = details["type"]
    keys = keys_in(document.data, details["loc"], keep_last=kind in ("missing", "extra_forbidden"))
    if kind.startswith("union_tag"):
        keys = (*keys, "type")
    mark = document.where(keys, key=kind == "extra_forbidden")
    return mark, f"{dotted(keys)}: {_wording(details, keys, document)}"


def keys_in(data: Any, loc: tuple[str | int, ...], *, keep_last: bool) -> Keys:
    """Returns Pydantic's location without the names of union members, which the file does not have."""
    keys: list[str | int] = []
    for number, part in enumerate(loc, 1):
        here = (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int))
        if here:
            data = data[part]
        if here or (keep_last and number == len(loc)):
            keys.append(part)
    return tuple(keys)


def _wording(details: ErrorDetails, keys: Keys, document: YamlDocument) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(details["loc"])
    if kind in ("literal_error", "enum"):
        shown, given = _shown(details, keys, document), _given(details, keys, document)
        return _not_one_of(shown, _options(context["expected"]), given)
    if kind == "union_tag_invalid":
        return _not_one_of(repr(context["tag"]), _options(context["expected_tags"]), context["tag"])
    if kind == "union_tag_not_found":
        return f"is required: {one_of([tag for tag, _ in _blocks_at(details['loc']) if tag != 'own'])}"
    if kind == "string_pattern_mismatch":
        key = "the agent's name" if keys == ("name",) else str(keys[-1])
        rule = _PATTERNS.get(key, "has a character that is not allowed here")
        given = _given(details, keys, document)
        is_why = re.search(context["pattern"], given.encode("ascii", "ignore").decode())
        return rule + (_contains(given) if is_why else "")
    return _plain_wording(details, keys, document)


def _plain_wording(details: ErrorDetails, keys: Keys, document: YamlDocument) -> str:
    kind = details["type"]
    text = _BARE.get(kind) or (_BOUNDED[kind](details.get("ctx", {})) if kind in _BOUNDED else details["msg"])
    shown = _shown(details, keys, document)
    if kind == "missing":
        text += _EXAMPLES.get(dotted(keys), "")
    elif shown and text.startswith("must be"):
        text += f", not {shown}"
    if kind == "string_type" and isinstance(details["input"], int | float):
        text += "; put it in quotes"
    elif kind.endswith("_parsing") and _WITH_UNIT.fullmatch(shown):
        text += "; write the number alone (times are in seconds)"
    elif kind in ("list_type", "tuple_type") and isinstance(details["input"], dict):
        text += _contains(str(next(iter(details["input"]), "")))  # a dash of a word processor
    return text if keys in document.substituted else text + _short_model(keys, details["input"])


def _short_model(keys: Keys, value: object) -> str:
    """Suggests the block form for a model's name: other tools accept the name alone, we need the provider too."""
    if keys != ("model",) or not isinstance(value, str) or not value:
        return ""
    provider, slash, name = value.partition("/")
    if value in get_args(ProviderName):
        provider, slash, name = value, "/", ""
    known = OTHER_PROVIDERS.get(provider, provider) if slash else "…"
    named = "" if provider == "demo" else f", name: {one_line(name or '…' if slash else value, 40)}"
    return f"; write model: {{provider: {known}{named}}}"


def _shown(details: ErrorDetails, keys: Keys, document: YamlDocument) -> str:
    value = details["input"]
    if _is_hidden(keys, document):
        return "" if details["type"] != "literal_error" else "its value"
    if isinstance(value, str | int | float | bool):
        return repr(one_line(value, 40)) if isinstance(value, str) else str(value).lower()
    return {dict: "a block", list: "a list", type(None): "empty"}.get(type(value), "")


def _given(details: ErrorDetails, keys: Keys, document: YamlDocument) -> str:
    """Returns a text as the file has it, unless it must not be shown."""
    value = details["input"]
    return value if isinstance(value, str) and not _is_hidden(keys, document) else ""


def _is_hidden(keys: Keys, document: YamlDocument) -> bool:
    return keys in document.substituted or not SECRET_PLACES.isdisjoint(keys)


def _options(text: str) -> list[str]:
    return [option.strip().strip("'") for option in text.replace(" or ", ", ").split(",")]


def _not_one_of(value: str, options: Iterable[str], given: str) -> str:
    options = [option for option in options if option != "own"]  # the member of a union that has no type
    word = value.strip("'")
    if "openai_compatible" in options and word.lower() in GATEWAYS:
        return f"{value} is not a provider here; write provider: openai_compatible and its address as endpoint"
    meant = OTHER_PROVIDERS.get(word.lower())
    close = meant if meant in options else nearest(word, options, cutoff=0.6)  # few, short options: `mpc` for mcp
    return f"{value} is not one of {', '.join(options)}" + (f"; {_did_you_mean(close, given)}" if close else "")


def _unknown_key(loc: tuple[str | int, ...]) -> str:
    close = _meant(loc)
    if loc[:-1] == ("server",) and (option := OPTIONS_OF_SERVE.get(str(loc[-1]))):
        return (
            f"unknown key; it is an option: holodeck serve --{option}, or HOLODECK_{option.upper().replace('-', '_')}"
        )
    return (
        f"unknown key; {_did_you_mean(close, str(loc[-1]))}"
        if close
        else f"unknown key; known here: {', '.join(known_keys(loc[:-1]))}"
    )


def _did_you_mean(close: str, word: str) -> str:
    odd = _odd_character(word)
    return f"did you mean {close}, without {odd}?" if odd else f"did you mean {close}?"


def _contains(text: str) -> str:
    odd = _odd_character(text)
    return f"; it contains {odd}" if odd else ""


def _odd_character(text: str) -> str:
    """Names a character that may look like another one, or is invisible: a reader would not see what is wrong."""
    odd = next((each for each in text if not each.isascii()), None)
    return f"U+{ord(odd):04X} ({unicodedata.name(odd, 'no name')})" if odd else ""


def _meant(loc: tuple[str | int, ...]) -> str | None:
    key, known = str(loc[-1]), known_keys(loc[:-1])
    slips = SLIPS if len(loc) == 1 else SLIPS_OF_MODEL if loc[0] == "model" else {}
    with_unit = next((each for each in known if each.startswith(f"{key}_")), None)  # ttl for ttl_seconds
    return slips.get(key) or nearest(key, known) or with_unit


def known_keys(loc: tuple[str | int, ...]) -> list[str]:
    """Returns the keys allowed at a location. For an undecided union, those of all its members."""
    return [field.alias or name for _, block in _blocks_at(loc) for name, field in block.model_fields.items()]


def one_of(words: Sequence[str]) -> str:
    """Joins alternatives: `mcp or function`, `mcp, function or clock`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _blocks_at(loc: tuple[str | int, ...]) -> list[tuple[str, type[BaseModel]]]:
    blocks: list[tuple[str, type[BaseModel]]] = [("", AgentFile)]
    for part in loc:
        if isinstance(part, int):
            continue
        tagged = [(tag, block) for tag, block in blocks if tag == part]
        blocks = tagged or [found for _, block in blocks for found in _blocks_under(block, part)] or blocks
    return blocks


def _blocks_under(block: type[BaseModel], key: str) -> list[tuple[str, type[BaseModel]]]:
    field = block.model_fields.get(key)
    return _blocks_of(field.annotation) if field else []


def _blocks_of(annotation: Any, tag: str = "") -> list[tuple[str, type[BaseModel]]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(tag, annotation)]
    arguments = get_args(annotation)
    tag = next((argument.tag for argument in arguments if isinstance(argument, Tag)), tag)
    return [block for argument in arguments for block in _blocks_of(argument, tag)]
