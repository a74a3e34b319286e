"""How an endpoint is asked for an answer by a schema: natively, by a tool, by instructions; each learned by a refusal."""

import logging

import pytest

from holodeck.core.tools import ToolSchema
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.openai_responses.responses_model import ResponsesModel
from holodeck.models.port import OutputSchema, Prompt
from tests.models.asking import PROMPT
from tests.models.endpoint import ModelEndpoint, status, text_stream, tool_call_stream
from tests.models.openai_responses.response_streams import OPENING, Shape, call_events, completed, message, text_events
from tests.models.openai_responses.test_responses_model import stream
from tests.models.recording_listener import RecordingListener

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
ASKED = Prompt(system="Be brief.", messages=PROMPT.messages, output=OutputSchema(schema=SCHEMA, name="place"))
NO_FORMAT = status(
    400, {"error": {"message": "response_format of type json_schema is not supported", "param": "response_format"}}
)
NO_TOOLS = status(400, {"error": {"message": "this model does not support tools"}})


async def replies(kind, *responses):
    listener = RecordingListener()
    async with ModelEndpoint(*responses) as endpoint:
        model = kind(EndpointSettings(name="m", endpoint=endpoint.url))
        first = await model.reply(ASKED, listener)
        await model.reply(ASKED, RecordingListener())
        await model.close()
    return first, listener, [request.json for request in endpoint.requests]


async def test_chat_completions_take_a_response_format():
    reply, listener, (sent, _) = await replies(OpenAIChatModel, text_stream('{"a":', " 1}"))
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "place", "schema": SCHEMA, "strict": True},
    }
    assert reply.text == listener.words == '{"a": 1}'


async def test_responses_take_a_text_format():
    body = Shape([*OPENING, *text_events(0, '{"a":', " 1}"), completed(message('{"a": 1}'))]).body
    reply, _, (sent, _) = await replies(ResponsesModel, stream(body))
    assert sent["text"] == {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
    assert reply.text == '{"a": 1}'


@pytest.mark.parametrize("kind", [OpenAIChatModel, ResponsesModel])
async def test_an_endpoint_without_it_gets_a_tool_for_the_answer(kind, caplog):
    answers = {
        OpenAIChatModel: tool_call_stream(("c1", "give_answer", '{"a": 1}')),
        ResponsesModel: stream(Shape([*OPENING, *call_events(0, "give_answer", '{"a"', ": 1}"), completed()]).body),
    }
    with caplog.at_level(logging.WARNING):
        reply, listener, (first, *later) = await replies(kind, NO_FORMAT, answers[kind])
    assert "response_format" in first or "format" in first["text"]
    for sent in later:
        assert "response_format" not in sent
        tool = sent["tools"][-1]
        assert (tool.get("function") or tool)["parameters"] == SCHEMA
    assert reply.text == listener.words == '{"a": 1}'
    assert (reply.tool_calls, reply.finish_reason, listener.ended) == ((), "stop", [])
    assert [record.getMessage() for record in caplog.records] == [
        "openai_compatible/m: the endpoint refuses its own structured output; a tool for the answer is used"
    ]


async def test_an_endpoint_without_tools_gets_instructions():
    reply, _, sent = await replies(OpenAIChatModel, NO_FORMAT, NO_TOOLS, text_stream('{"a": 1}'))
    assert [("response_format" in body, "tools" in body) for body in sent] == [
        (True, False), (False, True), (False, False), (False, False),
    ]  # fmt: skip
    assert '"additionalProperties": false' in sent[2]["messages"][0]["content"]
    assert reply.text == '{"a": 1}'


async def test_a_prompt_without_a_schema_is_as_before():
    async with ModelEndpoint(text_stream("Hi")) as endpoint:
        model = OpenAIChatModel(EndpointSettings(name="m", endpoint=endpoint.url))
        await model.reply(PROMPT, RecordingListener())
        await model.close()
    assert "response_format" not in endpoint.requests[0].json


async def test_a_model_that_has_to_answer_is_offered_no_tools():
    tool = ToolSchema(name="f", description="d", parameters={"type": "object"})
    prompt = Prompt(messages=PROMPT.messages, tools=(tool,), answers_now=True)
    chosen = {"tool_choice": "required", "parallel_tool_calls": False}
    body = Shape([*OPENING, *text_events(0, "Hi"), completed(message("Hi"))]).body
    for kind, answer in ((OpenAIChatModel, text_stream("Hi")), (ResponsesModel, stream(body))):
        async with ModelEndpoint(answer) as endpoint:
            model = kind(EndpointSettings(name="m", endpoint=endpoint.url, **chosen))
            await model.reply(prompt, RecordingListener())
            await model.close()
        assert {"tools", "tool_choice", "parallel_tool_calls"}.isdisjoint(endpoint.requests[0].json)


def test_anthropic_keeps_its_tools_and_may_not_use_them():
    """Its API refuses a history with tool calls if no tools are given."""
    tool = ToolSchema(name="f", description="d", parameters={"type": "object"})
    prompt = Prompt(messages=PROMPT.messages, tools=(tool,), answers_now=True)
    assert EndpointSettings(name="m", provider="anthropic").choice_of_tools(prompt) == "none"
