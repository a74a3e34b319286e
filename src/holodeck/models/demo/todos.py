"""Carries out what a sentence asks for with the todo tools: which calls to make, and how to report their results.

A script is a generator. It yields the calls that it needs, is sent the texts of the results, and returns the text of the
reply. `conversation.py` starts it anew for every reply and feeds it the results that the history already holds, so a
script depends on nothing but its arguments. `user_id` is never among the arguments of a call: the runtime binds it.
"""

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

import msgspec

from holodeck.core.tools import Approval, ToolSchema
from holodeck.models.demo import wording
from holodeck.models.demo.dates import at, is_over
from holodeck.models.demo.intents import (
    Create,
    Delete,
    Everything,
    It,
    ListedTodo,
    Numbers,
    Show,
    Target,
    Titled,
    TodoChange,
)
from holodeck.models.demo.tools_by_name import Call, UseTool

_FILLERS = re.compile(r"the|an?|my|this|that|to|of|for|with|and|in|on|at|it|one|about|task|todo|item|reminder|called")
ALIKE = 0.8  # similarity of two words that are the same but for a typing mistake


class Unreadable(Exception):
    """A tool's result is not the JSON of a todo server; its text may still be useful to a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """What the reply asks: a choice becomes the target of `then`, a yes lets `then` go ahead."""

    line: str
    then: Create | TodoChange | Delete | UseTool
    choices: tuple[ListedTodo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    text: str
    shown: tuple[ListedTodo, ...] | None = None
    focus: ListedTodo | None = None
    forgets: bool = False  # the todo in focus is deleted
    question: OpenQuestion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the conversation established: the todo that is "it", the list that was numbered, the open question."""

    focus: ListedTodo | None = None
    shown: tuple[ListedTodo, ...] = ()
    question: OpenQuestion | None = None
    chosen: tuple[ListedTodo, ...] = ()  # the answer to a question, for this turn only

    def after(self, said: Say) -> "Memory":
        focus = None if said.forgets else self.focus
        shown = self.shown if said.shown is None else said.shown
        return Memory(focus=said.focus or focus, shown=shown, question=said.question)


Script: TypeAlias = Generator[tuple[Call, ...], list[str], Say]


class TodoTools:
    """The calls of the todo server's `create_todo`, `list_todos`, `update_todo` and `delete_todo`."""

    names: tuple[str, ...] = ("create_todo", "list_todos", "update_todo", "delete_todo")

    def __init__(self, offered: dict[str, ToolSchema], timezone: str | None) -> None:
        self._offered = offered
        self._timezone = timezone

    def create(self, wanted: Create) -> Call:
        due = wanted.due and wanted.due.iso
        return _call("create_todo", title=wanted.title, due_date=due, priority=wanted.priority, tags=list(wanted.tags))

    def show(self, wanted: Show) -> Call:
        tool = self._offered.get("list_todos")
        takes_timezone = wanted.due_filter and tool and "timezone" in tool.parameters.get("properties", {})
        return _call(
            "list_todos",
            status=wanted.status,
            priority=wanted.priority,
            due_date_filter=wanted.due_filter,
            tags=list(wanted.tags),
            search=wanted.search,
            timezone=self._timezone if takes_timezone else None,
        )

    def change(self, todo: ListedTodo, change: TodoChange, now: datetime) -> Call | None:
        call = _call("update_todo", todo_id=todo.id, title=change.title, priority=change.priority, status=change.status)
        if change.due or change.undated:
            call.arguments["due_date"] = "" if change.undated else _moved(todo, change, now)
        if change.add_tags or change.remove_tags:
            tags = dict.fromkeys([*todo.tags, *change.add_tags])
            call.arguments["tags"] = [tag for tag in tags if tag not in change.remove_tags]
        return call

    def delete(self, todo: ListedTodo) -> Call:
        return _call("delete_todo", todo_id=todo.id, confirmation=True)

    @property
    def asks_before_deleting(self) -> bool:
        """Whether the runtime asks a person before it deletes; then the model need not ask too."""
        tool = self._offered.get(self.names[-1])
        return tool is not None and tool.approval is Approval.ALWAYS


