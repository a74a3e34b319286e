"""Sentences that name a tool: which call comes of them, or what the model asks for."""

from dataclasses import dataclass
from typing import Any

import pytest

from holodeck.core.messages import ToolCall, ToolMessage
from holodeck.core.tools import ToolSchema
from tests.models.demo.demo_chat import Conversation
from tests.models.demo.sentences import NOW
from tests.models.demo.todo_double import TODO_TOOLS, TodoDouble

NUMBER, TEXT = {"type": "number"}, {"type": "string"}


def tool(name: str, /, *required: str, **properties: Any) -> ToolSchema:
    schema = {"type": "object", "properties": properties, "required": list(required or properties)}
    return ToolSchema(name=name, parameters=schema)


CONVERT = tool("convert", miles=NUMBER)
UNITS = tool("convert", value=NUMBER, to={"type": "string", "enum": ["miles", "kilometres"]})
ADD = tool("add", a=NUMBER, b=NUMBER)
GREET = tool("greet", name=TEXT)
REPEAT = tool("repeat", text=TEXT, times={"type": "integer"})
MAIL = tool("send_mail", "to", "body", to=TEXT, body=TEXT, urgent={"type": "boolean"}, cc={"type": ["string", "null"]})
WEATHER = tool("get_weather", "city", city=TEXT, unit={"anyOf": [{"enum": ["celsius", "kelvin"]}, {"type": "null"}]})
TOTAL = tool("total", numbers={"type": "array", "items": NUMBER})
PAINT = ToolSchema(
    name="paint",
    parameters={
        "properties": {"colour": {"$ref": "#/$defs/Colour"}, "options": {"type": "object"}},
        "required": ["colour"],
        "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"]}},
    },
)
CLOCK = tool("clock")


@dataclass(frozen=True)
class Case:
    sentence: str
    tool: ToolSchema
    arguments: dict[str, Any] | None = None  # None: the tool is not called
    asks: str = ""


CASES = (
    Case("convert 5 miles", CONVERT, {"miles": 5}),
    Case("Please convert 5 miles.", CONVERT, {"miles": 5}),
    Case("Could you convert 26.2 miles for me?", CONVERT, {"miles": 26.2}),
    Case("convert miles 5", CONVERT, {"miles": 5}),
    Case("convert miles=5", CONVERT, {"miles": 5}),
    Case("convert Miles: -5", CONVERT, {"miles": -5}),
    Case("convert(miles=5)", CONVERT, {"miles": 5}),
    Case("call convert with miles 5", CONVERT, {"miles": 5}),
    Case("use the tool convert with miles = 5", CONVERT, {"miles": 5}),
    Case("convert five miles", CONVERT, {"miles": 5}),
    Case("convert value=5 to=kilometres", UNITS, {"value": 5, "to": "kilometres"}),
    Case("convert 5 to kilometres", UNITS, {"value": 5, "to": "kilometres"}),
    Case("convert 5 Kilometres", UNITS, {"value": 5, "to": "kilometres"}),
    Case("run add with a 2 and b 3", ADD, {"a": 2, "b": 3}),
    Case("add 2 and 3", ADD, {"a": 2, "b": 3}),
    Case("add 2, 3", ADD, {"a": 2, "b": 3}),
    Case("greet Ann", GREET, {"name": "Ann"}),
    Case("greet Ann and Bob, my friends", GREET, {"name": "Ann and Bob, my friends"}),
    Case('greet name="Ann Smith"', GREET, {"name": "Ann Smith"}),
    Case("greet 5", GREET, {"name": "5"}),
    Case("repeat hello 3", REPEAT, {"text": "hello", "times": 3}),
    Case("repeat 3 times hello you", REPEAT, {"text": "hello you", "times": 3}),
    Case("send mail to bob see you soon", MAIL, {"to": "bob", "body": "see you soon"}),
    Case("send_mail to=bob body=hi urgent=yes", MAIL, {"to": "bob", "body": "hi", "urgent": True}),
    Case("get weather in Paris", WEATHER, {"city": "Paris"}),
    Case("get_weather Paris kelvin", WEATHER, {"city": "Paris", "unit": "kelvin"}),
    Case("total 1 2 3.5", TOTAL, {"numbers": [1, 2, 3.5]}),
    Case("total numbers=[1, 2]", TOTAL, {"numbers": [1, 2]}),
    Case("total numbers=1,2", TOTAL, {"numbers": [1, 2]}),
    Case('paint BLUE options={"coats": 2}', PAINT, {"colour": "blue", "options": {"coats": 2}}),
    Case("clock", CLOCK, {}),
    Case("convert", CONVERT, asks="convert needs miles (number)."),
    Case("convert far", CONVERT, asks="convert needs miles (number)."),
    Case("convert 5", UNITS, asks="convert needs to (miles or kilometres)."),
    Case("convert now", UNITS, asks="convert needs value (number) and to (miles or kilometres)."),
    Case("convert miles=far", CONVERT, asks="convert cannot take miles=far: it takes miles (number)."),
    Case("convert yards=5", CONVERT, asks="convert cannot take yards=5: it takes miles (number)."),
    Case("repeat hello times=2.5", REPEAT, asks="cannot take times=2.5"),
    Case("total 1 x", TOTAL, {"numbers": [1]}),
    Case("clock at=noon", CLOCK, asks="it takes no arguments"),
    Case("converted 5 miles", CONVERT, asks="did not understand"),
    Case("colourless green ideas", CONVERT, asks="`convert`"),
)


