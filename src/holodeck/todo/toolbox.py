"""Both sets of tools over one store, as a table, and the toolbox that calls a tool by its name.

It knows nothing of MCP: a call is a name and a JSON object, the answer is a JSON object or a `TodoError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from holodeck.todo.due_dates import read_due_date, read_period, read_zone, write_instant
from holodeck.todo.todo_values import TodoAttributes, TodoError, TodoFilter, owner_name
from holodeck.todo.tool_arguments import (
    USER_ID,
    AddTask,
    Arguments,
    CompleteTask,
    CreateTodo,
    DeleteTask,
    DeleteTodo,
    ListTasks,
    ListTodos,
    UpdateTask,
    UpdateTodo,
    read_arguments,
    schema_of,
)

if TYPE_CHECKING:  # the store brings the database toolkit with it, which is loaded at the first call
    from holodeck.todo.store import TodoRow, TodoStore

LIST_LIMIT = 200

A = TypeVar("A", bound=Arguments)
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """The context of a tool call: the rows, the user's zone and the current time."""

    store: TodoStore
    zone: tzinfo
    now: datetime

    def show(self, todo: TodoRow) -> Answer:
        return {
            "id": todo.id,
            "title": todo.title,
            "description": todo.description or None,
            "due_date": write_instant(todo.due_date, self.zone),
            "priority": todo.priority,
            "status": todo.status,
            "tags": todo.tags,
            "created_at": write_instant(todo.created_at, self.zone),
            "updated_at": write_instant(todo.updated_at, self.zone),
        }


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    name: str
    description: str
    arguments: type[A]
    function: Callable[[A, Desk], Answer]
    reads: bool = False
    destroys: bool = False
    idempotent: bool = False


def create(given: AddTask, desk: Desk) -> Answer:
    return desk.show(desk.store.add(given.user_id, _attributes(given, desk), desk.now))


def list_todos(given: ListTodos, desk: Desk) -> Answer:
    status = None if given.status == "all" else given.status
    due_from = due_before = None
    if given.due_date_filter == "overdue":
        if status == "completed":
            raise TodoError("A completed todo is never overdue; leave out status or due_date_filter.")
        status, due_before = "pending", desk.now
    elif given.due_date_filter:
        due_from, due_before = read_period(given.due_date_filter, desk.zone, desk.now)
    wanted = TodoFilter(
        status=status,
        priority=given.priority,
        due_from=due_from,
        due_before=due_before,
        tags=tuple(given.tags),
        search=given.search,
    )
    return _list(given.user_id, wanted, desk)


def list_tasks(given: ListTasks, desk: Desk) -> Answer:
    return _list(given.user_id, TodoFilter(status=None if given.status == "all" else given.status), desk)


def _list(user_id: str, wanted: TodoFilter, desk: Desk) -> Answer:
    count, todos = desk.store.find(user_id, wanted, LIST_LIMIT)
    answer: Answer = {"count": count, "todos": [desk.show(todo) for todo in todos]}
    if count > len(todos):
        answer["note"] = f"Only the first {len(todos)} are shown; narrow the question to see the others."
    return answer


def update_todo(given: UpdateTodo, desk: Desk) -> Answer:
    return _update(given.user_id, given.todo_id, _attributes(given, desk), desk)


def update_task(given: UpdateTask, desk: Desk) -> Answer:
    return _update(given.user_id, given.task_id, _attributes(given, desk), desk)


def _attributes(given: Arguments, desk: Desk) -> TodoAttributes:
    """The attributes that a caller has given. An empty due date means none."""
    attributes = given.model_dump(include=set(TodoAttributes.__annotations__), exclude_unset=True)
    if "due_date" in attributes:
        text = attributes["due_date"]
        attributes["due_date"] = read_due_date(text, desk.zone) if text else None
    return cast("TodoAttributes", attributes)


def complete_task(given: CompleteTask, desk: Desk) -> Answer:
    return _update(given.user_id, given.task_id, TodoAttributes(status="completed"), desk)


def _update(user_id: str, todo_id: str, attributes: TodoAttributes, desk: Desk) -> Answer:
    if not attributes:
        raise TodoError("Nothing to change: give at least one attribute with its new value.")
    return desk.show(desk.store.update(user_id, todo_id, attributes, desk.now))


def delete_todo(given: DeleteTodo, desk: Desk) -> Answer:
    if not given.confirmation:
        raise TodoError("Nothing was deleted: ask the user, and call delete_todo with confirmation true if they agree.")
    return _delete(given.user_id, given.todo_id, desk)


def delete_task(given: DeleteTask, desk: Desk) -> Answer:
    return _delete(given.user_id, given.task_id, desk)


def _delete(user_id: str, todo_id: str, desk: Desk) -> Answer:
    return {"deleted": desk.show(desk.store.delete(user_id, todo_id))}


TOOLS: tuple[Tool[Any], ...] = (
    Tool("create_todo", "Put a new todo on the user's list.", CreateTodo, create),
    Tool("list_todos", "List the user's todos, the earliest due date first.", ListTodos, list_todos, reads=True),
    Tool(
        "update_todo",
        "Change a todo; what is not given stays as it is. Set status to completed when it is done.",
        UpdateTodo,
        update_todo,
        destroys=True,
        idempotent=True,
    ),
    Tool("delete_todo", "Delete a todo for good. Ask the user first.", DeleteTodo, delete_todo, destroys=True),
    Tool("add_task", "Add a new task to the user's list.", AddTask, create),
    Tool("list_tasks", "List the user's tasks.", ListTasks, list_tasks, reads=True),
    Tool("complete_task", "Mark a task as completed.", CompleteTask, complete_task, idempotent=True),
    Tool(
        "update_task",
        "Change the title or the description of a task.",
        UpdateTask,
        update_task,
        destroys=True,
        idempotent=True,
    ),
    Tool("delete_task", "Delete a task for good.", DeleteTask, delete_task, destroys=True),
)
_BY_NAME = {tool.name: tool for tool in TOOLS}


class UnknownToolError(Exception):
    """No tool has this name."""


@dataclass(frozen=True)
class Toolbox:
    """The tools of one server: its store, its default zone, and perhaps its only user."""

    open_store: Callable[[], TodoStore]
    user: str | None = None
    tenants: bool = False
    zone: tzinfo = UTC
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def schema_of(self, tool: Tool[Any]) -> dict[str, Any]:
        return schema_of(tool.arguments, fixed_user=self.user is not None, tenants=self.tenants)

    def call(self, name: str, values: Mapping[str, Any]) -> Answer:
        tool = _BY_NAME.get(name)
        if tool is None:
            raise UnknownToolError(name)
        # A fixed user overrides what the model sends, as a bound one does.
        owner = {} if self.user is None else {USER_ID: self.user}
        given = read_arguments(tool.arguments, {**values, **owner})
        if self.tenants is not (given.tenant is not None):
            raise TodoError("tenant is required" if self.tenants else "tenant is not an argument of this tool")
        if given.tenant is not None:
            given = given.model_copy(update={USER_ID: owner_name(given.tenant, given.user_id)})
        zone = read_zone(given.timezone) if given.timezone else self.zone
        return tool.function(given, Desk(self.open_store(), zone, self.now()))
