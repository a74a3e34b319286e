"""Parses YAML text into a small tree in which every key and value knows its line and column.

It reads libyaml's event stream instead of constructing objects. So nothing in a file can name a Python type, and an
alias bomb is refused while it is being read, because every node carries its expanded size. Plain scalars follow YAML
1.2's core schema (`no` and `2024-10-21` are text). This module knows nothing about agents.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml import events

from holodeck.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_NODES = 20_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where libyaml is built in
_CORE_TAGS = {"!"} | {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}
_INT = re.compile(r"[-+]?[0-9]{1,30}|0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_VARIABLE = re.compile(r"\$\{[^{}]*\}")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_PLAIN_WORDS = {  # libyaml's message → a message that a person can act on
    "mapping values are not allowed in this context": "a ':' is out of place; put the value in quotes, or check the indentation and the line above",
    "could not find expected ':'": "this line is not 'key: value'; is a ':' missing?",
    "did not find expected key": "the indentation does not fit the lines above",
    "did not find expected '-' indicator": "the indentation does not fit the list above",
    "did not find expected ',' or ']'": "a list in [ ] is not closed",
    "did not find expected ',' or '}'": "a block in { } is not closed",
    "found unexpected end of stream": "a quote is not closed",
    "found undefined alias": "this alias has no anchor before it",
    "found character that cannot start any token": "this character cannot start a value; put the value in quotes",
    "block sequence entries are not allowed in this context": "a list item is out of place; start it on its own line",
}
_NO_BREAK = "a no-break space (U+00A0, often copied from a web page) is in this line"
_NOT_CLOSED = ("a list in [ ]", "a block in { }", "a quote")


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """Line and column in the file; both count from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    mark: Mark
    value: Any
    size: int = 1


@dataclass(frozen=True, slots=True)
class Items:
    mark: Mark
    items: tuple["Node", ...]
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    mark: Mark  # the key's position
    node: "Node"


@dataclass(frozen=True, slots=True)
class Fields:
    mark: Mark
    entries: dict[str, Entry]
    size: int

    def without(self, *keys: str) -> "Fields":
        return Fields(self.mark, {key: e for key, e in self.entries.items() if key not in keys}, self.size)

    def replacing(self, key: str, node: "Node") -> "Fields":
        return Fields(self.mark, {**self.entries, key: Entry(self.entries[key].mark, node)}, self.size)


Node: TypeAlias = Scalar | Items | Fields


def located(file: str, mark: Mark | None, text: str) -> ConfigError:
    """Makes an error at its position. An agent that a program describes has no file and no position."""
    if not file:
        return ConfigError(text)
    return ConfigError(f"{file}:{mark.line}:{mark.column}: {text}" if mark else f"{file}: {text}")


def parse(data: bytes, file: str) -> Fields:
    """Parses the file's one block of keys. Raises a ConfigError with the position if it is not YAML."""
    text = _decode(data, file)
    try:
        root = _YamlReader(file, yaml.parse(text, Loader=_LOADER)).document()
    except yaml.MarkedYAMLError as error:
        raise _explained(error, text, file) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{file}:{line}: a control character is not allowed in YAML") from error
    if root is None:
        raise ConfigError(f"{file}: the file is empty; `holodeck init` writes one to start from")
    if not isinstance(root, Fields):
        raise located(file, root.mark, "an agent file is a block of 'key: value' lines, starting with name:")
    return root