class TaskTools(TodoTools):
    """The same for `add_task` …, which know titles and descriptions only: the description holds the rest."""

    names = ("add_task", "list_tasks", "complete_task", "update_task", "delete_task")

    def create(self, wanted: Create) -> Call:
        described = wording.attributes(wanted)
        return _call("add_task", title=wanted.title, description=described[:1].upper() + described[1:])

    def show(self, wanted: Show) -> Call:
        return _call("list_tasks", status=wanted.status)

    def change(self, todo: ListedTodo, change: TodoChange, now: datetime) -> Call | None:  # noqa: ARG002, tasks have no dates
        if change.status == "completed":
            return _call("complete_task", task_id=todo.id)
        return _call("update_task", task_id=todo.id, title=change.title) if change.title else None

    def delete(self, todo: ListedTodo) -> Call:
        return _call("delete_task", task_id=todo.id)


def todo_tools(tools: Sequence[ToolSchema], timezone: str | None) -> TodoTools | None:
    offered = {tool.name: tool for tool in tools}
    families = (family for family in (TodoTools, TaskTools) if offered.keys() & set(family.names))
    return next((family(offered, timezone) for family in families), None)


def _call(name: str, **arguments: Any) -> Call:
    return Call(name, {key: value for key, value in arguments.items() if value})


def _moved(todo: ListedTodo, change: TodoChange, now: datetime) -> str | None:
    """The new due date. It keeps the hour when only a day is given, and the day when only an hour is."""
    due, old = change.due, todo.due and todo.due.astimezone(now.tzinfo)
    if due is None:
        return None
    if old is None:
        return due.iso
    when = due.when
    if not due.timed:
        when = at(when.date(), old.time(), now)
    elif not due.dated and not is_over(same_day := at(old.date(), when.time(), now), now):
        when = same_day
    return when.isoformat(timespec="seconds")


class TodoDesk(NamedTuple):
    """What a script works with."""

    tools: TodoTools
    now: datetime
    memory: Memory


def script(intent: Create | Show | TodoChange, desk: TodoDesk) -> Script:
    if isinstance(intent, Create):
        return _create(intent, desk)
    return _show(intent, desk) if isinstance(intent, Show) else _change(intent, desk)


def _create(intent: Create, desk: TodoDesk) -> Script:
    if not intent.title:
        return Say(text=wording.WHAT_TO_ADD, question=OpenQuestion(line=wording.WHAT_TO_ADD, then=intent))
    (answer,) = yield (desk.tools.create(intent),)
    todo = read_todo(answer)
    return Say(text=wording.created(todo, intent, desk.now), focus=todo)


def _show(intent: Show, desk: TodoDesk) -> Script:
    (answer,) = yield (desk.tools.show(intent),)
    todos = tuple(todo for todo in read_todos(answer) if _is_wanted(todo, intent, desk.now))
    return Say(text=wording.listed(todos, intent, desk.now), shown=todos, focus=todos[0] if len(todos) == 1 else None)


def _is_wanted(todo: ListedTodo, wanted: Show, now: datetime) -> bool:
    """Applies the filters once more, for tools that do not have them all."""
    due = todo.due and todo.due.astimezone(UTC)
    return (
        wanted.status in {"all", todo.status}
        and wanted.priority in {None, todo.priority}
        and set(wanted.tags) <= set(todo.tags)
        and (wanted.due_filter != "overdue" or (due is not None and is_over(due, now)))
        and (wanted.period is None or (due is not None and wanted.period[0] <= due < wanted.period[1]))
        and wanted.search.casefold() in f"{todo.title} {todo.description} {' '.join(todo.tags)}".casefold()
    )


def _change(intent: TodoChange, desk: TodoDesk) -> Script:
    found = yield from _find(intent, desk)
    if isinstance(found, Say):
        return found
    if isinstance(intent.target, Titled) and all(todo.status == intent.status for todo in found):
        return Say(text=wording.already(found[0]), focus=found[-1])
    calls = tuple(call for todo in found if (call := desk.tools.change(todo, intent, desk.now)) is not None)
    if not calls:
        return Say(text=wording.cannot(intent))
    answers = yield calls
    todos = [read_todo(answer) for answer in answers]
    return Say(text=wording.changed(todos, intent, desk.now), focus=todos[-1])


