"""The Responses client over real sockets: what it sends, what it learns, what it keeps from turn to turn."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holodeck.agent.definition import AgentDefinition
from holodeck.core.events import ReasoningAdded, TextAdded, ToolCallStarted, ToolFinished
from holodeck.core.messages import AssistantMessage, MediaPart, TextPart, ToolCall, ToolMessage, UserMessage
from holodeck.core.tools import ToolSchema
from holodeck.errors import (
    ContentFiltered,
    ContextOverflow,
    ModelAuthFailed,
    ModelError,
    ModelInterrupted,
    ModelRejected,
    ModelTruncated,
)
from holodeck.models.chat_completions_model import OpenAIChatModel
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings, Reasoning
from holodeck.models.openai_responses.output_items import KEPT
from holodeck.models.openai_responses.responses_model import ChosenApiModel, ResponsesModel, is_openai_reasoning
from holodeck.models.port import Prompt
from holodeck.tools.catalogue import Catalogue
from tests.agent.agent_fixture import AgentFixture, PlainTools, echo
from tests.models.asking import KEY, OK, PROMPT
from tests.models.endpoint import ModelEndpoint, Respond, Wire, status, stream
from tests.models.openai_responses.response_streams import (
    CREATED,
    OPENING,
    SEARCH,
    SHAPES,
    Shape,
    call_events,
    completed,
    ev,
    item_events,
    message,
    reasoning,
    reasoning_events,
    response,
    text_events,
)
from tests.models.recording_listener import RecordingListener

HI = stream(Shape([*OPENING, *text_events(0, "Hi"), completed(message("Hi"))]).body)
NO_PAGE = status(404, b'{"detail":"Not Found"}')


def settings(url: str, **changed: Any) -> EndpointSettings:
    return EndpointSettings(
        **{"name": "m", "endpoint": url, "api_key": KEY, "deadlines": Deadlines(connect=2), **changed}
    )


async def no_pause(_seconds: float) -> None:
    return None


@asynccontextmanager
async def asking(*responses: Respond, **changed: Any) -> AsyncIterator[tuple[ResponsesModel, ModelEndpoint]]:
    async with ModelEndpoint(*responses) as endpoint:
        model = ResponsesModel(settings(endpoint.url, **changed), sleep=no_pause)
        try:
            yield model, endpoint
        finally:
            await model.close()


def refused(param: str | None, text: str, code: int = 400) -> Respond:
    return status(code, {"error": {"message": text, "type": "invalid_request_error", "param": param, "code": None}})


# what is sent


async def test_the_request_keeps_nothing_at_the_provider_and_asks_for_encrypted_reasoning():
    tool = ToolSchema(name="f", description="d", parameters={"type": "object"})
    async with asking(HI) as (model, endpoint):
        reply = await model.reply(
            Prompt(system="Be brief.", messages=PROMPT.messages, tools=(tool,)), RecordingListener()
        )
    assert reply.text == "Hi"
    assert endpoint.requests[0].path == "/v1/responses"
    assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert endpoint.requests[0].json == {
        "model": "m",
        "input": [{"role": "user", "content": "Hi"}],
        "instructions": "Be brief.",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
        ],
    }


async def test_every_option_has_its_member(caplog):
    changed = {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "reasoning": Reasoning(effort="low"), "verbosity": "low",
        "tool_choice": "f", "parallel_tool_calls": False, "service_tier": "flex", "extra": {"metadata": {"a": "b"}},
        "provider_tools": ({"type": "web_search"},), "seed": 7, "stop": ("x",),
    }  # fmt: skip
    with caplog.at_level(logging.WARNING):
        async with asking(HI, **changed) as (model, endpoint):
            await model.reply(PROMPT, RecordingListener())
            await model.reply(PROMPT, RecordingListener())
    sent = endpoint.requests[0].json
    assert (sent["temperature"], sent["top_p"], sent["max_output_tokens"]) == (0.5, 0.9, 50)
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
    assert sent["text"] == {"verbosity": "low"}
    assert sent["tool_choice"] == {"type": "function", "name": "f"}
    assert (sent["parallel_tool_calls"], sent["service_tier"], sent["metadata"]) == (False, "flex", {"a": "b"})
    assert sent["tools"] == [{"type": "web_search"}]
    assert "seed" not in sent
    assert sorted(record.getMessage().split("no ")[1].split(";")[0] for record in caplog.records) == ["seed", "stop"]


async def test_the_default_temperature_is_left_to_the_model():
    async with asking(HI, temperature=1.0) as (model, endpoint):
        await model.reply(PROMPT, RecordingListener())
    assert "temperature" not in endpoint.requests[0].json


async def test_pictures_files_and_results_have_their_parts():
    picture = MediaPart(mime_type="image/png", data="aGk=")
    messages = (
        UserMessage(content=(TextPart("Look"), picture, MediaPart(mime_type="application/pdf", data="JVBE", filename="a.pdf"))),
        AssistantMessage(content="One moment.", tool_calls=(ToolCall(id="c1", name="f", arguments=""), ToolCall(id="c2", name="g", arguments="{}"))),
        ToolMessage(call_id="c1", name="f", content="plain"),
        ToolMessage(call_id="c2", name="g", content=(TextPart("see"), picture)),
    )  # fmt: skip
    async with asking(HI) as (model, endpoint):
        await model.reply(Prompt(messages=messages), RecordingListener())
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
    assert endpoint.requests[0].json["input"] == [
        {"role": "user", "content": [
            {"type": "input_text", "text": "Look"}, image,
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
        ]},
        {"role": "assistant", "content": "One moment."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "plain"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "see"}, image]},
    ]  # fmt: skip


# what is kept and goes back


def thinking_agent(model: ResponsesModel) -> AgentFixture:
    fixture = AgentFixture(tools=PlainTools(f=echo))
    fixture.agent = AgentDefinition(name="test", model=model, tools=Catalogue.of(fixture.tools))
    return fixture


THINKS = stream(
    Shape(
        [*OPENING, *reasoning_events(0, ["Hm"]), *item_events(1, SEARCH), *call_events(2, "f", "{}"), completed()]
    ).body
)
ANSWERS = stream(Shape([*OPENING, *reasoning_events(0, ["So"], id="rs_2"), *text_events(1, "42"), completed()]).body)


@pytest.mark.req("MOD-01")
async def test_reasoning_and_provider_tools_survive_a_tool_call_in_their_order():
    async with asking(THINKS, ANSWERS) as (model, endpoint):
        fixture = thinking_agent(model)
        result = await fixture.play("go")
        assert result.final_response == "42"
        assert [event.name for event in fixture.emitted(ToolCallStarted)] == ["web_search", "f"]
        assert [event.content for event in fixture.emitted(ToolFinished)] == ["completed", "ada: {}"]
        assert fixture.tools.called == [("f", {}, "ada")]
        assert "".join(event.delta for event in fixture.emitted(ReasoningAdded)) == "HmSo"
        await fixture.play("and now?")
    kept = {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "gAAAAA-secret",
        "summary": [{"type": "summary_text", "text": "Hm"}],
    }
    step = [kept, SEARCH, {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "ada: {}"}]  # fmt: skip
    assert endpoint.requests[1].json["input"][1:] == step
    third = endpoint.requests[2].json["input"]
    assert third[1:5] == step
    assert [item.get("type", item.get("role")) for item in third[5:]] == ["reasoning", "assistant", "user"]


async def test_reasoning_without_what_came_of_it_is_not_sent():
    items = [reasoning("a"), {"type": "function_call"}, reasoning("b", id="rs_2"), {"type": "function_call"}]
    reply = AssistantMessage(
        tool_calls=(ToolCall(id="c1", name="f", arguments="{}"),), extra={KEPT: {"items": items}}
    )  # the second call was cut
    async with asking(HI) as (model, endpoint):
        await model.reply(
            Prompt(messages=(*PROMPT.messages, reply, ToolMessage(call_id="c1", name="f", content="ok"))),
            RecordingListener(),
        )
    kinds = [item.get("type", item.get("role")) for item in endpoint.requests[0].json["input"]]
    assert kinds == ["user", "reasoning", "function_call", "function_call_output"]


async def test_a_custom_tool_gets_a_result_of_its_own_kind():
    made = ToolCall(id="call_9", name="sql", arguments="SELECT 1", extra={"type": "custom_tool_call"})
    messages = (
        *PROMPT.messages,
        AssistantMessage(tool_calls=(made,)),
        ToolMessage(call_id="call_9", name="sql", content="1"),
    )
    async with asking(HI) as (model, endpoint):
        await model.reply(Prompt(messages=messages), RecordingListener())
    assert endpoint.requests[0].json["input"][1:] == [
        {"type": "custom_tool_call", "call_id": "call_9", "name": "sql", "input": "SELECT 1"},
        {"type": "custom_tool_call_output", "call_id": "call_9", "output": "1"},
    ]


async def test_what_another_api_kept_stays_away_from_chat_completions():
    reply = AssistantMessage(content="Hi", extra={KEPT: {"items": [reasoning("a")]}})
    async with ModelEndpoint(OK) as endpoint:
        model = OpenAIChatModel(settings(endpoint.url))
        await model.reply(Prompt(messages=(*PROMPT.messages, reply, UserMessage(content="?"))), RecordingListener())
        await model.close()
    assert endpoint.requests[0].json["messages"][1] == {"role": "assistant", "content": "Hi"}


REJECTIONS = {
    "not verified": refused("input", "The encrypted content gAAA could not be verified."),
    "not found": refused("input", "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.", 404),
    "without its follower": refused("input", "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
}  # fmt: skip


@pytest.mark.parametrize("rejection", REJECTIONS)
async def test_reasoning_of_another_model_is_dropped_and_asked_once_more(rejection, caplog):
    reply = AssistantMessage(content="Hi", extra={KEPT: {"items": [reasoning("a"), message("Hi")]}})
    prompt = Prompt(messages=(*PROMPT.messages, reply, UserMessage(content="?")))
    with caplog.at_level(logging.WARNING):
        async with asking(REJECTIONS[rejection], HI) as (model, endpoint):
            assert (await model.reply(prompt, RecordingListener())).text == "Hi"
            await model.reply(prompt, RecordingListener())
    kinds = [[item.get("type", item.get("role")) for item in each.json["input"]] for each in endpoint.requests]
    assert kinds == [["user", "reasoning", "assistant", "user"], *[["user", "assistant", "user"]] * 2]
    assert [record.getMessage() for record in caplog.records] == [
        "openai_compatible/m does not accept the reasoning of 1 earlier messages (another model's?); it is left out"
    ]


# what is learned


RESTRICTIONS = {
    "temperature": ({"temperature": 0.3}, refused("temperature", "Unsupported parameter: 'temperature' is not supported with this model.")),
    "include": ({}, refused(None, "Encrypted content is not supported with this model.")),
    "reasoning.summary": ({"reasoning": Reasoning(effort="low")}, refused("reasoning.summary", "Your organization must be verified to generate reasoning summaries.")),
    "reasoning.effort": ({"reasoning": Reasoning(effort="minimal")}, refused("reasoning.effort", "Unsupported value: 'reasoning.effort' does not support 'minimal' with this model.")),
    "service_tier": ({"service_tier": "flex"}, status(422, {"detail": [{"loc": ["body", "service_tier"], "msg": "Extra inputs are not permitted"}]})),
    "text.verbosity": ({"verbosity": "low"}, status(422, {"detail": [{"loc": ["body", "text", "verbosity"], "msg": "Extra inputs are not permitted"}]})),
}  # fmt: skip


@pytest.mark.parametrize("member", RESTRICTIONS)
async def test_a_member_that_the_endpoint_refuses_is_left_out_from_then_on(member, caplog):
    changed, refusal = RESTRICTIONS[member]
    with caplog.at_level(logging.INFO, logger="holodeck.models.streamed"):
        async with asking(refusal, HI, **changed) as (model, endpoint):
            await model.reply(PROMPT, RecordingListener())
            await model.reply(PROMPT, RecordingListener())
    outer, _, inner = member.partition(".")
    first, *later = [each.json for each in endpoint.requests]
    assert inner in first[outer] if inner else outer in first
    assert len(later) == 2
    assert all(inner not in body.get(outer, {}) if inner else outer not in body for body in later)
    assert [record.getMessage() for record in caplog.records] == [
        f"openai_compatible/m does not accept {member}; it is left out from now on"
    ]


async def test_a_refusal_that_teaches_nothing_is_an_error():
    async with asking(refused("tools[0].parameters", "Invalid schema for function 'f'.")) as (model, endpoint):
        with pytest.raises(ModelRejected, match="Invalid schema"):
            await model.reply(PROMPT, RecordingListener())
    assert len(endpoint.requests) == 1


# failures


FAILURES = {
    "a bad key": (status(401, b'{"error":{"message":"Incorrect API key"}}'), ModelAuthFailed),
    "too long": (refused("input", "Your input exceeds the context window of this model."), ContextOverflow),
    "a policy": (stream(Shape([CREATED, {"type": "error", "code": "invalid_prompt", "message": "flagged", "param": None}]).body), ContentFiltered),
    "failed in the middle": (
        stream(Shape([*OPENING, *text_events(0, "Hi")[:3], ev("failed", response=response("failed", error={"code": "server_error", "message": "no"}))]).body),
        ModelInterrupted,
    ),
    "cut": (stream(Shape([*OPENING, *text_events(0, "Hi")]).body), ModelTruncated),
    "a bad picture": (stream(Shape([CREATED, {"type": "error", "code": "invalid_image_format", "message": "no"}]).body), ModelRejected),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
async def test_failures_have_their_types(name):
    respond, kind = FAILURES[name]
    listener = RecordingListener()
    async with asking(respond) as (model, _):
        with pytest.raises(ModelError) as caught:
            await model.reply(PROMPT, listener)
    assert type(caught.value) is kind
    assert caught.value.started is bool(listener.recorded)


async def test_a_rate_limit_is_waited_for_also_inside_the_stream():
    limited = ev("failed", response=response("failed", error={"code": "rate_limit_exceeded", "message": "slow down"}))
    async with asking(status(429, b"{}", Retry_After="1"), stream(Shape([CREATED, limited]).body), HI) as (
        model,
        endpoint,
    ):
        assert (await model.reply(PROMPT, RecordingListener())).text == "Hi"
    assert len(endpoint.requests) == 3


async def test_an_error_names_the_request():
    async with asking(status(400, b'{"error":{"message":"no"}}', x_request_id="req_123")) as (model, _):
        with pytest.raises(ModelRejected, match=r"\(request id req_123\)"):
            await model.reply(PROMPT, RecordingListener())


async def test_a_stream_with_an_image_is_not_too_large():
    big = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "A" * 3_000_000}
    async with asking(
        stream(
            Shape(
                [*OPENING, *item_events(0, big, result=None), *text_events(1, "Done"), completed(big, message("Done"))]
            ).body
        )
    ) as (model, _):
        reply = await model.reply(PROMPT, RecordingListener())
    assert reply.extra[KEPT]["items"][0]["result"] == "A" * 3_000_000


@pytest.mark.parametrize("end", [Wire.close, Wire.reset], ids=["fin", "rst"])
async def test_a_connection_that_breaks_is_never_an_answer(end):
    body = SHAPES["openai: text"].body
    words = RecordingListener()

    async def respond(wire: Wire) -> None:
        await wire.head()
        await wire.send(body[: body.index(b"output_text.done")])
        end(wire)

    async with asking(respond) as (model, _):
        with pytest.raises(ModelError) as caught:
            await model.reply(PROMPT, words)
    assert not isinstance(caught.value, ModelRejected)


async def test_it_plays_through_the_whole_loop():
    async with asking(stream(SHAPES["openai: MCP, list and call"].body)) as (model, _):
        fixture = thinking_agent(model)
        result = await fixture.play("go")
    assert result.final_response == "".join(event.delta for event in fixture.emitted(TextAdded)) == "found"
    assert [event.content for event in fixture.emitted(ToolFinished)] == ["find, read", "found"]
    assert fixture.tools.called == []


# which API


@asynccontextmanager
async def choosing(
    *responses: Respond, responses_first: bool = True
) -> AsyncIterator[tuple[ChosenApiModel, ModelEndpoint]]:
    async with ModelEndpoint(*responses) as endpoint:
        made = settings(endpoint.url)
        apis = ("responses", ResponsesModel(made)), ("chat", OpenAIChatModel(made))
        model = ChosenApiModel(*(apis if responses_first else reversed(apis)))
        try:
            yield model, endpoint
        finally:
            await model.close()


@pytest.mark.parametrize(
    "refusal", [NO_PAGE, status(405), status(501), refused(None, "Use the chat completions API for this model.")]
)
async def test_an_endpoint_without_responses_is_asked_by_chat_from_then_on(refusal, caplog):
    with caplog.at_level(logging.WARNING):
        async with choosing(refusal, OK) as (model, endpoint):
            assert (await model.reply(PROMPT, RecordingListener())).text == "Hello world"
            assert (await model.reply(PROMPT, RecordingListener())).text == "Hello world"
    assert [each.path for each in endpoint.requests] == [
        "/v1/responses",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert [record.getMessage() for record in caplog.records] == [
        "openai_compatible/m is not available through the API responses; chat is used from now on"
    ]


async def test_a_model_that_only_responses_serves_is_asked_there_from_then_on():
    only = refused("model", "This model is only supported in v1/responses and not in v1/chat/completions.", 404)
    async with choosing(only, HI, responses_first=False) as (model, endpoint):
        assert (await model.reply(PROMPT, RecordingListener())).text == "Hi"
        await model.reply(PROMPT, RecordingListener())
    assert [each.path for each in endpoint.requests] == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]


async def test_a_model_that_does_not_exist_is_not_looked_for_elsewhere():
    missing = status(404, {"error": {"message": "The model 'm' does not exist.", "code": "model_not_found"}})
    async with choosing(missing, OK) as (model, endpoint):
        with pytest.raises(ModelRejected, match="does not exist"):
            await model.reply(PROMPT, RecordingListener())
    assert len(endpoint.requests) == 1


async def test_an_endpoint_with_neither_is_an_error_and_nothing_is_learned():
    async with choosing(NO_PAGE, NO_PAGE, HI) as (model, _):
        with pytest.raises(ModelRejected):
            await model.reply(PROMPT, RecordingListener())
        assert (await model.reply(PROMPT, RecordingListener())).text == "Hi"


@pytest.mark.parametrize(
    ("model", "provider", "endpoint", "expected"),
    [
        ("o3", "openai", None, True),
        ("gpt-5.1-codex", "openai", None, True),
        ("gpt-5", "openai_compatible", "https://api.openai.com/v1", True),
        ("gpt-5-chat-latest", "openai", None, False),
        ("gpt-4o", "openai", None, False),
        ("gpt-5", "openai", "https://gateway.example/v1", False),
        ("o3", "azure_openai", "https://r.openai.azure.com", False),
    ],
)
def test_auto_takes_responses_for_openais_own_reasoning_models(model, provider, endpoint, expected):
    assert is_openai_reasoning(EndpointSettings(name=model, provider=provider, endpoint=endpoint)) is expected
