"""Some of a toolset's tools: offered, callable, marked for approval; misspelt names are found at the start."""

import logging

import pytest

from holodeck.core.tools import Approval, ToolSchema
from holodeck.errors import StartError
from holodeck.tools.port import ToolContext
from holodeck.tools.selection import SelectedToolset
from tests.tools.recording import RecordingToolset

NAMES = ("create_todo", "list_todos", "delete_todo")
CONTEXT = ToolContext(user_id="a")


def todo(**options):
    return RecordingToolset(*(ToolSchema(name=name) for name in NAMES), name="todo", **options)


@pytest.mark.parametrize(
    ("selection", "offered"),
    [
        ({}, NAMES),
        ({"include": ["list_todos"]}, ("list_todos",)),
        ({"include": []}, ()),
        ({"exclude": ["delete_todo"]}, ("create_todo", "list_todos")),
        ({"include": ["list_todos", "delete_todo"], "exclude": ["delete_todo"]}, ("list_todos",)),
    ],
)
async def test_only_the_selected_are_offered_and_callable(selection, offered):
    inner = todo()
    tools = SelectedToolset(inner, **selection)
    await tools.start()
    assert tuple(schema.name for schema in tools.schemas()) == offered
    for name in NAMES:
        assert (await tools.call(name, {}, CONTEXT)).failed is (name not in offered)
    assert tuple(name for name, _, _ in inner.calls) == offered


@pytest.mark.req("A27")
async def test_a_tool_that_is_not_selected_does_not_exist():
    tools = SelectedToolset(todo(), include=["list_todos"])
    assert (
        await tools.call("delete_todo", {}, CONTEXT)
    ).text == "There is no tool 'delete_todo'; the tools are list_todos"


@pytest.mark.req("T26")
async def test_approval_marks_the_schema_and_nothing_else():
    tools = SelectedToolset(todo(), approval={"delete_todo": Approval.ALWAYS, "list_todos": Approval.NEVER})
    await tools.start()
    marks = {schema.name: schema.approval for schema in tools.schemas()}
    assert marks == {"create_todo": "never", "list_todos": "never", "delete_todo": "always"}


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ({"include": ["creat_todo"]}, "todo has no tool 'creat_todo'; did you mean create_todo?"),
        ({"exclude": ["delete_tod"]}, "todo has no tool 'delete_tod'; did you mean delete_todo?"),
        ({"approval": {"drop": Approval.ALWAYS}}, "todo has no tool 'drop'"),
        ({"include": ["a"], "exclude": ["b"]}, "todo has no tool 'a'; todo has no tool 'b'"),
    ],
)
async def test_a_misspelt_name_stops_the_start_and_leaves_nothing_running(selection, sentence):
    inner = todo()
    with pytest.raises(StartError) as caught:
        await SelectedToolset(inner, **selection).start()
    assert caught.value.message == sentence
    assert inner.log == ["start", "close"]


async def test_a_server_that_comes_later_is_checked_then(caplog):
    inner = todo(ready=False)
    tools = SelectedToolset(inner, include=["creat_todo"])
    await tools.start()
    with caplog.at_level(logging.WARNING):
        assert tools.schemas() == []
        inner.ready = True
        assert [tools.schemas() for _ in range(3)] == [[], [], []]
    assert [record.message for record in caplog.records] == ["todo has no tool 'creat_todo'; did you mean create_todo?"]


@pytest.mark.req("ORC-04")
async def test_a_tool_that_is_added_later_is_offered_only_if_selected():
    inner = todo()
    tools = SelectedToolset(inner, include=["list_todos"])
    await tools.start()
    inner.offer(ToolSchema(name="list_todos"), ToolSchema(name="new"))
    assert [schema.name for schema in tools.schemas()] == ["list_todos"]