def delete(intent: Delete, desk: TodoDesk, *, confirmed: bool) -> Script:
    found = yield from _find(intent, desk)
    if isinstance(found, Say):
        return found
    if not confirmed and not desk.tools.asks_before_deleting:
        line = wording.confirm_deletion(found)
        return Say(text=line, focus=found[-1], question=OpenQuestion(line=line, then=intent, choices=found))
    yield tuple(desk.tools.delete(todo) for todo in found)
    return Say(text=wording.deleted(found), forgets=True)


def _find(
    intent: TodoChange | Delete, desk: TodoDesk
) -> Generator[tuple[Call, ...], list[str], Say | tuple[ListedTodo, ...]]:
    """The todos that are meant, or the reply instead. Lists them only when the conversation does not name them."""
    target = intent.target
    if known := _known(target, desk.memory):
        return known
    (answer,) = yield (desk.tools.show(Show(status="all")),)
    every = read_todos(answer)
    reopens = isinstance(intent, TodoChange) and intent.status == "pending"
    likely = tuple(todo for todo in every if (todo.status == "completed") == reopens)
    if isinstance(target, Titled):
        likely = matching(target.words, likely) or matching(target.words, every)
    if not likely:
        return Say(text=wording.not_found(target.words) if isinstance(target, Titled) else wording.EMPTY)
    if isinstance(target, Everything) or (len(likely) == 1 and not isinstance(target, Numbers)):
        return likely
    question = OpenQuestion(line=wording.WHICH, then=intent, choices=likely)
    return Say(text=wording.which(likely, desk.now), shown=likely, question=question)


def _known(target: Target, memory: Memory) -> Say | tuple[ListedTodo, ...]:
    """What the conversation alone says about the target; nothing if the list has to be looked up."""
    if memory.chosen:
        return memory.chosen
    if isinstance(target, It) and memory.focus:
        return (memory.focus,)
    if isinstance(target, Numbers) and memory.shown:
        return at_positions(target, memory.shown) or Say(text=wording.out_of_range(target.positions, memory.shown))
    return memory.shown if isinstance(target, Everything) else ()


def at_positions(target: Numbers, shown: Sequence[ListedTodo]) -> tuple[ListedTodo, ...]:
    """The todos at these positions of a list; none if one of them is out of range."""
    if any(number > len(shown) or number == 0 for number in target.positions):
        return ()
    return tuple(shown[number - 1 if number > 0 else -1] for number in target.positions)


def matching(words: str, todos: Sequence[ListedTodo]) -> tuple[ListedTodo, ...]:
    """The todos that a phrase may mean: those with the same title, else those that have most of its words."""
    wanted = _words(words)
    same = tuple(todo for todo in todos if _words(todo.title) == wanted)
    scores = [sum(bool(get_close_matches(word, _words(todo.title), 1, ALIKE)) for word in wanted) for todo in todos]
    best = max(scores, default=0)
    if same or not wanted or best < len(wanted) / 2:
        return same
    return tuple(todo for todo, score in zip(todos, scores, strict=True) if score == best)


def _words(text: str) -> list[str]:
    words = re.findall(r"\w+", text.casefold().replace("'", ""))
    return [word for word in words if not _FILLERS.fullmatch(word)] or words


def read_todo(text: str) -> ListedTodo:
    data = _json(text)
    nested = next((data[key] for key in ("todo", "task") if key in data), data) if isinstance(data, dict) else data
    return _todo(nested)


def read_todos(text: str) -> tuple[ListedTodo, ...]:
    data = _json(text)
    if isinstance(data, dict):
        data = next((data[key] for key in ("todos", "tasks", "items") if key in data), None)
    if not isinstance(data, list):
        raise Unreadable(text)
    return tuple(_todo(entry) for entry in data)


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        raise Unreadable(text) from None


def _todo(data: Any) -> ListedTodo:
    if not isinstance(data, dict) or "title" not in data or "id" not in data:
        raise Unreadable(str(data))
    return ListedTodo(
        id=str(data["id"]),
        title=str(data["title"]),
        description=str(data.get("description") or ""),
        due=_instant(data.get("due_date")),
        priority=data.get("priority"),
        status="completed" if data.get("status") == "completed" or data.get("completed") is True else "pending",
        tags=tuple(str(tag) for tag in data.get("tags") or ()),
    )


def _instant(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None
