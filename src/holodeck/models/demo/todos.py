"""The todos of the todo tools: how calls and results name them, which of them a phrase means, and how replies show them.

`user_id` is never among the arguments of a call: the runtime binds it.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from holodeck.models.demo.dates import DAY, END_OF_DAY, MONTHS, WEEKDAYS, is_over

TODO_TOOLS = ("create_todo", "list_todos", "update_todo", "delete_todo")
EMPTY = "Your list is empty. Ask me to remind you of something."

# Arguments and results


class Todo(msgspec.Struct, frozen=True):
    """A todo as the tools return it."""

    id: str | int
    title: str
    due_date: datetime | None = None
    priority: str | None = None
    status: str = "pending"
    tags: tuple[str, ...] = ()

    def due(self, now: datetime) -> datetime | None:
        return self.due_date and self.due_date.astimezone(now.tzinfo)


def arguments(fields: dict[str, Any], now: datetime, todo: Todo | None = None) -> dict[str, Any]:
    """A new todo, or the changes of one: it keeps its hour when only a day is given, and its tags."""
    given = {"due_date" if name == "due" else name: value for name, value in fields.items()}
    if "due" in fields:
        due = fields["due"]  # empty: no due date any more
        given["due_date"] = due and due.moment(now, todo.due(now) if todo else None).isoformat(timespec="seconds")
    if todo and "tags" in given:
        given["tags"] = list(dict.fromkeys([*todo.tags, *given["tags"]]))
    return given


def read_result(text: str) -> tuple[tuple[Todo, ...], bool]:
    """The todos in a tool's result, and whether it is a list of them. Raises DecodeError if it is something else."""
    data = msgspec.json.decode(text)
    if isinstance(data, dict):
        data = data.get("todos", data)
    many = isinstance(data, list)
    return msgspec.convert(data if many else [data], tuple[Todo, ...]), many


# The todos that a phrase means

ALIKE = 0.8  # similarity of two words that are the same but for a typing mistake
_FILLERS = re.compile(r"the|an?|my|this|that|to|of|for|with|and|in|on|at|it|one|about|task|todo|item|reminder|called")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ONE = rf"(?:(?:number |task |todo |#)?\d{{1,3}}|{'|'.join(_ORDINALS)}|last)"
_POSITIONS = re.compile(rf"(?:the )?{_ONE}(?:(?:, ?|,? and )(?:the )?{_ONE})*(?: (?:ones?|tasks?|todos?|items?))?")
_IT = re.compile(r"|it|that|this|them|(?:that|this|the) (?:one|task|todo|item|reminder)")
_ALL = re.compile(r"(?:all|everything|both)(?: (?:of )?(?:them|my|the))?(?: (?:to-?dos|tasks|items))?|(?:my|the) list")


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


# Replies


def describe(todo: Todo, now: datetime) -> str:
    due, is_done = todo.due(now), todo.status == "completed"
    verb = "was due" if due and not is_done and is_over(due, now) else "due"
    facts = (
        f"{verb} {_date(due, now)}" if due else "",
        f"{todo.priority} priority" if todo.priority in {"high", "low"} else "",
        _hashed(todo.tags),
        "done" if is_done else "",
    )
    return " — ".join(part for part in (f"**{todo.title}**", " · ".join(fact for fact in facts if fact)) if part)


def _date(when: datetime, now: datetime) -> str:
    """Mon 16 Nov, 15:00. Not by strftime, which takes the names from the machine's locale."""
    text = f"{WEEKDAYS[when.weekday()].title()} {when.day} {MONTHS[when.month - 1].title()}"
    year = f" {when.year}" if when.year != now.year else ""
    return f"{text}{year}" if when.time() == END_OF_DAY else f"{text}{year}, {when:%H:%M}"


def _hashed(tags: Sequence[str]) -> str:
    return " ".join(f"#{tag}" for tag in tags)


def numbered(todos: Sequence[Todo], now: datetime) -> str:
    return "\n".join(f"{number}. {describe(todo, now)}" for number, todo in enumerate(todos, 1))


def created(todo: Todo, now: datetime) -> str:
    due = todo.due(now)
    return f"Added {describe(todo, now)}.{' Note that this is already over.' if due and is_over(due, now) else ''}"


def listed(todos: Sequence[Todo], filters: dict[str, Any], now: datetime) -> str:
    status, due = filters["status"], filters.get("due_date_filter")
    priority, tags, search = (filters.get(name) for name in ("priority", "tags", "search"))
    if not todos and due == "overdue":
        return "Nothing is overdue. Well done!"
    if not todos and status != "completed" and not (due or priority or tags or search):
        return EMPTY
    tomorrow = (now.date() + DAY).isoformat()
    days = {None: "", "overdue": "", "today": "due today", "this_week": "due this week", tomorrow: "due tomorrow"}
    heading = (
        f"You have {len(todos) or 'no'}",
        "overdue" if due == "overdue" else {"pending": "open", "completed": "completed"}.get(status, ""),
        f"{priority}-priority" if priority else "",
        "todo" if len(todos) == 1 else "todos",
        days.get(due, f"due on {due}"),
        f"tagged {_hashed(tags)}" if tags else "",
        f"about “{search}”" if search else "",
    )
    text = " ".join(words for words in heading if words)
    return f"{text}:\n\n{numbered(todos, now)}" if todos else f"{text}."


def changed(todos: Sequence[Todo], fields: dict[str, Any], now: datetime) -> str:
    verb = {"completed": "Done! I ticked off", "pending": "Reopened"}.get(fields.get("status", ""))
    verb = verb or ("Renamed it to" if "title" in fields else "Moved" if fields.get("due") else "Updated")
    if len(todos) == 1:
        return f"{verb} {describe(todos[0], now)}."
    return f"{verb} {len(todos)} todos:\n\n{numbered(todos, now)}"


def confirm_deletion(todos: Sequence[Todo]) -> str:
    titles = ", ".join(f"“{todo.title}”" for todo in todos)
    return f"Delete {titles if len(todos) == 1 else f'{len(todos)} todos ({titles})'}? Say yes to confirm."
