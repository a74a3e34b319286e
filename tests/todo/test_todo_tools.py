"""What the tools promise, once over SQLite and once over PostgreSQL."""

from datetime import UTC, datetime, timedelta

import pytest

from holodeck.todo import toolbox
from holodeck.todo.todo_values import TodoError
from holodeck.todo.toolbox import Toolbox, UnknownToolError

BERLIN = {"timezone": "Europe/Berlin"}


def titles(answer):
    return [todo["title"] for todo in answer["todos"]]


@pytest.mark.req("ORC-05")
def test_create_answers_with_the_whole_todo(call):
    todo = call(
        "create_todo",
        title="buy eggs",
        description="six",
        due_date="2026-11-19T15:00",
        priority="high",
        tags=["#home"],
        **BERLIN,
    )
    assert todo.pop("id").isalnum()
    assert todo == {
        "title": "buy eggs",
        "description": "six",
        "due_date": "2026-11-19T15:00:00+01:00",
        "priority": "high",
        "status": "pending",
        "tags": ["home"],
        "created_at": "2026-11-18T13:00:00+01:00",
        "updated_at": "2026-11-18T13:00:00+01:00",
    }


def test_create_needs_only_a_title(call):
    todo = call("create_todo", title="rest")
    assert (todo["priority"], todo["status"], todo["tags"]) == ("medium", "pending", [])
    assert todo["description"] is todo["due_date"] is None
    assert call("list_todos") == {"count": 1, "todos": [todo]}


@pytest.fixture
def listed(call):
    """Todos around Wednesday, 18 November 2026, 12:00 UTC."""
    call("create_todo", title="monday", due_date="2026-11-16T09:00Z", tags=["work"])
    call("create_todo", title="noon", due_date="2026-11-18T11:59:59Z", priority="high", tags=["work", "home"])
    call("create_todo", title="tonight", due_date="2026-11-18", description="GRÜSSE to 100% of_all")
    call("create_todo", title="sunday", due_date="2026-11-22T22:30Z", priority="low", tags=["homework"])
    call("create_todo", title="someday", tags=['a"b', "größe"])
    done = call("create_todo", title="done", due_date="2026-11-17")
    call("update_todo", todo_id=done["id"], status="completed")
    return call


@pytest.mark.req("ORC-05")
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({}, ["monday", "noon", "tonight", "sunday", "someday"]),
        ({"status": "all"}, ["monday", "done", "noon", "tonight", "sunday", "someday"]),
        ({"status": "completed"}, ["done"]),
        ({"priority": "high"}, ["noon"]),
        ({"due_date_filter": "today"}, ["noon", "tonight"]),
        ({"due_date_filter": "this_week"}, ["monday", "noon", "tonight", "sunday"]),
        ({"due_date_filter": "this_week", "timezone": "Asia/Tokyo"}, ["monday", "noon", "tonight"]),
        ({"due_date_filter": "overdue"}, ["monday", "noon"]),
        ({"due_date_filter": "overdue", "status": "all"}, ["monday", "noon"]),
        ({"due_date_filter": "2026-11-17", "status": "all"}, ["done"]),
        ({"tags": ["home"]}, ["noon"]),
        ({"tags": ["WORK", "#home"]}, ["noon"]),
        ({"tags": ["größe"]}, ["someday"]),
        ({"tags": ['a"b']}, ["someday"]),
        ({"tags": ["%"]}, []),
        ({"search": "grüsse"}, ["tonight"]),
        ({"search": "100%"}, ["tonight"]),
        ({"search": "of_all"}, ["tonight"]),
        ({"search": "o%n"}, []),
        ({"search": "homework"}, ["sunday"]),
        ({"search": "' OR 1=1 --"}, []),
        ({"due_date_filter": "today", "priority": "high", "tags": ["work"], "search": "noo"}, ["noon"]),
    ],
)
def test_every_filter_narrows_the_list(listed, question, expected):
    answer = listed("list_todos", **question)
    assert titles(answer) == expected
    assert answer["count"] == len(expected)