def _decode(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: too long for an agent file (at most {MAX_BYTES // 1024} kB)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: the file is not UTF-8; save it as UTF-8") from error


def _explained(error: yaml.MarkedYAMLError, text: str, file: str) -> ConfigError:
    where = error.problem_mark or error.context_mark
    mark = Mark(where.line + 1, where.column + 1) if where else None
    lines = text.splitlines()
    line = lines[where.line] if where and where.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or (where and line[where.column : where.column + 1] == "\t"):
        return located(file, mark, "a tab indents this line; YAML wants spaces")
    if where and (variable := _VARIABLE.match(line, max(where.column - 1, 0))):
        return located(file, mark, f'write "{variable[0]}" in quotes: inside {{ }} and [ ], a brace starts a block')
    problem = error.problem or "this is not YAML"
    text = _PLAIN_WORDS.get(problem, problem)
    if text.startswith(_NOT_CLOSED) and (opened := error.context_mark) and where and opened.line < where.line:
        text += f"; it opens in line {opened.line + 1}"
    return located(file, mark, text)


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


@dataclass
class _YamlReader:
    """Recursive descent over events. An anchor exists only when its node is complete, so there are no cycles."""

    file: str
    stream: Iterator[Any]
    anchors: dict[str, Node] = field(default_factory=dict)

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self.stream:
            if isinstance(event, events.DocumentStartEvent):
                if root is not None:
                    raise located(self.file, _mark(event), "a second document starts here; a file describes one agent")
                root = self.node(next(self.stream), 0)
        return None if isinstance(root, Scalar) and root.value is None else root

    def node(self, event: Any, depth: int) -> Node:
        mark = _mark(event)
        if depth > MAX_DEPTH:
            raise located(self.file, mark, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, events.AliasEvent):
            return self.alias(event, mark)
        node = self.fresh(event, mark, depth)
        if node.size > MAX_NODES:
            raise located(self.file, mark, f"aliases make this larger than {MAX_NODES} values; write it out shorter")
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: events.AliasEvent, mark: Mark) -> Node:
        if event.anchor not in self.anchors:
            raise located(self.file, mark, f"*{event.anchor} has no anchor &{event.anchor} that ends before it")
        return self.anchors[event.anchor]

    def fresh(self, event: Any, mark: Mark, depth: int) -> Node:
        if event.tag and event.tag not in _CORE_TAGS:
            raise located(self.file, mark, f"the tag {event.tag} is not allowed; an agent file holds plain values")
        if isinstance(event, events.ScalarEvent):
            return Scalar(mark, self.resolved(event))
        if isinstance(event, events.SequenceStartEvent):
            return self.items(mark, depth)
        return self.fields(mark, depth)

    def resolved(self, event: events.ScalarEvent) -> Any:
        text = event.value
        if event.style or event.tag:  # quoted, a block of text, or tagged: pydantic reads numbers from text anyway
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def items(self, mark: Mark, depth: int) -> Items:
        items = []
        while not isinstance(event := next(self.stream), events.SequenceEndEvent):
            items.append(self.node(event, depth + 1))
        return Items(mark, tuple(items), 1 + sum(item.size for item in items))

    def fields(self, mark: Mark, depth: int) -> Fields:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        while not isinstance(event := next(self.stream), events.MappingEndEvent):
            key, key_mark = self.key(event), _mark(event)
            node = self.node(next(self.stream), depth + 1)
            if key == "<<" and not event.style:
                merged |= self.merged(node)
            elif key in entries:
                raise located(self.file, key_mark, f"{key}: given twice; the first is in line {entries[key].mark.line}")
            else:
                entries[key] = Entry(key_mark, node)
        entries = merged | entries
        return Fields(mark, entries, 1 + sum(entry.node.size for entry in entries.values()))

    def key(self, event: Any) -> str:
        if isinstance(event, events.ScalarEvent):
            value = self.resolved(event)
            if isinstance(value, str):
                if "\u00a0" in value:
                    raise located(self.file, _mark(event), f"{_NO_BREAK}; replace it by a plain one")
                return value
            raise located(self.file, _mark(event), f"the key {event.value or 'null'} is not text; put it in quotes")
        raise located(self.file, _mark(event), "a key must be text; was a list or block meant to be quoted?")

    def merged(self, node: Node) -> dict[str, Entry]:
        """Merges `<<: *defaults`, or a list of them; the first wins."""
        sources = node.items if isinstance(node, Items) else (node,)
        result: dict[str, Entry] = {}
        for source in sources:
            if not isinstance(source, Fields):
                raise located(self.file, source.mark, "<<: takes an alias of a block")
            result = source.entries | result
        return result
