"""A Messages endpoint over real sockets: what is sent, what refusals teach, what fails and how."""

import json
import logging

import pytest

from holodeck.core.messages import AssistantMessage, ToolMessage, UserMessage
from holodeck.errors import (
    ConfigError,
    ContentFiltered,
    ContextOverflow,
    ModelAuthFailed,
    ModelInterrupted,
    ModelProtocolError,
    ModelRejected,
    ModelTimeout,
    ModelTruncated,
    ModelUnavailable,
    ModelUnreachable,
)
from holodeck.models.anthropic.content_blocks import KEPT
from holodeck.models.anthropic.message_answer import MessageAnswer
from holodeck.models.anthropic.messages_model import AnthropicModel
from holodeck.models.chat_format import to_chat
from holodeck.models.endpoint_settings import Deadlines, EndpointSettings, Reasoning
from holodeck.models.port import OutputSchema, Prompt
from holodeck.models.providers import messages_models_url, messages_url
from tests.models.anthropic.asking_anthropic import KEY, LOOK, OK, PROMPT, WITH_TOOLS, answers, asking, fails, shaped
from tests.models.anthropic.message_streams import (
    FOUND,
    SEARCHED,
    SIGNATURE,
    SIGNED,
    Shape,
    called,
    end,
    start,
    text_block,
    thought,
)
from tests.models.endpoint import ModelEndpoint, Respond, Wire, frame, hang, status, stream
from tests.models.recording_listener import RecordingListener


def streamed(*events) -> Respond:
    return stream(*Shape(list(events)).frames)


def refusal(text: str, code: int = 400, kind: str = "invalid_request_error", **headers: str) -> Respond:
    return status(code, {"type": "error", "error": {"type": kind, "message": text}}, **headers)


# what is sent


@pytest.mark.req("MOD-01")
async def test_an_ordinary_answer():
    reply, endpoint = await answers(OK)
    (request,) = endpoint.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in request.headers
    assert "anthropic-beta" not in request.headers
    assert request.json == {
        "model": "claude-test",
        "max_tokens": 16_000,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
    }
    assert reply.text == "Hello world"


async def test_a_token_goes_instead_of_a_key_and_betas_go_in_one_header():
    _, endpoint = await answers(
        OK,
        api_key=None,
        auth_token="tok-1\n",
        betas=("a-1", "b-2"),
        headers={"Anthropic-Beta": "b-2, c-3", "X-Team": "t"},
    )
    headers = endpoint.requests[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer tok-1", "t")
    assert headers["anthropic-beta"] == "a-1,b-2,c-3"
    assert "x-api-key" not in headers


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        (None, "https://api.anthropic.com"),
        ("https://gateway.example/anthropic/", "https://gateway.example/anthropic"),
        ("https://gateway.example/v1", "https://gateway.example"),
        ("https://gateway.example/v1/messages", "https://gateway.example"),
    ],
)
def test_urls(endpoint, base):
    assert messages_url(endpoint) == f"{base}/v1/messages"
    assert messages_models_url(endpoint) == f"{base}/v1/models"


@pytest.mark.parametrize("secret", ["tok\nen", "tök"])
def test_a_token_that_no_header_can_carry(secret):
    with pytest.raises(ConfigError, match="characters"):
        AnthropicModel(EndpointSettings(name="m", provider="anthropic", auth_token=secret))


async def test_thinking_goes_back_with_the_results_of_calls():
    first = shaped("redacted thinking before a call")
    async with ModelEndpoint(first, OK) as endpoint, asking(endpoint) as model:
        asked = await model.reply(WITH_TOOLS, RecordingListener())
        history = (
            *PROMPT.messages,
            AssistantMessage(content=asked.text, tool_calls=asked.tool_calls, extra=asked.extra),
            ToolMessage(call_id="toolu_1", name="look", content="seen"),
        )
        await model.reply(Prompt(messages=history, tools=(LOOK,)), RecordingListener())
    assert endpoint.requests[1].json["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                SIGNED,
                {"type": "redacted_thinking", "data": "T3BhcXVl"},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "seen"}]}
            ],
        },
    ]
    assert endpoint.connections == 1


async def test_blocks_of_this_api_stay_away_from_others():
    reply, _ = await answers(shaped("thinking"))
    message = AssistantMessage(content=reply.text, extra={**reply.extra, "other": 1})
    assert to_chat(Prompt(messages=(message,))) == [{"role": "assistant", "content": "Fine.", "other": 1}]


