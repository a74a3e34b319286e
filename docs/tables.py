"""Generates the tables of the guide from the code: keys of agent.yaml, events, errors.

    python docs/tables.py            rewrites every table in place
    python docs/tables.py --check    lists the pages that are out of date, and changes nothing

A table stands between `<!-- table: NAME -->` and `<!-- /table -->`; the text around it is not touched.
A test compares the pages with the code, so never edit a table yourself.
"""
# ruff: noqa: INP001  a folder of pages, no package

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from holodeck import errors
from holodeck.access.route_access import RouteAccess
from holodeck.config.agent_schema import AgentFile
from holodeck.config.build_model import build_model, native_files
from holodeck.config.load import config_of
from holodeck.config.model_schema import ModelChoice
from holodeck.core import events
from holodeck.core.messages import UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.models.port import OutputSchema, Prompt
from holodeck.models.restrictions import NOTHING
from holodeck.models.structured import OutputMode, shown_by
from holodeck.server.app import ON_EVERY_SERVER
from holodeck.server.wires import WIRES

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PAGES = sorted(DOCS.rglob("*.md"))

_TABLE = re.compile(r"(<!-- table: (?P<name>\w+) -->\n).*?(<!-- /table -->)", re.DOTALL)
_BOUNDS = (("minimum", "from"), ("exclusiveMinimum", "over"), ("maximum", "to"), ("exclusiveMaximum", "under"))
_OWN_WORDS = {  # for classes without a docstring
    "RunStarted": "The first event, always.",
    "StepFinished": "The step ended; `usage` has its tokens.",
    "ReasoningStarted": "The model started its reasoning.",
    "ReasoningAdded": "A piece of the reasoning.",
    "ReasoningEnded": "The reasoning is complete.",
    "TextStarted": "The model started a text.",
    "TextAdded": "A piece of the text, as the model sent it.",
    "TextEnded": "The text is complete.",
    "ToolArgumentsAdded": "A piece of the arguments' JSON.",
    "StateReplaced": "The whole shared state.",
    "ActivityPatched": "RFC 6902 operations on the content of an activity.",
    "CustomSent": "An event that a function tool sends to the client.",
    "RunFinished": "The last event of a run that did not fail; `outcome` says how it ended.",
    "ModelUnreachable": "No connection, or a failure of the endpoint itself (5xx).",
    "ContentFiltered": "The provider's content filter refused the request or stopped the answer.",
    "ModelTimeout": "The endpoint sent nothing within `model.timeout` seconds.",
    "ModelAuthFailed": "The API key is missing or was rejected.",
    "ContextOverflow": "The conversation is too long for the model.",
}
_CLIENTS = {  # title, package, protocols; the version is the one that the tests install
    "OpenAI's SDK for Python": ("pip openai", "openai, responses"),
    "OpenAI's SDK for JavaScript": ("npm openai", "openai, responses"),
    "LangChain": ("pip langchain-openai", "openai, responses"),
    "OpenAI's Agents SDK": ("pip openai-agents", "openai, responses"),
    "Pydantic AI": ("pip pydantic-ai-slim", "openai, responses"),
    "llm": ("pip llm", "openai, responses"),
    "Vercel's AI SDK 7, on Node.js 22": ("npm ai", "ai-sdk"),
    "Vercel's AI SDK 6": ("npm ai6", "ai-sdk"),
    "the same with the agent as a model": ("npm @ai-sdk/openai", "openai, responses"),
    "AG-UI's client": ("npm @ag-ui/client", "ag-ui"),
    "AG-UI's client before 1.0": ("npm agui-0059", "ag-ui"),
    "CopilotKit": ("npm @copilotkit/core", "ag-ui"),
    "Microsoft's Agent Framework": ("pip agent-framework-ag-ui", "ag-ui"),
    "EventSource": ("npm eventsource", "ag-ui"),
    "MCP's SDK for Python": ("pip mcp", "mcp"),
    "MCP's SDK for JavaScript": ("npm @modelcontextprotocol/client", "mcp"),
    "MCP's SDK for JavaScript, older": ("npm mcp-legacy", "mcp"),
    "A2A's SDK for Python": ("pip a2a-sdk", "a2a"),
    "A2A's SDK for JavaScript": ("npm @a2a-js/sdk", "a2a"),
    "A2A's SDK for JavaScript, 0.3": ("npm a2a-legacy", "a2a"),
}
_LONGEST_DEFAULT = 60  # characters; the description states longer defaults


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


