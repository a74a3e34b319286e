"""The todo tools: which call a request needs, how a result is read, and which todos a phrase means.

`user_id` is never among the arguments of a call: the runtime binds it.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from holodeck.models.demo.tools_by_name import Call

TODO_TOOLS = ("create_todo", "list_todos", "update_todo", "delete_todo")
ALIKE = 0.8  # similarity of two words that are the same but for a typing mistake
_FILLERS = re.compile(r"the|an?|my|this|that|to|of|for|with|and|in|on|at|it|one|about|task|todo|item|reminder|called")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ONE = rf"(?:(?:number |task |todo |#)?\d{{1,3}}|{'|'.join(_ORDINALS)}|last)"
_POSITIONS = re.compile(rf"(?:the )?{_ONE}(?:(?:, ?|,? and )(?:the )?{_ONE})*(?: (?:ones?|tasks?|todos?|items?))?")
_IT = re.compile(r"|it|that|this|them|(?:that|this|the) (?:one|task|todo|item|reminder)")
_ALL = re.compile(r"(?:all|everything|both)(?: (?:of )?(?:them|my|the))?(?: (?:to-?dos|tasks|items))?|(?:my|the) list")


class Todo(msgspec.Struct, frozen=True):
    """A todo as the tools return it."""

    id: str | int
    title: str
    description: str | None = None
    due_date: datetime | None = None
    priority: str | None = None
    status: str = "pending"
    tags: tuple[str, ...] = ()

    def due(self, now: datetime) -> datetime | None:
        """The due date in the zone of `now`."""
        return self.due_date and self.due_date.astimezone(now.tzinfo)


def create_call(fields: dict[str, Any], now: datetime) -> Call:
    dated = {"due_date" if name == "due" else name: value for name, value in fields.items()}
    if "due" in fields:
        dated["due_date"] = _iso(fields["due"].moment(now))
    return Call("create_todo", dated)


def update_call(todo: Todo, fields: dict[str, Any], now: datetime) -> Call:
    """The call that changes a todo: it keeps the hour when only a day is given, and adds to the tags."""
    changes = dict(fields)
    if "due" in changes:
        due = changes.pop("due")
        changes["due_date"] = _iso(due.moment(now, todo.due(now))) if due else ""  # empty: no due date any more
    if "tags" in changes:
        changes["tags"] = list(dict.fromkeys([*todo.tags, *changes["tags"]]))
    return Call("update_todo", {"todo_id": todo.id, **changes})


def delete_call(todo: Todo) -> Call:
    return Call("delete_todo", {"todo_id": todo.id, "confirmation": True})


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def read_result(text: str) -> tuple[tuple[Todo, ...], bool]:
    """The todos in a tool's result, and whether it is a list of them. Raises DecodeError if it is something else."""
    data = msgspec.json.decode(text)
    if isinstance(data, dict):
        data = data.get("todos", data)
    many = isinstance(data, list)
    return msgspec.convert(data if many else [data], tuple[Todo, ...]), many


def is_it(words: str) -> bool:
    return _IT.fullmatch(words.lower()) is not None


def is_all(words: str) -> bool:
    return _ALL.fullmatch(words.lower()) is not None


def positions(words: str) -> list[int]:
    """The positions in a list that "the first one" or "1 and 3" names, from 0; -1 is the last. Empty for a title."""
    if not _POSITIONS.fullmatch(words.lower()):
        return []
    found = re.findall(rf"\d+|{'|'.join(_ORDINALS)}|last", words.lower())
    return [_ORDINALS.index(word) if word in _ORDINALS else -1 if word == "last" else int(word) - 1 for word in found]


def at_positions(numbers: Sequence[int], todos: Sequence[Todo]) -> tuple[Todo, ...]:
    """The todos at these positions; none if one is out of range."""
    return tuple(todos[number] for number in numbers) if todos and max(numbers, default=0) < len(todos) else ()


def matching(words: str, todos: Sequence[Todo]) -> tuple[Todo, ...]:
    """The todos that a phrase may mean: those with the same title, else those that have most of its words."""
    wanted = _words(words)
    same = tuple(todo for todo in todos if _words(todo.title) == wanted)
    scores = [sum(bool(get_close_matches(word, _words(todo.title), 1, ALIKE)) for word in wanted) for todo in todos]
    best = max(scores, default=0)
    if same or best < max(len(wanted), 1) / 2:
        return same
    return tuple(todo for todo, score in zip(todos, scores, strict=True) if score == best)


def _words(text: str) -> list[str]:
    words = re.findall(r"\w+", text.casefold().replace("'", ""))
    return [word for word in words if not _FILLERS.fullmatch(word)] or words
