"""Builds an AgentDefinition from a LoadedConfig. Only this module and `build_model` name implementations.

Nothing is connected here; `AgentDefinition.start` does that. Implementations are imported when a file asks for them,
because each brings libraries that other agents do not need (HTTP and TLS, the MCP SDK).
"""
# ruff: noqa: PLC0415  imports inside functions are this module's purpose, see above

import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import yaml

from holodeck.agent.definition import AgentDefinition, Instructions, TextInstructions
from holodeck.agent.settings import SystemPrompt
from holodeck.agent.structured_output import OutputType
from holodeck.config.agent_schema import (
    AnnotateMiddleware,
    FilterMiddleware,
    FunctionMiddleware,
    InlineInstructions,
    InstructionsFile,
    LogMiddleware,
    Middleware,
)
from holodeck.config.build_model import build_model, native_files, reported_window, shown_tokens
from holodeck.config.environment import Keys, data_folder
from holodeck.config.load import DEFAULT_NAME, LoadedConfig, load_config, secrets_of
from holodeck.config.tool_schema import FunctionToolSettings, McpToolSettings
from holodeck.core.secrets import Redactor
from holodeck.errors import ConfigError
from holodeck.models.port import Model
from holodeck.resilience.breaker import OnChange, StateChange
from holodeck.resilience.breakers import Breakers, log_change
from holodeck.runs.client_history import ClientHistory
from holodeck.runs.run_settings import KeptRuns, RunSettings, WhenBusy
from holodeck.tools.mcp_settings import McpServerBlock, McpSettings, OAuthClient, OAuthSettings

if TYPE_CHECKING:
    from holodeck.files.limits import FileLimits
    from holodeck.files.reader import FileReader
    from holodeck.runs.middleware import EventMiddleware, Stage
    from holodeck.tools.catalogue import Catalogue, Source

log = logging.getLogger(__name__)

MAX_INSTRUCTIONS = 256 * 1024

_FRONT_MATTER = re.compile(r"\A---\r?\n.*?\r?\n---\r?\n", re.DOTALL)


def load_agent(path: str | Path = DEFAULT_NAME) -> AgentDefinition:
    """Loads the agent that a file describes, not started yet: enter it with `async with`."""
    return build_agent(load_config(path))


def build_agent(
    config: LoadedConfig,
    *,
    on_change: OnChange | None = None,
    model: Model | None = None,
    tools: Sequence["Source"] = (),
    debug: bool = False,
) -> AgentDefinition:
    """Builds the agent of a file. `model` replaces the file's model, `tools` are added to the file's tools.

    With `debug`, the endpoints' own events are passed on, and AG-UI clients get them as RAW (SRV-22). `on_change` is
    called for every change of a circuit breaker, besides the log.
    """
    file = config.agent
    history, breakers = file.sessions.history, Breakers(on_change=_logged(on_change))
    return AgentDefinition(
        name=file.name,
        description=file.description,
        model=model or build_model(config, breakers, debug=debug),
        instructions=build_instructions(config),
        tools=build_tools(config, breakers, tools),
        loop=file.loop_in_time,
        output=_output(config),
        state=file.state,
        max_messages=history.max_messages or file.sessions.max_messages,
        max_tokens=shown_tokens(config),
        window=reported_window(config) if model is None else None,
        summarize=history.strategy == "summarize",
        breakers=breakers,
        version=_version(config),
    )


def _version(config: LoadedConfig) -> str:
    """A hash of the agent file and the file of its instructions. Empty for an agent without a file."""
    given = config.agent.instructions
    more = _read_instructions(config, given.file) if isinstance(given, InstructionsFile) else ""
    return config.digest and sha256(f"{config.digest} {more}".encode()).hexdigest()[:16]


def _logged(on_change: OnChange | None) -> OnChange:
    def notice(change: StateChange) -> None:
        log_change(change)
        if on_change is not None:
            on_change(change)

    return notice