# agent.yaml


@cache
def agent_schema() -> dict[str, Any]:
    return AgentFile.model_json_schema()


def blocks() -> dict[str, dict[str, Any]]:
    """Every block that can stand in an agent file, by the name of its class, as JSON Schema."""
    schema = agent_schema()
    return {
        "AgentFile": schema,
        **{name: block for name, block in schema["$defs"].items() if "properties" in block},
    }


def keys(name: str) -> str:
    block = blocks()[name]
    required = block.get("required", ())
    ordered = sorted(block["properties"].items(), key=lambda each: each[0] not in required)
    rows = (_key(key, field, needed=key in required) for key, field in ordered)
    return table(("key", "default", "meaning"), rows)


def _key(key: str, field: dict[str, Any], *, needed: bool) -> tuple[str, str, str]:
    meaning = [field.get("description", "")]
    if "const" in field:
        meaning.append(f"Always `{field['const']}`")
    kinds = list(_kinds(field))
    choices = next((kind["enum"] for kind in kinds if "enum" in kind), None)
    if choices:
        meaning.append(", ".join(f"`{choice}`" for choice in choices))
    bounds = next((text for kind in kinds if (text := _bounds(kind))), "")
    return f"`{key}`", "**required**" if needed else _default(field), ". ".join(filter(None, [*meaning, bounds]))