async def test_a_container_is_used_again_while_it_lives():
    first, _ = await answers(shaped("code execution"))
    history = (*PROMPT.messages, AssistantMessage(content=first.text, extra=first.extra), UserMessage(content="Again"))
    _, endpoint = await answers(OK, prompt=Prompt(messages=history))
    assert endpoint.requests[0].json["container"] == "container_1"
    kept = first.extra[KEPT] | {"container": {"id": "container_1", "expires_at": "2001-01-01T00:00:00Z"}}
    expired = (*PROMPT.messages, AssistantMessage(content="4.", extra={KEPT: kept}), UserMessage(content="Again"))
    _, endpoint = await answers(OK, prompt=Prompt(messages=expired))
    assert "container" not in endpoint.requests[0].json


# a turn that is paused


async def test_a_paused_turn_continues():
    paused = streamed(
        start(), *text_block(0, "I search. "), *called(1, "srvtoolu_1", "web_search", '{"query": "ducks"}', kind="server_tool_use"), *end("pause_turn")
    )  # fmt: skip
    rest = streamed(
        start(), {"type": "content_block_start", "index": 0, "content_block": FOUND}, *text_block(1, "Done."), *end()
    )
    listener = RecordingListener()
    async with ModelEndpoint(paused, rest) as endpoint, asking(endpoint) as model:
        reply = await model.reply(PROMPT, listener)
    so_far = [{"type": "text", "text": "I search. "}, SEARCHED]
    assert endpoint.requests[1].json["messages"][1:] == [{"role": "assistant", "content": so_far}]
    assert (reply.text, listener.words, reply.finish_reason) == ("I search. Done.", "I search. Done.", "stop")
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (24, 14)
    assert reply.extra[KEPT]["content"] == [*so_far, FOUND, {"type": "text", "text": "Done."}]
    assert [piece for piece in listener.recorded if piece[0] in ("started", "ended", "answered")] == [
        ("started", "srvtoolu_1", "web_search"),
        ("ended", "srvtoolu_1"),
        ("answered", "srvtoolu_1", "Ducks https://d.example", "ok"),
    ]


async def test_a_failure_after_a_pause_counts_as_started():
    paused = streamed(start(), *text_block(0, "I wait."), *end("pause_turn"))
    error, endpoint, _ = await fails(ModelRejected, paused, refusal("no", 400))
    assert error.started
    assert len(endpoint.requests) == 2


# what refusals teach

RESTRICTIONS = {
    "max_tokens": ("max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for claude-old", {}, "max_tokens", 8192),
    "temperature": ("`temperature` is deprecated for this model.", {"temperature": 0.5}, "temperature", None),
    "both": ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", {"temperature": 0.5, "top_p": 0.5}, "top_p", None),
    "service tier": ("service_tier: Extra inputs are not permitted", {"service_tier": "auto"}, "service_tier", None),
    "adaptive": ("adaptive thinking is not supported on this model", {"reasoning": Reasoning(effort="high")}, "thinking", {"type": "enabled", "budget_tokens": 16_384}),
    "warm thinking": ("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.", {"temperature": 0.5}, "temperature", None),
    "old types": ("Validation: `thinking.type` must be `enabled` or `disabled`", {"reasoning": Reasoning(effort="low")}, "thinking", {"type": "enabled", "budget_tokens": 2048}),
    "effort of Bedrock": ("output_config.effort: Extra inputs are not permitted", {"reasoning": Reasoning(effort="high")}, "output_config", None),
    "effort": ("This model does not support the effort parameter.", {"reasoning": Reasoning(effort="high")}, "output_config", None),
    "budget": ('"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.', {"reasoning": Reasoning(budget_tokens=2000)}, "thinking", {"type": "adaptive", "display": "summarized"}),
    "display": ("thinking.adaptive.display: Extra inputs are not permitted", {"reasoning": Reasoning(effort="low")}, "thinking", {"type": "adaptive"}),
    "disabled": ("thinking.type: Input tag 'disabled' is not supported", {"reasoning": Reasoning(effort="none")}, "thinking", None),
}  # fmt: skip


@pytest.mark.parametrize(("words", "settings", "member", "then"), RESTRICTIONS.values(), ids=RESTRICTIONS)
async def test_what_an_endpoint_refuses_is_left_out_from_then_on(words, settings, member, then, caplog):
    caplog.set_level(logging.INFO, logger="holodeck.models.streamed")
    async with ModelEndpoint(refusal(words), OK) as endpoint, asking(endpoint, **settings) as model:
        await model.reply(PROMPT, RecordingListener())
        await model.reply(PROMPT, RecordingListener())
    first, *others = (request.json for request in endpoint.requests)
    assert member in first
    assert first[member] != then
    assert len(others) == 2
    assert [other.get(member) for other in others] == [then, then]
    assert len(caplog.records) == 1
    assert "left out from now on" in caplog.text


