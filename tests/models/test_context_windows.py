"""How much models can read: the table, and an overflow that every API reports in its own words."""

import pytest

from holodeck.agent.definition import AgentContext, AgentDefinition
from holodeck.agent.loop import run
from holodeck.core import events as e
from holodeck.core.messages import AssistantMessage, UserMessage
from holodeck.models.anthropic.messages_model import AnthropicModel
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.context_windows import known_window, room_for_history
from holodeck.models.endpoint_settings import EndpointSettings
from holodeck.models.openai_responses.responses_model import ResponsesModel
from holodeck.sessions.transcript import Transcript
from holodeck.tools.catalogue import Catalogue
from holodeck.tools.functions import FunctionToolset
from tests.models.anthropic.message_streams import SHAPES as MESSAGES
from tests.models.anthropic.message_streams import Shape, end, start
from tests.models.endpoint import ModelEndpoint, Respond, status, stream, text_stream
from tests.models.openai_responses.response_streams import SHAPES as RESPONSES


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("gpt-4.1-mini", 1_047_576),
        ("gpt-5-mini", 400_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-4o", 128_000),
        ("gpt-4", 8_192),
        ("o4-mini", 200_000),
        ("claude-sonnet-4-5", 200_000),
        ("gemini-2.5-flash", 1_048_576),
        ("openai/GPT-4.1", 1_047_576),
        ("llama3.2", None),
        ("o", None),
        ("olmo-2", None),
        ("", None),
    ],
)
def test_windows_that_a_name_shows(name, window):
    assert known_window(name) == window


@pytest.mark.parametrize(
    ("window", "max_tokens", "room"),
    [(200_000, None, 138_000), (8_192, None, 4_608), (8_192, 192, 6_000), (1000, 9_999, 562)],
)
def test_an_answer_has_room_beside_the_conversation(window, max_tokens, room):
    assert room_for_history(window, max_tokens) == room


def refused(**error: str) -> Respond:
    return status(400, {"type": "error", "error": error})


def chat_model(url: str) -> OpenAIChatModel:
    return OpenAIChatModel(EndpointSettings(name="m", endpoint=url))


def responses_model(url: str) -> ResponsesModel:
    return ResponsesModel(EndpointSettings(name="m", endpoint=url))


def anthropic_model(url: str) -> AnthropicModel:
    endpoint = url.removesuffix("/v1")
    return AnthropicModel(EndpointSettings(name="m", provider="anthropic", endpoint=endpoint, api_key="k"))


OVERFLOWS = {
    "chat": (chat_model, refused(code="context_length_exceeded", message="Too many."), text_stream("Hello")),
    "responses": (
        responses_model,
        refused(code="context_length_exceeded", message="Your input exceeds the context window of this model."),
        stream(RESPONSES["openai: text"].body),
    ),
    "anthropic": (
        anthropic_model,
        refused(type="invalid_request_error", message="prompt is too long: 210000 tokens > 200000 maximum"),
        stream(*MESSAGES["text"].frames),
    ),
    "anthropic, in the stream": (
        anthropic_model,
        stream(*Shape([start(), *end("model_context_window_exceeded")]).frames),
        stream(*MESSAGES["text"].frames),
    ),
}


def long_conversation() -> Transcript:
    turns = [[UserMessage(content=f"question {n} " * 50), AssistantMessage(content="answer " * 50)] for n in range(6)]
    return Transcript([message for turn in turns for message in turn])


@pytest.mark.parametrize(("model_at", "overflow", "answer"), OVERFLOWS.values(), ids=OVERFLOWS)
async def test_an_overflow_is_answered_with_a_shorter_conversation_once(model_at, overflow, answer):
    events: list[e.Event] = []
    async with ModelEndpoint(overflow, answer) as endpoint:
        agent = AgentDefinition(name="a", model=model_at(endpoint.url), tools=Catalogue.of(FunctionToolset([])))
        context = AgentContext(conversation=long_conversation(), input=[UserMessage(content="and now?")])
        async with agent:
            response = await run(agent, context, events.append)
    assert response.status == "completed"
    assert [event.code for event in events if isinstance(event, e.WarningRaised)] == ["history-shortened"]
    first, second = (len(request.body) for request in endpoint.requests)
    assert second < 0.7 * first


@pytest.mark.parametrize(("model_at", "overflow", "answer"), OVERFLOWS.values(), ids=OVERFLOWS)
async def test_a_message_that_does_not_fit_is_a_typed_error(model_at, overflow, answer):
    events: list[e.Event] = []
    async with ModelEndpoint(overflow, answer) as endpoint:
        agent = AgentDefinition(name="a", model=model_at(endpoint.url), tools=Catalogue.of(FunctionToolset([])))
        context = AgentContext(conversation=Transcript(), input=[UserMessage(content="and now?")])
        async with agent:
            await run(agent, context, events.append)
    assert isinstance(events[-1], e.RunFailed)
    assert events[-1].reason == "context_overflow"
    assert len(endpoint.requests) == 1
