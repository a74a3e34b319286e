"""An in-memory double of the todo server's four tools: same arguments, same JSON, ids t1, t2, … by order of creation.

`test_demo_real_todos.py` runs the same model against the real tools.
"""

import json
from datetime import datetime
from itertools import count
from typing import Any

from holodeck.core.messages import ToolCall, ToolMessage
from holodeck.core.tools import ToolSchema

_ARGUMENTS = {
    "create_todo": ("title", "due_date", "priority", "tags"),
    "list_todos": ("status", "priority", "due_date_filter", "tags", "search", "timezone"),
    "update_todo": ("todo_id", "title", "due_date", "priority", "status", "tags"),
    "delete_todo": ("todo_id", "confirmation"),
}
TODO_TOOLS = tuple(
    ToolSchema(name=name, parameters={"type": "object", "properties": {argument: {} for argument in arguments}})
    for name, arguments in _ARGUMENTS.items()
)


class RefusedError(Exception):
    """A tool error as the server words it."""


class TodoDouble:
    def __init__(self, now: datetime) -> None:
        self.now = now
        self.rows: dict[str, dict[str, Any]] = {}
        self._ids = (f"t{number}" for number in count(1))

    def answer(self, call: ToolCall) -> ToolMessage:
        try:
            result = getattr(self, call.name)(**json.loads(call.arguments))
        except RefusedError as refusal:
            return ToolMessage(call_id=call.id, name=call.name, content=str(refusal), failed=True)
        return ToolMessage(call_id=call.id, name=call.name, content=json.dumps(result))

    def create_todo(
        self, *, title: str, due_date: str | None = None, priority: str = "medium", tags: list[str] | None = None
    ) -> dict[str, Any]:
        todo_id = next(self._ids)
        given = {"title": title, "description": None, "due_date": due_date, "priority": priority, "tags": tags or []}
        stamps = {"created_at": self.now.isoformat(), "updated_at": self.now.isoformat()}
        self.rows[todo_id] = {"id": todo_id, "status": "pending", **given, **stamps}
        return self.rows[todo_id]

    def list_todos(self, *, status: str = "pending", search: str = "", **filters: Any) -> dict[str, Any]:
        """Filters as the server does, but for `timezone`: the days are those of `now`."""
        rows = [row for row in self.rows.values() if status in {"all", row["status"]}]
        rows = [row for row in rows if search.lower() in row["title"].lower()]
        rows = [row for row in rows if filters.get("priority") in {None, row["priority"]}]
        rows = [row for row in rows if set(filters.get("tags", ())) <= set(row["tags"])]
        if due := filters.get("due_date_filter"):
            rows = [row for row in rows if row["due_date"] and self._is_due(due, row["due_date"])]
        return {"count": len(rows), "todos": rows}

    def _is_due(self, wanted: str, due_date: str) -> bool:
        due, today = datetime.fromisoformat(due_date), self.now.date()
        if wanted == "overdue":
            return due < self.now
        if wanted == "this_week":
            return due.isocalendar()[:2] == today.isocalendar()[:2]
        return due.date().isoformat() == (today.isoformat() if wanted == "today" else wanted)

    def update_todo(self, *, todo_id: str, **changes: Any) -> dict[str, Any]:
        if changes.get("due_date") == "":
            changes["due_date"] = None
        self._row(todo_id).update(changes)
        return self._row(todo_id)

    def delete_todo(self, *, todo_id: str, confirmation: bool) -> dict[str, Any]:
        if not confirmation:
            raise RefusedError("Nothing was deleted: ask the user.")
        return {"deleted": self.rows.pop(self._row(todo_id)["id"])}

    def _row(self, todo_id: str) -> dict[str, Any]:
        if todo_id not in self.rows:
            raise RefusedError(f"There is no todo {todo_id!r}.")
        return self.rows[todo_id]
