"""Some of a toolset's tools: offered, callable, marked for approval; misspelt names are found at the start."""

import logging

import pytest

from holodeck.core.tools import Approval, ToolSchema
from holodeck.errors import StartError
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.tools.port import ToolContext
from holodeck.tools.rules import ToolRules
from tests.tools.recording import RecordingToolset

NAMES = ("create_todo", "list_todos", "delete_todo")
IT_HAS = "; it has create_todo, delete_todo, list_todos"
CONTEXT = ToolContext(user_id="a")


def selected(inner, **rules):
    return Catalogue([Source(toolset=inner, rules=ToolRules(**rules))])


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
        ({"include": ["*_todo"]}, ("create_todo", "delete_todo")),
        ({"include": ["*"], "exclude": ["*ete_*"]}, ("create_todo", "list_todos")),
        ({"include": ["[cl]*"]}, ("create_todo", "list_todos")),
    ],
)
async def test_only_the_selected_are_offered_and_callable(selection, offered):
    inner = todo()
    tools = selected(inner, **selection)
    await tools.start()
    assert tuple(schema.name for schema in tools.schemas()) == offered
    for name in NAMES:
        assert (await tools.call(name, {}, CONTEXT)).failed is (name not in offered)
    assert tuple(name for name, _, _ in inner.calls) == offered


@pytest.mark.req("A27")
async def test_a_tool_that_is_not_selected_does_not_exist():
    tools = selected(todo(), include=["list_todos"])
    assert (
        await tools.call("delete_todo", {}, CONTEXT)
    ).text == "There is no tool 'delete_todo'; the tools are list_todos"


@pytest.mark.req("T26")
async def test_approval_marks_the_schema_and_nothing_else():
    tools = selected(todo(), approval={"delete_todo": Approval.ALWAYS, "list_todos": Approval.NEVER})
    await tools.start()
    marks = {schema.name: schema.approval for schema in tools.schemas()}
    assert marks == {"create_todo": "never", "list_todos": "never", "delete_todo": "always"}


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ({"include": ["creat_todo"]}, "todo has no tool 'creat_todo' (include); did you mean create_todo?"),
        ({"exclude": ["delete_tod"]}, "todo has no tool 'delete_tod' (exclude); did you mean delete_todo?"),
        ({"approval": {"drop": Approval.ALWAYS}}, f"todo has no tool 'drop' (approval){IT_HAS}"),
        (
            {"include": ["a", "x_*"], "exclude": ["x_*"]},
            f"todo has no tool 'a' (include){IT_HAS}; todo has no tool 'x_*' (include, exclude){IT_HAS}",
        ),
    ],
)
async def test_a_misspelt_name_stops_the_start_and_leaves_nothing_running(selection, sentence):
    inner = todo()
    with pytest.raises(StartError) as caught:
        await selected(inner, **selection).start()
    assert caught.value.message == sentence
    assert inner.log == ["start", "close"]


async def test_a_server_that_comes_later_is_checked_then(caplog):
    inner = RecordingToolset(name="todo", ready=False)
    tools = selected(inner, include=["creat_todo"])
    await tools.start()
    with caplog.at_level(logging.WARNING):
        assert list(tools.schemas()) == []
        inner.ready = True
        inner.offer(*(ToolSchema(name=name) for name in NAMES))
        assert [list(tools.schemas()) for _ in range(3)] == [[], [], []]
    (record,) = caplog.records
    assert record.message == (
        "tools_guarded: todo has no tool 'creat_todo' (include); did you mean create_todo?; "
        "until the names in the agent file match, every tool of todo needs approval"
    )


@pytest.mark.req("AGT-08")
@pytest.mark.parametrize("listed_before_ready", [False, True])
@pytest.mark.parametrize(
    "rules",
    [
        {"approval": {"delete_tod": Approval.ALWAYS}},
        {"exclude": ["delete_tod"]},
        {"approval": {"delete_tod": Approval.ALWAYS, "*": Approval.NEVER}, "bind": {"user": "{user_id}"}},
    ],
)
async def test_while_a_name_does_not_fit_every_tool_of_a_server_that_comes_later_needs_approval(
    rules, listed_before_ready, caplog
):
    inner = RecordingToolset(name="todo", ready=False)
    tools = selected(inner, **rules)
    await tools.start()
    listing = [ToolSchema(name=name, parameters={"type": "object", "properties": {"user": {}}}) for name in NAMES]
    inner.ready = not listed_before_ready
    for added in ([], [ToolSchema(name="another")]):  # one that changes its list is checked again
        inner.offer(*listing, *added)
        assert {schema.approval for schema in tools.schemas()} == {Approval.ALWAYS}
        assert len(tools.schemas()) == len(listing) + len(added)
        inner.ready = True
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once"
    inner.offer(*listing, ToolSchema(name="delete_tod"))
    marks = {schema.name: schema.approval for schema in tools.schemas()}
    assert marks["list_todos"] == Approval.NEVER, "the names fit now"
    assert marks.get("delete_tod", Approval.ALWAYS) == Approval.ALWAYS


@pytest.mark.req("ORC-04")
async def test_a_tool_that_is_added_later_is_offered_only_if_selected():
    inner = todo()
    tools = selected(inner, include=["list_todos"])
    await tools.start()
    inner.offer(ToolSchema(name="list_todos"), ToolSchema(name="new"))
    assert [schema.name for schema in tools.schemas()] == ["list_todos"]


A, N = Approval.ALWAYS, Approval.NEVER


