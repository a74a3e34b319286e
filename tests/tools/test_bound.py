"""Bound arguments: hidden, dropped, filled. AGT-07's probes all end with the bound user."""

import copy
import json

import pytest

from holodeck.core.tools import ToolSchema
from holodeck.errors import ConfigError, StartError
from holodeck.tools.arguments import BadArguments, declared_arguments, hide, read_arguments
from holodeck.tools.catalogue import Catalogue, Source
from holodeck.tools.port import ToolContext
from holodeck.tools.rules import ToolRules
from tests.tools.recording import RecordingToolset

ALICE = ToolContext(user_id="alice", session_id="s1", run_id="r1", timezone="Europe/Berlin")

USER = {"type": "string"}
OPEN = {
    "type": "object",
    "properties": {"user_id": USER, "title": {"type": "string"}},
    "required": ["user_id", "title"],
}
CLOSED = {**OPEN, "additionalProperties": False}
REFERENCED = {"$ref": "#/$defs/Args", "$defs": {"Args": CLOSED}}
MERGED = {
    "type": "object",
    "allOf": [{"properties": {"user_id": USER}, "required": ["user_id"]}, {"properties": {"title": {}}}],
}
EITHER = {
    "anyOf": [OPEN, {"properties": {"user_id": {"const": "root"}}}],
    "if": {"required": ["user_id"]},
    "then": OPEN,
}
DEPENDENT = {
    "properties": {"title": {}},
    "dependentSchemas": {"title": {"$ref": "#/$defs/a~1b"}},
    "$defs": {"a/b": OPEN},
}
SHAPES = {
    "open": OPEN,
    "closed": CLOSED,
    "reference": REFERENCED,
    "allOf": MERGED,
    "anyOf": EITHER,
    "dependent": DEPENDENT,
}


def bound(parameters, bind=None, name="tool"):
    inner = RecordingToolset(ToolSchema(name=name, parameters=parameters))
    rules = ToolRules(bind={"user_id": "{user_id}"} if bind is None else bind)
    return Catalogue([Source(toolset=inner, rules=rules)]), inner


@pytest.mark.req("AGT-07")
@pytest.mark.parametrize("parameters", SHAPES.values(), ids=SHAPES.keys())
def test_a_bound_argument_is_nowhere_in_the_schema(parameters):
    before = copy.deepcopy(parameters)
    tools, inner = bound(parameters)
    (offered,) = tools.schemas()
    assert "user_id" not in json.dumps(offered.parameters)
    assert "title" in json.dumps(offered.parameters)
    assert inner.schemas()[0].parameters == before
    assert tools.schemas()[0] is offered


PROBES = {
    "argument": {"user_id": "bob"},
    "null": {"user_id": None},
    "list": {"user_id": ["alice", "bob"]},
    "object": {"user_id": {"$ne": "alice"}},
    "empty": {"user_id": ""},
    "template": {"user_id": "{session_id}"},
    "camel case": {"userId": "bob"},
    "upper case": {"USER_ID": "bob"},
    "dashes": {"user-id": "bob"},
    "spaces": {" user_id ": "bob"},
    "full-width letters": {"\uff55\uff53\uff45\uff52_\uff49\uff44": "bob"},
    "both": {"user_id": "bob", "userId": "bob", "User_Id": "bob"},
    "nested": {"title": {"user_id": "bob"}},
    "nested in an unknown argument": {"arguments": {"user_id": "bob"}},
    "no argument": {},
}
SPELLINGS = {"userId", "USER_ID", "user-id", " user_id ", "\uff55\uff53\uff45\uff52_\uff49\uff44", "User_Id"}


@pytest.mark.req("AGT-07")
@pytest.mark.parametrize("parameters", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES.keys())
async def test_whatever_the_model_says_the_bound_user_is_asked_for(parameters, probe):
    tools, inner = bound(parameters)
    await tools.call("tool", {"title": "x", **probe}, ALICE)
    (_, arguments, _) = inner.calls[0]
    assert arguments["user_id"] == "alice"
    assert not set(arguments) & SPELLINGS