def test_completed_and_overdue_contradict_each_other(listed):
    with pytest.raises(TodoError, match="never overdue"):
        listed("list_todos", status="completed", due_date_filter="overdue")


def test_a_long_list_is_cut_and_says_so(call, monkeypatch):
    monkeypatch.setattr(toolbox, "LIST_LIMIT", 2)
    for number in range(3):
        call("add_task", title=f"task {number}")
    answer = call("list_todos")
    assert (answer["count"], len(answer["todos"])) == (3, 2)
    assert "Only the first 2 are shown" in answer["note"]


@pytest.mark.req("ORC-05")
def test_update_changes_what_is_given_and_keeps_the_rest(store):
    clock = iter(datetime(2026, 11, 18, tzinfo=UTC) + timedelta(hours=n) for n in range(9))
    box = Toolbox(lambda: store, user="ann", now=lambda: next(clock))
    before = box.call(
        "create_todo",
        {"title": "a", "description": "d", "due_date": "2026-12-01", "tags": ["x"], "priority": "low"},
    )
    after = box.call("update_todo", {"todo_id": before["id"].upper(), "title": "b", "tags": ["y", "z"]})
    assert after == before | {"title": "b", "tags": ["y", "z"], "updated_at": "2026-11-18T01:00:00+00:00"}
    assert box.call("list_todos", {"search": "z"})["todos"] == [after]
    assert box.call("list_todos", {"search": "x"})["todos"] == []
    moved = box.call("update_todo", {"todo_id": before["id"], "due_date": "2026-12-02T08:00Z", "priority": "high"})
    assert (moved["due_date"], moved["priority"], moved["title"]) == ("2026-12-02T08:00:00+00:00", "high", "b")


def test_update_removes_with_the_empty_value_and_ignores_null(call):
    todo = call("create_todo", title="a", description="d", due_date="2026-12-01", tags=["x"])
    kept = call("update_todo", todo_id=todo["id"], title="b", description=None, due_date=None, tags=None)
    assert kept == todo | {"title": "b"}
    bare = call("update_todo", todo_id=todo["id"], description="", due_date="", tags=[])
    assert bare == kept | {"description": None, "due_date": None, "tags": []}


def test_a_completed_todo_can_be_reopened(call):
    todo = call("create_todo", title="a")
    assert call("update_todo", todo_id=todo["id"], status="completed")["status"] == "completed"
    assert call("update_todo", todo_id=todo["id"], status="pending")["status"] == "pending"


@pytest.mark.req("ORC-05")
def test_delete_needs_confirmation(call):
    todo = call("create_todo", title="a")
    with pytest.raises(TodoError, match="Nothing was deleted: ask the user"):
        call("delete_todo", todo_id=todo["id"], confirmation=False)
    assert call("list_todos")["count"] == 1
    assert call("delete_todo", todo_id=todo["id"], confirmation=True) == {"deleted": todo}
    assert call("list_todos")["count"] == 0