async def test_an_endpoint_without_caching_gets_no_breakpoints():
    words = "system.0.cache_control: Extra inputs are not permitted"
    _, endpoint = await answers(refusal(words), OK, cache="auto")
    first, second = (request.json for request in endpoint.requests)
    assert "cache_control" in first["system"][0]
    assert "cache_control" not in str(second)


def with_thinking(call_id: str = "toolu_1") -> AssistantMessage:
    reply_blocks = [SIGNED, {"type": "text", "text": "Fine."}]
    return AssistantMessage(content="Fine.", extra={KEPT: {"content": reply_blocks}})


@pytest.mark.parametrize(
    "words",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0.thinking.signature: Field required",
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
    ],
)
async def test_a_signature_of_another_model_is_dropped_once(words, caplog):
    prompt = Prompt(messages=(*PROMPT.messages, with_thinking(), UserMessage(content="And?")))
    async with ModelEndpoint(refusal(words), OK) as endpoint, asking(endpoint) as model:
        await model.reply(prompt, RecordingListener())
        await model.reply(prompt, RecordingListener())
    contents = [request.json["messages"][1]["content"] for request in endpoint.requests]
    text = {"type": "text", "text": "Fine."}
    assert contents == [[SIGNED, text], [text], [text]]
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "refused the thinking of earlier replies" in record.getMessage()
    assert SIGNATURE not in caplog.text


async def test_a_refused_signature_that_stays_refused_is_an_error():
    prompt = Prompt(messages=(*PROMPT.messages, with_thinking(), UserMessage(content="And?")))
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"
    _, endpoint, _ = await fails(ModelRejected, refusal(words), prompt=prompt)
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    "words",
    [
        "messages.1.content.0: Input tag 'fallback' found using 'type' does not match any of the expected tags: 'text'",
        "Tool reference 'look' not found in available tools",
        "source tool `srvtoolu_1` not found for tool use block `toolu_1`",
        "messages.1: `web_search` tool use with id `srvtoolu_1` was found without a `web_search_tool_result` block",
        "container: container_1 not found",
    ],
)
async def test_blocks_that_the_endpoint_no_longer_takes_go_back_as_text(words, caplog):
    found, _ = await answers(shaped("web search with citations"))
    reply = AssistantMessage(content=found.text, extra=found.extra)
    prompt = Prompt(messages=(*PROMPT.messages, reply, UserMessage(content="And?")))
    async with ModelEndpoint(refusal(words), OK) as endpoint, asking(endpoint) as model:
        await model.reply(prompt, RecordingListener())
        await model.reply(prompt, RecordingListener())
    contents = [request.json["messages"][1]["content"] for request in endpoint.requests]
    text = [{"type": "text", "text": found.text}]
    assert [each["type"] for each in contents[0]] != ["text"]
    assert contents[1:] == [text, text]
    assert "refused blocks of earlier replies" in caplog.text


async def test_the_model_that_continued_is_named():
    reply, _ = await answers(shaped("another model goes on"))
    assert reply.model == "anthropic/claude-other"


async def test_a_turn_whose_thinking_is_missing_continues_without_thinking():
    words = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    reply, _ = await answers(shaped("one call"))
    history = (
        *PROMPT.messages,
        AssistantMessage(content=reply.text, tool_calls=reply.tool_calls),
        ToolMessage(call_id="toolu_1", name="look", content="seen"),
    )
    prompt = Prompt(messages=history, tools=(LOOK,))
    settings = {"reasoning": Reasoning(budget_tokens=2000)}
    async with ModelEndpoint(refusal(words), OK) as endpoint, asking(endpoint, **settings) as model:
        await model.reply(prompt, RecordingListener())
        await model.reply(Prompt(messages=(UserMessage(content="New"),)), RecordingListener())
    assert ["thinking" in request.json for request in endpoint.requests] == [True, False, True]


# what fails, and how


