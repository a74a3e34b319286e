"""The demo model with the real todo tools on a real SQLite file: the result shapes are the server's own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holodeck.core.messages import ToolCall, ToolMessage
from holodeck.core.tools import ToolSchema
from holodeck.todo.database import engine_url, file_url
from holodeck.todo.store import TodoStore
from holodeck.todo.todo_values import TodoError
from holodeck.todo.toolbox import TOOLS, Toolbox
from tests.models.demo.demo_chat import Conversation
from tests.models.demo.sentences import NOW


@pytest.fixture
def toolbox(tmp_path: Path) -> Iterator[Toolbox]:
    store = TodoStore(engine_url(file_url(tmp_path / "todo.sqlite3")))
    yield Toolbox(lambda: store, user="ann", now=lambda: NOW)  # its zone is UTC: the model has to send the user's
    store.close()


def talk_with(toolbox: Toolbox) -> Conversation:
    def answer(call: ToolCall) -> ToolMessage:
        try:
            content, failed = json.dumps(toolbox.call(call.name, json.loads(call.arguments))), False
        except TodoError as error:
            content, failed = str(error), True
        return ToolMessage(call_id=call.id, name=call.name, content=content, failed=failed)

    offered = [tool for tool in TOOLS if "todo" in tool.name]
    return Conversation(
        answer, [ToolSchema(name=tool.name, parameters=toolbox.schema_of(tool)) for tool in offered], NOW
    )


EXCHANGES = (
    (
        "Remind me to buy eggs tomorrow at 3pm, urgent #home",
        "Added **Buy eggs** — due Mon 16 Nov, 15:00 · high priority · #home.",
    ),
    ("call mom today", "Added **Call mom** — due Sun 15 Nov."),
    ("what do I have today?", "You have 1 open todo due today:\n\n1. **Call mom** — due Sun 15 Nov"),
    ("what's on my list?", "2. **Buy eggs** — due Mon 16 Nov, 15:00"),
    ("mark the first one as done", "ticked off **Call mom**"),
    ("tag buy eggs with shop", "#home #shop"),
    ("move it to friday", "due Fri 20 Nov, 15:00"),
    ("make it low priority", "low priority"),
    ("show completed", "1. **Call mom**"),
    ("anything overdue?", "Nothing is overdue"),
    ("remove the due date of the eggs", "Updated **Buy eggs** — low priority · #home #shop."),
    ("delete the eggs", "Delete “Buy eggs”? Say yes to confirm."),
    ("yes", "Deleted **Buy eggs**."),
    ("how many todos do I have?", "Your list is empty"),
    (f"add {'x' * 250}", "The tool says: title is too long"),
)


@pytest.mark.req("ORC-05", "ORC-06")
async def test_a_day_with_the_todo_tools(toolbox: Toolbox) -> None:
    talk = talk_with(toolbox)
    for sentence, words in EXCHANGES:
        _, answer = await talk.say(sentence)
        assert words in answer