@pytest.mark.req("AGT-06")
def test_the_tasks_vocabulary_speaks_about_the_same_rows(call):
    first = call("add_task", title="write", description="the report")
    second = call("create_todo", title="rest", priority="low")
    assert titles(call("list_tasks")) == ["write", "rest"]
    done = call("complete_task", task_id=first["id"])
    assert done == first | {"status": "completed"}
    assert call("complete_task", task_id=first["id"]) == done
    assert titles(call("list_tasks", status="pending")) == ["rest"]
    assert titles(call("list_tasks", status="completed")) == ["write"]
    assert call("update_task", task_id=second["id"], description="a lot")["description"] == "a lot"
    assert call("delete_task", task_id=second["id"])["deleted"]["title"] == "rest"
    assert titles(call("list_todos", status="all")) == ["write"]


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("create_todo", {"title": "a", "due_date": "tomorow"}, "due_date 'tomorow' is not ISO 8601; write e.g. 2026"),
        ("create_todo", {"title": "a", "timezone": "Berlin"}, "timezone 'Berlin' is not an IANA name"),
        ("list_todos", {"due_date_filter": "soon"}, "due_date_filter 'soon' is not today"),
        ("update_todo", {"todo_id": "x"}, "Nothing to change"),
        ("update_todo", {"todo_id": "nope", "title": "a"}, "There is no todo with the id 'nope'. List the todos"),
        ("delete_todo", {"todo_id": "nope", "confirmation": True}, "There is no todo with the id 'nope'"),
        ("complete_task", {"task_id": "nope"}, "There is no todo with the id 'nope'"),
        ("delete_task", {"task_id": "nope\x00"}, "There is no todo with the id"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(call, name, arguments, sentence):
    with pytest.raises(TodoError) as caught:
        call(name, **arguments)
    assert sentence in str(caught.value)
    assert call("list_todos", status="all")["count"] == 0


def test_an_unknown_tool_is_no_mistake_of_the_arguments(call):
    with pytest.raises(UnknownToolError):
        call("drop_todos")


@pytest.mark.req("AGT-07")
def test_no_tool_shows_or_changes_the_todos_of_another_user(call):
    secret = call("create_todo", title="secret", due_date="2026-11-18", tags=["t"], priority="high")
    calls = [
        ("list_todos", {"status": "all"}),
        ("list_todos", {"search": "secret"}),
        ("list_todos", {"tags": ["t"], "priority": "high", "due_date_filter": "today"}),
        ("list_tasks", {}),
        ("update_todo", {"todo_id": secret["id"], "title": "mine"}),
        ("delete_todo", {"todo_id": secret["id"], "confirmation": True}),
        ("complete_task", {"task_id": secret["id"]}),
        ("update_task", {"task_id": secret["id"], "title": "mine"}),
        ("delete_task", {"task_id": secret["id"]}),
    ]
    for stranger in ("bob", "ANN", "ann ", "an_", "%", "' OR 1=1 --"):
        for name, arguments in calls:
            try:
                answer = call(name, **arguments | {"user_id": stranger})
            except TodoError as error:
                assert str(error) == f"There is no todo with the id {secret['id']!r}. List the todos to see their ids."  # noqa: PT017, lists answer, the others raise
            else:
                assert answer == {"count": 0, "todos": []}
    assert call("list_todos", status="all")["todos"] == [secret]


@pytest.mark.req("AGT-07")
def test_a_fixed_user_overrides_what_the_model_says(store):
    ann = Toolbox(lambda: store, user="ann")
    bob = Toolbox(lambda: store, user="bob")
    ann.call("add_task", {"title": "secret"})
    assert bob.call("list_tasks", {"user_id": "ann"}) == {"count": 0, "todos": []}


def test_two_tenants_with_users_of_one_name_never_meet(store):
    box, alone = Toolbox(lambda: store, tenants=True), Toolbox(lambda: store)
    made = {
        tenant: box.call("add_task", {"title": tenant, "user_id": "ann", "tenant": tenant})["id"]
        for tenant in ("default", "acme", "other")
    }
    for tenant in made:
        (task,) = box.call("list_tasks", {"user_id": "ann", "tenant": tenant})["todos"]
        assert task["title"] == tenant
    with pytest.raises(TodoError, match="There is no todo"):
        box.call("delete_task", {"user_id": "ann", "tenant": "acme", "task_id": made["other"]})
    (task,) = alone.call("list_tasks", {"user_id": "ann"})["todos"]
    assert task["title"] == "default", "a server that gets tenants later keeps what it has"


def test_a_tenant_is_named_where_there_are_tenants_and_nowhere_else(store):
    with pytest.raises(TodoError, match="tenant is required"):
        Toolbox(lambda: store, tenants=True).call("list_tasks", {"user_id": "ann"})
    with pytest.raises(TodoError, match="tenant is not an argument"):
        Toolbox(lambda: store).call("list_tasks", {"user_id": "ann", "tenant": "acme"})
    for forged in ("acme\nann", "acme\x1fann", "", " "):
        with pytest.raises(TodoError):
            Toolbox(lambda: store).call("list_tasks", {"user_id": forged})
