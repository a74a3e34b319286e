"""Loads a validated AgentFile from a path, with its folder, its environment and its warnings.

Reads two files, the agent's and `.env` beside it, and connects to nothing. `holodeck.config.build` builds the agent
from the result.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import msgspec
from pydantic import ValidationError

from holodeck.config.agent_schema import AgentFile
from holodeck.config.environment import Keys, YamlDocument, dotted, expand, read_environment
from holodeck.config.tool_schema import McpToolSettings
from holodeck.config.upstream_format import UpstreamParts, nearest
from holodeck.config.validation_errors import explain
from holodeck.config.yaml_source import MAX_BYTES, parse
from holodeck.core.text import one_line
from holodeck.errors import ConfigError
from holodeck.models.providers import ProviderName

DEFAULT_NAME = "agent.yaml"
IN_PYTHON = "give the path of an agent file or its folder, or describe the agent with holodeck.Agent(…)"
OF_ONE_PROVIDER = frozenset(  # keys of `model:` that another provider does not use, or must not get
    {"endpoint", "api", "api_key", "api_version", "auth_token", "headers", "betas", "service_tier", "provider_tools"}
    | {"extra", "cache", "reasoning", "region", "profile", "project", "location"}
)
OF_ONE_MODEL = frozenset({"price", "context_window"})  # keys that another model of the same provider must not get


@dataclass(frozen=True, kw_only=True)
class LoadedConfig:
    """A valid agent file. Its relative paths are relative to `folder`."""

    agent: AgentFile
    folder: Path
    environment: Mapping[str, str]
    document: YamlDocument
    warnings: tuple[str, ...] = ()
    digest: str = ""  # hash of the file as it is written, without the values of variables

    def error(self, keys: Keys, text: str) -> ConfigError:
        """Makes the error for a mistake that shows only during building, at its position in the file."""
        return self.document.error(keys, text)


def load_config(
    path: str | Path = DEFAULT_NAME, *, environment: Mapping[str, str] | None = None, or_else: str = IN_PYTHON
) -> LoadedConfig:
    """Loads a file. One ConfigError reports everything wrong with it, a line for each problem.

    Args:
        path: The file, or the folder that holds an agent.yaml.
        environment: Instead of the process environment and `.env`.
        or_else: What the caller can do if there is no such file.
    """
    file = Path(path)
    if file.is_dir():
        file /= DEFAULT_NAME
    shown = str(file)
    text = _read(file, or_else)
    root = parse(text, shown)
    upstream = UpstreamParts(shown)
    root = upstream.taken_out_of(root)
    folder = file.resolve().parent
    environment = read_environment(folder) if environment is None else environment
    document = expand(root, shown, environment)
    agent = _validated(document)
    return LoadedConfig(
        agent=agent,
        folder=folder,
        environment=environment,
        document=document,
        warnings=(*upstream.warnings, *_advice_on(agent, document)),
        digest=hashlib.sha256(text).hexdigest(),
    )


def with_model(config: LoadedConfig, name: str) -> LoadedConfig:
    """Returns the same configuration with another model, validated like the file.

    `name` is a model of the same provider, or `provider/model`, or `demo`. The demo model has no other names, so a name
    without a provider, or with an unknown one, is refused there.
    """
    before = config.agent.model
    provider, slash, rest = name.partition("/")
    names_provider = (slash and provider in get_args(ProviderName)) or name == "demo"
    if before.provider == "demo" and not names_provider:
        raise ConfigError(_no_provider(name))
    changed = {"provider": provider, "name": rest} if names_provider else {"provider": before.provider, "name": name}
    settings = before.model_dump(exclude_unset=True, exclude={"fallback"})
    if changed["provider"] != before.provider:
        settings = {key: value for key, value in settings.items() if key not in OF_ONE_PROVIDER}
    if changed != {"provider": before.provider, "name": before.name}:
        settings = {key: value for key, value in settings.items() if key not in OF_ONE_MODEL}
    try:
        model = type(before).model_validate({**settings, **changed})
    except ValidationError as error:
        raise ConfigError(f"{name}: {error.errors()[0]['msg']}") from None  # pydantic's own text may repeat a secret
    return replace(config, agent=config.agent.model_copy(update={"model": model}))


def _no_provider(name: str) -> str:
    provider, slash, _ = name.partition("/")
    known = get_args(ProviderName)
    if slash:
        close = nearest(provider, known, cutoff=0.6)  # as for a value in the file
        advice = f"did you mean {close}?" if close else f"known are {', '.join(known)}"
        return f"model {one_line(name, 100)!r}: there is no provider {one_line(provider, 100)!r}; {advice}"
    if name not in known and nearest(name, ("demo",)):
        return f"model {one_line(name, 100)!r} names no provider; did you mean demo?"
    example = "openai/gpt-5" if not name or name in known else f"openai/{one_line(name, 100)}"
    return f"model {one_line(name, 100)!r} names no provider; write provider/name, e.g. {example}"


def config_of(settings: Mapping[str, object], *, environment: Mapping[str, str] | None = None) -> LoadedConfig:
    """Makes the configuration of an agent that a program describes: the keys of agent.yaml as a dictionary."""
    root = parse(msgspec.json.encode(settings), "")  # JSON is YAML: one way to validate, one kind of error
    folder = Path.cwd()
    environment = read_environment(folder) if environment is None else environment
    document = expand(root, "", environment)
    return LoadedConfig(agent=_validated(document), folder=folder, environment=environment, document=document)


def _validated(document: YamlDocument) -> AgentFile:
    try:
        return AgentFile.model_validate(document.data)
    except ValidationError as error:
        raise ConfigError(explain(error, document)) from None  # pydantic's own text may repeat a secret


def _read(file: Path, or_else: str) -> bytes:
    """Reads the file up to the size limit: a device or a huge file is refused without being read whole."""
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file; {_like(file) or or_else}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error.__class__.__name__}") from error


def _like(file: Path) -> str:
    """Finds the only YAML file in the same folder: `agent.yml`, or an agent under another name."""
    try:
        others = sorted(each for each in file.parent.iterdir() if each.suffix in (".yaml", ".yml"))
    except OSError:
        return ""
    return f"did you mean {others[0]}?" if len(others) == 1 else ""


def _advice_on(agent: AgentFile, document: YamlDocument) -> list[str]:
    """Warns about time limits that are never reached, because the step that contains them ends first."""
    limit = agent.loop_in_time.iteration_timeout
    return [
        f"{document.file}:{mark.line}:{mark.column}: {dotted(keys)}: {seconds:g} s are never reached: "
        f"loop.iteration_timeout ends the step after {limit:g} s"
        for keys, seconds in _timeouts(agent)
        if seconds > limit and (mark := document.marks.get(keys))
    ]


def _timeouts(agent: AgentFile) -> Iterator[tuple[Keys, float]]:
    yield ("model", "timeout"), agent.model.idle_seconds
    for number, choice in enumerate(agent.model.fallback):
        yield ("model", "fallback", number, "timeout"), choice.idle_seconds
    for number, tool in enumerate(agent.tools):
        yield ("tools", number, "timeout"), tool.timeout


_SOUNDS_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def secrets_of(config: LoadedConfig) -> set[str]:
    return {value.strip() for value in _values(config) if value.strip()}


def _values(config: LoadedConfig) -> Iterator[str]:
    for name, value in config.environment.items():
        if _SOUNDS_SECRET.search(name):
            yield value
    for choice in (config.agent.model, *config.agent.model.fallback):
        found = (choice.api_key, choice.auth_token, *choice.headers.values())
        for secret in (each.get_secret_value() for each in found if each is not None):
            yield from (secret, secret.removeprefix("Bearer "))  # a quoted token may lack this prefix
    auth = config.agent.server.auth
    secrets = [issuer.keys.secret for issuer in auth.issuers] + [auth.proxy.secret if auth.proxy else None]
    secrets += [config.agent.server.limits.store, config.agent.sessions.url, config.agent.cluster.valkey]
    yield from (secret.get_secret_value() for secret in secrets if secret is not None)
    for tool in config.agent.tools:
        if isinstance(tool, McpToolSettings):
            for header in tool.headers.values():
                yield from (header, header.rpartition(" ")[2])  # without `Bearer`, as above
            yield from (value for name, value in tool.env.items() if _SOUNDS_SECRET.search(name))