@pytest.mark.parametrize(
    ("response", "error", "words", "requests"),
    [
        (refusal("Overloaded", 529, "overloaded_error", Retry_After="2"), ModelUnavailable, "overloaded", 3),
        (refusal("slow down", 429, "rate_limit_error", Retry_After="2"), ModelUnavailable, "rate limit", 3),
        (refusal("boom", 500, "api_error"), ModelUnreachable, "500", 3),
        (refusal("invalid x-api-key", 401, "authentication_error"), ModelAuthFailed, "ANTHROPIC_API_KEY", 1),
        (refusal("not yours", 403, "permission_error"), ModelAuthFailed, "ANTHROPIC_API_KEY", 1),
        (refusal("model: claude-x", 404, "not_found_error"), ModelRejected, "before /v1/messages", 1),
        (refusal("Your credit balance is too low", 400), ModelRejected, "credit", 1),
        (refusal("prompt is too long: 210000 tokens > 200000 maximum"), ContextOverflow, "too long", 1),
        (refusal("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"), ContextOverflow, "too long", 1),
        (refusal("tools.0: bad schema"), ModelRejected, "bad schema", 1),
    ],
)  # fmt: skip
async def test_refusals(response, error, words, requests):
    caught, endpoint, _ = await fails(error, response)
    assert words in str(caught)
    assert len(endpoint.requests) == requests
    assert not caught.started


async def test_overload_is_waited_for_as_long_as_the_endpoint_asks():
    async with (
        ModelEndpoint(refusal("Overloaded", 529, "overloaded_error", Retry_After="3"), OK) as endpoint,
        asking(endpoint) as model,
    ):
        reply = await model.reply(PROMPT, RecordingListener())
    assert (reply.text, model.pauses) == ("Hello world", [3.0])


def failing(kind: str, message: str = "Sorry") -> bytes:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_body"}
    return b"event: error\n" + frame(error)


@pytest.mark.parametrize(
    ("kind", "error", "requests"),
    [
        ("overloaded_error", ModelUnavailable, 3),
        ("rate_limit_error", ModelUnavailable, 3),
        ("api_error", ModelUnreachable, 3),
        ("timeout_error", ModelUnreachable, 3),
        ("invalid_request_error", ModelRejected, 1),
        ("authentication_error", ModelAuthFailed, 1),
        ("permission_error", ModelAuthFailed, 1),
        ("billing_error", ModelRejected, 1),
        ("some_new_error", ModelUnreachable, 3),
    ],
)
async def test_an_error_event_before_the_first_word(kind, error, requests):
    caught, endpoint, _ = await fails(error, stream(*Shape([start()]).frames, failing(kind)))
    assert len(endpoint.requests) == requests
    assert "req_body" in str(caught)


@pytest.mark.parametrize("kind", ["overloaded_error", "api_error"])
async def test_an_error_event_in_the_middle_is_not_tried_again(kind):
    begun = Shape([start(), *text_block(0, "Hel")]).frames
    caught, endpoint, _ = await fails(ModelInterrupted, stream(*begun, failing(kind)))
    assert (caught.started, len(endpoint.requests)) == (True, 1)


async def test_an_error_as_a_body_with_status_200_is_an_error():
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    _, endpoint, _ = await fails(ModelUnavailable, status(200, body))
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize("where", ["refusal", "stream"])
async def test_errors_carry_the_request_id(where):
    async def broken(wire: Wire) -> None:
        await wire.head(Request_Id="req_head")
        await wire.send(*Shape([start(), *text_block(0, "Hel")]).frames)
        await wire.end()

    if where == "refusal":
        caught, _, _ = await fails(ModelRejected, refusal("no", Request_Id="req_head"))
    else:
        caught, _, _ = await fails(ModelTruncated, broken)
    assert str(caught).count("req_head") == 1


async def test_a_refusal_of_the_model_is_a_content_filter_error():
    details = {"type": "refusal", "category": "cyber", "explanation": "No malware."}
    caught, endpoint, _ = await fails(
        ContentFiltered, streamed(start(), *text_block(0, "I"), *end("refusal", details=details))
    )
    assert "cyber" in str(caught)
    assert "No malware." in str(caught)
    assert caught.started
    assert len(endpoint.requests) == 1


async def test_a_context_window_that_leaves_no_room_is_an_overflow():
    await fails(ContextOverflow, streamed(start(), *end("model_context_window_exceeded")))


async def test_a_call_without_a_name_is_a_protocol_error():
    events = [
        start(),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    ]
    await fails(ModelProtocolError, streamed(*events, *end("tool_use")))


async def test_a_web_page_is_no_answer():
    error, _, _ = await fails(ModelProtocolError, status(200, b"<html>", Content_Type="text/html"))
    assert "before /v1/messages" in str(error)