def _kinds(field: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema of a value, and those of what it may be or hold."""
    known = agent_schema()["$defs"]
    inner = [field.get("items"), field.get("additionalProperties"), *field.get("anyOf", ())]
    inner += field.get("patternProperties", {}).values()
    for kind in (field, *(each for each in inner if isinstance(each, dict))):
        yield known[kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
        if kind is not field:
            yield from _kinds(kind)


def _bounds(kind: dict[str, Any]) -> str:
    bounds = [f"{word} {kind[bound]:,}" for bound, word in _BOUNDS if bound in kind]
    return " ".join(bounds).capitalize()


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if isinstance(value, dict) and value:
        return "as below"
    if value is None or value == "":
        return ""
    text = msgspec.json.encode(value).decode()
    return f"`{text.strip(chr(34))}`" if len(text) <= _LONGEST_DEFAULT else "a general one"


# events


def event_types() -> list[type[events.Event]]:
    return [value for value in vars(events).values() if _is_event(value)]


def _is_event(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, events.Event) and value is not events.Event


def event_table(_name: str) -> str:
    rows = ((f"`{kind.__name__}`", _members(kind), _description(kind)) for kind in event_types())
    return table(("event", "members", "meaning"), rows)


def _members(kind: type[events.Event]) -> str:
    return ", ".join(f"`{name}`" for name in kind.__struct_fields__)


def _description(kind: type) -> str:
    """The docstring's first paragraph; a class inherits its parent's, which is not meant."""
    own = inspect.cleandoc(vars(kind).get("__doc__") or "")
    if own.startswith(f"{kind.__name__}("):
        own = ""
    return " ".join(own.split("\n\n", 1)[0].split()) or _OWN_WORDS[kind.__name__]


# errors


def error_types() -> list[type[errors.HoloDeckError]]:
    found: list[type[errors.HoloDeckError]] = []
    waiting = [errors.HoloDeckError]
    while waiting:
        kind = waiting.pop(0)
        found.append(kind)
        waiting += [each for each in kind.__subclasses__() if _is_of_the_server(each.__module__)]
    return found


def _is_of_the_server(module: str) -> bool:
    """Errors of the terminal are in no response, and only there if a command was imported."""
    return module.startswith("holodeck.") and not module.startswith("holodeck.cli.")


def codes() -> dict[str, type[errors.HoloDeckError]]:
    """The class that a code belongs to: the first one that says it itself."""
    own = [kind for kind in error_types() if "code" in vars(kind) and kind is not errors.HoloDeckError]
    return {kind.code: kind for kind in reversed(own)}


def problems(_name: str) -> str:
    served = (kind for kind in codes().values() if not issubclass(kind, errors.ConfigError | errors.StartError))
    rows = (
        (f"`{kind.code}`", _status(kind), kind.title, "yes" if kind.retryable else "")
        for kind in sorted(served, key=lambda kind: (_status(kind), kind.code))
    )
    return table(("code", "status", "title", "worth a retry"), rows)


def _status(kind: type[errors.HoloDeckError]) -> str:
    return "400, 408, 422" if kind is errors.InvalidRequest else str(kind.status)


def reasons(_name: str) -> str:
    models = [kind for kind in error_types() if issubclass(kind, errors.ModelError) and "reason" in vars(kind)]
    rows = (
        (f"`{kind.reason}`", f"`{kind.code}`", str(kind.status), "yes" if kind.retryable else "", _description(kind))
        for kind in models
        if kind is not errors.ModelError
    )
    return table(("reason", "code", "status", "worth a retry", "meaning"), rows)


# models

_ASKED = Prompt(messages=(UserMessage(content="Hi"),), tools=(ToolSchema(name="look", description="Looks."),))
_PROVIDERS = {  # of the table → the page that describes it, and what a file says to get it
    "`openai`, chat completions": ("openai", {"provider": "openai", "name": "gpt-4.1", "api": "chat"}),
    "`openai`, Responses": ("openai", {"provider": "openai", "name": "gpt-5", "api": "responses"}),
    "`azure_openai`": ("azure", {"provider": "azure_openai", "name": "m", "endpoint": "https://m.example"}),
    "`anthropic`": ("anthropic", {"provider": "anthropic", "name": "claude-sonnet-4-5"}),
    "`gemini`": ("gemini", {"provider": "gemini", "name": "gemini-2.5-flash"}),
    "`bedrock`, Anthropic's models": ("bedrock", {"provider": "bedrock", "name": "us.anthropic.claude", "region": "us-east-1"}),
    "`bedrock`, others": ("bedrock", {"provider": "bedrock", "name": "amazon.nova", "region": "us-east-1"}),
    "`vertex`, `google/…`": ("vertex", {"provider": "vertex", "name": "google/gemini-2.5-flash", "project": "p"}),
    "`vertex`, `anthropic/…`": ("vertex", {"provider": "vertex", "name": "anthropic/claude", "project": "p"}),
    "`ollama`": ("local", {"provider": "ollama", "name": "llama3.2"}),
    "`openai_compatible`": ("gateways", {"provider": "openai_compatible", "name": "m", "endpoint": "https://m.example"}),
}  # fmt: skip


def providers(_name: str) -> str:
    """What the client of each provider asks for, found out by building its requests."""
    rows = [(f"[{name}](models/{page}.md)", *_abilities(model)) for name, (page, model) in _PROVIDERS.items()]
    heads = ("provider", "thinking", "images", "files", "structured output", "caching", "cost", "its own tools")
    return table(heads, iter(rows))


def _abilities(model: dict[str, Any]) -> tuple[str, ...]:
    choice = ModelChoice.model_validate(model)
    kinds = (("pdf", "PDF"), ("audio", "audio"))
    files = ", ".join(word for kind, word in kinds if kind in native_files(choice))
    caches = _changes(model, {"cache": "off"}, {"cache": "auto"})
    return (
        ", ".join(
            f"`{name}`" for name, value in _THINKING.items() if _changes(model, {}, {"reasoning": {name: value}})
        ),
        "yes" if choice.sees_images else "`vision: true`",
        files or "text only",
        "native" if _body(model, output=True) != _body(model) else "by a tool",
        "`cache: auto`" if caches else "by itself",
        f"`price` with `cached`{' and `cache_write`' if caches else ''}",
        "yes" if _accepts({**model, "provider_tools": [{"type": "web_search"}]}) else "no",
    )


_THINKING = {"effort": "low", "budget_tokens": 4000, "summary": "detailed"}


def _changes(model: dict[str, Any], one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether an option that the file may have changes the request."""
    return _accepts({**model, **other}) and _body({**model, **one}) != _body({**model, **other})


def _accepts(model: dict[str, Any]) -> bool:
    try:
        ModelChoice.model_validate(model)
    except ValueError:
        return False
    return True


def _body(model: dict[str, Any], *, output: bool = False) -> bytes:
    """The request that the model's client would send."""
    config = config_of({"name": "a", "model": {**model, "api_key": "k"}}, environment={})
    client = build_model(config)
    client = getattr(client, "_preferred", (None, client))[1]  # with `api: auto`, the API that is asked first
    schema = OutputSchema(name="answer", schema={"type": "object"}) if output else None
    prompt = msgspec.structs.replace(_ASKED, output=schema)
    native = prompt if client.native_output else shown_by(OutputMode.TOOL, prompt)  # type: ignore[attr-defined]
    return client._body(native, NOTHING)  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


# routes


def access(_name: str) -> str:
    """What each route asks for, as the router knows it."""
    groups = (*(wire.operations for wire in WIRES.values()), *(module.routes.operations for module in ON_EVERY_SERVER))
    operations = [operation for group in groups for operation in group]
    rows = ((f"`{each.method} {each.shown_path}`", _asked(each.access)) for each in operations)
    return table(("route", "needs"), dict.fromkeys(rows))  # two wires have the list of models


def wires(_name: str) -> str:
    """The wires, as the command line and the banner know them."""
    rows = (
        (f"`{wire.name}`", wire.title, ", ".join(f"`{path}`" for _, path in wire.endpoints)) for wire in WIRES.values()
    )
    return table(("`--protocol`", "what it is", "addresses"), rows)


def clients(_name: str) -> str:
    """The clients that the tests run, with the versions that they install."""
    npm = json.loads((ROOT / "tests" / "clients" / "package.json").read_text("utf-8"))["dependencies"]
    lines = [
        line
        for file in (ROOT / "constraints.txt", ROOT / "tests" / "clients" / "requirements.txt")
        for line in file.read_text("utf-8").splitlines()
    ]
    pip = dict(line.split("==") for line in lines if "==" in line)
    return table(("client", "package", "`--protocol`"), _client_rows({"npm": npm, "pip": pip}))


def _client_rows(versions: dict[str, dict[str, str]]) -> Iterator[tuple[str, ...]]:
    for title, (package, protocols) in _CLIENTS.items():
        kind, name = package.split(" ")
        known, _, version = versions[kind][name].removeprefix("npm:").rpartition("@")  # npm:@ag-ui/client@0.0.59
        yield title, f"`{known or name}` {version}", ", ".join(f"`{each}`" for each in protocols.split(", "))


def _asked(wanted: RouteAccess) -> str:
    if wanted.kind in ("static", "open"):
        return "nothing"
    need = f"`{wanted.scope}`" if wanted.scope else "any credential"
    need += ", or a ticket of the run" if wanted.takes_ticket else ""
    return f"{need}; nothing with `public: [{wanted.open_as}]`" if wanted.open_as else need


WRITERS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(blocks(), keys),
    "access": access,
    "clients": clients,
    "events": event_table,
    "problems": problems,
    "providers": providers,
    "reasons": reasons,
    "wires": wires,
}


def tables_in(page: Path) -> list[str]:
    return [match["name"] for match in _TABLE.finditer(page.read_text(encoding="utf-8"))]


def rewritten(page: Path) -> str:
    """The page with every table as the code has it now."""
    return _TABLE.sub(lambda match: match[1] + _written(match["name"]) + match[3], page.read_text("utf-8"))


def _written(name: str) -> str:
    writer = WRITERS.get(name)
    return writer(name) if writer else f"There is no {name} any more: remove this table.\n"


def main() -> int:
    checks = "--check" in sys.argv
    old = [page for page in PAGES if rewritten(page) != page.read_text(encoding="utf-8")]
    for page in old:
        sys.stdout.write(f"{page.name} {'is out of date' if checks else 'rewritten'}\n")
        if not checks:
            page.write_text(rewritten(page), encoding="utf-8")
    return bool(old) and checks


if __name__ == "__main__":
    sys.exit(main())