@pytest.mark.req("AGT-08")
@pytest.mark.parametrize(
    ("approval", "asked"),
    [
        ({"*": A}, NAMES),
        ({"*": A, "list_todos": N}, ("create_todo", "delete_todo")),
        ({"*_todo": A}, ("create_todo", "delete_todo")),
        ({"*": A, "*_todo": N}, ("list_todos",)),
        ({"*_todo": A, "create_*": N}, ("create_todo", "delete_todo")),  # the stricter of two patterns
        ({"*_todo": A, "create_todo": N}, ("delete_todo",)),
    ],
    ids=str,
)
def test_approval_by_name_by_pattern_and_for_all(approval, asked):
    tools = selected(todo(), approval=approval)
    assert tuple(schema.name for schema in tools.schemas() if schema.approval is A) == asked


@pytest.mark.req("T26")
async def test_a_tool_that_a_server_adds_later_falls_under_the_rules_for_all():
    inner = todo()
    tools = selected(inner, approval={"*": A, "list_todos": N}, exclude=["admin_*"], include=["*"], prefix="x_")
    with pytest.raises(StartError, match=r"has no tool 'admin_\*'"):
        await tools.start()
    tools = selected(inner, approval={"*": A, "list_todos": N}, prefix="x_")
    await tools.start()
    inner.offer(*(ToolSchema(name=name) for name in (*NAMES, "wipe")))
    assert {schema.name: schema.approval for schema in tools.schemas()} == {
        "x_create_todo": A,
        "x_list_todos": N,
        "x_delete_todo": A,
        "x_wipe": A,
    }


async def test_two_servers_with_the_same_tools_work_with_a_prefix():
    one, two = todo(), todo()
    tools = Catalogue(
        [
            Source(toolset=one, name="one", rules=ToolRules(include=["list_todos"])),
            Source(toolset=two, name="two", rules=ToolRules(include=["list_*"], prefix="two_")),
        ]
    )
    await tools.start()
    assert [schema.name for schema in tools.schemas()] == ["list_todos", "two_list_todos"]
    await tools.call("two_list_todos", {}, CONTEXT)
    assert ([name for name, *_ in one.calls], [name for name, *_ in two.calls]) == ([], ["list_todos"])
    assert (await tools.call("two_create_todo", {}, CONTEXT)).failed


async def test_a_name_that_a_prefix_makes_too_long_stops_the_start_and_hides_a_later_tool(caplog):
    inner = RecordingToolset(ToolSchema(name="a" * 60), name="server")
    with pytest.raises(StartError, match="longer than 64 characters"):
        await selected(inner, prefix="prefix_").start()
    inner.offer(ToolSchema(name="short"))
    tools = selected(inner, prefix="prefix_")
    await tools.start()
    inner.offer(ToolSchema(name="short"), ToolSchema(name="a" * 60))
    with caplog.at_level(logging.WARNING):
        assert [schema.name for schema in tools.schemas()] == ["prefix_short"]
    assert "longer than 64 characters" in caplog.text


@pytest.mark.parametrize(
    ("repeatable", "marked"),
    [
        (None, ("list_todos",)),
        (True, NAMES),
        (False, ()),
        (["create_*"], ("create_todo", "list_todos")),
        ([], ("list_todos",)),
    ],
)
def test_which_tools_may_be_called_again(repeatable, marked):
    inner = RecordingToolset(*(ToolSchema(name=name, repeatable=name == "list_todos") for name in NAMES))
    tools = selected(inner, repeatable=repeatable)
    assert tuple(schema.name for schema in tools.schemas() if schema.repeatable) == marked


async def test_all_mistakes_are_reported_at_once():
    one, two = todo(), todo()
    tools = Catalogue(
        [
            Source(toolset=one, name="one", rules=ToolRules(include=["list_todos", "x"], bind={"user": "{user_id}"})),
            Source(toolset=two, name="two", rules=ToolRules(repeatable=["y"])),
        ]
    )
    with pytest.raises(StartError) as caught:
        await tools.start()
    assert caught.value.message.split("; ") == [
        "one has no tool 'x' (include)",
        IT_HAS.removeprefix("; "),
        "bind.user: no tool of one takes 'user'",
        "two has no tool 'y' (repeatable)",
        IT_HAS.removeprefix("; "),
        "one and two both have a tool 'list_todos'",
        "give one of them a prefix, or exclude it in one",
    ]


@pytest.mark.req("AGT-08")
async def test_tools_that_share_rules_with_a_server_that_is_down_need_approval_until_the_names_fit(caplog):
    shared = ToolRules(approval={"delete": A})
    up, down = RecordingToolset(ToolSchema(name="delete_all"), name="up"), RecordingToolset(name="down", ready=False)
    tools = Catalogue([Source(toolset=each, rules=shared) for each in (up, down)])
    await tools.start()
    assert {schema.name: schema.approval for schema in tools.schemas()} == {"delete_all": A}, "it may be meant"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    down.ready = True
    down.offer(ToolSchema(name="delete"))
    assert {schema.name: schema.approval for schema in tools.schemas()} == {"delete_all": N, "delete": A}


async def test_rules_that_several_toolsets_share_are_checked_together():
    shared = ToolRules(approval={"a": A})
    one, two = (RecordingToolset(ToolSchema(name=name), name=name) for name in "ab")
    tools = Catalogue([Source(toolset=each, rules=shared) for each in (one, two)])
    await tools.start()
    assert {schema.name: schema.approval for schema in tools.schemas()} == {"a": A, "b": N}

    shared = ToolRules(approval={"c": A})
    with pytest.raises(StartError) as caught:
        await Catalogue([Source(toolset=each, rules=shared) for each in (one, two)]).start()
    assert caught.value.message == "a has no tool 'c' (approval); it has a, b"
