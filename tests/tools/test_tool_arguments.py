"""From the model's text to arguments: A26's forms, the schema's complaints, and schemas that are hostile themselves."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.core.tools import ToolSchema
from holodeck.tools.arguments import MAX_ARGUMENT_CHARS, MAX_DEPTH, BadArguments, read_arguments
from holodeck.tools.schema_check import MAX_WORK
from tests.examples import examples

TODO = ToolSchema(
    name="create_todo",
    parameters={
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 1},
            "priority": {"enum": ["low", "medium", "high"]},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
        "required": ["title"],
        "additionalProperties": False,
    },
)
ANY = ToolSchema(name="any")
PI = "3.14"


def tool(parameters):
    return ToolSchema(name="strange", parameters=parameters)


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ("", {}),
        ("  \n", {}),
        ("null", {}),
        ("{}", {}),
        ('{"a": [1, 2.5, true, null, {"b": "ü"}]}', {"a": [1, 2.5, True, None, {"b": "ü"}]}),
        ('{"a": "\\ud83d\\ude00 \\ud83d \\u0000"}', {"a": "\U0001f600 \ufffd "}),
        ('{"a": 1, "b": {"a": 2}}', {"a": 1, "b": {"a": 2}}),
    ],
)
def test_what_can_be_read(raw, arguments):
    assert read_arguments(raw, ANY) == arguments


UNREADABLE = {
    "cut off": ('{"title": "bu', "not valid JSON: Unterminated string"),
    "no JSON": ("buy eggs", "not valid JSON: Expecting value at character 1"),
    "single quotes": ("{'title': 'x'}", "not valid JSON"),
    "fenced": ('```json\n{"title": "x"}\n```', "not valid JSON"),
    "trailing comma": ('{"title": "x",}', "not valid JSON"),
    "two objects": ('{"title": "x"}{"title": "y"}', "Extra data at character 15"),
    "a raw line end": ('{"title": "a\nb"}', "not valid JSON: Invalid control character"),
    "a list": ('["x"]', "are a list, not a JSON object"),
    "a text": ('"{}"', "are a text, not a JSON object"),
    "a number": (PI, "are a number, not a JSON object"),
    "a boolean": ("true", "are a boolean, not a JSON object"),
    "the same key twice": ('{"title": "x", "title": "y"}', "name 'title' twice"),
    "the same key twice, inside": ('{"title": "x", "place": {"city": 1, "city": 2}}', "name 'city' twice"),
    "NaN": ('{"title": NaN}', "hold NaN"),
    "Infinity": ('{"title": [-Infinity]}', "hold -Infinity"),
    "a float that overflows": ('{"title": 1e999}', "hold 1e999, which is too large"),
    "a number of 5,000 digits": (f'{{"title": {"9" * 5000}}}', "too many digits"),
    "over a megabyte": (json.dumps({"title": "x" * MAX_ARGUMENT_CHARS}), "too long: 1,000,013 characters"),
    "nested too deep": ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "nest deeper than 64"),
    "nested a hundred thousand deep": ("[" * 100_000, "nest deeper than 64"),
}


@pytest.mark.req("A26", "AGT-08", "T18")
@pytest.mark.parametrize(("raw", "problem"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_explained(raw, problem):
    bad = read_arguments(raw, TODO)
    assert isinstance(bad, BadArguments)
    assert bad.text.startswith("The arguments of create_todo ")
    assert problem in bad.text
    assert "Send one JSON object with: title (string; required), priority (one of low, medium, high)" in bad.text
    assert len(bad.text) < 1000


def test_the_deepest_nesting_allowed():
    raw = '{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH
    assert read_arguments(raw, ANY) == json.loads(raw)


def test_a_tool_without_arguments_expects_an_empty_object():
    assert read_arguments("x", ANY).text.endswith("Send one JSON object: {}.")


MISFITS = [
    ({}, ["title: is required and missing"]),
    ({"title": 3.5}, ["title: expected string, got 3.5"]),
    ({"title": ""}, ["title: '' should be non-empty"]),
    ({"title": "x", "priority": "urgent"}, ["priority: 'urgent' is not one of low, medium, high"]),
    ({"title": "x", "tags": ["a", True]}, ["tags[1]: expected string, got True"]),
    ({"title": "x", "tags": ["a", "a"]}, ["tags: has an item twice"]),
    ({"title": "x", "count": "three"}, ["count: expected integer or null, got 'three'"]),
    ({"title": "x", "place": {}}, ["place.city: is required and missing"]),
    ({"title": "x", "place": {"city": []}}, ["place.city: expected string, got []"]),
    (
        {"title": [], "count": "no", "zz": 1, "priority": "x"},
        [
            "title: expected string, got []",
            "priority: 'x' is not one of low, medium, high",
            "count: expected integer or null, got 'no'",
            "zz: there is no such argument",
        ],
    ),
    ({"title": [], "count": "5"}, ["title: expected string, got []"]),
    ({"title": "x", "prioritty": "low"}, ["prioritty: there is no such argument; did you mean priority?"]),
    ({"title": "x", "zzz": 1}, ["zzz: there is no such argument"]),
]


@pytest.mark.req("ORC-04", "AGT-08")
@pytest.mark.parametrize(("arguments", "problems"), MISFITS)
def test_what_does_not_fit_the_schema_is_named_with_its_path(arguments, problems):
    bad = read_arguments(json.dumps(arguments), TODO)
    assert bad == BadArguments("\n- ".join(["The arguments do not fit create_todo:", *problems]))


def test_at_most_twenty_problems_are_listed():
    lines = read_arguments(json.dumps({"title": "x", "tags": [[]] * 50}), TODO).text.splitlines()
    assert len(lines) == 22
    assert lines[1] == "- tags[0]: expected string, got []"
    assert lines[-1] == "- and 31 more"


def typed(*types):
    return tool({"properties": {"a": {"type": list(types)}, "b": {"items": {"type": list(types)}}}})


COERCED = [
    ("5", ["integer"], 5),
    (" -5 ", ["integer", "null"], -5),
    ("5", ["number"], 5),
    ("5.25", ["number"], 5.25),
    ("1e3", ["number"], 1000.0),
    ("TRUE", ["boolean"], True),
    ("false", ["boolean"], False),
    ('["x"]', ["array"], ["x"]),
    ('{"x": 1}', ["object"], {"x": 1}),
    (7, ["string"], "7"),
]
NOT_COERCED = [
    ("5.5", ["integer"]), ("007", ["integer"]), ("5 apples", ["number"]), ("", ["integer"]), ("1e999", ["number"]),
    ("yes", ["boolean"]), (1, ["boolean"]), ("x", ["array"]), ("[1", ["array"]), ('{"x": 1}', ["array"]),
    (7.5, ["string"]), (True, ["string"]), ("\u0665", ["integer"]), ("9" * 30, ["integer"]),
]  # fmt: skip


@pytest.mark.req("AGT-08")
@pytest.mark.parametrize(("value", "types", "meant"), COERCED)
def test_a_value_that_can_only_mean_one_thing_is_converted(value, types, meant):
    arguments = read_arguments(json.dumps({"a": value, "b": [value]}), typed(*types))
    assert arguments == {"a": meant, "b": [meant]}
    assert type(arguments["a"]) is type(meant)


@pytest.mark.req("AGT-08")
@pytest.mark.parametrize(("value", "types"), NOT_COERCED)
def test_what_would_be_a_guess_is_refused(value, types):
    assert isinstance(read_arguments(json.dumps({"a": value}), typed(*types)), BadArguments)


def test_a_huge_value_does_not_make_a_huge_text():
    assert len(read_arguments(json.dumps({"title": ["x" * 900_000]}), TODO).text) < 300


def test_the_schema_says_which_draft_it_is():
    draft_4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"a": {"maximum": 3, "exclusiveMaximum": True}},
    }
    assert isinstance(read_arguments('{"a": 3}', tool(draft_4)), BadArguments)
    assert read_arguments('{"a": 2}', tool(draft_4)) == {"a": 2}


def test_local_references_are_followed():
    schema = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}}
    assert read_arguments('{"a": "x"}', tool(schema)).text.endswith("a: expected integer, got 'x'")


DOUBLING = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)} | {"d40": {}}
BROKEN = {
    "an unknown type": {"type": "objekt"},
    "a type that is a number": {"type": 5},
    "properties that are a list": {"properties": []},
    "a reference to nowhere": {"$ref": "#/$defs/none"},
    "a remote reference": {"$ref": "http://127.0.0.1:9/schema.json"},
    "a reference to itself": {"$ref": "#"},
    "an id that is no URL": {"$id": "http://[", "properties": {"a": {"$ref": "x"}}},
    "a dialect that is a list": {"$schema": ["x"]},
    "references that double": {"$ref": "#/$defs/d0", "$defs": DOUBLING},
    "a million combinations": {
        "properties": {"a": {"items": {"anyOf": [{"type": "null"}] * 100 + [{"type": "string"}]}}}
    },
}
ODD = {"a": ["x"] * 2_000}


@pytest.mark.req("T26")
@pytest.mark.parametrize("schema", BROKEN.values(), ids=BROKEN.keys())
def test_a_schema_that_cannot_be_used_lets_everything_pass_and_is_reported_once(schema, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert read_arguments(json.dumps(ODD), tool(schema)) == ODD
    assert [record.message.partition(":")[0] for record in caplog.records] == ["arguments of strange are not checked"]


def _nested(levels):
    schema = {}
    for _ in range(levels):
        schema = {"allOf": [schema]}
    return schema


@pytest.mark.parametrize(
    "schema",
    [{"default": object()}, {"title": "\ud800"}, _nested(100_000), _nested(200)],
    ids=["object", "text", "deep", "less"],
)
def test_a_schema_that_is_not_json_lets_everything_pass(schema, caplog):
    with caplog.at_level(logging.WARNING):
        assert read_arguments('{"a": 1}', tool(schema)) == {"a": 1}
    assert "arguments of strange are not checked" in caplog.text


EVIL = r"^(a+)+$"
HANGING = {
    "pattern": {"properties": {"a": {"pattern": EVIL}}},
    "pattern behind another dialect": {
        "properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL}}
    },
    "patternProperties": {"patternProperties": {EVIL: {}}, "additionalProperties": False},
    "unevaluatedProperties": {"patternProperties": {EVIL: {}}, "unevaluatedProperties": False},
    "propertyNames": {"propertyNames": {"pattern": EVIL}},
}


@pytest.mark.req("T26")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("schema", HANGING.values(), ids=HANGING.keys())
def test_a_foreign_regular_expression_is_never_run(schema):
    arguments = {"a" * 40 + "!": "x", "a": "a" * 40 + "!"}
    assert read_arguments(json.dumps(arguments), tool(schema)) == arguments


@pytest.mark.timeout(30)
def test_a_megabyte_of_objects_is_compared_in_linear_time():
    schema = tool({"properties": {"a": {"uniqueItems": True}}})
    items = [{"n": i} for i in range(60_000)]
    assert read_arguments(json.dumps({"a": items}), schema) == {"a": items}
    assert "has an item twice" in read_arguments(json.dumps({"a": [*items, {"n": 7}]}), schema).text


def test_one_call_that_is_too_much_work_does_not_end_the_checking():
    schema = tool({"properties": {"a": {"items": {"type": "string"}}}})
    many = {"a": ["x"] * (MAX_WORK + 1)}
    assert read_arguments(json.dumps(many), schema) == many
    assert isinstance(read_arguments('{"a": [true]}', schema), BadArguments)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.text(max_size=80) | JSON.map(json.dumps))
def test_whatever_a_model_writes_there_is_an_answer(raw):
    assert isinstance(read_arguments(raw, TODO), dict | BadArguments)


@examples(30)
@given(st.dictionaries(st.sampled_from(["type", "properties", "$ref", "allOf", "enum", "if", "$id", "items"]), JSON))
def test_whatever_a_server_calls_a_schema_there_is_an_answer(schema):
    raw = json.dumps(schema)
    assert isinstance(read_arguments('{"a": 1}', tool(json.loads(raw))), dict | BadArguments)


def test_a_null_for_what_may_be_left_out_is_taken_as_left_out():
    parameters = {
        "type": "object",
        "properties": {"title": {"type": "string"}, "due": {"type": "string"}, "note": {"type": ["string", "null"]}},
        "required": ["title"],
    }
    schema = ToolSchema(name="t", parameters=parameters)
    assert read_arguments('{"title": "x", "due": null}', schema) == {"title": "x"}
    assert read_arguments('{"title": "x", "note": null}', schema) == {"title": "x", "note": None}
    assert isinstance(read_arguments('{"title": null}', schema), BadArguments)