def result(call: ToolCall) -> ToolMessage:
    return ToolMessage(call_id=call.id, name=call.name, content=f"result of {call.arguments}")


def talk(*tools: ToolSchema) -> Conversation:
    return Conversation(result, tools, NOW)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
async def test_a_sentence_that_names_a_tool(case: Case) -> None:
    calls, answer = await talk(case.tool).say(case.sentence)
    assert calls == ([] if case.arguments is None else [(case.tool.name, case.arguments)])
    assert (case.asks or "result of") in answer


async def test_missing_arguments_may_come_one_by_one() -> None:
    conversation = talk(UNITS)
    assert await conversation.say("convert") == ([], "convert needs value (number) and to (miles or kilometres).")
    assert await conversation.say("5") == ([], "convert needs to (miles or kilometres).")
    calls, _ = await conversation.say("kilometres")
    assert calls == [("convert", {"value": 5, "to": "kilometres"})]


async def test_a_no_drops_the_call() -> None:
    conversation = talk(CONVERT, *TODO_TOOLS)
    await conversation.say("convert")
    assert await conversation.say("no") == ([], "All right, I leave it as it is.")


TODOS_FIRST = {
    "add 2 and 3": "create_todo",
    "show my list": "list_todos",
    "convert 5 miles": "convert",
    "call add with a 2 and b 3": "add",
    "call mom": "create_todo",
    "list_todos status=all": "list_todos",
}


@pytest.mark.parametrize("sentence", TODOS_FIRST)
async def test_todo_sentences_come_first_where_there_are_todo_tools(sentence: str) -> None:
    todos = TodoDouble(NOW)

    def answer(call: ToolCall) -> ToolMessage:
        return result(call) if call.name in {"add", "convert"} else todos.answer(call)

    calls, _ = await Conversation(answer, (*TODO_TOOLS, ADD, CONVERT), NOW).say(sentence)
    assert [name for name, _ in calls] == [TODOS_FIRST[sentence]]


@pytest.mark.parametrize(
    "schema",
    [{}, {"properties": {"x": True}}, {"properties": {"x": {"enum": []}}, "required": ["x"]}, {"required": ["gone"]}],
)
async def test_an_odd_schema_gets_an_answer(schema: dict[str, Any]) -> None:
    _, answer = await talk(ToolSchema(name="odd", parameters=schema)).say("odd 1 x=2 " + "[{(\"'" * 50)
    assert answer