@pytest.mark.req("AGT-07")
@pytest.mark.parametrize("name", ["user_id", "userId", "USER-ID"])
def test_a_bound_argument_that_the_model_sends_is_dropped_before_the_check(name):
    tools, _ = bound(CLOSED)
    entry = tools.offered()["tool"]
    assert read_arguments(json.dumps({"title": "x", name: "bob"}), entry.schema, entry.bound) == {"title": "x"}


@pytest.mark.req("AGT-07")
def test_an_argument_that_is_sent_twice_is_refused():
    tools, _ = bound(CLOSED)
    entry = tools.offered()["tool"]
    raw = '{"title": "x", "user_id": "alice", "user_id": "bob"}'
    assert isinstance(read_arguments(raw, entry.schema, entry.bound), BadArguments)


@pytest.mark.req("AGT-07")
async def test_a_bound_name_is_dropped_even_where_the_tool_does_not_declare_it():
    tools, inner = bound({"type": "object", "additionalProperties": True})
    await tools.call("tool", {"user_id": "bob", "note": 1}, ALICE)
    assert inner.calls[0][1] == {"note": 1}


async def test_tools_without_the_argument_are_left_alone():
    parameters = {"type": "object", "properties": {"city": USER}, "required": ["city"]}
    tools, inner = bound(parameters)
    assert tools.schemas()[0].parameters == parameters
    await tools.call("tool", {"city": "Rome"}, ALICE)
    assert inner.calls[0][1] == {"city": "Rome"}


async def test_an_argument_that_only_looks_alike_is_kept_where_the_tool_declares_it():
    tools, inner = bound({"properties": {"user_id": USER, "userid": USER}})
    await tools.call("tool", {"userid": "x"}, ALICE)
    assert inner.calls[0][1] == {"userid": "x", "user_id": "alice"}


TEMPLATES = [
    ("{user_id}", "alice"),
    ("tenant/{user_id}:{session_id}", "tenant/alice:s1"),
    ("{timezone}", "Europe/Berlin"),
    ("{run_id}", "r1"),
    ("constant", "constant"),
    ('{"json": 1}', '{"json": 1}'),
    (7, 7),
    (True, True),
    (None, None),
    ({"a": [1]}, {"a": [1]}),
]


@pytest.mark.parametrize(("template", "value"), TEMPLATES)
async def test_what_a_template_becomes(template, value):
    tools, inner = bound(OPEN, {"user_id": template})
    await tools.call("tool", {}, ALICE)
    assert inner.calls[0][1] == {"user_id": value}


async def test_a_value_is_not_a_template():
    tools, inner = bound(OPEN)
    await tools.call("tool", {}, ToolContext(user_id="{session_id}", session_id="s1"))
    assert inner.calls[0][1] == {"user_id": "{session_id}"}


def test_an_unknown_placeholder_is_a_mistake_in_the_agent_file():
    with pytest.raises(ConfigError) as caught:
        bound(OPEN, {"owner": "{user}"})
    assert caught.value.message == (
        "bind.owner: there is no value {user}; there are {user_id}, {tenant}, {session_id}, {run_id}, {timezone}"
    )


async def test_a_name_that_no_tool_takes_stops_the_start():
    tools, inner = bound(OPEN, {"usr_id": "{user_id}"})
    with pytest.raises(StartError) as caught:
        await tools.start()
    assert caught.value.message == "bind.usr_id: no tool of recording takes 'usr_id'; did you mean user_id?"
    assert inner.log == ["start", "close"]


async def test_a_server_that_is_not_there_yet_may_start():
    tools, inner = bound(OPEN)
    inner.ready = False
    inner.offer()
    await tools.start()
    assert inner.log == ["start"]


async def test_bound_arguments_are_hidden_again_in_a_changed_schema():
    tools, inner = bound(OPEN)
    tools.schemas()
    inner.offer(ToolSchema(name="tool", parameters=REFERENCED))
    assert "user_id" not in json.dumps(tools.schemas()[0].parameters)


@pytest.mark.parametrize(
    "strange", [{}, {"properties": []}, {"$ref": "#"}, {"allOf": {}}, {"required": [1]}, {"$ref": "x"}]
)
def test_strange_schemas_are_survived(strange):
    assert hide(strange, ["user_id"]) == strange
    assert declared_arguments(strange) == set()
