import json

import pytest
from jsonschema import Draft202012Validator

from holodeck.todo.todo_values import TodoError
from holodeck.todo.tool_arguments import CreateTodo, DeleteTodo, UpdateTodo, read_arguments, schema_of
from holodeck.todo.toolbox import TOOLS

GOOD = {"user_id": "ann", "title": "buy eggs"}


@pytest.mark.req("ORC-05", "AGT-06")
def test_the_two_vocabularies_take_these_arguments():
    taken = {tool.name: set(schema_of(tool.arguments, fixed_user=True)["properties"]) - {"timezone"} for tool in TOOLS}
    assert taken == {
        "create_todo": {"title", "description", "due_date", "priority", "tags"},
        "list_todos": {"status", "priority", "due_date_filter", "tags", "search"},
        "update_todo": {"todo_id", "title", "description", "due_date", "priority", "status", "tags"},
        "delete_todo": {"todo_id", "confirmation"},
        "add_task": {"title", "description"},
        "list_tasks": {"status"},
        "complete_task": {"task_id"},
        "update_task": {"task_id", "title", "description"},
        "delete_task": {"task_id"},
    }


@pytest.mark.req("AGT-07")
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_requires_a_user_unless_one_is_fixed(tool):
    schema = schema_of(tool.arguments, fixed_user=False)
    assert "user_id" in schema["required"]
    fixed = schema_of(tool.arguments, fixed_user=True)
    assert "user_id" not in json.dumps(fixed)
    assert set(fixed["required"]) == set(schema["required"]) - {"user_id"}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_schema_is_valid_and_stays_in_what_every_provider_understands(tool):
    schema = schema_of(tool.arguments, fixed_user=False)
    Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    for refused in ("anyOf", "null", "$ref", "$defs", 'title": "', "const"):
        assert refused not in json.dumps(schema)


@pytest.mark.req("ORC-05")
@pytest.mark.parametrize(
    ("model", "values", "sentence"),
    [
        (CreateTodo, {"user_id": "ann"}, "title is required: What is to be done."),
        (CreateTodo, {"title": "x"}, "user_id is required"),
        (CreateTodo, GOOD | {"title": " \n "}, "title must not be empty"),
        (CreateTodo, GOOD | {"title": "x" * 201}, "title is too long: at most 200 characters"),
        (CreateTodo, GOOD | {"title": 7}, "title must be text, not 7"),
        (CreateTodo, GOOD | {"description": "x" * 4001}, "description is too long: at most 4000 characters"),
        (CreateTodo, GOOD | {"priority": "urgent"}, "priority 'urgent' is not one of 'low', 'medium' or 'high'"),
        (CreateTodo, GOOD | {"tags": "home"}, "tags must be a list of strings, not 'home'"),
        (CreateTodo, GOOD | {"tags": [str(n) for n in range(21)]}, "tags has too many entries: at most 20"),
        (CreateTodo, GOOD | {"tags": ["ok", "x" * 41]}, "tags.1 is too long: at most 40 characters"),
        (CreateTodo, GOOD | {"tags": ["#"]}, "tags.0 must not be empty"),
        (CreateTodo, GOOD | {"due": "now"}, "due is not an argument of this tool; it takes user_id, timezone, title"),
        (CreateTodo, GOOD | {"user_id": "ann\n"}, "user_id must be printable text"),
        (CreateTodo, GOOD | {"user_id": "  "}, "user_id must be printable text"),
        (CreateTodo, GOOD | {"user_id": ""}, "user_id must not be empty"),
        (DeleteTodo, {"user_id": "ann", "todo_id": "x"}, "confirmation is required: Must be true"),
        (DeleteTodo, {"user_id": "ann", "todo_id": "x", "confirmation": "true"}, "confirmation must be true or false"),
        (UpdateTodo, {"user_id": "ann", "todo_id": "x", "status": "done"}, "status 'done' is not one of 'pending' or"),
    ],
)
def test_a_bad_argument_is_answered_with_a_sentence(model, values, sentence):
    with pytest.raises(TodoError) as caught:
        read_arguments(model, values)
    assert sentence in str(caught.value)


def test_every_bad_argument_is_named_at_once():
    with pytest.raises(TodoError, match="title must not be empty; priority 'now' is not one of"):
        read_arguments(CreateTodo, GOOD | {"title": "", "priority": "now"})


def test_a_hostile_name_of_an_argument_is_quoted_and_shortened():
    with pytest.raises(TodoError) as caught:
        read_arguments(CreateTodo, GOOD | {"\x1b[2J{user}" * 100: 1})
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_null_means_not_given():
    given = read_arguments(UpdateTodo, {"user_id": "ann", "todo_id": "x", "title": None, "due_date": None})
    assert given.model_fields_set == {"user_id", "todo_id"}
    with pytest.raises(TodoError, match="title is required"):
        read_arguments(CreateTodo, {"user_id": "ann", "title": None})


@pytest.mark.parametrize(
    ("argument", "given", "kept"),
    [
        ("title", "  buy\n\teggs \x1b[31m\x00", "buy eggs [31m"),
        ("description", " a\x07\n\tb\r ", "a\n\tb"),
        ("tags", ["#Home", "home", " WORK "], ["home", "work"]),
        ("title", "Brötchen 🥐", "Brötchen 🥐"),
        ("title", "half \ud83d", "half"),
    ],
)
def test_text_is_cleaned_of_what_cannot_be_seen(argument, given, kept):
    assert getattr(read_arguments(CreateTodo, GOOD | {argument: given}), argument) == kept


def test_an_id_is_found_however_it_is_spelled():
    assert read_arguments(DeleteTodo, {"user_id": "a", "todo_id": " K7QX ", "confirmation": True}).todo_id == "k7qx"


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_requires_a_tenant_where_there_are_tenants(tool):
    """A model must not be offered an argument that the runtime does not bind."""
    assert "tenant" not in json.dumps(schema_of(tool.arguments, fixed_user=False))
    schema = schema_of(tool.arguments, fixed_user=False, tenants=True)
    assert {"tenant", "user_id"} <= set(schema["required"])
