"""Long results: what is left out can be read on, in pieces, within bounds."""

import json

import pytest

from holodeck.agent import tool_calls
from holodeck.agent.tool_calls import KeptResults
from holodeck.core import events as e
from holodeck.core.messages import ToolMessage
from holodeck.core.tools import ToolResult
from holodeck.models.scripted import calls, says
from holodeck.tools.port import ToolContext
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo

CONTEXT = ToolContext(user_id="ada")
BOOK = "".join(f"line {number:05}\n" for number in range(1000))  # 11,000 characters


async def book(arguments, context):
    return ToolResult(content=BOOK)


def asks_on(*arguments):
    return [calls(("read_result", json.dumps(each))) for each in arguments]


@pytest.mark.req("AGT-08")
async def test_a_model_reads_a_long_result_to_its_end():
    reads = asks_on(*({"call_id": "c1", "offset": offset} for offset in range(1000, 11_000, 900)))
    fixture = AgentFixture(
        calls(("book", "{}")), *reads, says("read"), tools=PlainTools(book=book), max_result_characters=1000
    )
    response = await fixture.play("go")
    assert response.status == "completed"
    first, *pieces = [message for message in fixture.conversation.messages if isinstance(message, ToolMessage)]
    assert first.content.endswith(
        '… [10000 of 11000 characters left out; read_result shows them: call_id "c1", offset 1000]'
    )
    assert pieces[0].content.startswith("[characters 1000 to 1900 of 11000]\n")
    whole = first.content.split("…")[0] + "".join(piece.content.split("]\n", 1)[1] for piece in pieces)
    assert whole == BOOK
    assert max(len(piece.content) for piece in pieces) <= 1000


async def test_the_tool_is_offered_only_when_there_is_something_to_read():
    tools = PlainTools(book=book, echo=echo)
    fixture = AgentFixture(
        calls(("echo", "{}")), calls(("book", "{}")), says("ok"), tools=tools, max_result_characters=1000
    )
    await fixture.play("go")
    offered = [{schema.name for schema in prompt.tools} for prompt in fixture.model.prompts]
    assert ["read_result" in names for names in offered] == [False, False, True]
    await fixture.play("and now?")
    assert "read_result" not in {schema.name for schema in fixture.model.prompts[-1].tools}, "kept for one run"


async def test_a_tool_of_the_agent_keeps_its_name():
    tools = PlainTools(book=book, read_result=echo)
    fixture = AgentFixture(
        calls(("book", "{}")), calls(("read_result", "{}")), says("ok"), tools=tools, max_result_characters=99
    )
    await fixture.play("go")
    assert fixture.emitted(e.ToolFinished)[-1].content == "ada: {}"


async def test_a_toolset_that_shortens_by_itself_uses_the_runs_way():
    async def own_limit(arguments, context):
        return ToolResult(content=context.shorten(BOOK, 50))

    reads = asks_on({"call_id": "c1", "offset": 10_989})
    tools = PlainTools(own_limit=own_limit)
    fixture = AgentFixture(calls(("own_limit", "{}")), *reads, says("ok"), tools=tools, max_result_characters=130)
    await fixture.play("go")
    short, rest = (event.content for event in fixture.emitted(e.ToolFinished))
    assert short.startswith(BOOK[:50] + "… [10950 of 11000 characters left out; read_result")
    assert rest == "[characters 10989 to 11000 of 11000]\nline 00999\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"call_id": "nope"}, "No result is stored for 'nope'; known ids: a."),
        ({"call_id": "a", "offset": 11_000}, "has 11000 characters; offset 11000 is past its end"),
        ({"call_id": "a", "offset": 3, "length": 4}, "[characters 3 to 7 of 11000]\ne 00"),
        ({"call_id": "a", "length": 10**9}, "[characters 0 to 900 of 11000]"),
    ],
)
async def test_arguments_of_read_result(arguments, text):
    kept = KeptResults(1000)
    kept.shorten("a", BOOK, 10)
    result = await kept.call("read_result", arguments, CONTEXT)
    assert text in result.text
    assert len(result.text) <= 1000


@pytest.mark.req("T18")
async def test_no_more_is_kept_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(tool_calls, "MAX_KEPT", 30_000)
    kept = KeptResults(1000)
    for call_id in "abcd":
        assert "read_result" in kept.shorten(call_id, BOOK, 10)
    assert [call_id in kept.texts for call_id in "abcd"] == [False, False, True, True]
    assert "read_result" not in kept.shorten("e", "x" * 30_001, 10), "what cannot be kept is not promised"
    assert "e" not in kept.texts


@pytest.mark.parametrize("call_id", ["{0}", "{", "a}b{c", '"]'])
def test_any_call_id_can_be_in_the_note(call_id):
    assert f'call_id "{call_id}"' in KeptResults(1000).shorten(call_id, BOOK, 10)


def test_short_results_and_calls_without_an_id_are_left_alone():
    kept = KeptResults(1000)
    assert kept.shorten("a", "short", 10) == "short"
    assert kept.shorten("", BOOK, 10) == BOOK[:10] + "… [10990 of 11000 characters left out]"
    assert kept.shorten("b", "half \ud800 pair\x00", 100) == "half \ufffd pair"
