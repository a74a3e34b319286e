"""Intents as tool calls, in whichever todo vocabulary is offered: `create_todo` … first, `add_task` … otherwise.

`user_id` is never among the arguments: the runtime binds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from holodeck.core.tools import Approval, ToolSchema
from holodeck.models.demo import wording, zones
from holodeck.models.demo.details import Details
from holodeck.models.demo.intents import Change, Show
from holodeck.models.demo.todos import Todo

HALF_DAY = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: dict[str, Any]


class Vocabulary(Protocol):
    """How one family of tools says what we want. `None` means that it has no word for it."""

    def create(self, details: Details) -> Call: ...

    def show(self, wanted: Show) -> Call: ...

    def change(self, todo: Todo, change: Change, now: datetime) -> Call | None: ...

    def delete(self, todo: Todo) -> Call: ...

    @property
    def deletion_is_approved(self) -> bool:
        """Whether the runtime asks a person before it deletes; then we need not ask too."""


def choose(tools: Sequence[ToolSchema], timezone: str | None) -> Vocabulary | None:
    offered = {tool.name: tool for tool in tools}
    if offered.keys() & {"create_todo", "list_todos", "update_todo", "delete_todo"}:
        return TodoVocabulary(offered, timezone)
    if offered.keys() & {"add_task", "list_tasks", "complete_task", "update_task", "delete_task"}:
        return TaskVocabulary(offered)
    return None


class TodoVocabulary:
    def __init__(self, offered: dict[str, ToolSchema], timezone: str | None) -> None:
        self._offered = offered
        self._timezone = timezone

    def create(self, details: Details) -> Call:
        given = {
            "title": details.title,
            "due_date": details.due and details.due.iso,
            "priority": details.priority,
            "tags": list(details.tags),
        }
        return Call("create_todo", {name: value for name, value in given.items() if value})

    def show(self, wanted: Show) -> Call:
        given = {
            "status": wanted.status,
            "priority": wanted.priority,
            "due_date_filter": "overdue" if wanted.overdue else wanted.period and wanted.period.word,
            "tags": list(wanted.tags),
            "search": wanted.search,
        }
        if given["due_date_filter"] and self._takes_timezone:
            given["timezone"] = self._timezone
        return Call("list_todos", {name: value for name, value in given.items() if value})

    @property
    def _takes_timezone(self) -> bool:
        tool = self._offered.get("list_todos")
        return tool is not None and "timezone" in tool.parameters.get("properties", {})

    def change(self, todo: Todo, change: Change, now: datetime) -> Call:
        given: dict[str, Any] = {"title": change.title, "priority": change.priority, "status": change.status}
        given = {name: value for name, value in given.items() if value}
        if change.due or change.shift:
            given["due_date"] = moved(todo, change, now).isoformat(timespec="seconds")
        elif change.undated:
            given["due_date"] = ""
        if change.add_tags or change.remove_tags:
            kept = [tag for tag in todo.tags if tag not in change.remove_tags]
            given["tags"] = list(dict.fromkeys([*kept, *change.add_tags]))
        return Call("update_todo", {"todo_id": todo.id, **given})

    def delete(self, todo: Todo) -> Call:
        return Call("delete_todo", {"todo_id": todo.id, "confirmation": True})

    @property
    def deletion_is_approved(self) -> bool:
        return _is_approved(self._offered.get("delete_todo"))


class TaskVocabulary:
    """Titles and descriptions only: what else was said about a new task goes into its description."""

    def __init__(self, offered: dict[str, ToolSchema]) -> None:
        self._offered = offered

    def create(self, details: Details) -> Call:
        described = wording.attributes(details.due, details.priority, details.tags)
        description = {"description": described[:1].upper() + described[1:]} if described else {}
        return Call("add_task", {"title": details.title, **description})

    def show(self, wanted: Show) -> Call:
        return Call("list_tasks", {"status": wanted.status})

    def change(self, todo: Todo, change: Change, now: datetime) -> Call | None:  # noqa: ARG002, tasks have no dates
        if change.status == "completed":
            return Call("complete_task", {"task_id": todo.id})
        return Call("update_task", {"task_id": todo.id, "title": change.title}) if change.title else None

    def delete(self, todo: Todo) -> Call:
        return Call("delete_task", {"task_id": todo.id})

    @property
    def deletion_is_approved(self) -> bool:
        return _is_approved(self._offered.get("delete_task"))


def _is_approved(tool: ToolSchema | None) -> bool:
    return tool is not None and tool.approval is Approval.ALWAYS


def moved(todo: Todo, change: Change, now: datetime) -> datetime:
    """The new due date. What was not said stays: the hour when only a day was given, the day when only an hour."""
    old = todo.due and todo.due.astimezone(now.tzinfo)
    if change.shift is not None:
        return _shifted(old, change.shift, now)
    if change.due is None:
        raise ValueError("nothing says when")
    when = change.due.when
    if old is None:
        return when
    if not change.due.timed:
        return zones.at(when.date(), old.time(), now)
    if not change.due.dated:
        same_day = zones.at(old.date(), when.time(), now)
        return same_day if same_day.astimezone(UTC) > now.astimezone(UTC) else when
    return when


def _shifted(old: datetime | None, shift: timedelta, now: datetime) -> datetime:
    if shift < HALF_DAY:
        return zones.after(old or now, shift)
    start = old or zones.at(now.date(), zones.END_OF_DAY, now)
    return zones.at(start.date() + shift, start.time(), now)