class PromptInstructions:
    """A SystemPrompt, followed by the current time of the user."""

    def __init__(self, prompt: SystemPrompt) -> None:
        self._prompt = prompt
        self._time = TextInstructions("It is {now} for the user (time zone {timezone}).")

    def render(self, *, user_id: str, timezone: str) -> str:
        time = self._time.render(user_id=user_id, timezone=timezone)
        return f"{self._prompt.to_prompt_string(user_id)}\n\n{time}"


def build_instructions(config: LoadedConfig) -> Instructions:
    given = config.agent.instructions
    if given is None:
        purpose = f" {config.agent.description}" if config.agent.description else ""
        return TextInstructions(f"You are {config.agent.name}, a helpful assistant.{purpose}")
    if isinstance(given, SystemPrompt):
        return PromptInstructions(given)
    if isinstance(given, InstructionsFile):
        return TextInstructions(_read_instructions(config, given.file))
    return TextInstructions(given.inline if isinstance(given, InlineInstructions) else given)


def _read_instructions(config: LoadedConfig, name: str) -> str:
    """Reads the file's text, without the front matter in which upstream HoloDeck files keep a version."""
    keys = ("instructions", "file")
    text = _FRONT_MATTER.sub("", _text_in(config, keys, name)).strip()
    if not text:
        raise config.error(keys, f"{name} is empty")
    return text


