"""Finds the values of `${NAME}`, and fills them in.

Values come from the process environment, then from `.env` beside the agent file. They are read into a mapping, and
`os.environ` stays unchanged, so nothing of `.env` leaks into child processes. Replacement is plain text: a value is
never expanded a second time.
"""

import os
import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from dotenv import dotenv_values

from holodeck.config.yaml_source import Entry, Fields, Items, Mark, Node, Scalar, located
from holodeck.errors import ConfigError

Keys: TypeAlias = tuple[str | int, ...]
"""A path in the data: ("tools", 0, "command")."""

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{[^}]{0,40}\}?")


def read_environment(folder: Path) -> Mapping[str, str]:
    """Merges the process environment over `.env`. Values of `.env` are literal: `$` in a password is not a variable."""
    file = folder / ".env"
    if not file.is_file():
        return os.environ
    try:
        values = dotenv_values(file, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f".env beside the agent file cannot be read: {error.__class__.__name__}") from error
    return ChainMap(dict(os.environ), {name: value for name, value in values.items() if value is not None})


def data_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "holodeck"


@dataclass
class YamlDocument:
    """The data of a file with positions: `marks` of the values, `keys` of their keys."""

    file: str
    data: Any = None
    marks: dict[Keys, Mark] = field(default_factory=dict)
    keys: dict[Keys, Mark] = field(default_factory=dict)
    substituted: set[Keys] = field(default_factory=set)  # from the environment: may hold secrets, never shown

    def where(self, keys: Keys, *, key: bool = False) -> Mark:
        """Returns the nearest position in the file for these keys: a missing one is reported at its parent."""
        tables = (self.keys, self.marks) if key else (self.marks, self.keys)
        for end in range(len(keys), 0, -1):
            for table in tables if end == len(keys) else (self.keys, self.marks):
                if keys[:end] in table:
                    return table[keys[:end]]
        return Mark(1, 1)

    def error(self, keys: Keys, text: str, *, key: bool = False) -> ConfigError:
        return located(self.file, self.where(keys, key=key), f"{dotted(keys)}: {text}")


def dotted(keys: Keys) -> str:
    """Formats keys as people write them: `tools[0].command`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".") or "the file"


def expand(root: Fields, file: str, environment: Mapping[str, str]) -> YamlDocument:
    """Fills in every `${…}`. Reports all unset names together."""
    document = YamlDocument(file)
    problems: list[str] = []
    document.data = _expand(root, (), _Filling(document, environment, problems))
    if problems:
        raise ConfigError("\n".join(problems))
    return document


@dataclass
class _Filling:
    document: YamlDocument
    environment: Mapping[str, str]
    problems: list[str]

    def text(self, text: str, keys: Keys) -> str:
        if "${" not in text:
            return text
        return _PLACEHOLDER.sub(lambda match: self.value(match, keys), text)

    def value(self, match: re.Match[str], keys: Keys) -> str:
        if match[0] == "$${":
            return "${"
        name, default = match["name"], match["default"]
        if name is None:
            self.problem(
                keys, f"{match[0]} is not a placeholder; write ${{NAME}}, ${{NAME:-default}}, or $${{ for a plain ${{"
            )
            return ""
        value = self.environment.get(name)
        if value or (value is not None and default is None):
            self.document.substituted.add(keys)
            return value
        if default is not None:
            return str(default)
        self.problem(
            keys,
            f"{name} is not set; export it, or write {name}=… into .env beside the file, or use ${{{name}:-default}}",
        )
        return ""

    def problem(self, keys: Keys, text: str) -> None:
        self.problems.append(str(self.document.error(keys, text)))


def _expand(node: Node, keys: Keys, filling: _Filling) -> Any:
    filling.document.marks[keys] = node.mark
    if isinstance(node, Scalar):
        return filling.text(node.value, keys) if isinstance(node.value, str) else node.value
    if isinstance(node, Items):
        return [_expand(item, (*keys, i), filling) for i, item in enumerate(node.items)]
    return {key: _expand_entry(entry, (*keys, key), filling) for key, entry in node.entries.items()}


def _expand_entry(entry: Entry, keys: Keys, filling: _Filling) -> Any:
    filling.document.keys[keys] = entry.mark
    return _expand(entry.node, keys, filling)