async def test_secrets_of_the_file_are_not_in_errors():
    extra = {"mcp_servers": [{"url": "https://m", "authorization_token": "mcp-token-12345678"}]}
    error, _, _ = await fails(
        ModelRejected,
        refusal("bad mcp-token-12345678 and tok-abcdefgh12345"),
        auth_token="tok-abcdefgh12345",
        extra=extra,
    )
    assert "mcp-token" not in str(error)
    assert "tok-abc" not in str(error)


def test_pings_keep_a_tool_of_the_provider_alive_but_no_silent_model():
    answer = MessageAnswer(RecordingListener())
    ping = (b"ping", b'{"type": "ping"}')

    def take(*events) -> bool:
        """Whether a ping after these events counts as progress."""
        for event in events:
            answer.take(event["type"].encode(), json.dumps(event).encode())
        before = answer.progress
        answer.take(*ping)
        return answer.progress > before

    searching = called(0, "srvtoolu_1", "web_search", '{"query": "ducks"}', kind="server_tool_use")
    thinking = thought(2)
    assert not take(start())
    assert take(*searching)
    assert not take({"type": "content_block_start", "index": 1, "content_block": FOUND})
    assert take(*thinking[:1])
    assert not take(*thinking[1:])


async def test_a_check_lists_models_and_a_wrong_key_fails_it():
    async with ModelEndpoint(status(200, {"data": []})) as endpoint, asking(endpoint) as model:
        await model.check()
    assert (endpoint.requests[0].method, endpoint.requests[0].path) == ("GET", "/v1/models")
    async with ModelEndpoint(refusal("invalid x-api-key", 401)) as endpoint, asking(endpoint) as model:
        with pytest.raises(ModelAuthFailed):
            await model.check()


async def test_debug_shows_the_endpoints_own_events():
    listener = RecordingListener()
    async with ModelEndpoint(OK) as endpoint, asking(endpoint, debug=True) as model:
        await model.reply(PROMPT, listener)
    assert [raw["type"] for raw in listener.raws][:2] == ["message_start", "content_block_start"]
    assert listener.words == "Hello world"


async def test_thoughts_of_a_silent_endpoint_time_out():
    caught, _, _ = await fails(ModelTimeout, hang, deadlines=Deadlines(connect=2, first_token=0.2, idle=0.2, total=5))
    assert caught.retryable


# answers by a schema


OUTPUT = OutputSchema(
    schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
)
ASKED = Prompt(messages=PROMPT.messages, output=OUTPUT)


@pytest.mark.req("MOD-02")
async def test_an_answer_by_a_schema_is_asked_for_natively():
    async with (
        ModelEndpoint(streamed(start(), *text_block(0, '{"a":', " 1}"), *end())) as endpoint,
        asking(endpoint, reasoning=Reasoning(effort="low")) as model,
    ):
        reply = await model.reply(ASKED, RecordingListener())
    (request,) = endpoint.requests
    assert request.json["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": OUTPUT.schema},
    }
    assert "tools" not in request.json
    assert reply.text == '{"a": 1}'


@pytest.mark.parametrize(
    "words",
    [
        "output_config.format: Extra inputs are not permitted",
        "output_config: Extra inputs are not permitted",
        "structured outputs are not supported by this model",
    ],
)
async def test_an_endpoint_that_refuses_it_gets_a_tool_for_the_answer(words):
    answer = streamed(start(), *called(0, "toolu_1", "give_answer", '{"a": 1}'), *end("tool_use"))
    async with ModelEndpoint(refusal(words), answer) as endpoint, asking(endpoint) as model:
        reply = await model.reply(ASKED, RecordingListener())
        await model.reply(ASKED, RecordingListener())
    _, *later = (request.json for request in endpoint.requests)
    assert len(later) == 2
    for body in later:
        assert body["tools"][-1]["name"] == "give_answer"
        assert "format" not in body.get("output_config", {})
    assert reply.text == '{"a": 1}'


async def test_a_complaint_about_the_effort_leaves_the_schema_native():
    words = "output_config.effort: Extra inputs are not permitted"
    async with (
        ModelEndpoint(refusal(words), OK) as endpoint,
        asking(endpoint, reasoning=Reasoning(effort="low")) as model,
    ):
        await model.reply(ASKED, RecordingListener())
    assert endpoint.requests[-1].json["output_config"] == {"format": {"type": "json_schema", "schema": OUTPUT.schema}}