def _text_in(config: LoadedConfig, keys: Keys, name: str) -> str:
    """Reads a file in the agent's folder. Errors are reported at `keys`."""
    try:
        with (config.folder / name).open("rb") as stream:
            data = stream.read(MAX_INSTRUCTIONS + 1)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise config.error(keys, f"there is no file {name} in the agent's folder") from None
    except OSError as error:
        raise config.error(keys, f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise config.error(keys, f"{name} is not UTF-8") from error
    if len(data) > MAX_INSTRUCTIONS:
        raise config.error(keys, f"{name} is longer than {MAX_INSTRUCTIONS // 1024} kB")
    return text


def _output(config: LoadedConfig) -> OutputType | None:
    given = config.agent.response_format
    if given is None:
        return None
    schema = _schema_in(config, given) if isinstance(given, str) else given
    try:
        return OutputType.of_schema(schema)
    except ConfigError as error:
        raise config.error(("response_format",), error.message) from error


def _schema_in(config: LoadedConfig, name: str) -> dict[str, Any]:
    """Reads the schema in a file, JSON or YAML: the YAML parser reads both."""
    keys = ("response_format",)
    try:
        schema = yaml.safe_load(_text_in(config, keys, name))
    except yaml.YAMLError as error:
        raise config.error(keys, f"{name} is neither JSON nor YAML") from error
    if not isinstance(schema, dict):
        raise config.error(keys, f"{name} does not contain a JSON Schema: it must be an object")
    return schema


def build_tools(config: LoadedConfig, breakers: Breakers | None = None, added: Sequence["Source"] = ()) -> "Catalogue":
    """Puts all tools into one catalogue, those of MCP servers behind circuit breakers if `breakers` is given."""
    from holodeck.tools.catalogue import Catalogue

    sources = []
    for number, tool in enumerate(config.agent.tools):
        try:
            match tool:
                case McpToolSettings():
                    sources.append(_mcp(config, tool, guarded=breakers is not None))
                case FunctionToolSettings():
                    sources.append(_function(config, tool))
                case _:
                    assert_never(tool)
        except ConfigError as error:  # the toolset knows what is wrong, the file knows where
            raise config.error(("tools", number), error.message) from error
    return Catalogue([*sources, *added], breakers)


def _mcp(config: LoadedConfig, tool: McpToolSettings, *, guarded: bool) -> "Source":
    from holodeck.tools.catalogue import Source
    from holodeck.tools.mcp_toolset import McpToolset

    breaker = config.agent.circuit_breakers.mcp if guarded else None
    return Source(toolset=McpToolset(mcp_settings(config, tool)), name=tool.name, rules=tool, breaker=breaker)


def mcp_settings(config: LoadedConfig, tool: McpToolSettings) -> McpSettings:
    found = {
        "cwd": config.folder / (tool.cwd or "."),
        "start_timeout": tool.start_timeout or config.agent.mcp.start_timeout,
        "oauth": _oauth(config, tool),
    }
    return McpSettings.model_construct(**{name: getattr(tool, name) for name in McpServerBlock.model_fields} | found)


def _oauth(config: LoadedConfig, tool: McpToolSettings) -> OAuthClient | None:
    """Makes the OAuth client. Tokens belong to the address: a user's agents share a sign-in at the same server."""
    if not tool.oauth:
        return None
    given = OAuthSettings() if tool.oauth is True else tool.oauth
    name = sha256((tool.url or "").encode()).hexdigest()[:32]
    return OAuthClient(**dict(given), file=data_folder(config.environment) / "oauth" / f"{name}.json")


def _function(config: LoadedConfig, tool: FunctionToolSettings) -> "Source":
    from holodeck.tools.catalogue import Source
    from holodeck.tools.function_files import load_function
    from holodeck.tools.functions import FunctionTool, FunctionToolset
    from holodeck.tools.rules import ToolRules

    function = load_function(tool.file, tool.function or tool.name, config.folder)
    offered = FunctionTool.of(function, name=tool.name, description=tool.description or None, timeout=tool.timeout)
    cache = {} if tool.cache is None else {tool.name: tool.cache}
    rules = ToolRules(approval={tool.name: tool.approval}, repeatable=tool.repeatable, bind=tool.bind, cache=cache)
    toolset = FunctionToolset([offered], name=tool.name, redact=Redactor(secrets_of(config)))
    return Source(toolset=toolset, name=tool.name, rules=rules)


def build_files(config: LoadedConfig, limits: "FileLimits") -> "FileReader":
    """Makes the reader of users' files. Models that accept images get them unchanged, other models get their text."""
    from holodeck.files.reader import FileReader

    vision, native = config.agent.model.sees_images, native_files(config.agent.model)
    hosts = config.agent.files.allow_hosts
    if not hosts:
        return FileReader(limits, vision=vision, native=native)
    from holodeck.files.fetch import Fetcher  # imports HTTP and TLS, which an offline agent does not need

    return FileReader(limits, vision=vision, native=native, fetcher=Fetcher(hosts, max_bytes=limits.max_file_bytes))


def build_run_settings(config: LoadedConfig) -> RunSettings:
    runs = config.agent.server.runs
    return RunSettings(
        **{name: getattr(runs, name) for name in KeptRuns.model_fields},
        when_busy=WhenBusy(config.agent.sessions.busy),
        client_history=ClientHistory(config.agent.sessions.client_history),
        continues=runs.on_crash == "continue",
    )


def build_middleware(config: LoadedConfig) -> Callable[[], "EventMiddleware"] | None:
    """Returns a factory of event middleware, one per reader, or None. The file's own functions are loaded now, once."""
    if not config.agent.middleware:
        return None
    from holodeck.runs.middleware import EventMiddleware

    made = [_stages(config, number, each) for number, each in enumerate(config.agent.middleware)]
    return lambda: EventMiddleware(stage for stages in made for stage in stages())


def _stages(config: LoadedConfig, number: int, settings: Middleware) -> Callable[[], list["Stage"]]:
    from holodeck.runs import middleware as stages

    match settings:
        case LogMiddleware():
            return lambda: [stages.log(partial(log.info, "agui_event %s %s"), deltas=settings.deltas)]
        case FilterMiddleware():
            return lambda: [stages.hide(settings.hide), stages.hide_tools(settings.tools, settings.only)]
        case AnnotateMiddleware():
            families = stages.FAMILIES if settings.on is None else settings.on
            return lambda: [stages.annotate(settings.metadata, families)]
        case FunctionMiddleware():
            from holodeck.tools.function_files import load_function

            try:
                function = load_function(settings.file, settings.function, config.folder)
            except ConfigError as error:
                raise config.error(("middleware", number), error.message) from error
            return lambda: [stages.own(function, log.warning)]
        case _:
            return lambda: [stages.throttle(settings.max_chars)]
