"""Final answers that are values: types, the check, one repair, a typed error."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic
import pytest

from holodeck.agent.structured_output import BadOutputError, OutputType
from holodeck.core import events as e
from holodeck.errors import ConfigError, by_code
from holodeck.models.scripted import calls, says
from tests.agent.agent_fixture import AgentFixture


class Pydantic(pydantic.BaseModel):
    city: str
    people: int


@dataclass
class Dataclass:
    city: str
    people: int


class Typed(TypedDict):
    city: str
    people: int


class Struct(msgspec.Struct):
    city: str
    people: int


KINDS = {
    "pydantic": (Pydantic, Pydantic(city="Bonn", people=330_000)),
    "dataclass": (Dataclass, Dataclass("Bonn", 330_000)),
    "TypedDict": (Typed, {"city": "Bonn", "people": 330_000}),
    "msgspec": (Struct, Struct("Bonn", 330_000)),
}
ANSWER = '{"city": "Bonn", "people": 330000}'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.req("MOD-02")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_answer_is_a_value_of_the_type(kind):
    made, expected = KINDS[kind]
    fixture = AgentFixture(says(ANSWER), output=OutputType.of(made))
    response = await fixture.play("Where?")
    assert response.output == expected
    assert type(response.output) is type(expected)
    assert fixture.ending.output == {"city": "Bonn", "people": 330_000}
    shown = fixture.model.prompts[0].output.schema
    assert shown["type"] == "object"
    assert set(shown["properties"]) == {"city", "people"}
    assert "".join(event.delta for event in fixture.emitted(e.TextAdded)) == ANSWER


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [(list[int], '{"value": [1, 2]}', [1, 2]), (int, '{"value": 7}', 7), (bool, '{"value": false}', False)],
)
def test_a_schema_that_is_not_an_object_is_wrapped_in_one(kind, text, expected):
    output = OutputType.of(kind)
    assert output.schema.schema["type"] == "object"
    assert output.read(text) == (expected, expected)


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        f"```json\n{ANSWER}\n```",
        f"```\n{ANSWER}```",
        f"Here it is:\n{ANSWER}",
        f"  {ANSWER}\n",
        f"Sure! ```{ANSWER}```",
    ],
)
def test_a_fence_or_a_sentence_around_it_does_no_harm(text):
    assert OutputType.of(Typed).read(text)[0] == {"city": "Bonn", "people": 330_000}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("Bonn", "it is not JSON"),
        ('{"city": "Bonn"', "it is not JSON"),
        ('{"city": "Bonn"}', "'people' is a required property"),
        ('{"city": 5, "people": 1}', "city: 5 is not of type 'string'"),
        (f"{ANSWER} and so on", "it is not JSON"),
        ("[1]", "is not of type 'object'"),
        ("[" * 200_000, "it is nested too deeply"),
    ],
)
def test_problems_are_reported_in_words(text, problem):
    with pytest.raises(BadOutputError, match=problem):
        OutputType.of(Typed).read(text)


def test_a_type_may_be_stricter_than_its_schema():
    class Even(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def _even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("must be even")
            return number

    with pytest.raises(BadOutputError, match="must be even"):
        OutputType.of(Even).read('{"number": 3}')


async def test_a_wrong_answer_is_asked_for_once_more_and_leaves_no_trace():
    fixture = AgentFixture(says("It is Bonn."), says('{"city": "Bonn"}'), output=OutputType.of_schema(SCHEMA))
    response = await fixture.play("Where?")
    assert response.output == {"city": "Bonn"}
    assert response.final_response == '{"city": "Bonn"}'
    asked = fixture.model.prompts[1].messages
    assert [text.content for text in asked][:2] == ["Where?", "It is Bonn."]
    assert "it is not JSON" in asked[2].content
    assert [message.content for message in fixture.conversation.messages] == ["Where?", '{"city": "Bonn"}']
    assert [event.code for event in fixture.emitted(e.WarningRaised)] == ["output-repaired"]


async def test_a_second_wrong_answer_is_a_typed_error():
    fixture = AgentFixture(says("It is Bonn."), says("Bonn!"), output=OutputType.of_schema(SCHEMA))
    response = await fixture.play("Where?")
    assert (response.status, response.output, response.error_code) == ("error", None, "model-error")
    assert fixture.ending.reason == "invalid_output"
    assert "does not have the required form: it is not JSON" in fixture.ending.message
    assert fixture.conversation.messages[-1].cut == "invalid_output"
    assert by_code(fixture.ending.code, "x").status == 502


async def test_an_answer_that_was_cut_is_not_repaired():
    fixture = AgentFixture(says('{"city": "Bo', finish_reason="length"), output=OutputType.of_schema(SCHEMA))
    await fixture.play("Where?")
    assert "raise model.max_tokens" in fixture.ending.message
    assert len(fixture.model.prompts) == 1


async def test_the_last_iteration_is_not_spent_twice():
    fixture = AgentFixture(says("Bonn"), output=OutputType.of_schema(SCHEMA), max_iterations=1)
    await fixture.play("Where?")
    assert fixture.ending.reason == "invalid_output"


async def test_tools_are_used_before_the_answer():
    fixture = AgentFixture(calls(("echo", "{}")), says('{"city": "Bonn"}'), output=OutputType.of_schema(SCHEMA))
    response = await fixture.play("Where?")
    assert response.output == {"city": "Bonn"}
    assert len(response.executions) == 1


def test_openais_own_form_of_a_schema_is_understood():
    output = OutputType.of_schema({"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}})
    assert output.schema.name == "place"
    assert output.read('{"city": "Bonn"}')[0] == {"city": "Bonn"}


def test_an_invalid_schema_is_a_config_error():
    with pytest.raises(ConfigError, match="is not a JSON Schema: 'objekt' is not valid"):
        OutputType.of_schema({"type": "objekt"})


def test_strict_only_where_it_is_allowed():
    closed = {**SCHEMA, "additionalProperties": False}
    assert OutputType.of_schema(closed).schema.is_strict
    assert not OutputType.of_schema(SCHEMA).schema.is_strict
    nested = {"type": "object", "properties": {"a": SCHEMA}, "required": ["a"], "additionalProperties": False}
    assert not OutputType.of_schema(nested).schema.is_strict


@pytest.mark.parametrize(
    "target", ["https://schemas.example/a.json", "other.json#/$defs/a", "#/$defs/b", "#/$defs/a/x"]
)
def test_a_schema_that_refers_to_what_it_does_not_hold_is_refused(target):
    """No provider fetches it, and jsonschema would, in the middle of the event loop."""
    schema = {"type": "object", "properties": {"x": {"$ref": target}}, "$defs": {"a": {"type": "string"}}}
    with pytest.raises(ConfigError, match=r"refers to .* put that schema under \$defs"):
        OutputType.of_schema(schema)


@pytest.mark.parametrize("target", ["#/$defs/a%20b", "#/$defs/c~1d", "#", "#anchor", "#/$defs/list/prefixItems/0"])
def test_a_schema_may_refer_to_itself(target):
    defs = {"a b": {"type": "string"}, "c/d": {"$anchor": "anchor"}, "list": {"prefixItems": [{"type": "string"}]}}
    schema = {"type": "object", "properties": {"x": {"$ref": target}}, "$defs": defs}
    assert OutputType.of_schema(schema).schema.schema == schema


def test_a_member_that_is_called_ref_is_no_reference():
    assert OutputType.of_schema({"type": "object", "properties": {"$ref": {"type": "string"}}}).schema


@pytest.mark.req("T18")
def test_the_check_of_a_long_list_stops_after_a_hundred_problems():
    numbers = OutputType.of_schema({"type": "array", "items": {"type": "integer"}})
    with pytest.raises(BadOutputError, match=r"value/99: '' is not of type 'integer'"):
        numbers.read(msgspec.json.encode({"value": [""] * 10_000}).decode())


@pytest.mark.req("T18")
def test_the_items_of_a_long_list_are_compared_in_linear_time(monkeypatch):
    """jsonschema compares each object with all others: 8 seconds for 3,000 of them."""
    compared = []
    monkeypatch.setattr("jsonschema._utils.equal", lambda one, other: compared.append(one) or one == other)
    different = OutputType.of_schema({"type": "array", "items": {"type": "object"}, "uniqueItems": True})
    items = [{"number": number} for number in range(500)]
    assert different.read(msgspec.json.encode({"value": items}).decode())[0] == items
    assert compared == []
    with pytest.raises(BadOutputError, match="has an item twice"):
        different.read(msgspec.json.encode({"value": [*items, {"number": 0}]}).decode())


@pytest.mark.parametrize(
    ("items", "are_equal"),
    [
        ("[1, 1.0]", True),
        ("[0.0, -0.0]", True),
        ('[{"a": [1], "b": 2}, {"b": 2.0, "a": [1.0]}]', True),
        ("[1, true]", False),
        ("[[0], [false]]", False),
        ('[1, "1"]', False),
        ("[1.5, 1]", False),
    ],
)
def test_items_are_equal_as_json_schema_defines_it(items, are_equal):
    different = OutputType.of_schema({"type": "array", "uniqueItems": True})
    with pytest.raises(BadOutputError, match="has an item twice") if are_equal else nullcontext():
        different.read(f'{{"value": {items}}}')


@pytest.mark.req("T18")
@pytest.mark.parametrize("depth", [900, 100_000])
def test_an_answer_that_nests_too_deep_is_a_problem_of_the_answer(depth):
    tree = OutputType.of_schema({"type": "object", "properties": {"a": {"$ref": "#"}}})
    with pytest.raises(BadOutputError, match="nested too deeply"):
        tree.read('{"a":' * depth + "{}" + "}" * depth)
